/* Collectives between the tower processes of one machine, through anonymous memory that the supervisor mapped before it
 * forked them.
 *
 * Every tower has a slot of max_count floats; comm_allreduce_begin copies into it. comm_allreduce_end: barrier; each
 * rank adds its part of the range over all slots, in tower order, and puts it into the result area; barrier; each rank
 * copies out what the others put there. The order of the additions is that of the tower numbers, so the sum does not depend on which
 * process holds which tower, nor on timing.
 *
 * A barrier is a counter and a futex. A waiting rank also checks the abort word, which the supervisor or a failing peer
 * sets, and its deadline. */
#include "kernels/clock.h"
#include "nccl_sync/comm.h"
#include "nccl_sync/comm_ops.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100, SPINS = 4000, BROADCAST_BYTES = 1 << 18, LINE = 64 };

struct CommShared {
    _Alignas(LINE) _Atomic uint32_t generation; /* completed barriers; the futex word */
    _Alignas(LINE) _Atomic uint32_t arrived;
    _Alignas(LINE) _Atomic uint32_t aborted; /* rank + 1 of the first that left */
    _Alignas(LINE) _Atomic int64_t
        arrived_at[256]; /* number of the barrier that each rank has reached, to name the missing one */
    ProgressSlot progress[256];
    int towers, ranks;
    size_t max_count, stride; /* floats; stride is max_count rounded up to a line */
    size_t bytes;             /* of the mapping */
    char broadcast[BROADCAST_BYTES];
    _Alignas(LINE) float slots[]; /* [towers + 1][stride]: the last one is the result */
};

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

Status comm_shared_create(int towers, int ranks, size_t max_count, CommShared **made)
{
    if (towers < 1 || ranks < 1 || ranks > 256)
        return FAIL(ERR_ARG, "%d towers in %d processes: expected 1 to 256 processes", towers, ranks);
    size_t stride = (max_count + 15) / 16 * 16;
    size_t bytes = sizeof(CommShared) + ((size_t)towers + 1) * stride * sizeof(float);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "cannot map %zu MiB of memory shared between %d towers: %s", bytes >> 20, towers,
                    strerror(errno));
    CommShared *shared = memory;
    shared->towers = towers;
    shared->ranks = ranks;
    shared->max_count = max_count;
    shared->stride = stride;
    shared->bytes = bytes;
    *made = shared;
    return OK;
}

void comm_shared_destroy(CommShared *shared)
{
    if (shared) munmap(shared, shared->bytes);
}

void comm_shared_abort(CommShared *shared, int rank)
{
    uint32_t nobody = 0;
    atomic_compare_exchange_strong(&shared->aborted, &nobody, (uint32_t)rank + 1);
    futex_wake_all(&shared->generation);
}

int comm_shared_aborted(const CommShared *shared)
{
    return (int)atomic_load(&shared->aborted) - 1;
}

ProgressSlot *comm_shared_progress(CommShared *shared, int rank)
{
    return &shared->progress[rank];
}

bool comm_shared_waiting(const CommShared *shared, int rank)
{
    return (uint32_t)atomic_load(&shared->arrived_at[rank]) > atomic_load(&shared->generation);
}

static Status fail_aborted(const Comm *comm, const CommShared *shared)
{
    int left = (int)atomic_load(&shared->aborted) - 1;
    if (left == comm->config.place.rank)
        return FAIL(ERR_COMM, "rank %d takes part in a collective after it has left the run", left);
    return FAIL(ERR_COMM, "tower process %d has left the run; the others cannot continue without it", left);
}

static Status fail_deadline(const Comm *comm, CommShared *shared, int64_t barrier)
{
    int missing = -1;
    for (int r = 0; r < shared->ranks && missing < 0; r++)
        if (atomic_load(&shared->arrived_at[r]) < barrier) missing = r;
    comm_shared_abort(shared, missing < 0 ? comm->config.place.rank : missing);
    return FAIL(ERR_COMM, "tower process %d did not arrive at the collective within %.1f s (--comm-timeout)", missing,
                (double)comm->config.timeout_ms / 1000);
}

int64_t comm_shared_progress_of_others(const CommShared *shared, int rank)
{
    int64_t latest = 0;
    for (int r = 0; r < shared->ranks; r++) {
        int64_t at = atomic_load(&shared->progress[r].at_ns);
        if (r != rank && at > latest) latest = at;
    }
    return latest;
}

/* The last progress of ranks that have not arrived. */
static int64_t missing_progress(const CommShared *shared, int64_t barrier)
{
    int64_t latest = 0;
    for (int r = 0; r < shared->ranks; r++) {
        int64_t at = atomic_load(&shared->progress[r].at_ns);
        if (atomic_load(&shared->arrived_at[r]) < barrier && at > latest) latest = at;
    }
    return latest;
}

