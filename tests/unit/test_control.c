/* The control channel: its frames, and programs (processes on this host) that meet, ask each other to stop, fail, die, and end with
 * one result; whoever does not know their secret neither commands nor joins them. */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts/control.h"
#include "nccl_sync/hosts/frames.h"
#include "nccl_sync/hosts/net.h"
#include "tests/support/free_port.h"
#include "tests/support/unit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, CROWD = 300, TIMEOUT_MS = 60000 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- frames */

static size_t frame_put(uint8_t *to, uint32_t kind, const void *content, uint32_t bytes)
{
    ControlHead head = {CONTROL_MAGIC, kind, bytes};
    memcpy(to, &head, sizeof head);
    if (bytes) memcpy(to + sizeof head, content, bytes);
    return sizeof head + bytes;
}

TEST(test_frames)
{
    uint8_t bytes[4096];
    ControlFrame frame;
    ControlEnd end = {.rank = 2, .status = ERR_COMM, .signal = SIGTERM, .message = "tower 4"};
    ControlHello hello = {.rank = 1, .ranks = 2, .version = "1", .host = "a"};
    int32_t number = SIGTERM;
    ControlBeat beats[] = {
        {1, 2, {1, {0, 0, 0}}}, {-1, 2, {0}}, {1, -2, {0}}, {1, 2, {-1, {0}}}, {1, 2, {1, {0, 0, -1}}}};

    size_t count = frame_put(bytes, CONTROL_FAILED, &end, sizeof end);
    for (size_t n = 0; n < count; n++) assert_int_equal(control_frame_read(bytes, n, &frame), 0);
    assert_int_equal(control_frame_read(bytes, count + 5, &frame), count);
    assert_true(frame.kind == CONTROL_FAILED && frame.bytes == sizeof end && !memcmp(frame.content, &end, sizeof end));

    bytes[0] ^= 1; /* magic */
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    memset(end.message, 'x', sizeof end.message); /* without an end */
    count = frame_put(bytes, CONTROL_FAILED, &end, sizeof end);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    end = (ControlEnd){.status = OK}; /* no failure, but a result */
    count = frame_put(bytes, CONTROL_FAILED, &end, sizeof end);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    count = frame_put(bytes, CONTROL_REFUSED, &end, sizeof end);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    count = frame_put(bytes, CONTROL_RESULT, &end, sizeof end);
    assert_int_equal(control_frame_read(bytes, count, &frame), count);
    end = (ControlEnd){.status = STATUS_COUNT};
    count = frame_put(bytes, CONTROL_RESULT, &end, sizeof end);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);

    count = frame_put(bytes, CONTROL_HELLO, &hello, sizeof hello);
    assert_int_equal(control_frame_read(bytes, count, &frame), count);
    hello.rank = 2; /* of 2 */
    count = frame_put(bytes, CONTROL_HELLO, &hello, sizeof hello);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);

    char names[CONTROL_HOST_BYTES + 3] = "a"; /* and an empty one */
    count = frame_put(bytes, CONTROL_WELCOME, names, 3);
    assert_int_equal(control_frame_read(bytes, count, &frame), count);
    memset(names + 2, 'b', CONTROL_HOST_BYTES - 1);
    count = frame_put(bytes, CONTROL_WELCOME, names, CONTROL_HOST_BYTES + 2);
    assert_int_equal(control_frame_read(bytes, count, &frame), count);
    count = frame_put(bytes, CONTROL_WELCOME, names, CONTROL_HOST_BYTES + 1); /* without its end */
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    names[CONTROL_HOST_BYTES + 1] = 'b'; /* longer than there is room for */
    count = frame_put(bytes, CONTROL_WELCOME, names, CONTROL_HOST_BYTES + 3);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    count = frame_put(bytes, CONTROL_WELCOME, names, 0);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);

    count = frame_put(bytes, CONTROL_STOP, &number, sizeof number);
    assert_int_equal(control_frame_read(bytes, count, &frame), count);
    number = 0;
    count = frame_put(bytes, CONTROL_STOP, &number, sizeof number);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    for (size_t i = 0; i < sizeof beats / sizeof *beats; i++) {
        count = frame_put(bytes, CONTROL_BEAT, &beats[i], sizeof beats[i]);
        assert_int_equal(control_frame_read(bytes, count, &frame), i ? -1 : (int64_t)count);
    }
    count = frame_put(bytes, CONTROL_GO, beats, 1);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    count = frame_put(bytes, CONTROL_KINDS, NULL, 0);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    ControlFile files[] = {{FILE_STACK, 2, 5, 7, 0, 0},  {FILE_KINDS, 2, 5, 7, 0, 0},
                           {-1, 2, 5, 7, 0, 0},          {FILE_STACK, -1, 5, 7, 0, 0},
                           {FILE_STACK, 2, -1, 7, 0, 0}, {FILE_STACK, 2, 5, (uint64_t)CONTROL_FILE_MAX + 1, 0, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        count = frame_put(bytes, i % 2 ? CONTROL_FILE : CONTROL_HAVE, &files[i], sizeof files[i]);
        assert_int_equal(control_frame_read(bytes, count, &frame), i ? -1 : (int64_t)count);
    }
    count = frame_put(bytes, CONTROL_FILE, &files[0], sizeof files[0] - 1);
    assert_int_equal(control_frame_read(bytes, count, &frame), -1);
    ControlHead head = {CONTROL_MAGIC, CONTROL_BYTES, CONTROL_CONTENT_MAX + 1};
    memcpy(bytes, &head, sizeof head);
    assert_int_equal(control_frame_read(bytes, sizeof head, &frame), -1);
}

