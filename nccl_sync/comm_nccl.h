/* Shared by the parts of the NCCL communicator: its state, its parts, and waiting for calls in progress. Internal to nccl_sync, in
 * builds with CUDA. */
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "nccl_sync/comm_ops.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
typedef void *ncclWindow_t;
#endif

/* ncclBfloat16: headers before 2.24 have it for C++ alone, the library for everybody. */
#define NCCL_BF16 ((ncclDataType_t)9)

/* In the place of functions that a header of NCCL before them lacks, whatever their arguments. */
static inline ncclResult_t nccl_lacks(const void *argument, ...)
{
    (void)argument;
    return ncclInvalidUsage;
}

enum { REGISTERED_MAX = 4 };

/* How a piece of memory is registered with NCCL. */
typedef enum RegisteredAs { REGISTERED_NOT = 0, REGISTERED_BUFFER, REGISTERED_WINDOW } RegisteredAs;

typedef struct Registered {
    RegisteredAs as;
    void *handle; /* of ncclCommRegister, or the window */
} Registered;

/* A range whose all-reduce all local towers have begun. */
typedef struct ReduceRange {
    size_t first, count;
    float *at;              /* where its sum is computed; ordered: at first, what the last local tower gives */
    bool narrow;            /* it travels in 16 bits, in NcclComm.small */
    size_t chunk, chunk_at; /* ordered: floats of a rank's chunk, and where they begin in the room for its chunks */
} ReduceRange;

typedef struct NcclComm {
    Comm *control;      /* owned: between the processors: comm_shm, or comm_hosts */
    CommShared *shared; /* borrowed */
    Device *device;     /* borrowed */
    int process;        /* number in the node */
    ncclComm_t nccl;    /* owned; NULL before it is created and after its abort */
    bool left;          /* after an error: no more calls until the communicator is aborted */
    bool first_begun;   /* `first` is recorded */
    bool summed;        /* a sum has come to the host: the GPUs reach each other. Alike on all ranks */
    cudaStream_t stream;
    cudaEvent_t first;   /* owned: the end of the first collective */
    cudaEvent_t done;    /* owned: the end of the last collective */
    bool compute_waits;  /* STREAM_COMPUTE is behind it already */
    CommMemory sum;      /* owned: comm_space; ordered: [local towers - 1][comm_slot], [comm_staged] */
    CommMemory small;    /* owned: [gradients] of config.reduce, if that is a 16-bit format */
    float *guest;        /* owned, device: contributions that come from host memory; several local towers */
    void *relay;         /* owned, device: pieces of large broadcasts, on their way */
    int *rank_of;        /* owned: [towers]; NULL unless comm_exchanges */
    float *chunks;       /* owned, device, ordered: [towers of other ranks][comm_chunks] */
    CommMemory gathered; /* owned, ordered: [comm_chunks * ranks] */
    ncclRedOp_t op;      /* of gradients in 16 bits */
    float enlarge;       /* the divisor of `op`, in f16 */
    ReduceRange range[RANGES_MAX];
    int ranges;
    ncclWindow_t window; /* in creation: NCCL may write it until the call is settled or the communicator is aborted */
    Registered registered[REGISTERED_MAX];
    int registered_count;
} NcclComm;

/* For a nonblocking communicator: ncclInProgress is not a failure. */
static inline bool nccl_failed(ncclResult_t result)
{
    return result != ncclSuccess && result != ncclInProgress;
}

/* comm_nccl_wait.c. nccl_fail and nccl_settle leave the communicator in an error. nccl_settle waits until a call has ended, whatever the call
 * itself returned: some return ncclSuccess from a communicator that does not block while a thread of the library still works
 * on them. */
NODISCARD Status nccl_fail(NcclComm *c, ncclResult_t result, const char *what);
NODISCARD Status nccl_settle(Comm *comm, NcclComm *c, ncclResult_t result, const char *what);

/* comm_nccl_remedy.c: what to do about a failure of which NCCL says this; "": not known. And about a first collective that does not
 * end. */
const char *nccl_remedy(ncclResult_t result, const char *message);
void nccl_first_remedy(const Comm *comm, char *text, size_t bytes);

NODISCARD Status nccl_cuda_check(NcclComm *c, cudaError_t error, const char *what);
NODISCARD Status nccl_fail_left(const Comm *comm); /* a call after an error */
/* Behind each collective. */
NODISCARD Status nccl_done_record(NcclComm *c, const char *what);
/* Waits until the last collective has ended on the device. */
NODISCARD Status nccl_done_wait(Comm *comm, NcclComm *c, const char *what);
/* As comm_look; when the time for the first collective is over it fails, and says what to try. */
NODISCARD Status nccl_look(Comm *comm, CommWait *wait);

/* comm_nccl_sum.c */
NODISCARD Status nccl_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count);
NODISCARD Status nccl_allreduce_end(Comm *comm, size_t first, float *to, size_t count);

/* comm_nccl_ordered.c. Where a contribution of this rank must lie: `from`, or memory to which the caller copies it. The
 * range's `at` is that of the last local tower; after the start the sum will be there. */
float *nccl_ordered_place(const Comm *comm, const NcclComm *c, int tower, size_t first, float *from, bool on_host);
NODISCARD Status nccl_ordered_start(Comm *comm, NcclComm *c, ReduceRange *range); /* one of c->range */

/* comm_nccl_memory.c. Whether the library at run time is at least this one. */
bool nccl_library_is(int version);
/* The number of ranks for which `yes` is true. Collective. */
NODISCARD Status nccl_ranks_ask(const Comm *comm, NcclComm *c, bool yes, int *count);
/* Registers memory that collectives will use with the communicator, in `registered`. Collective. */
NODISCARD Status nccl_register(Comm *comm, NcclComm *c, const CommMemory *memory, size_t bytes);
/* Deregisters all of it, before the communicator is finalized. Aborting a communicator deregisters too. */
void nccl_deregister(Comm *comm, NcclComm *c);
