/* The shared-memory communicator between forked processes: sums in tower order, equal bit for bit for any mapping of
 * towers to processes; broadcast; barrier. However a rank leaves, the others get ERR_COMM within the deadline, with
 * the name of the rank that left. */
#include "nccl_sync/comm.h"
#include "nccl_sync/comm_shared.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/gifts.h"
#include "tests/support/unit.h"

enum { RANKS_MAX = 8, COUNT = 5000, ROUNDS = 30, TIMEOUT_MS = 20000, HANG_S = 100 };

/* The results that the ranks of a group record for the test. */
typedef struct Seen {
    Status status[RANKS_MAX];
    char message[RANKS_MAX][512];
    float sum[RANKS_MAX][COUNT];
    volatile int ready; /* set by one rank for another, or for the test */
} Seen;

typedef struct Group {
    int towers, ranks;
    int64_t timeout_ms;
    CommShared *shared; /* owned */
    Seen *seen;         /* owned, shared by all */
    pid_t pid[RANKS_MAX];
} Group;

typedef Status (*RankMain)(Comm *comm, int rank, Seen *seen);

static CommConfig config_of(const Group *g, int rank)
{
    int first = rank * g->towers / g->ranks, next = (rank + 1) * g->towers / g->ranks;
    return (CommConfig){.place = {.rank = rank,
                                  .ranks = g->ranks,
                                  .local_rank = rank,
                                  .first_tower = first,
                                  .local_towers = next - first},
                        .towers = g->towers,
                        .max_count = COUNT,
                        .timeout_ms = g->timeout_ms};
}

static void rank_live(const Group *g, int rank, RankMain rank_main)
{
    Comm *comm = NULL;
    CommConfig config = config_of(g, rank);
    alarm(HANG_S); /* a hang is a failure, not a wait */
    Status st = comm_shm_open(&config, g->shared, &comm);
    if (st == OK) comm_record_in(comm, g->shared);
    if (st == OK) st = rank_main(comm, rank, g->seen);
    snprintf(g->seen->message[rank], sizeof g->seen->message[rank], "%s", st == OK ? "" : status_message());
    g->seen->status[rank] = st;
    comm_close(comm);
    _exit(0);
}

static Group group_start(int towers, int ranks, int64_t timeout_ms, RankMain rank_main)
{
    Group g = {.towers = towers, .ranks = ranks, .timeout_ms = timeout_ms};
    assert_int_equal(comm_shared_create(towers, ranks, COUNT, &g.shared), OK);
    g.seen = mmap(NULL, sizeof *g.seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g.seen != MAP_FAILED);
    for (int r = 0; r < ranks; r++) g.seen->status[r] = STATUS_COUNT; /* it never came to its end */
    for (int r = 0; r < ranks; r++) {
        g.pid[r] = fork();
        assert_true(g.pid[r] >= 0);
        if (g.pid[r] == 0) rank_live(&g, r, rank_main);
    }
    return g;
}

/* Ranks in `killed` (bits) may end by SIGKILL, all others by themselves. */
static void group_wait(Group *g, unsigned killed)
{
    for (int r = 0; r < g->ranks; r++) {
        int status;
        assert_int_equal(waitpid(g->pid[r], &status, 0), g->pid[r]);
        if (killed >> r & 1)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else if (!WIFEXITED(status))
            fail_msg("rank %d was ended by signal %d (%d: it hung)", r, WTERMSIG(status), SIGALRM);
        else if (status)
            fail_msg("rank %d exited with %d (above: what a sanitizer found?)", r, WEXITSTATUS(status));
    }
}

static void group_end(Group *g)
{
    munmap(g->seen, sizeof *g->seen);
    comm_shared_destroy(g->shared);
}

static void all_ok(const Group *g)
{
    for (int r = 0; r < g->ranks; r++)
        if (g->seen->status[r] != OK) fail_msg("rank %d: %s", r, g->seen->message[r]);
}

static void group_succeeds(int towers, int ranks, RankMain rank_main)
{
    Group g = group_start(towers, ranks, TIMEOUT_MS, rank_main);
    group_wait(&g, 0);
    all_ok(&g);
    group_end(&g);
}

/* Every rank but those in `gone` ended with ERR_COMM and a message that holds `text`. */
static void all_report(const Group *g, unsigned gone, const char *text)
{
    for (int r = 0; r < g->ranks; r++) {
        if (gone >> r & 1) continue;
        if (g->seen->status[r] != ERR_COMM || !strstr(g->seen->message[r], text))
            fail_msg("rank %d: status %d, '%s', wanted '%s'", r, (int)g->seen->status[r], g->seen->message[r], text);
    }
}

/* ---- sums */

