/* The memory of the tower processes of a node: contributions, sums, barriers, and who has left; see comm_shared.h. */
#include "nccl_sync/comm_shared.h"
#include "kernels/base/clock.h"
#include "nccl_sync/comm_ops.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 4000 };

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

Status comm_shared_create(int towers, int ranks, size_t max_count, CommShared **made)
{
    if (towers < 1 || ranks < 1 || ranks > NODE_RANKS_MAX)
        return FAIL(ERR_ARG, "%d towers in %d processes: expected 1 to %d processes", towers, ranks, NODE_RANKS_MAX);
    size_t stride = (max_count + 15) / 16 * 16;
    size_t bytes = sizeof(CommShared) + ((size_t)towers + 1) * stride * sizeof(float);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(ERR_MEMORY, "cannot map %zu MiB of memory shared between %d towers: %s", bytes >> 20, towers,
                    strerror(errno));
    CommShared *shared = memory;
    shared->towers = towers;
    shared->ranks = ranks;
    shared->first_holds = 1;
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

static void shared_abort(CommShared *shared, uint32_t who, const char *what)
{
    if (atomic_fetch_add(&shared->abort_begun, 1) == 0) {
        snprintf(shared->abort_text, sizeof shared->abort_text, "%s", what);
        atomic_store(&shared->aborted, who + 1);
    }
    futex_wake_all(&shared->generation);
    futex_wake_all(&shared->chain_moves);
}

void comm_shared_abort(CommShared *shared, int process)
{
    shared_abort(shared, (uint32_t)process, "");
}

void comm_shared_abort_by(CommShared *shared, const char *what)
{
    shared_abort(shared, COMM_ABORTED_ELSEWHERE, what);
}

void comm_shared_peers_progress(CommShared *shared, int64_t at_ns)
{
    atomic_store(&shared->peers_ns, at_ns);
}

int shared_behind(const CommShared *shared)
{
    int64_t partials = atomic_load(&shared->partials);
    for (int r = 1; r < shared->ranks; r++)
        if (atomic_load(&shared->added[r]) < partials) return r;
    return -1;
}

int64_t comm_shared_come_to(const CommShared *shared)
{
    int64_t number = atomic_load(&shared->come_to);
    bool looks = clock_ns() - atomic_load(&shared->looked_ns[0]) < LOOK_LATE_MS * 1000000ll;
    return number > 0 && (!looks || shared_behind(shared) >= 0) ? number - 1 : number;
}

void comm_shared_behind(CommShared *shared, NodesBehind behind)
{
    uint64_t word;
    _Static_assert(sizeof word == sizeof behind, "it is written at once");
    memcpy(&word, &behind, sizeof word);
    atomic_store(&shared->behind, word);
}

int comm_shared_aborted(const CommShared *shared)
{
    return (int)atomic_load(&shared->aborted) - 1;
}

ProgressSlot *comm_shared_progress(CommShared *shared, int process)
{
    return &shared->progress[process];
}

bool comm_shared_waiting(const CommShared *shared, int process)
{
    bool looks = clock_ns() - atomic_load(&shared->looked_ns[process]) < LOOKED_MS * 1000000ll;
    return (looks && atomic_load(&shared->awaits[process])) ||
           (uint32_t)atomic_load(&shared->arrived_at[process]) > atomic_load(&shared->generation);
}

/* The rank in the run of a process of this node. */
static int rank_of(const CommConfig *config, int process)
{
    return config->place.rank - process_in_node(&config->place) + process;
}

Status shared_fail_aborted(const CommConfig *config, const CommShared *shared)
{
    int left = comm_shared_aborted(shared);
    if (left == COMM_ABORTED_ELSEWHERE)
        return FAIL(ERR_COMM, "%s; the others cannot continue without it", shared->abort_text);
    if (left == process_in_node(&config->place))
        return FAIL(ERR_COMM, "rank %d takes part in a collective after it has left the run", rank_of(config, left));
    return FAIL(ERR_COMM, "tower process %d has left the run; the others cannot continue without it",
                rank_of(config, left));
}

bool comm_shared_follows(const CommShared *shared, int process)
{
    int left = comm_shared_aborted(shared);
    return left >= 0 && (left != process || atomic_load(&shared->late));
}

static Status fail_deadline(const CommConfig *config, CommShared *shared, int missing)
{
    if (comm_shared_aborted(shared) < 0) atomic_store(&shared->late, true);
    comm_shared_abort(shared, missing);
    return FAIL(ERR_COMM, "tower process %d did not arrive at the collective within %.1f s (--comm-timeout)",
                rank_of(config, missing), (double)config->timeout_ms / 1000);
}

int64_t comm_shared_progress_of_others(const CommShared *shared, int process)
{
    int64_t latest = atomic_load(&shared->peers_ns);
    for (int r = 0; r < shared->ranks; r++) {
        int64_t at = progress_life(&shared->progress[r]);
        if (r != process && at > latest) latest = at;
    }
    return latest;
}

/* The last progress of a process that others of its node wait for. The first one's looks count, too: it is waiting for
 * other nodes, with a deadline of its own. */
static int64_t progress_of(const CommShared *shared, int process)
{
    int64_t at = progress_life(&shared->progress[process]);
    int64_t looked = process == 0 ? atomic_load(&shared->looked_ns[0]) : 0;
    return at > looked ? at : looked;
}

/* The last progress of ranks that have not arrived. */
static int64_t missing_progress(const CommShared *shared, int64_t barrier)
{
    int64_t latest = 0;
    for (int r = 0; r < shared->ranks; r++) {
        int64_t at = progress_of(shared, r);
        if (atomic_load(&shared->arrived_at[r]) < barrier && at > latest) latest = at;
    }
    return latest;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t left_ms)
{
    int64_t ms = left_ms < WAIT_LOOK_MS ? left_ms : WAIT_LOOK_MS;
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0); /* early returns are fine: the caller checks again */
}