/* ---- programs */

static const Secret secret = {{7, 1, 4, 2, 8, 5, 7, 1}};

static ControlConfig config_of(int ranks)
{
    return (ControlConfig){.channel = "control",
                           .part = "supervisor",
                           .timeout_ms = TIMEOUT_MS,
                           .ranks = ranks,
                           .master = "127.0.0.1",
                           .port = free_port(),
                           .secret = secret,
                           .secret_from = "TOWERS_TOKEN"};
}

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "rank %d: not %s: %s\n", control_rank(c), #what, status_message());                        \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)

static void nap(void)
{
    nanosleep(&(struct timespec){0, 10000000l}, NULL);
}

static void end_await(ControlPlane *c, const ControlEnd *mine, ControlEnd *result)
{
    while (!control_end(c, mine, result)) {
        (void)!control_pump(c); /* as served, but its towers live on as they did */
        nap();
    }
}

/* All turn until somebody asks for a stop; then each has its result. */
static int stops(ControlPlane *c)
{
    char *text = control_rank(c) == 0 ? strdup("runs/a") : NULL;
    size_t count = control_rank(c) == 0 ? strlen(text) : 0;
    CHECK(control_broadcast(c, &text, &count) == OK && !strcmp(text, "runs/a") && count == 6);
    free(text);
    for (int round = 0; round < 2; round++) {
        int mine = 10 * round + control_rank(c), all[RANKS];
        CHECK(control_gather(c, &mine, sizeof mine, "its number", all) == OK);
        for (int r = 0; r < RANKS; r++) CHECK(all[r] == 10 * round + r);
    }
    CHECK(control_barrier(c, "try") == OK);
    CHECK(control_barrier(c, "try again") == OK);
    control_watch(c);
    if (control_rank(c) == 2) control_stop(c, SIGTERM);
    while (!control_stop_asked(c) || !control_others_alive(c)) {
        control_serve(c, clock_ns());
        nap();
    }
    CHECK(control_stop_asked(c) == SIGTERM);
    ControlEnd mine = {.rank = control_rank(c), .status = ERR_INTERRUPTED, .signal = control_rank(c) ? SIGTERM : 0},
               all;
    end_await(c, &mine, &all);
    CHECK(all.status == ERR_INTERRUPTED && all.rank == 0 && all.signal == SIGTERM);
    return 0;
}

/* The first failure counts, not those that follow from it. */
static int fails(ControlPlane *c)
{
    ControlEnd failure = {.rank = 1, .status = ERR_DEVICE, .message = "tower 1: no device"}, all;
    Status met = control_barrier(c, "meet"); /* or the failure comes with the end of the barrier */
    CHECK(met == OK || met == ERR_DEVICE);
    control_watch(c);
    if (control_rank(c) == 1) control_fail(c, &failure);
    while (!control_failed(c, &all)) {
        control_serve(c, clock_ns());
        nap();
    }
    ControlEnd mine = {.rank = control_rank(c), .status = ERR_COMM, .secondary = control_rank(c) != 1};
    end_await(c, &mine, &all);
    CHECK(all.status == ERR_DEVICE && all.rank == 1 && !strcmp(all.message, "tower 1: no device"));
    return 0;
}

/* One rank gives less than the others, which learn it. */
static int gives_less(ControlPlane *c)
{
    char mine[8] = "", all[RANKS * sizeof mine];
    Status st = control_gather(c, mine, control_rank(c) == 2 ? 4 : 8, "its name", all);
    CHECK(st == ERR_INTERNAL || control_rank(c) > 0);
    if (control_rank(c) == 0) {
        CHECK(strstr(status_message(), "rank 2") && strstr(status_message(), "sent 4 bytes of its name, not 8"));
        ControlEnd failure = {.status = ERR_INTERNAL, .message = "different sizes"};
        control_fail(c, &failure);
        control_serve(c, 0);
    } else {
        CHECK(st == ERR_INTERNAL && strstr(status_message(), "different sizes"));
    }
    return 0;
}

