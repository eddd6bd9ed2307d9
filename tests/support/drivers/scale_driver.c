/* A run of many programs without any computation: the real control channel between supervisors, the real link between
 * tower processes, the real records and report, on this machine. Used by cli/check_scale.sh.
 *
 *   scale_driver PROGRAMS FOLDER
 *
 * Each program is a process that meets the others, compares settings, and forks a tower process. Rank 0 gathers the
 * times of each of STEPS steps, as in a run for its records, and there is a larger broadcast; rank 0 writes metrics.jsonl,
 * and the report at the end. Prints one line of numbers: PROGRAMS, then for rank 0 and for the greatest of the others
 * the bytes sent and received, the anonymous memory in bytes that a program has taken, and its processor time in
 * milliseconds; then milliseconds until all have met, of all steps, until all have ended, and of the report; and the bytes of
 * a row of metrics.jsonl. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "inception/report/report.h"
#include "kernels/base/clock.h"
#include "nccl_sync/hosts/control.h"
#include "nccl_sync/link.h"
#include "tests/support/free_port.h"
#include "towers/files/files.h"
#include "towers/record/metrics.h"

enum { STEPS = 20, TIMES = 9, SETTINGS = 4096, TIMEOUT_MS = 300000, HANG_S = 900, PROGRAMS_MAX = CONTROL_RANKS_MAX };

typedef struct Program {
    _Atomic int64_t sent, received, memory, cpu_ms;
} Program;

typedef struct World {
    int programs, port, link_port;
    const char *folder;
    _Atomic int64_t met_ms, stepped_ms, ended_ms, report_ms;
    Program program[PROGRAMS_MAX];
} World;

static World *world;
static Program *self; /* of this process */

/* All messages pass here: these functions stand before those of the C library. */
ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
    ssize_t sent = syscall(SYS_sendto, fd, from, bytes, flags, NULL, 0);
    if (self && sent > 0) atomic_fetch_add(&self->sent, sent);
    return sent;
}

ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
    ssize_t got = syscall(SYS_recvfrom, fd, to, bytes, flags, NULL, NULL);
    if (self && got > 0) atomic_fetch_add(&self->received, got);
    return got;
}

static int64_t anonymous_bytes(void)
{
    char line[256];
    int64_t kib = 0;
    FILE *from = fopen("/proc/self/status", "r");
    while (from && fgets(line, sizeof line, from))
        if (sscanf(line, "RssAnon: %" SCNd64, &kib) == 1) break;
    if (from) fclose(from);
    return kib * 1024;
}

