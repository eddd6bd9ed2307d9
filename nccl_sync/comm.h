/* Comm: communication between the processes of a run. All-reduce, broadcast, gather, barrier, abort.
 *
 * Ranks are processes; each holds consecutive towers (placement.h; virtual towers run one after another in one process).
 * comm_shm.c sums in tower order through memory that all processes of a host share; comm_hosts.c continues these sums from
 * host to host, over MPI: the result is bit-for-bit the same for any mapping of towers to processes and hosts.
 * comm_nccl.c is ncclAllReduce, on the gradients where they lie, or sums in tower order what NCCL only moves.
 *
 * Collective: the same calls in the same order on every rank. If a peer leaves, calls comm_abort, or does not arrive
 * before the deadline, every other rank's call fails with ERR_COMM; none waits forever. */
#pragma once

#include "kernels/backend.h"
#include "kernels/base/progress.h"
#include "kernels/base/silence.h"
#include "nccl_sync/hosts/frames.h"
#include "nccl_sync/placement.h"

typedef struct Comm Comm;

typedef struct CommConfig {
    Placement place;    /* of this process and its towers */
    int towers;         /* all towers */
    size_t max_count;   /* floats that one round may sum: first + count of every call is at most this */
    int64_t timeout_ms; /* of one collective, without progress of the missing ranks; messages say this number */
    /* added to every wait, so that whoever watches the ranks by the same timeout is the first to speak */
    int64_t grace_ms;
    /* NCCL only: */
    int64_t first_ms; /* of the device's first collective, which tells whether GPUs reach each other; 0: timeout_ms */
    Dtype reduce;     /* f32, or the 16-bit format in which gradients travel and are summed */
    size_t gradients; /* elements [0, gradients), contributed from device memory */
    size_t staged;    /* of these, [0, staged) are sometimes contributed from host memory instead */
    bool ordered;     /* add in tower order, in f32: the same bits for any number of GPUs and virtual towers */
    int ctas;         /* most thread blocks of a collective; 0: NCCL's choice */
    bool shared_gpu;  /* several ranks may have one GPU, which NCCL has to be told: for tests, and slow */
    int root_ranks;   /* ranks that meet at one of NCCL's roots when they start; 0: 128 */
    /* For several nodes that were not started by MPI: the address and port where node 0 listens, and the secret of the
     * job. If master is NULL, MPI connects the nodes. Borrowed. */
    const char *master;
    int port;
    Secret secret;
    struct Carrier *carrier; /* borrowed: keeps MPI for processes that follow each other; NULL: none do */
} CommConfig;

/* Memory shared by the tower processes of one node. The supervisor creates it before it forks them. It is an anonymous
 * mapping (no name, not limited by /dev/shm), which the kernel frees with the last process. `towers` and `ranks` count
 * those of the node; the functions below identify a process by its number in the node. */
typedef struct CommShared CommShared;
NODISCARD Status comm_shared_create(int towers, int ranks, size_t max_count, CommShared **made);
void comm_shared_destroy(CommShared *shared);
/* Called by the supervisor when a process has ended: every waiting and every later collective fails at once. */
void comm_shared_abort(CommShared *shared, int process);
/* Abort because of another node: "host b: tower process 5 was killed by signal 9". Only the first abort counts. */
enum { COMM_MESSAGE_BYTES = 384, COMM_ABORTED_ELSEWHERE = 1 << 16 };
void comm_shared_abort_by(CommShared *shared, const char *what);
/* The process that left first, COMM_ABORTED_ELSEWHERE, or -1 if none has. */
int comm_shared_aborted(const CommShared *shared);
/* Whether a process that fails with ERR_COMM does so because another one has left, or because others gave up waiting for it:
 * then somebody else knows why. */
bool comm_shared_follows(const CommShared *shared, int process);
/* The progress slot of a process in the shared memory: deadlines are extended while a missing peer makes progress. */
ProgressSlot *comm_shared_progress(CommShared *shared, int process);
/* Called by the supervisor when a heartbeat reports progress in another node; at_ns: clock_ns() of this host. */
void comm_shared_peers_progress(CommShared *shared, int64_t at_ns);
/* The number of the last collective to which all processes of this node have come: one less while its first process does not look, or
 * another one has not done its part. For the supervisor's heartbeats. */
int64_t comm_shared_come_to(const CommShared *shared);
/* Called by the supervisor: the nodes for which this one waits, as heartbeats say. */
void comm_shared_behind(CommShared *shared, NodesBehind behind);
/* Whether the process waits for others, at a barrier or for its communication thread, which looks for them. */
bool comm_shared_waiting(const CommShared *shared, int process);

/* The communicator for the towers of `device`: NCCL between GPUs, otherwise shared memory. Between nodes messages go over
 * MPI, which the first process of each node initializes, so a process joins once, and only the first of a node does,
 * unless there is a carrier; or over TCP for GPUs, if config->master is given. ERR_UNSUPPORTED where MPI is needed and the
 * build has none. `device` is borrowed and must outlive it. */
NODISCARD Status comm_join(const CommConfig *config, CommShared *shared, Device *device, Comm **made);
NODISCARD Status comm_shm_open(const CommConfig *config, CommShared *shared, Comm **made);
/* The version of the MPI that this program uses, "Open MPI v4.1.4"; false, and "", in builds without MPI. */
bool comm_mpi_text(char *text, size_t bytes);
void comm_nccl_text(char *text, size_t bytes); /* "NCCL 2.28.9"; "" in builds without CUDA */
void comm_close(Comm *comm);                   /* NULL is fine */