/* Nobody has reported a failure in time: the result that is no mere consequence counts. */
static int ends_differently(ControlPlane *c)
{
    ControlEnd mine = {.rank = control_rank(c), .status = ERR_COMM, .secondary = true}, all;
    if (control_rank(c) == 2) mine = (ControlEnd){.rank = 2, .status = ERR_FORMAT, .message = "image 7"};
    end_await(c, &mine, &all);
    CHECK(all.status == ERR_FORMAT && all.rank == 2);
    return 0;
}

/* One dies without a word: the others know at once. */
static int dies(ControlPlane *c)
{
    ControlEnd all, mine = {.rank = control_rank(c), .status = ERR_COMM, .secondary = true};
    Status met = control_barrier(c, "meet"); /* or the report of its death comes with the end of the barrier */
    CHECK(met == OK || (met == ERR_COMM && control_rank(c) == 2));
    control_watch(c);
    if (control_rank(c) == 1) raise(SIGKILL);
    int64_t since = clock_ns();
    while (!control_failed(c, &all)) {
        control_serve(c, clock_ns());
        nap();
    }
    CHECK(clock_ns() - since < (int64_t)TIMEOUT_MS * 500000 && all.rank == 1 && all.status == ERR_COMM);
    end_await(c, &mine, &all);
    CHECK(all.rank == 1 && strstr(all.message, "ended without a message"));
    return 0;
}

static int64_t suspended_s; /* by how much the clock of this process is ahead */

/* The clock is read here. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += suspended_s;
    return failed;
}

/* All hosts stop for longer than the timeout, as when a job is suspended: nobody is silent when they continue. */
static int are_suspended(ControlPlane *c)
{
    ControlEnd failure, mine = {.rank = control_rank(c)}, all;
    CHECK(control_barrier(c, "meet") == OK);
    control_watch(c);
    while (!control_others_alive(c)) {
        control_serve(c, clock_ns());
        nap();
    }
    suspended_s += 2 * TIMEOUT_MS / 1000;
    control_serve(c, clock_ns());
    CHECK(!control_failed(c, &failure));
    end_await(c, &mine, &all);
    CHECK(all.status == OK && !control_orphaned(c));
    return 0;
}

/* Rank 0 dies: the others know that nobody is left to report to. */
static int lose_the_root(ControlPlane *c)
{
    ControlEnd all, mine = {.rank = control_rank(c), .status = ERR_COMM, .secondary = true};
    Status met = control_barrier(c, "meet"); /* or the report of its death comes with the end of the barrier */
    CHECK(met == OK || met == ERR_COMM);
    control_watch(c);
    if (control_rank(c) == 0) raise(SIGKILL);
    while (!control_failed(c, &all)) {
        control_serve(c, clock_ns());
        nap();
    }
    CHECK(all.rank == 0 && control_orphaned(c));
    end_await(c, &mine, &all);
    CHECK(all.rank == 0 && all.status == ERR_COMM);
    return 0;
}

/* Writes to all connections of this process. */
static bool to_all(const uint8_t *bytes, size_t count)
{
    struct sockaddr_in at;
    for (int fd = 3; fd < 64; fd++) {
        socklen_t length = sizeof at;
        bool connected = getpeername(fd, (struct sockaddr *)&at, &length) == 0;
        if (connected && write(fd, bytes, count) != (ssize_t)count) return false;
    }
    return true;
}

/* Two broadcasts that come at once, because they are one message of TCP: the second does not replace the first. */
static int reports_twice(ControlPlane *c)
{
    char *const text[] = {"first", "the next"};
    uint8_t both[256];
    size_t count = frame_put(both, CONTROL_BYTES, text[0], 5);
    count += frame_put(both + count, CONTROL_BYTES, text[1], 8);
    if (control_rank(c) == 0) CHECK(to_all(both, count));
    for (int i = 0; i < 2 && control_rank(c) > 0; i++) {
        char *bytes;
        size_t came;
        CHECK(control_broadcast(c, &bytes, &came) == OK && came == strlen(text[i]) && !memcmp(bytes, text[i], came));
        free(bytes);
    }
    return 0;
}

/* A message behind two broadcasts is read by one that takes neither of them any more. */
static int reports_in_vain(ControlPlane *c)
{
    ControlEnd failure = {.rank = 0, .status = ERR_DEVICE, .message = "no device"}, all;
    for (int i = 0; i < 2 && control_rank(c) == 0; i++) {
        char *bytes = "text";
        size_t count = 4;
        CHECK(control_broadcast(c, &bytes, &count) == OK);
    }
    control_watch(c);
    if (control_rank(c) == 0) control_fail(c, &failure);
    while (!control_failed(c, &all)) {
        control_serve(c, clock_ns());
        nap();
    }
    CHECK(all.status == ERR_DEVICE && !strcmp(all.message, "no device"));
    return 0;
}

