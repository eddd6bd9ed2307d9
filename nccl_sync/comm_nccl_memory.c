/* Memory that NCCL reads and writes without copies: ncclMemAlloc, and its registration with a communicator. As a symmetric
 * window (NCCL 2.29.7), which every rank can access at the same offset; else as a registered buffer (2.19); else not.
 *
 * NCCL chooses kernels by the registration of a buffer, and ranks that choose differently would deadlock. So all ranks
 * exchange their results through shared memory before a registration is used. If NCCL refuses it at once on all ranks,
 * collectives are only slower. If a window is refused after its call has begun, the run ends: after an error from
 * ncclCommGetAsyncError, a communicator can only be aborted. Deterministic sums use no windows, because their kernels
 * ignore NCCL_ALGO. */
#include "nccl_sync/comm_nccl.h"

/* Functions of versions after the oldest supported one; NULL if the library at run time does not have them. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#define HAS_MEMORY (ncclMemAlloc && ncclMemFree && ncclCommRegister && ncclCommDeregister)
#else
#define HAS_MEMORY false
#define ncclMemAlloc nccl_lacks
#define ncclMemFree nccl_lacks
#define ncclCommRegister nccl_lacks
#define ncclCommDeregister nccl_lacks
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#define HAS_WINDOWS (ncclCommWindowRegister && ncclCommWindowDeregister)
#else
#define HAS_WINDOWS false
#define NCCL_WIN_COLL_SYMMETRIC 1
#define ncclCommWindowRegister nccl_lacks
#define ncclCommWindowDeregister nccl_lacks
#endif

bool nccl_library_is(int version)
{
    int found = 0;
    return ncclGetVersion(&found) == ncclSuccess && found >= version;
}

static bool has_memory(void)
{
    return HAS_MEMORY && nccl_library_is(NCCL_VERSION(2, 19, 0));
}

/* They came with 2.27, but before 2.29.7 the kernels that use them wait for their peers unconditionally: if one has
 * ended, ncclCommAbort, which waits for the kernels, never returns. */
static bool has_windows(void)
{
    return HAS_WINDOWS && nccl_library_is(NCCL_VERSION(2, 29, 7));
}

bool comm_nccl_memory_create(size_t bytes, void **made)
{
    return has_memory() && ncclMemAlloc(made, bytes) == ncclSuccess;
}

/* Unlike cudaFree, ncclMemFree unmaps memory of running kernels. NCCL's own kernels end after their communicator is
 * aborted, which happens first; if waiting fails, nothing runs any more. */
void comm_nccl_memory_destroy(void *memory)
{
    cudaDeviceSynchronize();
    ncclMemFree(memory);
}

/* ---- registration */

Status nccl_ranks_ask(const Comm *comm, NcclComm *c, bool yes, int *count)
{
    char said = yes, *all = malloc((size_t)comm->config.place.ranks);
    *count = 0;
    if (!all) return FAIL(ERR_MEMORY, "no memory for the answers of %d ranks", comm->config.place.ranks);
    Status st = comm_gather(c->control, &said, 1, all);
    for (int r = 0; st == OK && r < comm->config.place.ranks; r++) *count += all[r];
    free(all);
    return st;
}

/* A failure to deregister is ignored, but the call must have ended before the next one. */
static void window_end(Comm *comm, NcclComm *c, void *window)
{
    ncclResult_t begun = ncclCommWindowDeregister(c->nccl, window);
    Status st = nccl_failed(begun) ? OK : nccl_settle(comm, c, begun, "ncclCommWindowDeregister");
    (void)st;
}

/* A window is made by all ranks together: if one rank is refused at once, the others wait in their calls. On a
 * platform without windows the call succeeds and returns NULL. */
static Status window_try(Comm *comm, NcclComm *c, const CommMemory *memory, size_t bytes, Registered *registered)
{
    static const char what[] = "ncclCommWindowRegister (NCCL_WIN_ENABLE=0 does without)";
    int ranks = comm->config.place.ranks, able, refused, made;
    c->window = NULL;
    TRY(nccl_ranks_ask(comm, c, memory->special && !c->device->config.deterministic && has_windows(), &able));
    if (able < ranks) return OK;
    ncclResult_t begun = ncclCommWindowRegister(c->nccl, memory->data, bytes, &c->window, NCCL_WIN_COLL_SYMMETRIC);
    TRY(nccl_ranks_ask(comm, c, nccl_failed(begun), &refused));
    if (refused == ranks) return OK;
    if (refused) return nccl_fail(c, nccl_failed(begun) ? begun : ncclRemoteError, what);
    TRY(nccl_settle(comm, c, begun, what));
    TRY(nccl_ranks_ask(comm, c, c->window != NULL, &made));
    if (made == ranks)
        *registered = (Registered){REGISTERED_WINDOW, c->window};
    else if (c->window)
        window_end(comm, c, c->window);
    return OK;
}

static Status buffer_try(Comm *comm, NcclComm *c, const CommMemory *memory, size_t bytes, Registered *registered)
{
    int made;
    void *handle = NULL;
    bool mine = has_memory() && ncclCommRegister(c->nccl, memory->data, bytes, &handle) == ncclSuccess &&
                handle != NULL; /* NULL with success: NCCL_LOCAL_REGISTER=0 */
    TRY(nccl_ranks_ask(comm, c, mine, &made));
    if (made == comm->config.place.ranks)
        *registered = (Registered){REGISTERED_BUFFER, handle};
    else if (mine)
        ncclCommDeregister(c->nccl, handle);
    return OK;
}

Status nccl_register(Comm *comm, NcclComm *c, const CommMemory *memory, size_t bytes)
{
    Registered *registered = &c->registered[c->registered_count];
    if (c->registered_count == REGISTERED_MAX || comm->config.place.ranks == 1 || bytes == 0) return OK;
    *registered = (Registered){REGISTERED_NOT, NULL};
    TRY(window_try(comm, c, memory, bytes, registered));
    if (registered->as == REGISTERED_NOT) TRY(buffer_try(comm, c, memory, bytes, registered));
    if (registered->as != REGISTERED_NOT) c->registered_count++;
    return OK;
}

void nccl_deregister(Comm *comm, NcclComm *c)
{
    while (!c->left && c->registered_count > 0) {
        const Registered *registered = &c->registered[--c->registered_count];
        if (registered->as == REGISTERED_WINDOW)
            window_end(comm, c, registered->handle);
        else
            ncclCommDeregister(c->nccl, registered->handle);
    }
}
