/* Sums over nodes of processes on their communication threads, with pipes between the nodes: the bits of tower order
 * for uneven placements and several ranges at once; a sum proceeds while its processes compute, and does not sleep for
 * what is there; whoever leaves, before it has given its part or behind that, is named on all others; a process without
 * its thread ends the run by name. */
#include "kernels/base/clock.h"
#include "nccl_sync/hosts.h"
#include "tests/support/free_port.h"
#include "tests/support/gifts.h"
#include "tests/support/pipe_link.h"
#include "tests/support/small_supervisor.h"
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    NODES = 3,
    PER = 2,
    RANKS = NODES * PER,
    COUNT = 150000,
    ROUNDS = 4,
    STEPS = 300,
    PATIENT_MS = 60000,
    BESIDE_MS = 60000,
    HANG_S = 300
};

typedef struct Seen {
    Status status[RANKS];
    char message[RANKS][1024];
    int64_t lively_ns[RANKS]; /* from the beginning to the last sign of life when its failure was known */
} Seen;

typedef struct Case {
    Status (*live)(Comm *comm, int rank);
    int towers[NODES];  /* of each node */
    int64_t timeout_ms; /* of the last node: ten times that, if `last_is_patient` */
    int leaves;         /* the rank that does not end by itself; -1: none */
    int without_thread; /* the rank that cannot start its thread; -1: none */
    int per;            /* processes of each node; 0: PER */
    bool last_is_patient;
    int port; /* of the supervisors */
    Seen *seen;
} Case;

static bool no_threads; /* of this process: the system refuses them */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (no_threads) return EAGAIN;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, start, argument);
}

static atomic_int sleeps; /* of this process on a futex in shared memory */

/* Other libraries call it as well: below UCX's hooks, a thread that ends gives its stack back by it, when the thread
 * sanitizer has already forgotten the thread and would crash in what it adds to a function. */
__attribute__((no_sanitize("thread"))) long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex && a[1] == FUTEX_WAIT) atomic_fetch_add(&sleeps, 1);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static int per_node(const Case *c)
{
    return c->per ? c->per : PER;
}

static void rank_live(const Case *c, int rank, CommShared *shared)
{
    int per = per_node(c), node = rank / per, process = rank % per, before = 0, all = 0;
    for (int g = 0; g < NODES; g++) {
        if (g < node) before += c->towers[g];
        all += c->towers[g];
    }
    int from = process * c->towers[node] / per, to = (process + 1) * c->towers[node] / per;
    CommConfig config = {.place = {.rank = rank,
                                   .ranks = NODES * per,
                                   .local_rank = process,
                                   .node = node,
                                   .nodes = NODES,
                                   .first_tower = before + from,
                                   .local_towers = to - from},
                         .towers = all,
                         .max_count = COUNT,
                         .timeout_ms = c->timeout_ms * (c->last_is_patient && node == NODES - 1 ? 10 : 1)};
    Comm *comm = NULL;
    int64_t begun = clock_ns();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    progress_to(comm_shared_progress(shared, process));
    alarm(HANG_S); /* a hang is a failure, not a wait */
    snprintf(config.place.host, sizeof config.place.host, "host%d", node);
    no_threads = rank == c->without_thread;
    Status st = comm_hosts_open(&config, shared, pipe_link_open, &comm);
    if (st == OK) st = c->live(comm, rank);
    c->seen->lively_ns[rank] = atomic_load(&comm_shared_progress(shared, process)->at_ns) - begun;
    if (st != OK) snprintf(c->seen->message[rank], sizeof c->seen->message[rank], "%s", status_message());
    c->seen->status[rank] = st;
    if (st != OK) comm_abort(comm);
    comm_close(comm);
    _exit(0);
}

/* Of the thread sanitizer: on Debian 13 UCX, below MPI, starts a thread before main, which no fork takes along. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "thread:ucs_pthread_create\n";
}

static bool others_have_ended(const void *of)
{
    const Case *c = of;
    bool ended = true;
    for (int r = 0; r < RANKS; r++)
        ended &= r == c->leaves || *(volatile const Status *)&c->seen->status[r] != STATUS_COUNT;
    return ended;
}

/* The supervisor of a node. A rank that is stopped stays until all others have ended. Exits with 1 if a rank exited with another
 * status than 0, as one does in which a sanitizer has found something. */
static void node_live(const Case *c, int node)
{
    CommShared *shared;
    pid_t pid[PER];
    int per = per_node(c);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (comm_shared_create(c->towers[node], per, COUNT, &shared) != OK) _exit(1);
    for (int i = 0; i < per; i++) {
        if ((pid[i] = fork()) == 0) rank_live(c, node * per + i, shared);
        if (pid[i] < 0) _exit(1);
    }
    SmallSupervisor supervisor = small_supervisor(node, NODES, c->port, shared);
    bool found = small_supervisor_wait_all(&supervisor, pid, per, c->leaves - node * per, others_have_ended, c);
    small_supervisor_end(&supervisor);
    _exit(found);
}