/* One has no memory for what it is sent: all learn that, and not that somebody has died. */
static int starves(ControlPlane *c)
{
    enum { BYTES = 1 << 20 };
    char *bytes = control_rank(c) == 0 ? calloc(1, BYTES) : NULL;
    size_t count = BYTES;
    struct rlimit none = {1 << 20, 1 << 20};
    if (control_rank(c) == 1) CHECK(setrlimit(RLIMIT_AS, &none) == 0); /* less than it has */
    int mine = control_rank(c), all[RANKS];
    Status st = control_gather(c, &mine, sizeof mine, "its number", all); /* rank 0 sends nothing before */
    if (st == OK) st = control_broadcast(c, &bytes, &count);
    if (st == OK) st = control_barrier(c, "have it");
    CHECK(st == ERR_MEMORY && strstr(status_message(), "rank 1 on ") && strstr(status_message(), "no memory"));
    return 0;
}

static atomic_bool writing, released;

/* A disk that needs long. */
static bool write_slowly(void *context, int rank, ControlKind kind, const void *content, size_t bytes)
{
    atomic_store(&writing, true);
    while (!atomic_load(&released)) nap();
    return true;
}

static void *files_take(void *control)
{
    while (!atomic_load(&released)) (void)control_file_next(control, 1, write_slowly, NULL);
    return NULL;
}

/* While rank 0 writes a file of another rank, its channel goes on. The file comes before rank 0 takes any. */
static int writes_slowly(ControlPlane *c)
{
    enum { GUARD_S = 120, EARLY = 20 };
    ControlEnd mine = {.rank = control_rank(c), .signal = SIGTERM}, all;
    ControlFile file = {.kind = FILE_STACK, .tower = 1, .bytes = 1};
    pthread_t thread;
    alarm(GUARD_S);
    CHECK(control_barrier(c, "meet") == OK);
    if (control_rank(c) == 1) CHECK(control_send(c, CONTROL_FILE, &file, sizeof file) == OK);
    for (int i = 0; i < EARLY; i++) {
        control_serve(c, clock_ns());
        nap();
    }
    if (control_rank(c) == 0) control_take(c, true);
    control_watch(c);
    if (control_rank(c) == 0) CHECK(pthread_create(&thread, NULL, files_take, c) == 0);
    while (control_rank(c) == 0 && !atomic_load(&writing)) {
        control_serve(c, clock_ns());
        nap();
    }
    if (control_rank(c) == 0) control_stop(c, SIGTERM);
    while (!control_stop_asked(c) || (control_rank(c) == 0 && !control_others_alive(c))) {
        control_serve(c, clock_ns());
        nap();
    }
    atomic_store(&released, true);
    end_await(c, &mine, &all);
    CHECK(all.status == OK && all.signal == SIGTERM);
    if (control_rank(c) == 0) pthread_join(thread, NULL);
    return 0;
}

/* One is silent: it is named after the timeout, and the end of the run does not wait for it again. */
static int is_silent(ControlPlane *c)
{
    ControlEnd all, mine = {.rank = control_rank(c), .status = ERR_COMM, .secondary = 1};
    CHECK(control_barrier(c, "meet") == OK);
    control_watch(c);
    if (control_rank(c) == 2) raise(SIGSTOP);
    while (control_rank(c) != 2 && !control_failed(c, &all)) {
        control_serve(c, clock_ns());
        nap();
    }
    if (control_rank(c) == 2) return 0;
    CHECK(all.rank == 2 && strstr(all.message, "no sign of life"));
    int64_t begun = clock_ns();
    end_await(c, &mine, &all);
    CHECK(all.rank == 2 && clock_ns() - begun < 6000000000); /* results of others are waited for longer */
    return 0;
}

/* A barrier that one does not reach because of an error of its own ends with that error. */
static int gives_up(ControlPlane *c)
{
    ControlEnd failure = {.rank = 2, .status = ERR_FORMAT, .message = "data: no images"};
    Status met = control_barrier(c, "meet"); /* or it comes with the end of this barrier */
    if (control_rank(c) == 2) {
        control_fail(c, &failure);
        return 0;
    }
    if (met == OK) met = control_barrier(c, "open its data");
    CHECK(met == ERR_FORMAT && strstr(status_message(), "rank 2 on "));
    CHECK(strstr(status_message(), "data: no images"));
    return 0;
}

