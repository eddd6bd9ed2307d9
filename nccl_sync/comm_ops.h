/* The interface that a communicator implements; comm.c forwards to it. Internal to nccl_sync. */
#pragma once

#include "nccl_sync/bucket.h"
#include "nccl_sync/comm.h"

typedef struct CommOps {
    Status (*allreduce_begin)(Comm *comm, int tower, size_t first, float *from, size_t count);
    Status (*allreduce_end)(Comm *comm, size_t first, float *to, size_t count);
    Status (*broadcast)(Comm *comm, void *buf, size_t bytes, int root);
    /* everywhere: on all ranks; else on rank 0, and `all` is NULL on the others. */
    Status (*gather)(Comm *comm, const void *mine, size_t bytes, void *all, bool everywhere);
    Status (*barrier)(Comm *comm);
    Status (*register_memory)(Comm *comm, const CommMemory *memory, size_t bytes); /* NULL: no effect */
    void (*text)(const Comm *comm, char *text, size_t bytes);                      /* may leave it "", as NULL does */
    void (*sum_times)(Comm *comm, CommTimes *times); /* NULL: sums do not run beside the computation */
    Status (*look)(Comm *comm, CommWait *wait);
    void (*abort)(Comm *comm);
    void (*close)(Comm *comm); /* frees impl */
} CommOps;

struct Comm {
    const CommOps *ops; /* borrowed, static */
    CommConfig config;
    void *impl;                /* owned by the implementation */
    struct CommRecord *record; /* borrowed: where its collectives are recorded; NULL: nowhere */
};

/* Device memory of comm_nccl.c, in bytes. */
typedef struct CommSpace {
    size_t sum;      /* contributions that cannot be summed in place, or are not sent from where they lie */
    size_t small;    /* gradients in 16 bits */
    size_t guest;    /* contributions of further local towers from host memory */
    size_t chunks;   /* comm_exchanges: this rank's chunks of the contributions of other ranks */
    size_t gathered; /* comm_exchanges: the sums of all chunks */
    size_t relay;    /* pieces of large broadcasts, on their way */
} CommSpace;
enum { COMM_RELAY_BYTES = 1 << 22, RANGES_MAX = BUCKETS_MAX + 8 /* all-reduces in progress */ };
CommSpace comm_space(const CommConfig *config);
/* Whether NCCL only moves the contributions (comm_nccl_ordered.c). A single rank adds its towers in order anyway. */
static inline bool comm_exchanges(const CommConfig *config)
{
    return config->ordered && config->place.ranks > 1;
}
/* Floats from one local tower's contributions to the next one's, if they are exchanged: whole lines, because NCCL's kernels and
 * ours move 16 bytes at once only from addresses that are multiples of that. */
static inline size_t comm_slot(const CommConfig *config)
{
    return (config->max_count + 15) / 16 * 16;
}
/* Floats for one rank's chunks of all ranges of a round, each rounded up to 16 bytes. */
static inline size_t comm_chunks(const CommConfig *config)
{
    return (config->max_count / (size_t)config->place.ranks + 4 * RANGES_MAX + 15) / 16 * 16;
}
/* Floats of a round that may come from host memory, and where element `first` of them is kept. */
static inline size_t comm_staged(const CommConfig *config)
{
    return config->staged + config->max_count - config->gradients;
}
static inline size_t comm_staged_at(const CommConfig *config, size_t first)
{
    return first < config->gradients ? first : config->staged + (first - config->gradients);
}

/* comm_nccl_memory.c: false if this version of NCCL has no allocator, or no memory is left. */
bool comm_nccl_memory_create(size_t bytes, void **made);
void comm_nccl_memory_destroy(void *memory);

/* One look of a wait; progress_ns: the last sign of progress of the peers that are missing. */
void comm_wait_look(CommWait *wait, const CommConfig *config, int64_t progress_ns);
/* The last sign of progress of all ranks but this process of the node. */
int64_t comm_shared_progress_of_others(const CommShared *shared, int process);

/* In builds with CUDA. `control`, between the processors of these processes, belongs to the new one, and is closed if this
 * fails. */
NODISCARD Status comm_nccl_open(const CommConfig *config, CommShared *shared, Device *device, Comm *control,
                                Comm **made);

NODISCARD Status comm_create(const CommConfig *config, const CommOps *ops, void *impl, Comm **made);
