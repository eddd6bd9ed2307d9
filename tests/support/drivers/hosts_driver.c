/* Groups of tower processes that only communicate: what mpirun starts in cli/check_mpi.sh. Each launched process is the
 * supervisor of one group, as in training; the group and their number come from the launcher's environment.
 *
 *   hosts_driver case=CASE towers=3,5 processes=2 out=FOLDER port=PORT [who=RANK] [given=1] [timeout=MS] [before=N]
 *
 * towers: those of each group; processes: of each group; before: so many times other processes make sums first, and a
 * carrier keeps MPI from them to the last ones; port: at which the supervisors meet. Writes FOLDER/rank-N with the end of each rank: "OK" or the error
 * and its message. Exit status 0 if all processes of the group ended as the case wants.
 *
 *   overlap a sum proceeds while its processes have not asked for it
 *   sums    sums in tower order, broadcasts, gathers and barriers, each checked; FOLDER/sum is the sum of the last round
 *   abort   rank `who` leaves by comm_abort; kill: by SIGKILL; stop: by SIGSTOP; late: it never takes part again */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "nccl_sync/hosts.h"
#include "nccl_sync/link_carried.h"
#include "tests/support/arguments.h"
#include "tests/support/gifts.h"
#include "tests/support/small_supervisor.h"

enum { RANKS_MAX = 16, COUNT = 300000, ROUNDS = 3, HANG_S = 300, OTHERS_MS = 60000, PATH = 4096 };

typedef struct End {
    Status status;
    char message[1024];
} End;

typedef struct Group {
    const char *cases, *out;
    Placement place; /* of its first process */
    int towers[RANKS_MAX], all_towers, processes, who;
    bool given; /* `who` leaves behind comm_allreduce_begin */
    int64_t timeout_ms;
    int before;         /* turns before the last one */
    Carrier *carrier;   /* owned; NULL without such turns */
    CommShared *shared; /* owned */
    SmallSupervisor supervisor;
    End *end; /* owned, shared with the processes: [processes] */
    pid_t pid[RANKS_MAX];
} Group;

static int from_environment(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names)) return atoi(getenv(*names));
    return -1;
}

static Placement place_of(const Group *g, int process)
{
    Placement place = g->place;
    int mine = g->towers[place.node], before = process * mine / g->processes;
    place.rank += process;
    place.local_rank = process;
    place.first_tower += before;
    place.local_towers = (process + 1) * mine / g->processes - before;
    return place;
}

/* ---- what the ranks do */

static Status sums(const Group *g, Comm *comm)
{
    static const size_t first[] = {0, 200001, 200000, 200000}, count[] = {200000, COUNT - 200001, 1, 0};
    static float mine[COUNT], sum[COUNT];
    const CommConfig *c = comm_config(comm);
    for (int round = 0; round < ROUNDS; round++) {
        for (int t = c->place.first_tower; is_local_tower(&c->place, t); t++)
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
    }
    if (!is_root(&c->place)) return OK;
    char path[PATH];
    snprintf(path, sizeof path, "%s/sum", g->out);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(sum, sizeof *sum, COUNT, file) != COUNT || fclose(file)) return FAIL(ERR_IO, "%s", path);
    return OK;
}

static Status broadcasts_and_gathers(Comm *comm)
{
    enum { LARGE = 600001 };
    static char bytes[LARGE], all[RANKS_MAX * LARGE];
    static const size_t sizes[] = {0, 1, 262144, LARGE};
    int rank = comm_config(comm)->place.rank, ranks = comm_config(comm)->place.ranks;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int root = 0; root < ranks; root++) {
            for (size_t i = 0; i < sizes[k]; i++) bytes[i] = rank == root ? (char)(i * 31 + k + (size_t)root) : 99;
            TRY(comm_broadcast(comm, bytes, sizes[k], root));
            for (size_t i = 0; i < sizes[k]; i++)
                if (bytes[i] != (char)(i * 31 + k + (size_t)root))
                    return FAIL(ERR_INTERNAL, "broadcast of %zu bytes from rank %d: byte %zu", sizes[k], root, i);
        }
        for (size_t i = 0; i < sizes[k]; i++) bytes[i] = (char)(i * 7 + (size_t)rank);
        TRY(comm_gather(comm, bytes, sizes[k], all));
        for (size_t i = 0; i < sizes[k] * (size_t)ranks; i++)
            if (all[i] != (char)(i % sizes[k] * 7 + i / sizes[k]))
                return FAIL(ERR_INTERNAL, "gather of %zu bytes: byte %zu", sizes[k], i);
        memset(all, 0, sizeof all);
        TRY(comm_gather_root(comm, bytes, sizes[k], rank == 0 ? all : NULL));
        for (size_t i = 0; i < sizes[k] * (size_t)ranks; i++)
            if (all[i] != (rank == 0 ? (char)(i % sizes[k] * 7 + i / sizes[k]) : 0))
                return FAIL(ERR_INTERNAL, "gather of %zu bytes for rank 0: byte %zu of rank %d", sizes[k], i, rank);
        TRY(comm_barrier(comm));
    }
    return OK;
}

