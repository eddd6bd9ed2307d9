/* The all-reduce of the NCCL communicator; see comm_nccl.c for its two ways, fast and ordered (comm_nccl_ordered.c).
 *
 * A range passes three stations. allreduce_begin: each local tower's contribution is added to those before it, or kept.
 * After the last one the ranks make the sum on STREAM_COMM, behind what STREAM_COMPUTE has been given. allreduce_end:
 * STREAM_COMPUTE waits for that, and leaves the sum in f32 where it is wanted. */
#include "nccl_sync/comm_nccl.h"

/* ---- memory */

static Status place_ask(NcclComm *c, const void *memory, bool *on_host)
{
    struct cudaPointerAttributes attributes;
    TRY(nccl_cuda_check(c, cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes"));
    *on_host = attributes.type == cudaMemoryTypeUnregistered || attributes.type == cudaMemoryTypeHost;
    return OK;
}

static Status copy_in(NcclComm *c, float *to, const float *from, bool on_host, size_t count)
{
    if (on_host) return c->device->backend->upload(c->device, to, from, count * sizeof *from);
    return nccl_cuda_check(c,
                           cudaMemcpyAsync(to, from, count * sizeof *from, cudaMemcpyDeviceToDevice,
                                           c->device->backend->stream(c->device, STREAM_COMPUTE)),
                           "cudaMemcpyAsync of a tower's contribution");
}

/* Multiplies a range in place. */
static Status range_scale(NcclComm *c, float scale, float *at, size_t count)
{
    const OpKernel *kernel = c->device->backend->kernels[OP_AFFINE];
    Tensor t = {.shape = {1, (int32_t)count, 1, 1}, .dtype = DTYPE_F32, .pitch = (int64_t)count, .data = at};
    OpCall call = {.kind = OP_AFFINE, .name = "sum over towers", .in = {t}, .in_count = 1, .out = {t}, .out_count = 1};
    call.attr.affine.scale = scale;
    TRY(kernel->prepare(c->device, &call)); /* it keeps no state */
    return kernel->launch(c->device, &call);
}

/* The buffer for contributions to a range that cannot be summed in place. */
static float *sum_at(const Comm *comm, const NcclComm *c, size_t first)
{
    bool whole = comm->config.place.local_towers > 1;
    return (float *)c->sum.data + (whole ? first : comm_staged_at(&comm->config, first));
}

static char *small_at(const Comm *comm, const NcclComm *c, size_t first)
{
    return (char *)c->small.data + first * dtype_bytes(comm->config.reduce);
}

/* ---- the exchange */

/* All-reduces a range in place. */
static Status range_reduce(Comm *comm, NcclComm *c, const ReduceRange *range)
{
    Dtype narrow = comm->config.reduce;
    void *at = range->narrow ? (void *)small_at(comm, c, range->first) : range->at;
    ncclDataType_t type = !range->narrow ? ncclFloat32 : narrow == DTYPE_F16 ? ncclFloat16 : NCCL_BF16;
    if (range->narrow) TRY(c->device->backend->convert(c->device, at, narrow, range->at, DTYPE_F32, range->count));
    TRY(c->device->backend->wait(c->device, STREAM_COMM, STREAM_COMPUTE));
    ncclRedOp_t op = range->narrow ? c->op : ncclSum;
    ncclResult_t begun = ncclAllReduce(at, at, range->count, type, op, c->nccl, c->stream);
    return nccl_settle(comm, c, begun, "ncclAllReduce");
}

/* The range whose all-reduce has begun at `first` and not ended; NULL if there is none. */
static ReduceRange *range_find(NcclComm *c, size_t first)
{
    for (int i = 0; i < c->ranges; i++)
        if (c->range[i].first == first) return &c->range[i];
    return NULL;
}

/* What all local towers have given is exchanged, beside what STREAM_COMPUTE does next. */
static Status sum_start(Comm *comm, NcclComm *c, const ReduceRange *given)
{
    ReduceRange *range = range_find(c, given->first);
    if (given->count == 0) return OK;
    if (c->left) return nccl_fail_left(comm);
    if (!range && c->ranges == RANGES_MAX)
        return FAIL(ERR_INTERNAL, "more than %d all-reduces are in progress", RANGES_MAX);
    if (!range) range = &c->range[c->ranges++];
    *range = *given;
    c->compute_waits = comm->config.place.ranks == 1;
    if (c->compute_waits) return OK;
    TRY(comm_exchanges(&comm->config) ? nccl_ordered_start(comm, c, range) : range_reduce(comm, c, range));
    return nccl_done_record(c, "cudaEventRecord behind the sum over the towers");
}

/* ---- contributions */

/* Adds the local towers in order, the last one in place at range->at. The towers share one gradient arena, so the
 * contributions of the others are kept in c->sum, as are those from host memory. */
static Status tower_add(Comm *comm, NcclComm *c, int tower, float *from, bool on_host, ReduceRange *range)
{
    const CommConfig *config = &comm->config;
    bool starts = tower == config->place.first_tower,
         ends = tower == config->place.first_tower + config->place.local_towers - 1;
    float *sum = sum_at(comm, c, range->first);
    range->at = ends && !on_host ? from : sum;
    if (starts) return range->at == from ? OK : copy_in(c, sum, from, on_host, range->count);
    if (on_host) {
        float *guest = c->guest + comm_staged_at(config, range->first);
        TRY(copy_in(c, guest, from, true, range->count));
        from = guest;
    }
    const float *both[] = {sum, from};
    return c->device->backend->add(c->device, STREAM_COMPUTE, both, 2, range->at, range->count);
}

Status nccl_allreduce_begin(Comm *comm, int tower, size_t first, float *from, size_t count)
{
    NcclComm *c = comm->impl;
    bool on_host = false;
    ReduceRange range = {.first = first, .count = count};
    TRY(place_ask(c, from, &on_host));
    if (on_host && first < comm->config.gradients && first + count > comm->config.staged)
        return FAIL(ERR_INTERNAL, "%zu elements of host memory from element %zu exceed the staging buffer of %zu",
                    count, first, comm->config.staged);
    range.narrow = c->small.data && !on_host && first < comm->config.gradients;
    if (comm_exchanges(&comm->config)) {
        range.at = nccl_ordered_place(comm, c, tower, first, from, on_host);
        if (range.at != from) TRY(copy_in(c, range.at, from, on_host, count));
    } else {
        TRY(tower_add(comm, c, tower, from, on_host, &range));
    }
    return tower == comm->config.place.first_tower + comm->config.place.local_towers - 1 ? sum_start(comm, c, &range)
                                                                                         : OK;
}

/* ---- the result */

/* The sum of the range in f32, to `to`. */
static Status range_finish(Comm *comm, NcclComm *c, const ReduceRange *range, float *to)
{
    if (!range->narrow) return range->at == to ? OK : copy_in(c, to, range->at, false, range->count);
    const char *small = small_at(comm, c, range->first);
    TRY(c->device->backend->convert(c->device, to, DTYPE_F32, small, comm->config.reduce, range->count));
    /* undoes the division of `op` */
    return comm->config.reduce == DTYPE_F16 ? range_scale(c, c->enlarge, to, range->count) : OK;
}

Status nccl_allreduce_end(Comm *comm, size_t first, float *to, size_t count)
{
    NcclComm *c = comm->impl;
    const Backend *backend = c->device->backend;
    bool on_host = false;
    if (count == 0) return OK;
    ReduceRange *given = range_find(c, first);
    if (!given || given->count != count)
        return FAIL(ERR_INTERNAL, "the all-reduce of %zu elements from element %zu ended before it began", count,
                    first);
    ReduceRange range = *given;
    *given = c->range[--c->ranges];
    if (to != range.at) TRY(place_ask(c, to, &on_host));
    if (on_host) TRY(nccl_done_wait(comm, c, "the sum over the towers"));
    if (!on_host && !c->compute_waits) TRY(backend->wait(c->device, STREAM_COMPUTE, STREAM_COMM));
    c->compute_waits |= !on_host;
    TRY(range_finish(comm, c, &range, on_host ? range.at : to));
    if (!on_host) return OK;
    TRY(backend->download(c->device, to, range.at, count * sizeof *to));
    c->summed = true;
    return backend->finish(c->device, STREAM_COMPUTE);
}