/* Three ranges a round, one of them empty of a rank's part (fewer elements than ranks), in different orders. */
static Status sum_rounds(Comm *comm, int rank, Seen *seen)
{
    static const size_t first[] = {0, 3001, 3000, 3000}, count[] = {3000, 1999, 1, 0};
    const CommConfig *c = comm_config(comm);
    float mine[COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        for (int t = c->place.first_tower; t < c->place.first_tower + c->place.local_towers; t++)
            for (int k = 0; k < 4; k++) {
                gifts(t, round, first[k], mine, count[k]);
                TRY(comm_allreduce_begin(comm, t, first[k], mine, count[k]));
            }
        for (int k = 3; k >= 0; k--) TRY(comm_allreduce_end(comm, first[k], seen->sum[rank] + first[k], count[k]));
        for (size_t i = 0; i < COUNT; i++) {
            float wanted = gifts_sum(c->towers, round, i);
            if (memcmp(&wanted, &seen->sum[rank][i], sizeof wanted))
                return FAIL(ERR_INTERNAL, "round %d, element %zu: %.9g instead of %.9g", round, i,
                            (double)seen->sum[rank][i], (double)wanted);
        }
    }
    return OK;
}

TEST(test_sums_in_tower_order)
{
    for (int towers = 1; towers <= 8; towers *= 2)
        for (int ranks = 1; ranks <= towers && ranks <= 4; ranks *= 2) group_succeeds(towers, ranks, sum_rounds);
}

TEST(test_uneven_mapping)
{
    group_succeeds(7, 3, sum_rounds);
}

/* ---- broadcast and barrier */

/* The towers of one process need one slot together: the pages of the other slots are never touched. */
TEST(test_towers_of_a_process_share_a_slot)
{
    enum { TOWERS = 16, LARGE = 1 << 20 };
    static float x[LARGE];
    CommShared *shared;
    Comm *comm;
    const Backend host = {.name = "cpu", .on_host = true};
    CommConfig config = {
        .place = {.ranks = 1, .local_towers = TOWERS}, .towers = TOWERS, .max_count = LARGE, .timeout_ms = TIMEOUT_MS};
    assert_int_equal(comm_shared_create(TOWERS, 1, LARGE, &shared), OK);
    assert_int_equal(comm_shm_open(&config, shared, &comm), OK);
    for (int t = 0; t < TOWERS; t++) {
        for (int i = 0; i < LARGE; i++) x[i] = (float)(t + 1);
        assert_int_equal(comm_allreduce_begin(comm, t, 0, x, LARGE), OK);
    }
    assert_int_equal(comm_allreduce_end(comm, 0, x, LARGE), OK);
    assert_true(x[0] == 136 && x[LARGE - 1] == 136);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (shared->bytes + page - 1) / page, touched = 0;
    unsigned char *resident = calloc(pages, 1);
    assert_int_equal(mincore(shared, shared->bytes, resident), 0);
    for (size_t i = 0; i < pages; i++) touched += resident[i] & 1;
    assert_in_range(touched * page, sizeof x, 2 * sizeof x);
    assert_true(comm_bytes(&host, &config) == sizeof x);
    free(resident);
    comm_close(comm);
    comm_shared_destroy(shared);
}

static Status broadcasts(Comm *comm, int rank, Seen *seen)
{
    enum { LARGE = 800001 };
    const size_t sizes[] = {0, 1, 262143, 262144, 262145, LARGE};
    static char bytes[LARGE];
    (void)seen;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int root = 0; root < comm_config(comm)->place.ranks; root++) {
            for (size_t i = 0; i < LARGE; i++) bytes[i] = rank == root ? (char)(i * 31 + k + (size_t)root) : (char)99;
            TRY(comm_broadcast(comm, bytes, sizes[k], root));
            for (size_t i = 0; i < LARGE; i++) {
                char wanted = i < sizes[k] || rank == root ? (char)(i * 31 + k + (size_t)root) : (char)99;
                if (bytes[i] != wanted)
                    return FAIL(ERR_INTERNAL, "%zu bytes from rank %d: byte %zu", sizes[k], root, i);
            }
        }
    return OK;
}

TEST(test_broadcast)
{
    group_succeeds(3, 3, broadcasts);
}