/* At the end of a process of this program. */
static void usage_add(int64_t memory_before)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    atomic_fetch_add(&self->cpu_ms, (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                                        (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
    atomic_fetch_add(&self->memory, anonymous_bytes() - memory_before);
}

/* ---- the tower process */

static void row_write(Metrics *metrics, int64_t step, const int32_t *times, int programs)
{
    static TowerLoss losses[PROGRAMS_MAX];
    static int64_t us[PROGRAMS_MAX];
    for (int t = 0; t < programs; t++) {
        losses[t] = (TowerLoss){1.0 / (double)(t + step), 32, true, .grad_norm = 0.1 * (double)(t + 1)};
        us[t] = times[t * TIMES];
    }
    StepRecord record = {.step = step,
                         .lr = 0.1,
                         .images = 32 * programs,
                         .images_per_sec = 100,
                         .tower = losses,
                         .towers = programs,
                         .mean_loss = 1.0 / (double)step,
                         .base_loss = 1,
                         .total_loss = 1,
                         .grad_norm = 1.0 / 3,
                         .arrival_us = us,
                         .data_us = us,
                         .copy_us = us,
                         .forward_us = us,
                         .backward_us = us};
    metrics_step(metrics, &record);
}

static Status tower_steps(Comm *comm, int rank, Metrics *metrics)
{
    Status st = OK;
    size_t programs = (size_t)world->programs;
    int32_t mine[TIMES] = {0}, *all = calloc(programs, sizeof mine), next = 0;
    char *settings = calloc(1, SETTINGS);
    if (!all || !settings) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %zu programs", programs));
    for (int64_t step = 1; step <= STEPS; step++) {
        mine[0] = (int32_t)(rank * STEPS + step);
        TRY_OUT(comm_gather_root(comm, mine, sizeof mine, rank == 0 ? all : NULL));
        TRY_OUT(comm_broadcast(comm, &next, sizeof next, 0)); /* when rank 0 wants the next ones */
        for (size_t r = 0; rank == 0 && r < programs; r++)
            if (all[r * TIMES] != (int32_t)r * STEPS + (int32_t)step)
                TRY_OUT(FAIL(ERR_INTERNAL, "step %" PRId64 ", rank %zu: other times than it sent", step, r));
        if (step == 1) TRY_OUT(comm_broadcast(comm, settings, SETTINGS, world->programs - 1));
        if (metrics) row_write(metrics, step, all, world->programs);
    }
    st = comm_barrier(comm);
out:
    free(all);
    free(settings);
    return st;
}

static Status tower_live(int rank, CommShared *shared)
{
    Comm *comm = NULL;
    Metrics *metrics = NULL;
    CommConfig config = {.place = {.rank = rank,
                                   .ranks = world->programs,
                                   .node = rank,
                                   .nodes = world->programs,
                                   .first_tower = rank,
                                   .local_towers = 1},
                         .towers = world->programs,
                         .max_count = 16,
                         .timeout_ms = TIMEOUT_MS,
                         .master = "127.0.0.1",
                         .port = world->link_port,
                         .secret = {{7}}};
    int64_t memory = anonymous_bytes();
    snprintf(config.place.host, sizeof config.place.host, "host%d", rank);
    Status st = comm_hosts_open(&config, shared, link_control_open, &comm);
    if (st == OK && rank == 0) st = metrics_open(world->folder, -1, 1, 10, false, &metrics);
    int64_t begun = clock_ns();
    if (st == OK) st = tower_steps(comm, rank, metrics);
    if (rank == 0) atomic_store(&world->stepped_ms, (clock_ns() - begun) / 1000000);
    if (st != OK) status_print(stderr, st, 1);
    usage_add(memory);
    metrics_close(metrics);
    if (st != OK) comm_abort(comm);
    comm_close(comm);
    return st;
}

/* ---- the program */

static Status programs_agree(ControlPlane *control)
{
    char *settings = control_rank(control) == 0 ? calloc(1, SETTINGS) : NULL;
    size_t bytes = SETTINGS;
    int32_t mine = control_rank(control), *all = calloc((size_t)world->programs, sizeof *all);
    Status st = all ? OK : FAIL(ERR_MEMORY, "no memory");
    if (st == OK) st = control_broadcast(control, &settings, &bytes);
    if (st == OK) st = control_gather(control, &mine, sizeof mine, "its number", all);
    if (st == OK) st = control_barrier(control, "agree");
    free(settings);
    free(all);
    return st;
}

static Status program_live(int rank)
{
    ControlPlane *control = NULL;
    CommShared *shared;
    ControlEnd mine = {.rank = rank}, result;
    ControlConfig config = {.channel = "control",
                            .part = "supervisor",
                            .timeout_ms = TIMEOUT_MS,
                            .rank = rank,
                            .ranks = world->programs,
                            .master = "127.0.0.1",
                            .port = world->port,
                            .secret = {{7}},
                            .secret_from = "TOWERS_TOKEN"};
    int64_t memory = anonymous_bytes(), begun = clock_ns();
    int ending = 0;
    TRY(control_open(&config, &control));
    TRY(programs_agree(control));
    if (rank == 0) atomic_store(&world->met_ms, (clock_ns() - begun) / 1000000);
    TRY(comm_shared_create(1, 1, 16, &shared));
    pid_t tower = fork();
    if (tower == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        control_forget(control);
        _exit(tower_live(rank, shared) == OK ? 0 : 1);
    }
    control_watch(control);
    while (waitpid(tower, &ending, WNOHANG) == 0) {
        control_serve(control, clock_ns());
        nanosleep(&(struct timespec){0, 25000000l}, NULL);
    }
    begun = clock_ns();
    if (ending) mine.status = ERR_COMM;
    while (!control_end(control, &mine, &result)) {
        control_serve(control, clock_ns());
        nanosleep(&(struct timespec){0, 10000000l}, NULL);
    }
    if (rank == 0) atomic_store(&world->ended_ms, (clock_ns() - begun) / 1000000);
    usage_add(memory);
    control_close(control);
    comm_shared_destroy(shared);
    return result.status == OK ? OK : FAIL((Status)result.status, "rank %d: %s", result.rank, result.message);
}

static void line_print(void)
{
    int64_t row_bytes = 0;
    char path[PATH_BYTES];
    struct stat info;
    Program most = {0};
    for (int r = 1; r < world->programs; r++) {
        const Program *p = &world->program[r];
        if (p->sent > most.sent) most.sent = p->sent;
        if (p->received > most.received) most.received = p->received;
        if (p->memory > most.memory) most.memory = p->memory;
        if (p->cpu_ms > most.cpu_ms) most.cpu_ms = p->cpu_ms;
    }
    if (path_join(path, world->folder, "metrics.jsonl") == OK && stat(path, &info) == 0)
        row_bytes = info.st_size / STEPS;
    const Program *all[] = {&world->program[0], &most};
    printf("%d", world->programs);
    for (int i = 0; i < 2; i++)
        printf(" %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, all[i]->sent, all[i]->received, all[i]->memory,
               all[i]->cpu_ms);
    printf(" %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", world->met_ms, world->stepped_ms,
           world->ended_ms, world->report_ms, row_bytes);
}

int main(int argc, char **argv)
{
    int programs = argc == 3 ? atoi(argv[1]) : 0, status, failed = 0;
    if (programs < 2 || programs > PROGRAMS_MAX) {
        fprintf(stderr, "usage: scale_driver PROGRAMS FOLDER, 2 to %d programs\n", PROGRAMS_MAX);
        return 2;
    }
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (world == MAP_FAILED) return 1;
    world->programs = programs;
    world->folder = argv[2];
    world->port = free_port();
    do world->link_port = free_port();
    while (world->link_port == world->port);
    for (int r = 0; r < programs; r++) {
        pid_t child = fork();
        if (child < 0) return 1;
        if (child) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(HANG_S);
        self = &world->program[r];
        Status st = program_live(r);
        if (st != OK) status_print(stderr, st, 1);
        _exit(st == OK ? 0 : 1);
    }
    while (wait(&status) > 0) failed += status != 0;
    if (failed) return 1;
    int64_t begun = clock_ns();
    Status st = report_write(world->folder);
    if (st != OK) status_print(stderr, st, 1);
    atomic_store(&world->report_ms, (clock_ns() - begun) / 1000000);
    line_print();
    return st == OK ? 0 : 1;
}