/* Rank `who` leaves between two sums, or, with `given`, after it has given what it has to the second one, which its thread
 * may be summing. The others wait for it in that one, or in the next. */
static Status leave(const Group *g, Comm *comm, int rank)
{
    static float x[COUNT];
    const Placement *place = &comm_config(comm)->place;
    for (int round = 0; round < 3; round++) {
        for (int t = place->first_tower; is_local_tower(place, t) && (g->given || round != 1 || rank != g->who); t++)
            TRY(comm_allreduce_begin(comm, t, 0, x, COUNT));
        if (round == 1 && rank == g->who) {
            if (!strcmp(g->cases, "kill")) kill(getpid(), SIGKILL);
            if (!strcmp(g->cases, "stop")) kill(getpid(), SIGSTOP);
            if (!strcmp(g->cases, "late")) pause();
            comm_abort(comm);
        }
        TRY(comm_allreduce_end(comm, 0, x, COUNT));
    }
    return FAIL(ERR_INTERNAL, "nobody left");
}

/* All ranks give one range, and the next only when results of the first arrive, which nobody has asked for yet. */
static Status overlap(Comm *comm)
{
    static float x[COUNT];
    const Placement *place = &comm_config(comm)->place;
    const CommShared *shared = ((const HostsComm *)comm->impl)->shared;
    CommTimes times;
    struct timespec pause = {.tv_nsec = 1000000};
    for (int t = place->first_tower; is_local_tower(place, t); t++) TRY(comm_allreduce_begin(comm, t, 0, x, COUNT / 2));
    while (!atomic_load(&shared->resulted)) {
        if (comm_shared_aborted(shared) >= 0) return shared_fail_aborted(comm_config(comm), shared);
        nanosleep(&pause, NULL);
    }
    int64_t given = clock_ns();
    for (int t = place->first_tower; is_local_tower(place, t); t++)
        TRY(comm_allreduce_begin(comm, t, COUNT / 2, x, COUNT / 2));
    for (int half = 0; half < 2; half++) TRY(comm_allreduce_end(comm, (size_t)half * COUNT / 2, x, COUNT / 2));
    comm_sum_times(comm, &times);
    if (times.sums == 2 && times.begun_ns < given && given < times.ended_ns) return OK;
    return FAIL(ERR_INTERNAL,
                "%d sums began %" PRId64 " ns before the second half was given, and ended %" PRId64 " ns behind",
                times.sums, given - times.begun_ns, times.ended_ns - given);
}

static void rank_live(const Group *g, int process)
{
    CommConfig config = {.place = place_of(g, process),
                         .towers = g->all_towers,
                         .max_count = COUNT,
                         .timeout_ms = g->timeout_ms,
                         .carrier = g->carrier};
    Comm *comm = NULL;
    control_forget(g->supervisor.control);
    bool sum = g->before > 0 || !strcmp(g->cases, "sums"), overlaps = !strcmp(g->cases, "overlap");
    alarm(HANG_S); /* a hang is a failure, not a wait */
    Status st = g->place.nodes > 1
                    ? comm_hosts_open(&config, g->shared, g->carrier ? link_carried_open : link_mpi_open, &comm)
                    : comm_shm_open(&config, g->shared, &comm);
    if (st == OK) st = sum ? sums(g, comm) : overlaps ? overlap(comm) : leave(g, comm, config.place.rank);
    if (st == OK && sum) st = broadcasts_and_gathers(comm);
    End *end = &g->end[process];
    if (st != OK) snprintf(end->message, sizeof end->message, "%s", status_message());
    end->status = st;
    if (st != OK) comm_abort(comm);
    comm_close(comm);
    link_mpi_exit(st == OK ? 0 : 7);
}

/* ---- the supervisor */

/* Complete once it has its name. */
static void end_write(const Group *g, int process)
{
    char path[PATH], begun[PATH + 8];
    const End *end = &g->end[process];
    snprintf(path, sizeof path, "%s/rank-%d", g->out, g->place.rank + process);
    snprintf(begun, sizeof begun, "%s.begun", path);
    FILE *file = fopen(begun, "w");
    if (!file) exit(6);
    fprintf(file, "%s %s\n", end->status == STATUS_COUNT ? "GONE" : status_name(end->status), end->message);
    if (fclose(file) || rename(begun, path)) exit(6);
}