static Status gathers(Comm *comm, int rank, Seen *seen)
{
    enum { LARGE = 200001, RANKS = 3 };
    static const size_t sizes[] = {0, 1, 8, 87381, 87382, LARGE}; /* a piece has 87381 bytes */
    static unsigned char mine[LARGE], all[RANKS * LARGE + 1];
    (void)seen;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t bytes = sizes[k];
        for (size_t i = 0; i < bytes; i++) mine[i] = (unsigned char)(i * 31 + k + (size_t)rank);
        memset(all, 99, sizeof all);
        TRY(comm_gather(comm, mine, bytes, all));
        for (size_t i = 0; i < RANKS * bytes; i++)
            if (all[i] != (unsigned char)(i % bytes * 31 + k + i / bytes))
                return FAIL(ERR_INTERNAL, "%zu bytes from each rank: byte %zu", bytes, i);
        if (all[RANKS * bytes] != 99) return FAIL(ERR_INTERNAL, "%zu bytes from each rank: one too many", bytes);
        memset(all, 99, sizeof all);
        TRY(comm_gather_root(comm, mine, bytes, rank == 0 ? all : NULL));
        for (size_t i = 0; i < RANKS * bytes; i++)
            if (all[i] != (rank == 0 ? (unsigned char)(i % bytes * 31 + k + i / bytes) : 99))
                return FAIL(ERR_INTERNAL, "%zu bytes from each rank for rank 0: byte %zu of rank %d", bytes, i, rank);
    }
    return OK;
}

TEST(test_gather)
{
    group_succeeds(3, 3, gathers);
}

/* Nobody passes before the slowest has come. */
static Status barriers(Comm *comm, int rank, Seen *seen)
{
    for (int round = 0; round < 200; round++) {
        if (rank == round % 3) {
            if (round % 50 == 0) usleep(20000);
            seen->ready = round + 1;
        }
        TRY(comm_barrier(comm));
        if (seen->ready != round + 1) return FAIL(ERR_INTERNAL, "round %d was left early", round);
        TRY(comm_barrier(comm));
    }
    return OK;
}

TEST(test_barrier)
{
    group_succeeds(3, 3, barriers);
}

/* ---- leaving */

static Status wait_for_ever(Comm *comm, int rank, Seen *seen)
{
    if (rank == 1) kill(getpid(), SIGKILL);
    return comm_barrier(comm);
}

/* fault: F30 */
TEST(test_rank_that_dies)
{
    Group g = group_start(4, 4, TIMEOUT_MS, wait_for_ever);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)g.pid[1], &info, WEXITED | WNOWAIT), 0);
    comm_shared_abort(g.shared, 1); /* as the supervisor does */
    group_wait(&g, 1u << 1);
    all_report(&g, 1u << 1, "tower process 1 has left the run");
    assert_true(comm_shared_follows(g.shared, 0) && !comm_shared_follows(g.shared, 1));
    group_end(&g);
}

/* A message of another host ends the waits of all; the first abort is the one that is reported. */
TEST(test_message_of_another_group)
{
    Group g = group_start(4, 4, TIMEOUT_MS, wait_for_ever);
    assert_int_equal(comm_shared_aborted(g.shared), -1);
    comm_shared_abort_by(g.shared, "host b: tower process 5 was killed by signal 9");
    comm_shared_abort(g.shared, 1);
    assert_int_equal(comm_shared_aborted(g.shared), COMM_ABORTED_ELSEWHERE);
    group_wait(&g, 1u << 1);
    all_report(&g, 1u << 1, "host b: tower process 5 was killed by signal 9; the others cannot continue without it");
    group_end(&g);
}

/* Rank 1 does not come to the second collective: the recorder shows who waits where. */
static Status one_is_late(Comm *comm, int rank, Seen *seen)
{
    float x = 1;
    (void)seen;
    TRY(comm_allreduce_begin(comm, rank, 3, &x, 1));
    TRY(comm_allreduce_end(comm, 3, &x, 1));
    if (rank == 1) pause();
    return comm_barrier(comm);
}

TEST(test_recorder)
{
    char text[512];
    Group g = group_start(2, 2, 3000, one_is_late);
    while (*(volatile Status *)&g.seen->status[0] == STATUS_COUNT) usleep(1000);
    assert_true(comm_record_text(g.shared, 4, 1500, text, sizeof text));
    kill(g.pid[1], SIGKILL);
    group_wait(&g, 2);
    all_report(&g, 2, "tower process 1 did not arrive");
    const char *parts[] = {"rank 4 waits in collective 2, a barrier, for ",
                           "; rank 5 ended collective 1, an all-reduce of 4 bytes from element 3, "};
    for (int i = 0; i < 2; i++)
        if (!strstr(text, parts[i])) fail_msg("'%s' lacks '%s'", text, parts[i]);
    double waited = strtod(strstr(text, parts[0]) + strlen(parts[0]), NULL);
    if (waited < 2.9 || waited > 1000) fail_msg("'%s': it waited for 3 s", text);
    assert_false(comm_record_text(g.shared, 4, 1000000, text, sizeof text));
    group_end(&g);
}

/* The later collectives of a group that was left fail too, at once. */
static Status leave_one(Comm *comm, int rank, Seen *seen)
{
    float x = 1;
    (void)seen;
    TRY(comm_barrier(comm));
    if (rank == 2) {
        comm_abort(comm);
        comm_abort(comm); /* twice is fine */
        return comm_barrier(comm);
    }
    Status st = comm_barrier(comm);
    if (st != ERR_COMM) return st;
    st = comm_broadcast(comm, &x, sizeof x, 0);
    if (st != ERR_COMM) return st;
    TRY(comm_allreduce_begin(comm, rank, 0, &x, 1));
    return comm_allreduce_end(comm, 0, &x, 1);
}