static struct {
    int from;
    ControlKind kind;
    ControlEnd end;
    ControlBeat beat;
} misfit;

/* One sends a whole frame that is not its to send, or that speaks of a rank that is none: no message of the channel. */
static int sends_misfit(ControlPlane *c)
{
    uint8_t bytes[4096];
    size_t count = misfit.kind == CONTROL_BEAT ? frame_put(bytes, CONTROL_BEAT, &misfit.beat, sizeof misfit.beat)
                                               : frame_put(bytes, misfit.kind, &misfit.end,
                                                           misfit.kind == CONTROL_READY ? 0 : sizeof misfit.end);
    Status met = control_barrier(c, "meet"); /* or it comes with the end of this barrier */
    if (control_rank(c) == misfit.from) {
        CHECK(to_all(bytes, count));
        return 0;
    }
    if (met == OK) met = control_barrier(c, "go on");
    CHECK(met == ERR_COMM && strstr(status_message(), "sent what is no message of this program"));
    return 0;
}

static void *stop_soon(void *control)
{
    nanosleep(&(struct timespec){0, 200000000l}, NULL); /* by then it waits for the end; earlier would be no error */
    control_stop(control, SIGTERM);
    return NULL;
}

/* One that waits for the results of others still passes on a request to stop. */
static int stops_while_it_waits(ControlPlane *c)
{
    pthread_t thread;
    ControlEnd mine = {.rank = control_rank(c)}, all;
    CHECK(control_barrier(c, "meet") == OK);
    control_watch(c);
    if (control_rank(c) == 1) CHECK(pthread_create(&thread, NULL, stop_soon, c) == 0);
    while (control_rank(c) == 2 && !control_stop_asked(c)) {
        control_serve(c, clock_ns());
        nap();
    }
    mine.signal = control_stop_asked(c);
    end_await(c, &mine, &all);
    CHECK(all.status == OK && all.signal == SIGTERM);
    if (control_rank(c) == 1) pthread_join(thread, NULL);
    return 0;
}

/* Many programs, each with more to send than one megabyte has room for. */
static int crowd(ControlPlane *c)
{
    static char mine[4096], all[CROWD][4096];
    for (int i = 0; i < 4096; i++) mine[i] = (char)(control_rank(c) * 31 + i);
    CHECK(control_gather(c, mine, sizeof mine, "its bytes", all) == OK);
    for (int r = 0; r < CROWD; r++)
        for (int i = 0; i < 4096; i++)
            if (all[r][i] != (char)(r * 31 + i)) return 1;
    CHECK(control_barrier(c, "come") == OK);
    control_watch(c);
    while (!control_others_alive(c)) { /* rank 5 says that it lives, and rank 0 passes it on */
        control_serve(c, control_rank(c) == 5 ? clock_ns() : 0);
        if (control_rank(c) == 5) break;
        nap();
    }
    ControlEnd end = {.rank = control_rank(c)}, result;
    end_await(c, &end, &result);
    CHECK(result.status == OK);
    return 0;
}

/* Ranks 1 and 2 are in an earlier collective than the others: these hear of it, and the two of nobody. */
static int some_are_behind(ControlPlane *c)
{
    bool late = control_rank(c) == 1 || control_rank(c) == 2, known = false;
    int64_t begun_ns = clock_ns();
    CHECK(control_barrier(c, "meet") == OK);
    control_watch(c);
    while (!control_stop_asked(c)) {
        CHECK(clock_ns() - begun_ns < TIMEOUT_MS * 1000000ll); /* nobody says that ranks 1 and 2 are behind */
        control_come(c, late ? 5 : 6 + control_rank(c));
        control_serve(c, clock_ns());
        NodesBehind behind = control_behind(c);
        known = behind.count == 2 && behind.node[0] == 1 && behind.node[1] == 2;
        if (known && control_rank(c) == 4)
            control_stop(c, SIGTERM); /* what rank 0 has told all at once, all have heard before this */
        nap();
    }
    CHECK(known == !late && (known || control_behind(c).count == 0));
    ControlEnd mine = {.rank = control_rank(c)}, all;
    end_await(c, &mine, &all);
    CHECK(all.status == OK);
    control_again(c);
    control_come(c, 1);
    CHECK(control_behind(c).count == (control_rank(c) ? 0 : 4)); /* nothing of before */
    return 0;
}

/* Only rank 2 lives: the others hear of it, and it hears of nobody. */
static int one_lives(ControlPlane *c)
{
    CHECK(control_barrier(c, "meet") == OK);
    control_watch(c);
    int64_t end_ns = clock_ns() + 3000 * 1000000ll; /* signs of life are passed on once a second */
    while (control_rank(c) == 2 ? clock_ns() < end_ns : !control_others_alive(c)) {
        control_serve(c, control_rank(c) == 2 ? clock_ns() : 0);
        nap();
    }
    CHECK(control_rank(c) != 2 || !control_others_alive(c));
    ControlEnd mine = {.rank = control_rank(c)}, all;
    end_await(c, &mine, &all);
    CHECK(all.status == OK);
    return 0;
}