static void case_live(Case *c)
{
    pid_t pid[NODES];
    pipe_link_create(NODES);
    c->port = free_port();
    c->seen = mmap(NULL, sizeof *c->seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c->seen != MAP_FAILED);
    for (int r = 0; r < RANKS; r++) c->seen->status[r] = STATUS_COUNT;
    for (int g = 0; g < NODES; g++) {
        pid[g] = fork();
        assert_true(pid[g] >= 0);
        if (pid[g] == 0) node_live(c, g);
    }
    for (int g = 0; g < NODES; g++) {
        int status;
        assert_int_equal(waitpid(pid[g], &status, 0), pid[g]);
        if (status)
            fail_msg("node %d: expected exit status 0, found wait status %#x (above: what a sanitizer found?)", g,
                     (unsigned)status);
    }
    pipe_link_destroy();
}

static void all_ok(const Case *c)
{
    for (int r = 0; r < NODES * per_node(c); r++)
        if (c->seen->status[r] != OK) fail_msg("rank %d: %d, '%s'", r, (int)c->seen->status[r], c->seen->message[r]);
    munmap(c->seen, sizeof *c->seen);
}

/* Every rank but the one that left ended with an error that names it or its host; those of its host, with `text`. */
static void all_report(const Case *c, const char *text)
{
    char process[32], host[32];
    snprintf(process, sizeof process, "tower process %d", c->leaves);
    snprintf(host, sizeof host, "host host%d", c->leaves / PER);
    for (int r = 0; r < RANKS; r++) {
        const char *said = c->seen->message[r];
        bool named = strstr(said, process) || strstr(said, host);
        if (r == c->leaves ||
            (c->seen->status[r] == ERR_COMM && named && (r / PER != c->leaves / PER || strstr(said, text))))
            continue;
        fail_msg("rank %d: status %d, '%s', expected '%s'", r, (int)c->seen->status[r], said, text);
    }
    munmap(c->seen, sizeof *c->seen);
}

static bool is_mine(const Comm *comm, int tower)
{
    return is_local_tower(&comm_config(comm)->place, tower);
}

/* ---- sums */

/* Four ranges a round, of several chunks, of one element, and empty; they end in another order than they begin. */
static Status sum_rounds(Comm *comm, int rank)
{
    static const size_t first[] = {0, 140001, 140000, 140000}, count[] = {140000, COUNT - 140001, 1, 0};
    static float mine[COUNT], sum[COUNT];
    const CommConfig *c = comm_config(comm);
    (void)rank;
    for (int round = 0; round < ROUNDS; round++) {
        for (int t = c->place.first_tower; is_mine(comm, t); t++)
            for (int k = 0; k < 4; k++) {
                gifts(t, round, first[k], mine, count[k]);
                TRY(comm_allreduce_begin(comm, t, first[k], mine, count[k]));
            }
        for (int k = 3; k >= 0; k--) TRY(comm_allreduce_end(comm, first[k], sum + first[k], count[k]));
        for (size_t i = 0; i < COUNT; i++) {
            float wanted = gifts_sum(c->towers, round, i);
            if (memcmp(&wanted, &sum[i], sizeof wanted))
                return FAIL(ERR_INTERNAL, "round %d, element %zu: %.9g instead of %.9g", round, i, (double)sum[i],
                            (double)wanted);
        }
        TRY(comm_barrier(comm));
    }
    return OK;
}

TEST(test_sums_in_tower_order)
{
    Case c = {sum_rounds, {2, 3, 2}, PATIENT_MS, -1, -1};
    case_live(&c);
    all_ok(&c);
}