/* fault: F30 */
TEST(test_rank_that_aborts)
{
    Group g = group_start(4, 4, TIMEOUT_MS, leave_one);
    group_wait(&g, 0);
    all_report(&g, 1u << 2, "tower process 2 has left the run");
    assert_int_equal(g.seen->status[2], ERR_COMM);
    assert_non_null(strstr(g.seen->message[2], "rank 2 takes part in a collective after it has left the run"));
    group_end(&g);
}

static Status come_never(Comm *comm, int rank, Seen *seen)
{
    TRY(comm_barrier(comm));
    if (rank == 1) {
        while (!seen->ready) usleep(1000);
        return OK;
    }
    return comm_barrier(comm);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* fault: F43 */
TEST(test_rank_that_never_comes)
{
    int64_t before = now_ms();
    Group g = group_start(3, 3, 4000, come_never);
    for (int r = 0; r < 3; r++)
        while (r != 1 && g.seen->status[r] == STATUS_COUNT && now_ms() - before < 200000) usleep(1000);
    g.seen->ready = 1;
    group_wait(&g, 0);
    for (int r = 0; r < 3; r += 2) assert_int_equal(g.seen->status[r], ERR_COMM);
    /* The first to lose patience names the missing one, the other may hear it from that one. */
    bool reported = strstr(g.seen->message[0], "tower process 1 did not arrive at the collective within 4.0 s") ||
                    strstr(g.seen->message[2], "tower process 1 did not arrive at the collective within 4.0 s");
    if (!reported) fail_msg("'%s', '%s'", g.seen->message[0], g.seen->message[2]);
    assert_true(now_ms() - before >= 4000);
    for (int r = 0; r < 3; r++)
        assert_true(comm_shared_follows(g.shared, r)); /* the late one is told so by the others */
    assert_int_equal(g.seen->status[1], OK);
    group_end(&g);
}

enum { PATIENCE_MS = 4000, STOPPED_MS = 4500 };

/* Patience is of time that passes for all: a rank that was stopped itself, with its peers, does not give up. */
static Status come_later(Comm *comm, int rank, Seen *seen)
{
    TRY(comm_barrier(comm));
    if (rank == 0) {
        seen->ready = 1;
        while (seen->ready == 1) usleep(1000);
    }
    return comm_barrier(comm);
}

TEST(test_all_stopped_and_continued)
{
    Group g = group_start(2, 2, PATIENCE_MS, come_later);
    while (!g.seen->ready) usleep(1000);
    for (int r = 0; r < 2; r++) kill(g.pid[r], SIGSTOP);
    usleep(1000 * STOPPED_MS);
    g.seen->ready = 2; /* first, for this process may be kept waiting itself */
    for (int r = 0; r < 2; r++) kill(g.pid[r], SIGCONT);
    group_wait(&g, 0);
    all_ok(&g);
    group_end(&g);
}

/* ---- misuse */

TEST(test_misuse_is_refused)
{
    CommShared *shared;
    Comm *comm;
    float x = 0;
    assert_int_equal(comm_shared_create(0, 1, 10, &shared), ERR_ARG);
    assert_int_equal(comm_shared_create(1, 300, 10, &shared), ERR_ARG);
    assert_int_equal(comm_shared_create(2, 1, 10, &shared), OK);
    CommConfig config = {.place = {.ranks = 1, .local_towers = 2}, .towers = 3, .max_count = 10, .timeout_ms = 100};
    assert_int_equal(comm_shm_open(&config, shared, &comm), ERR_INTERNAL); /* made for 2 towers */
    config.towers = 2;
    config.place.local_towers = 0;
    assert_int_equal(comm_shm_open(&config, shared, &comm), ERR_ARG);
    config.place.local_towers = 1;
    assert_int_equal(comm_shm_open(&config, shared, &comm), OK);
    assert_int_equal(comm_allreduce_begin(comm, 1, 0, &x, 1), ERR_INTERNAL); /* not its own tower */
    assert_int_equal(comm_allreduce_begin(comm, 0, 10, &x, 1), ERR_INTERNAL);
    assert_int_equal(comm_allreduce_end(comm, 5, &x, 6), ERR_INTERNAL);
    assert_int_equal(comm_allreduce_begin(comm, 0, SIZE_MAX, &x, 2), ERR_INTERNAL); /* the end wraps around */
    assert_int_equal(comm_barrier(comm), OK);
    comm_close(comm);
    comm_close(NULL);
    comm_abort(NULL);
    comm_shared_destroy(shared);
    comm_shared_destroy(NULL);
}