/* Results, one after the other; rank 1 leaves behind the last, and the others, which go on, learn it. */
static int goes_on(ControlPlane *c)
{
    for (int turn = 0; turn < 3; turn++) {
        int mine = 10 * turn + control_rank(c), all[RANKS];
        ControlEnd end = {.rank = control_rank(c)}, result;
        CHECK(control_gather(c, &mine, sizeof mine, "its number", all) == OK);
        for (int r = 0; r < RANKS; r++) CHECK(all[r] == 10 * turn + r);
        control_watch(c);
        for (int rounds = 0; rounds < 5 * control_rank(c); rounds++) { /* the last is waited for in each round */
            control_serve(c, clock_ns());
            nap();
        }
        end_await(c, &end, &result);
        CHECK(result.status == OK);
        if (turn == 2 && control_rank(c) == 1) return 0;
        for (int rounds = 0; turn == 2 && rounds < 100; rounds++) { /* by then it has left, unnoticed */
            control_serve(c, clock_ns());
            nap();
        }
        control_again(c);
    }
    ControlEnd failure;
    while (!control_failed(c, &failure)) {
        control_serve(c, clock_ns());
        nap();
    }
    CHECK(failure.status == ERR_COMM && failure.rank == 1);
    return 0;
}

/* Runs `life` in `ranks` processes; `killed` ends by a signal, or stays stopped and is then killed. */
static void run_ranks(int ranks, int (*life)(ControlPlane *), int64_t timeout_ms, int killed)
{
    pid_t pid[CROWD];
    ControlConfig config = config_of(ranks);
    for (int r = 0; r < ranks; r++) {
        pid[r] = fork();
        if (pid[r]) continue;
        ControlPlane *c;
        config.rank = r;
        config.timeout_ms = timeout_ms;
        if (control_open(&config, &c) != OK) {
            fprintf(stderr, "rank %d: %s\n", r, status_message());
            _exit(98);
        }
        int code = life(c);
        control_close(c);
        _exit(code);
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        if (r == killed) continue;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    if (killed < 0) return;
    kill(pid[killed], SIGKILL);
    assert_int_equal(waitpid(pid[killed], NULL, 0), pid[killed]);
}

static void run(int (*life)(ControlPlane *), int64_t timeout_ms, int killed)
{
    run_ranks(RANKS, life, timeout_ms, killed);
}

/* More programs than there may be descriptors. */
TEST(test_crowd)
{
    struct rlimit limit, before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = CROWD - 20;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    run_ranks(CROWD, crowd, TIMEOUT_MS, -1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(test_going_on)
{
    run(goes_on, TIMEOUT_MS, -1);
}

TEST(test_signs_of_life)
{
    run(one_lives, TIMEOUT_MS, -1);
}

TEST(test_nodes_behind)
{
    run_ranks(5, some_are_behind, TIMEOUT_MS, -1);
}

TEST(test_stop)
{
    run(stops, TIMEOUT_MS, -1);
    run(stops_while_it_waits, TIMEOUT_MS, -1);
}

TEST(test_failure)
{
    run(fails, TIMEOUT_MS, -1);
    run(ends_differently, TIMEOUT_MS, -1);
    run(gives_up, TIMEOUT_MS, -1);
    run(gives_less, TIMEOUT_MS, -1);
}

TEST(test_death)
{
    run(dies, TIMEOUT_MS, 1);
    run(lose_the_root, TIMEOUT_MS, 0);
    run(is_silent, 8000, 2);
    run(are_suspended, TIMEOUT_MS, -1);
}

TEST(test_bytes)
{
    run(reports_twice, TIMEOUT_MS, -1);
    run(reports_in_vain, 10000, -1);
    if (!SANITIZED) run(starves, TIMEOUT_MS, -1); /* sanitizers end a process without memory */
}

TEST(test_slow_disk)
{
    run(writes_slowly, TIMEOUT_MS, -1);
}

TEST(test_misfits)
{
    static const struct {
        int from;
        ControlKind kind;
        ControlEnd end;
        ControlBeat beat;
    } misfits[] = {
        {1, CONTROL_RESULT, {.rank = 1}},
        {1, CONTROL_REFUSED, {.rank = 1, .status = ERR_ARG}},
        {1, CONTROL_FAILED, {.rank = RANKS, .status = ERR_COMM}},
        {1, CONTROL_ENDED, {.rank = RANKS, .status = ERR_COMM}},
        {0, CONTROL_ENDED, {.rank = 0, .status = ERR_COMM}},
        {0, CONTROL_READY, {.rank = 0}},
        {0, CONTROL_WELCOME, {.rank = 0}}, /* a name for each byte */
        {1, CONTROL_BEAT, .beat = {.behind = {RANKS + 1, {0}}}},
        {0, CONTROL_BEAT, .beat = {.behind = {1, {RANKS}}}},
    };
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        misfit.from = misfits[i].from;
        misfit.kind = misfits[i].kind;
        misfit.end = misfits[i].end;
        misfit.beat = misfits[i].beat;
        run(sends_misfit, TIMEOUT_MS, -1);
    }
}

/* In a process of its own: comes as rank 1. */
static void rank_1_comes(ControlConfig config)
{
    ControlPlane *c;
    config.rank = 1;
    if (control_open(&config, &c) != OK) _exit(98);
    control_close(c);
    _exit(0);
}

/* Meets as rank 0 whom `other` is or lets come; that process ends well. */
static void rank_0_meets(const ControlConfig *config, pid_t other)
{
    ControlPlane *c;
    int status;
    assert_int_equal(control_open(config, &c), OK);
    assert_true(*control_host(c, 0) && *control_host(c, 1));
    control_close(c);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

/* fault: F44 */
/* Whoever speaks another language is not listened to, and does not disturb the meeting. */
TEST(test_connections_of_others)
{
    ControlConfig config = config_of(2);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)config.port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    pid_t other = fork();
    if (other == 0) {
        int fd;
        for (;;) { /* rank 0 listens soon */
            fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) break;
            close(fd);
            nap();
        }
        char reply[64];
        if (write(fd, "GET / HTTP/1.0\r\n\r\n", 18) != 18 || read(fd, reply, sizeof reply) > 0) _exit(97);
        rank_1_comes(config);
    }
    rank_0_meets(&config, other);
}

/* ---- others that speak the language */

static size_t receive(int fd, void *to, size_t bytes)
{
    size_t got = 0;
    ssize_t n;
    while (got < bytes && (n = read(fd, (char *)to + got, bytes - got)) > 0) got += (size_t)n;
    return got;
}

/* Listens in rank 0's place. It learns no more than the greeting, in which the secret is not, and cannot command. */
static void impostor_meets(bool challenges)
{
    int listener, fd, status;
    ControlConfig config = config_of(2);
    config.rank = 1;
    assert_int_equal(net_listen(config.master, config.port, &listener), OK);
    pid_t other = fork();
    if (other == 0) {
        ControlPlane *c;
        config.timeout_ms = challenges ? TIMEOUT_MS : 1500;
        Status st = control_open(&config, &c);
        if (st != (challenges ? ERR_ARG : ERR_COMM)) _exit(97);
        const char *wanted = challenges ? "has found the rank 0 of another job" : "cannot meet rank 0 at 127.0.0.1";
        _exit(strstr(status_message(), wanted) ? 0 : 98);
    }
    while ((fd = accept(listener, NULL, NULL)) < 0) nap();
    uint8_t bytes[4096], heard[sizeof(ControlHead) + sizeof(ControlHello) + 1];
    Challenge guess = {{1}, {2}};
    char hosts[] = "a\0b";
    size_t count = 0;
    if (challenges) count += frame_put(bytes, CONTROL_CHALLENGE, &guess, sizeof guess);
    count += frame_put(bytes + count, CONTROL_WELCOME, hosts, sizeof hosts);
    count += frame_put(bytes + count, CONTROL_BYTES, "runs/a", 6);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(receive(fd, heard, sizeof heard), sizeof heard - 1);
    assert_null(memmem(heard, sizeof heard, secret.key, 8));
    close(fd);
    close(listener);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
}

/* fault: F44 */
TEST(test_impostor_of_rank_0)
{
    impostor_meets(true);
    impostor_meets(false);
}

/* In a process of its own: connects to rank 0 with a greeting, which it answers by a challenge. */
static int rank_0_greet(int port, const ControlHello *hello, Challenge *challenge)
{
    char why[128];
    uint8_t bytes[4096], heard[sizeof(ControlHead) + sizeof *challenge];
    int fd;
    while ((fd = net_connect("127.0.0.1", port, why, sizeof why)) < 0) nap();
    fcntl(fd, F_SETFL, 0);
    size_t count = frame_put(bytes, CONTROL_HELLO, hello, sizeof *hello);
    if (write(fd, bytes, count) != (ssize_t)count || receive(fd, heard, sizeof heard) != sizeof heard) _exit(97);
    memcpy(challenge, heard + sizeof(ControlHead), sizeof *challenge);
    return fd;
}

/* Connects as rank 1 without the secret: sends the listener's own proof back, and then commands. */
static void intruder_comes(int port)
{
    uint8_t bytes[4096], heard[1];
    Challenge challenge;
    ControlHello hello = {.rank = 1, .ranks = 2, .version = TOWERS_VERSION, .host = "here", .build = control_build()};
    ControlEnd end = {.rank = 1, .status = ERR_COMM, .message = "the end"};
    int fd = rank_0_greet(port, &hello, &challenge);
    size_t count = frame_put(bytes, CONTROL_PROOF, challenge.proof, sizeof challenge.proof);
    count += frame_put(bytes + count, CONTROL_FAILED, &end, sizeof end);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(receive(fd, heard, 1), 0);
    close(fd);
}

/* fault: F44 */
TEST(test_intruder_in_place_of_rank_1)
{
    ControlConfig config = config_of(2);
    pid_t other = fork();
    if (other == 0) {
        intruder_comes(config.port);
        rank_1_comes(config);
    }
    rank_0_meets(&config, other);
}

/* Meets rank 0 as rank 1 of two: with the secret, and as a program of build `build`. */
static void member_comes(int port, uint64_t build)
{
    uint8_t bytes[4096], heard[4096];
    Challenge challenge;
    Proof proof;
    ControlHello greeting = {.rank = 1, .ranks = 2, .version = "0.0", .host = "there", .build = build};
    const Hello hello = {"control", &greeting, sizeof greeting};
    int fd = rank_0_greet(port, &greeting, &challenge);
    if (!handshake_prove(&secret, &hello, &challenge, &proof)) _exit(99);
    size_t count = frame_put(bytes, CONTROL_PROOF, &proof, sizeof proof);
    if (write(fd, bytes, count) != (ssize_t)count) _exit(97);
    while (read(fd, heard, sizeof heard) > 0) {
    }
    _exit(0);
}

/* Whoever knows the secret and is another file than rank 0 ends the meeting, unless any build may come. */
TEST(test_other_build)
{
    for (int any = 0; any < 2; any++) {
        ControlConfig config = config_of(2);
        config.any_build = any;
        pid_t other = fork();
        if (other == 0) member_comes(config.port, any ? 17 : control_build() + 1);
        ControlPlane *c = NULL;
        int status;
        Status met = control_open(&config, &c);
        assert_int_equal(met, any ? OK : ERR_ARG);
        if (!any)
            assert_non_null(strstr(status_message(), "rank 1 on there runs another build of towers (version 0.0"));
        control_close(c);
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_int_equal(status, 0);
    }
}

/* Each attempt to meet rank 0 has a nonce of its own: an answer that was heard once is of no use. */
TEST(test_a_nonce_for_each_attempt)
{
    uint8_t heard[sizeof(ControlHead) + sizeof(ControlHello)];
    ControlHello hello[2];
    int listener;
    ControlConfig config = config_of(2);
    config.rank = 1;
    assert_int_equal(net_listen(config.master, config.port, &listener), OK);
    pid_t other = fork();
    if (other == 0) {
        ControlPlane *c;
        _exit(control_open(&config, &c) == OK);
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        int fd;
        while ((fd = accept(listener, NULL, NULL)) < 0) nap();
        assert_int_equal(receive(fd, heard, sizeof heard), sizeof heard);
        memcpy(&hello[attempt], heard + sizeof(ControlHead), sizeof hello[attempt]);
        close(fd); /* it tries again */
    }
    assert_memory_not_equal(hello[0].nonce, hello[1].nonce, NONCE_BYTES);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(listener);
}

/* Connections that say nothing do not keep the places of those that do. */
TEST(test_silent_connections)
{
    enum { PLACES = 32 };
    ControlConfig config = config_of(2);
    pid_t other = fork();
    if (other == 0) {
        char why[128];
        for (int i = 0; i < PLACES; i++)
            while (net_connect("127.0.0.1", config.port, why, sizeof why) < 0) nap();
        rank_1_comes(config);
    }
    rank_0_meets(&config, other);
}

/* fault: F45 */
/* A program that was started as one of three is refused by rank 0 of two, and may come again as one of two. */
TEST(test_other_number)
{
    ControlConfig config = config_of(2);
    pid_t other = fork();
    if (other == 0) {
        ControlPlane *c;
        config.rank = 1;
        config.ranks = 3;
        if (control_open(&config, &c) != ERR_ARG) _exit(97);
        if (!strstr(status_message(), "is one of 3 programs, but rank 0 is one of 2; start all with")) _exit(98);
        config.ranks = 2;
        rank_1_comes(config);
    }
    rank_0_meets(&config, other);
}