/* No rank asks for the first sum before its results are there, nor gives the second one. */
static Status sum_beside(Comm *comm, int rank)
{
    static float x[COUNT];
    const CommShared *shared = hosts_of(comm)->shared;
    CommTimes times;
    (void)rank;
    for (int t = 0; t < comm_config(comm)->towers; t++)
        if (is_mine(comm, t)) TRY(comm_allreduce_begin(comm, t, 0, x, COUNT / 2));
    for (int64_t begun = clock_ns(); !atomic_load(&shared->resulted); usleep(1000)) {
        if (comm_shared_aborted(shared) >= 0) return shared_fail_aborted(comm_config(comm), shared);
        if (clock_ns() - begun > BESIDE_MS * 1000000ll)
            return FAIL(ERR_INTERNAL, "no result came within %d s: the sum waits for its end", BESIDE_MS / 1000);
    }
    for (int t = 0; t < comm_config(comm)->towers; t++)
        if (is_mine(comm, t)) TRY(comm_allreduce_begin(comm, t, COUNT / 2, x, COUNT / 2));
    TRY(comm_allreduce_end(comm, 0, x, COUNT / 2));
    TRY(comm_allreduce_end(comm, COUNT / 2, x, COUNT / 2));
    comm_sum_times(comm, &times);
    int64_t span = times.ended_ns - times.begun_ns;
    if (times.sums != 2 || times.busy_ns <= 0 || times.busy_ns > span)
        return FAIL(ERR_INTERNAL, "%d sums of %" PRId64 " ns within %" PRId64 " ns", times.sums, times.busy_ns, span);
    comm_sum_times(comm, &times);
    if (times.sums) return FAIL(ERR_INTERNAL, "the times of %d sums are reported twice", times.sums);
    if (comm_allreduce_end(comm, 0, x, COUNT) == ERR_INTERNAL) return OK;
    return FAIL(ERR_COMM, "a sum has ended that has not begun");
}

TEST(test_sum_beside_the_computation)
{
    Case c = {sum_beside, {2, 2, 2}, PATIENT_MS, -1, -1};
    case_live(&c);
    all_ok(&c);
}

/* A node of one process waits for the link, and by polling; it has nobody in its memory to wait for. */
static Status sum_steps(Comm *comm, int rank)
{
    static float x[COUNT];
    for (int step = 0; step < STEPS; step++) {
        TRY(comm_allreduce_begin(comm, rank, 0, x, 1000));
        TRY(comm_allreduce_end(comm, 0, x, 1000));
    }
    int slept = atomic_load(&sleeps);
    if (slept) return FAIL(ERR_INTERNAL, "the communication thread has slept %d times in %d steps", slept, STEPS);
    return OK;
}

TEST(test_node_of_one_process_never_sleeps)
{
    Case c = {sum_steps, {1, 1, 1}, PATIENT_MS, -1, -1, 1};
    case_live(&c);
    all_ok(&c);
}

/* A sum leaves nothing in progress behind it: as many as there are steps in a run, each longer than a pipe holds. */
static Status sum_often(Comm *comm, int rank)
{
    enum { OFTEN = LINK_REQUESTS + 10, LONG = 1 << 15 };
    static float mine[LONG], sum[LONG];
    for (int round = 0; round < OFTEN; round++) {
        gifts(rank, round, 0, mine, LONG);
        TRY(comm_allreduce_begin(comm, rank, 0, mine, LONG));
        TRY(comm_allreduce_end(comm, 0, sum, LONG));
        for (size_t i = 0; i < LONG; i += 99) {
            float wanted = gifts_sum(RANKS, round, i);
            if (memcmp(&wanted, &sum[i], sizeof wanted)) return FAIL(ERR_INTERNAL, "round %d, element %zu", round, i);
        }
    }
    return OK;
}

TEST(test_many_sums)
{
    Case c = {sum_often, {2, 2, 2}, PATIENT_MS, -1, -1};
    case_live(&c);
    all_ok(&c);
}

/* ---- ends */

/* Node 2 has made one sum more than the others, of nothing, when all meet. */
static Status meet_elsewhere(Comm *comm, int rank)
{
    float nothing = 0;
    TRY(comm_barrier(comm));
    if (rank / PER == 2) {
        TRY(comm_allreduce_begin(comm, rank, 0, &nothing, 0));
        TRY(comm_allreduce_end(comm, 0, &nothing, 0));
    }
    return comm_barrier(comm);
}

TEST(test_nodes_in_different_collectives)
{
    Case c = {meet_elsewhere, {2, 2, 2}, PATIENT_MS, -1, -1};
    case_live(&c);
    for (int r = 0; r < RANKS; r++) {
        const char *said = c.seen->message[r];
        if (c.seen->status[r] != ERR_COMM || !strstr(said, "meet in different collectives") || !strstr(said, "host2"))
            fail_msg("rank %d: status %d, '%s'", r, (int)c.seen->status[r], said);
    }
    munmap(c.seen, sizeof *c.seen);
}

/* Rank `leaver` leaves before, or behind, its part of the second of three sums. */
static Status sums_until(Comm *comm, int rank, int leaver, bool given, int signal_number)
{
    static float x[COUNT];
    for (int round = 0; round < 3; round++) {
        bool leaves = round == 1 && rank == leaver;
        for (int t = 0; t < comm_config(comm)->towers && (given || !leaves); t++)
            if (is_mine(comm, t)) TRY(comm_allreduce_begin(comm, t, 0, x, COUNT));
        if (leaves && signal_number) kill(getpid(), signal_number);
        if (leaves) return FAIL(ERR_IO, "an error of its own");
        TRY(comm_allreduce_end(comm, 0, x, COUNT));
    }
    return FAIL(ERR_INTERNAL, "nobody left");
}

