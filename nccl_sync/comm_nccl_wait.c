/* Waiting for NCCL without blocking in it, and its errors; see comm_nccl.c. */
#include "kernels/base/clock.h"
#include "kernels/base/pause.h"
#include "nccl_sync/comm_nccl.h"

static void nccl_leave(NcclComm *c)
{
    c->left = true;
    comm_shared_abort(c->shared, c->process);
}

/* NCCL has no code for a lack of memory, of the device or of the host; its last message tells (CUDACHECK and ncclCalloc write it). A
 * message may be older than a failure of another rank. */
static bool lacks_memory(ncclResult_t result, const char *message)
{
    bool own = result == ncclUnhandledCudaError || result == ncclSystemError;
    return own && (strstr(message, "out of memory") || strstr(message, "Failed to malloc"));
}

Status nccl_fail(NcclComm *c, ncclResult_t result, const char *what)
{
    const char *message = ncclGetLastError(c->nccl); /* that of the process, with or without a communicator */
    bool memory = lacks_memory(result, message);
    const char *remedy = memory ? "use a smaller batch or fewer towers per device" : nccl_remedy(result, message);
    Status st = FAIL(memory ? ERR_MEMORY : ERR_COMM, "NCCL: %s in %s (%s)%s%s", ncclGetErrorString(result), what,
                     message, *remedy ? ": " : "", remedy);
    nccl_leave(c);
    return st;
}

/* A collective has ended on the device. Asked only where a wait is long. */
static bool reach_each_other(const NcclComm *c)
{
    bool ended = c->first_begun && cudaEventQuery(c->first) == cudaSuccess;
    (void)cudaGetLastError(); /* clears it for the check after the next launch */
    return ended;
}

/* A collective has not ended in time; `longer`: what allows more. */
static Status late_fail(const Comm *comm, NcclComm *c, const char *what, int64_t ms, const char *longer)
{
    char remedy[400] = "";
    if (!reach_each_other(c)) nccl_first_remedy(comm, remedy, sizeof remedy);
    nccl_leave(c);
    return FAIL(ERR_COMM, "%s of rank %d did not end within %.1f s (--comm-timeout%s)%s", what, comm->config.place.rank,
                (double)ms / 1000, longer, remedy);
}

/* Which peers a collective waits for is not known: the deadline moves while any of them shows progress. `first_ms`: the limit while it is
 * not known whether the GPUs reach each other. */
static Status still_together(Comm *comm, NcclComm *c, CommWait *wait, const char *what, int64_t first_ms)
{
    int64_t timeout = comm->config.timeout_ms;
    Status st = comm_look(c->control, wait);
    if (st != OK) nccl_leave(c);
    TRY(st);
    if (wait->left_ms > timeout - first_ms) return OK;
    bool early = wait->left_ms > 0;
    if (early && reach_each_other(c)) return OK;
    return late_fail(comm, c, what, early ? first_ms : timeout, early ? " waits longer" : "");
}

Status nccl_settle(Comm *comm, NcclComm *c, ncclResult_t result, const char *what)
{
    CommWait wait = {0};
    for (int polls = 0; !nccl_failed(result); polls++) {
        ncclResult_t asked = ncclCommGetAsyncError(c->nccl, &result);
        if (asked != ncclSuccess) return nccl_fail(c, asked, "ncclCommGetAsyncError");
        if (result != ncclInProgress) break;
        if (polls % 64 == 0) {
            Status st = still_together(comm, c, &wait, what, comm->config.timeout_ms);
            if (st != OK) return st;
        }
        poll_pause(polls, POLL_NS);
    }
    return result == ncclSuccess ? OK : nccl_fail(c, result, what);
}

Status nccl_cuda_check(NcclComm *c, cudaError_t error, const char *what)
{
    if (error == cudaSuccess) return OK;
    nccl_leave(c);
    return FAIL(ERR_DEVICE, "CUDA: %s in %s", cudaGetErrorString(error), what);
}

Status nccl_fail_left(const Comm *comm)
{
    return FAIL(ERR_COMM, "rank %d takes part in a collective after it has left the run", comm->config.place.rank);
}

/* An error that the communicator has found by itself. */
static Status error_ask(NcclComm *c, const char *what)
{
    ncclResult_t result = ncclSuccess, asked = c->nccl ? ncclCommGetAsyncError(c->nccl, &result) : ncclSuccess;
    if (asked == ncclSuccess && !nccl_failed(result)) return OK;
    return nccl_fail(c, asked != ncclSuccess ? asked : result, what);
}

Status nccl_done_record(NcclComm *c, const char *what)
{
    if (!c->first_begun) TRY(nccl_cuda_check(c, cudaEventRecord(c->first, c->stream), what));
    c->first_begun = true;
    return nccl_cuda_check(c, cudaEventRecord(c->done, c->stream), what);
}

Status nccl_done_wait(Comm *comm, NcclComm *c, const char *what)
{
    CommWait wait = {0};
    int64_t first_ms = comm->config.first_ms ? comm->config.first_ms : comm->config.timeout_ms;
    for (int polls = 0;; polls++) {
        cudaError_t error = cudaEventQuery(c->done);
        if (error != cudaErrorNotReady) return nccl_cuda_check(c, error, "cudaEventQuery of a collective");
        (void)cudaGetLastError(); /* clears it for the check after the next launch */
        if (polls % 64 == 0) {
            TRY(still_together(comm, c, &wait, what, first_ms));
            TRY(error_ask(c, what));
        }
        poll_pause(polls, POLL_NS);
    }
}

Status nccl_look(Comm *comm, CommWait *wait)
{
    NcclComm *c = comm->impl;
    Status st = comm_look(c->control, wait);
    if (st != OK) nccl_leave(c);
    TRY(st);
    if (c->left) return nccl_fail_left(comm);
    TRY(error_ask(c, "the sum over the towers (ncclCommGetAsyncError)"));
    bool hangs = c->first_begun && wait->left_ms <= 0 && !reach_each_other(c);
    return hangs ? late_fail(comm, c, "the sum over the towers", comm->config.timeout_ms, "") : OK;
}