Status shared_barrier(const CommConfig *config, CommShared *shared)
{
    if (atomic_load(&shared->aborted)) return shared_fail_aborted(config, shared);
    if (shared->ranks == 1) return OK;
    int64_t barrier = atomic_fetch_add(&shared->arrived_at[process_in_node(&config->place)], 1) + 1;
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
            return shared_fail_aborted(config, shared);
    }
    CommWait wait = {0};
    while (atomic_load_explicit(&shared->generation, memory_order_acquire) == generation) {
        if (atomic_load(&shared->aborted)) return shared_fail_aborted(config, shared);
        comm_wait_look(&wait, config, missing_progress(shared, barrier));
        if (wait.left_ms <= 0) {
            int missing = 0;
            while (missing < shared->ranks - 1 && atomic_load(&shared->arrived_at[missing]) >= barrier) missing++;
            return fail_deadline(config, shared, missing);
        }
        futex_wait(&shared->generation, generation, wait.left_ms);
    }
    return OK;
}

Status shared_chain_wait(const CommConfig *config, CommShared *shared, _Atomic int64_t *word, int64_t wanted,
                         int process)
{
    CommWait wait = {0};
    for (int i = 0; i < SPINS; i++)
        if (atomic_load_explicit(word, memory_order_acquire) >= wanted) return OK;
    for (;;) {
        uint32_t moves = atomic_load(&shared->chain_moves);
        if (atomic_load_explicit(word, memory_order_acquire) >= wanted) return OK;
        if (atomic_load(&shared->aborted)) return shared_fail_aborted(config, shared);
        comm_wait_look(&wait, config, progress_of(shared, process));
        if (wait.left_ms <= 0) return fail_deadline(config, shared, process);
        atomic_store(&shared->looked_ns[process_in_node(&config->place)], clock_ns());
        futex_wait(&shared->chain_moves, moves, wait.left_ms);
    }
}

void shared_chain_moved(CommShared *shared, _Atomic int64_t *word, int64_t value)
{
    atomic_store(word, value);
    atomic_fetch_add(&shared->chain_moves, 1);
    futex_wake_all(&shared->chain_moves);
}

Status shared_check(const CommConfig *config, CommShared *shared)
{
    const Placement *place = &config->place;
    int ranks = node_ranks(place), towers = place->nodes > 1 ? shared->towers : config->towers;
    if (place->first_tower == 0) shared->first_holds = place->local_towers;
    if (towers == shared->towers && ranks == shared->ranks && config->max_count <= shared->max_count) return OK;
    return FAIL(ERR_INTERNAL,
                "rank %d: expected shared memory for %d towers, %d processes and %zu floats, found it made for %d, %d "
                "and %zu",
                place->rank, towers, ranks, config->max_count, shared->towers, shared->ranks, shared->max_count);
}

void shared_give(const CommConfig *config, CommShared *shared, int tower, size_t first, const float *from, size_t count)
{
    bool adds = config->place.first_tower == 0;
    float *contribution =
        shared->contributions + (size_t)(adds ? 0 : tower - shared->first_tower) * shared->stride + first;
    if (!adds || tower == 0) memcpy(contribution, from, count * sizeof *contribution);
    for (size_t i = 0; adds && tower > 0 && i < count; i++) contribution[i] += from[i];
}

void shared_add(CommShared *shared, size_t first, size_t count, bool onto, float *sum, float *copy)
{
    enum { BLOCK = 2048 };
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        float *to = sum + done;
        if (!onto) memcpy(to, shared->contributions + first + done, n * sizeof *to);
        for (int t = onto ? 0 : shared->first_holds; t < shared->towers; t++) {
            const float *contribution = shared->contributions + (size_t)t * shared->stride + first + done;
            for (size_t i = 0; i < n; i++) to[i] += contribution[i];
        }
        if (copy) memcpy(copy + done, to, n * sizeof *to);
    }
}