static Status rank_3_fails(Comm *comm, int rank)
{
    return sums_until(comm, rank, 3, true, 0);
}

static Status rank_5_dies(Comm *comm, int rank)
{
    return sums_until(comm, rank, 5, true, SIGKILL);
}

static Status rank_5_stops(Comm *comm, int rank)
{
    return sums_until(comm, rank, 5, false, SIGSTOP);
}

/* fault: F30 */
TEST(test_process_that_fails)
{
    Case c = {rank_3_fails, {2, 2, 2}, PATIENT_MS, 3, -1};
    case_live(&c);
    assert_int_equal(c.seen->status[3], ERR_IO); /* its thread has not replaced its words */
    assert_string_equal(c.seen->message[3], "an error of its own");
    all_report(&c, "tower process 3 has left the run");
}

/* fault: F30 */
TEST(test_process_that_dies)
{
    Case c = {rank_5_dies, {2, 2, 2}, PATIENT_MS, 5, -1};
    case_live(&c);
    all_report(&c, "tower process 5 has left the run");
}

/* fault: F43 */
TEST(test_process_that_stops)
{
    Case c = {rank_5_stops, {2, 2, 2}, 4000, 5, -1};
    case_live(&c);
    for (int r = 0; r < RANKS; r++) /* the supervisors of those that waited do not find them silent */
        if (r != 5 && c.seen->lively_ns[r] < 4000000000ll) fail_msg("rank %d: no sign of life since its wait", r);
    all_report(&c, "did not arrive at the collective within 4.0 s (--comm-timeout)");
}

/* It stops when it has given its part, before it has added it: its thread is held until then. */
static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;

static Status blocked(Comm *comm, void *of)
{
    pthread_mutex_lock(&never);
    return OK;
}

static Status rank_5_stops_in_the_sum(Comm *comm, int rank)
{
    static float x[COUNT];
    int64_t number;
    TRY(comm_barrier(comm));
    if (rank == 5) {
        pthread_mutex_lock(&never);
        TRY(comm_thread_give(hosts_of(comm)->thread, blocked, NULL, &number));
    }
    for (int t = 0; t < comm_config(comm)->towers; t++)
        if (is_mine(comm, t)) TRY(comm_allreduce_begin(comm, t, 0, x, COUNT));
    if (rank == 5) pause();
    return comm_allreduce_end(comm, 0, x, COUNT);
}

/* fault: F43 */
TEST(test_process_that_stops_in_the_sum)
{
    Case c = {rank_5_stops_in_the_sum, {2, 2, 2}, 4000, 5, -1};
    case_live(&c);
    all_report(&c, "did not arrive at the collective within 4.0 s (--comm-timeout)");
}

/* Its node is patient, so the others find who is late: its leader is there, but not all of its node are, as its supervisor says. */
TEST(test_supervisor_answers_for_its_node)
{
    Case c = {rank_5_stops_in_the_sum, {2, 2, 2}, 4000, 5, -1, .last_is_patient = true};
    case_live(&c);
    for (int r = 0; r < RANKS - 1; r++) {
        const char *said = c.seen->message[r];
        if (c.seen->status[r] != ERR_COMM ||
            !strstr(said, "host host2 (tower processes 4..5) did not arrive at the collective within 4.0 s"))
            fail_msg("rank %d: status %d, '%s'", r, (int)c.seen->status[r], said);
    }
    munmap(c.seen, sizeof *c.seen);
}

/* fault: F55 */
TEST(test_process_without_a_thread)
{
    Case c = {sum_rounds, {2, 2, 2}, 4000, -1, 2};
    case_live(&c);
    assert_int_equal(c.seen->status[2], ERR_DEVICE);
    assert_non_null(strstr(c.seen->message[2], "cannot start the communication thread of rank 2: "));
    assert_int_equal(c.seen->status[3], ERR_COMM);
    assert_non_null(strstr(c.seen->message[3], "tower process 2 has left the run"));
    for (int r = 0; r < RANKS; r += r == 1 ? 3 : 1) /* the others wait for their leader's link */
        if (c.seen->status[r] != ERR_COMM ||
            !strstr(c.seen->message[r], "node 1 (tower processes 2..3) did not arrive"))
            fail_msg("rank %d: '%s'", r, c.seen->message[r]);
    munmap(c.seen, sizeof *c.seen);
}