/* Launchers end all processes when one fails: wait until all groups but that of `who` have written their ends. */
static void others_wait(const Group *g)
{
    int64_t until = clock_ns() + OTHERS_MS * 1000000ll;
    int left = 1;
    while (left && clock_ns() < until) {
        struct timespec pause = {.tv_nsec = 20000000};
        left = 0;
        for (int r = 0; r < g->place.ranks; r++) {
            char path[PATH];
            snprintf(path, sizeof path, "%s/rank-%d", g->out, r);
            left += r / g->processes != g->who / g->processes && access(path, F_OK) != 0;
        }
        if (left) nanosleep(&pause, NULL);
    }
}

/* Other than 0 if a process has failed. */
static int turn_run(Group *g)
{
    if (comm_shared_create(g->towers[g->place.node], g->processes, COUNT, &g->shared) != OK) exit(5);
    g->supervisor.shared = g->shared;
    for (int i = 0; i < g->processes; i++) {
        g->end[i].status = STATUS_COUNT;
        g->pid[i] = fork();
        if (g->pid[i] < 0) exit(5);
        if (g->pid[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rank_live(g, i);
    }
    int failed = 0, status, leaver = g->who - g->place.rank;
    bool mine = leaver >= 0 && leaver < g->processes;
    bool stays = strcmp(g->cases, "abort") != 0; /* it does not end by itself */
    for (int left = g->processes; left > 0; left--) {
        pid_t pid;
        int i = 0;
        while (!(pid = small_supervisor_wait(&g->supervisor, &status))) continue;
        while (i < g->processes && g->pid[i] != pid) i++;
        if (i == g->processes) exit(5); /* the carrier has ended */
        failed |= status;
        if (!status) continue;
        if (WIFSIGNALED(status))
            snprintf(g->end[i].message, sizeof g->end[i].message, "ended by signal %d", WTERMSIG(status));
        comm_shared_abort(g->shared, i); /* as the supervisor does */
        if (mine && stays && pid != g->pid[leaver]) kill(g->pid[leaver], SIGKILL);
    }
    comm_shared_destroy(g->shared);
    return failed;
}

int main(int argc, char **argv)
{
    static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL}, *const size_names[] = {
                                                                                            "OMPI_COMM_WORLD_SIZE",
                                                                                            "PMI_SIZE", NULL};
    const char *towers = argument(argc, argv, "towers", "");
    Group g = {.cases = argument(argc, argv, "case", "sums"), .out = argument(argc, argv, "out", ".")};
    g.processes = (int)number_argument(argc, argv, "processes", 1);
    g.who = (int)number_argument(argc, argv, "who", -1);
    g.given = number_argument(argc, argv, "given", 0) != 0;
    g.timeout_ms = (int64_t)number_argument(argc, argv, "timeout", 60000);
    g.place.node = from_environment(rank_names) > 0 ? from_environment(rank_names) : 0;
    for (char *end; g.place.nodes < RANKS_MAX && *towers; towers = *end ? end + 1 : end) {
        int count = (int)strtol(towers, &end, 10);
        if (g.place.nodes < g.place.node) g.place.first_tower += count;
        g.all_towers += count;
        g.towers[g.place.nodes++] = count;
    }
    if (g.place.nodes > 1 && g.place.nodes != from_environment(size_names)) {
        fprintf(stderr, "%d groups, but %d launched processes\n", g.place.nodes, from_environment(size_names));
        return 2;
    }
    g.place.rank = g.place.node * g.processes;
    g.place.ranks = g.place.nodes * g.processes;
    snprintf(g.place.host, sizeof g.place.host, "host%d", g.place.node);
    size_t bytes = (size_t)g.processes * sizeof *g.end;
    g.end = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (g.end == MAP_FAILED) return 5;
    g.before = (int)number_argument(argc, argv, "before", 0);
    if (g.before && carrier_start(link_mpi_open, &g.place, NULL, &g.carrier) != OK) return 5;
    alarm(HANG_S);
    int port = (int)number_argument(argc, argv, "port", 0);
    g.supervisor = small_supervisor(g.place.node, g.place.nodes, g.place.nodes > 1 ? port : 0, NULL);
    int failed = turn_run(&g);
    while (!failed && g.before-- > 0) failed = turn_run(&g);
    carrier_end(g.carrier);
    for (int i = 0; i < g.processes; i++) end_write(&g, i);
    small_supervisor_end(&g.supervisor);
    if (failed) others_wait(&g);
    return failed ? 7 : 0;
}