static Status shm_barrier(Comm *comm)
{
    CommShared *shared = comm->impl;
    if (atomic_load(&shared->aborted)) return fail_aborted(comm, shared);
    if (shared->ranks == 1) return OK;
    int64_t barrier = atomic_fetch_add(&shared->arrived_at[comm->config.place.rank], 1) + 1;
    uint32_t generation = atomic_load(&shared->generation);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == (uint32_t)shared->ranks) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
        futex_wake_all(&shared->generation);
        return OK;
    }
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&shared->generation, memory_order_acquire) != generation) return OK;
        if ((i & 63) == 0 && atomic_load_explicit(&shared->aborted, memory_order_relaxed))
            return fail_aborted(comm, shared);
    }
    CommWait wait = {0};
    while (atomic_load_explicit(&shared->generation, memory_order_acquire) == generation) {
        if (atomic_load(&shared->aborted)) return fail_aborted(comm, shared);
        comm_wait_look(&wait, &comm->config, missing_progress(shared, barrier));
        if (wait.left_ms <= 0) return fail_deadline(comm, shared, barrier);
        int64_t ms = wait.left_ms < LOOK_MS ? wait.left_ms : LOOK_MS;
        struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
        syscall(SYS_futex, &shared->generation, FUTEX_WAIT, generation, &t, NULL,
                0); /* early returns are fine: the caller checks again */
    }
    return OK;
}

static Status shm_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count)
{
    CommShared *shared = comm->impl;
    memcpy(shared->slots + (size_t)tower * shared->stride + first, from, count * sizeof *from);
    return OK;
}

static float *result_area(CommShared *shared)
{
    return shared->slots + (size_t)shared->towers * shared->stride;
}

/* The sum of [first, end) to `to` and, for the other ranks, to the result area; in blocks that stay in the first-level
 * cache, so that each slot is read once. */
static void add_slots(CommShared *shared, size_t first, size_t end, float *to)
{
    enum { BLOCK = 2048 };
    for (size_t at = first; at < end; at += BLOCK) {
        size_t n = end - at < BLOCK ? end - at : BLOCK;
        float *sum = to + (at - first);
        memcpy(sum, shared->slots + at, n * sizeof *sum);
        for (int t = 1; t < shared->towers; t++) {
            const float *slot = shared->slots + (size_t)t * shared->stride + at;
            for (size_t i = 0; i < n; i++) sum[i] += slot[i];
        }
        if (shared->ranks > 1) memcpy(result_area(shared) + at, sum, n * sizeof *sum);
    }
}

static Status shm_allreduce_end(Comm *comm, size_t first, float *to, size_t count)
{
    CommShared *shared = comm->impl;
    size_t rank = (size_t)comm->config.place.rank, ranks = (size_t)shared->ranks;
    size_t mine = count * rank / ranks, end = count * (rank + 1) / ranks;
    const float *result = result_area(shared) + first;
    TRY(shm_barrier(comm));
    add_slots(shared, first + mine, first + end, to + mine);
    TRY(shm_barrier(comm));
    memcpy(to, result, mine * sizeof *to);
    memcpy(to + end, result + end, (count - end) * sizeof *to);
    return OK;
}

static Status shm_broadcast(Comm *comm, void *buf, size_t bytes, int root)
{
    CommShared *shared = comm->impl;
    char *at = buf;
    for (size_t done = 0; done < bytes; done += BROADCAST_BYTES) {
        size_t n = bytes - done < BROADCAST_BYTES ? bytes - done : BROADCAST_BYTES;
        if (comm->config.place.rank == root) memcpy(shared->broadcast, at + done, n);
        TRY(shm_barrier(comm));
        if (comm->config.place.rank != root) memcpy(at + done, shared->broadcast, n);
        TRY(shm_barrier(comm));
    }
    return OK;
}

static Status shm_look(Comm *comm, CommWait *wait)
{
    CommShared *shared = comm->impl;
    comm_wait_look(wait, &comm->config, comm_shared_progress_of_others(shared, comm->config.place.rank));
    return atomic_load(&shared->aborted) ? fail_aborted(comm, shared) : OK;
}

static void shm_abort(Comm *comm)
{
    comm_shared_abort(comm->impl, comm->config.place.rank);
}

static void shm_close(Comm *comm)
{
    (void)comm; /* the mapping belongs to the supervisor */
}

static const CommOps shm_ops = {
    .allreduce_begin = shm_allreduce_begin,
    .allreduce_end = shm_allreduce_end,
    .broadcast = shm_broadcast,
    .barrier = shm_barrier,
    .look = shm_look,
    .abort = shm_abort,
    .close = shm_close,
};

Status comm_shm_open(const CommConfig *config, CommShared *shared, Comm **made)
{
    if (config->towers != shared->towers || config->place.ranks != shared->ranks ||
        config->max_count > shared->max_count)
        return FAIL(ERR_INTERNAL,
                    "rank %d: expected shared memory for %d towers, %d processes and %zu floats, found it made for %d, "
                    "%d and %zu",
                    config->place.rank, config->towers, config->place.ranks, config->max_count, shared->towers,
                    shared->ranks, shared->max_count);
    return comm_create(config, &shm_ops, shared, made);
}