/* Carrier: a process that keeps MPI while tower processes of a node are followed by others (link_carried.c). `place` is
 * that of the node, `control` its channel, which the carrier must not keep open. Before any thread is started. */
typedef struct Carrier Carrier;
struct ControlPlane;
NODISCARD Status comm_carrier_start(const Placement *place, struct ControlPlane *control, Carrier **made);
/* At the end of the last tower processes: ends it, together with those of all nodes after an orderly end. May be called
 * repeatedly; NULL is fine. */
void carrier_end(Carrier *carrier);
void carrier_destroy(Carrier *carrier); /* ends it, too */

/* Device memory that NCCL accesses fastest (ncclMemAlloc, from 2.19 on); without NCCL ordinary device memory. */
typedef struct CommMemory {
    void *data;
    bool special; /* not the backend's own */
} CommMemory;
NODISCARD Status comm_memory_create(Device *device, size_t bytes, CommMemory *made); /* zeroed */
/* Waits until the device is idle, so pending collectives must be able to end, or the communicator must be closed. An
 * empty one is fine. */
void comm_memory_destroy(Device *device, CommMemory *memory);
/* Registers memory from which contributions will come with NCCL, on all ranks alike, if NCCL accepts it. ERR_COMM if
 * only some ranks are refused or a registration fails half-way, after which a communicator is unusable. `memory` must
 * outlive the communicator. Collective. */
NODISCARD Status comm_register(Comm *comm, const CommMemory *memory, size_t bytes);
/* Bytes that a communicator allocates for its sums, without the contributions: device memory; on a CPU this rank's share
 * of the shared memory. */
size_t comm_bytes(const Backend *backend, const CommConfig *config);
/* Device memory that NCCL takes for itself: an estimate. `deterministic`: the device is (DeviceConfig). */
size_t comm_library_bytes(const Backend *backend, const CommConfig *config, bool deterministic);
/* "NCCL 2.28.9 sums the gradients in place, in a symmetric window"; "" if there is no choice to report. */
void comm_text(const Comm *comm, char *text, size_t bytes);

/* Begins the all-reduce of elements [first, first + count) of this round with the contribution of tower `tower`. A rank calls
 * it for each of its towers in ascending order; the call for the last one starts the sum, which runs beside the computation
 * where the communicator can do so. All ranks must start their ranges in the same order. `from` is f32 in host memory, or
 * with NCCL in device memory, which is read in the order of STREAM_COMPUTE. Device memory of this rank's last tower belongs
 * to the communicator until comm_allreduce_end: the sum may overwrite the contribution. */
NODISCARD Status comm_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count);
/* Ends the all-reduce of [first, first + count): the sum over all towers, in tower order, goes to `to` on every rank.
 * Every tower must have begun exactly this range in this round; it ends once. Elements, not bytes. `to`: host memory, or
 * with NCCL device memory, written in the order of STREAM_COMPUTE without waiting. No copy is needed if `to` is the
 * device memory of the last tower's contribution. */
NODISCARD Status comm_allreduce_end(Comm *comm, size_t first, float *to, size_t count);

/* When sums ran on a communication thread, as CPU towers of several hosts have one; clock_ns(). */
typedef struct CommTimes {
    int sums;                   /* 0: there is no such thread, or no sum */
    int64_t begun_ns, ended_ns; /* of the first, of the last */
    int64_t busy_ns;            /* of all together */
} CommTimes;
/* The times of the sums that have ended since the last call. */
void comm_sum_times(Comm *comm, CommTimes *times);

NODISCARD Status comm_broadcast(Comm *comm, void *buf, size_t bytes, int root); /* from rank `root`; host memory */
/* Collects `bytes` from every rank, in `all` [ranks][bytes], on every rank; host memory. */
NODISCARD Status comm_gather(Comm *comm, const void *mine, size_t bytes, void *all);
/* The same for rank 0 alone, so that what travels grows with the ranks and not with their square; elsewhere `all` is NULL. The others
 * do not wait until it has come. */
NODISCARD Status comm_gather_root(Comm *comm, const void *mine, size_t bytes, void *all);
NODISCARD Status comm_barrier(Comm *comm);
/* How long one wait for peers may still go on: config.timeout_ms + grace_ms without a sign of progress from those that
 * are missing. Time in which this process was stopped itself does not count. All zero at first. */
typedef struct CommWait {
    int64_t left_ms; /* 0 or less: too long */
    Silence silence; /* of those that are missing */
} CommWait;
/* For callers that wait for a sum in device memory: ERR_COMM if a peer has left. Counts down wait->left_ms. Waits
 * for no peer's call of it, but between hosts for the collectives that this process has begun before. */
NODISCARD Status comm_look(Comm *comm, CommWait *wait);

/* Ends a tower process, whose communicator is closed. */
_Noreturn void comm_exit(int code);

/* Leaves after an error: peers' calls fail with ERR_COMM instead of waiting. May be called at any time and repeatedly. */
void comm_abort(Comm *comm);

const CommConfig *comm_config(const Comm *comm);
