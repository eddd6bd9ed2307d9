/* The launches of the kernels that are no ops: the update of the weights, the global square sum and the running averages
 * (optimizer.cu), the gate (gate.cu), and the hash of device memory (hash.cu). What changes from step to step (rate, scale,
 * gate) is read from device memory by the kernels. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

static Status segments_check(const OptimizerSegment *segments, int count)
{
    for (int k = 0; k < count; k++)
        if (segments[k].count >= (size_t)KERNEL_MAX_ELEMENTS)
            return FAIL(ERR_UNSUPPORTED, "optimizer: expected segments of less than 2^31 elements, found %zu",
                        segments[k].count);
    return OK;
}

Status cuda_optimizer_apply(Device *device, const OptimizerUpdate *update)
{
    TRY(optimizer_check(update));
    TRY(segments_check(update->segments, update->segment_count));
    TRY_CUDA(kernel_optimizer(update, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_square_sum(Device *device, const float *x, size_t count, double *sum_of_squares)
{
    TRY_CUDA(
        kernel_square_sum(x, count, cuda_device(device)->scratch, sum_of_squares, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_l2_term(Device *device, const float *param, const OptimizerSegment *segments, int count, double *term)
{
    TRY(segments_check(segments, count));
    TRY_CUDA(kernel_l2_term(param, segments, count, cuda_device(device)->scratch, term,
                            cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_average(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                    size_t count, const float *commit)
{
    if (count >= (size_t)KERNEL_MAX_ELEMENTS)
        return FAIL(ERR_UNSUPPORTED, "averages: expected less than 2^31 elements, found %zu", count);
    TRY_CUDA(kernel_average(running, batch, correct, decay, count, commit, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_add_vectors(Device *device, StreamKind stream, const float *const *from, int vectors, float *sum,
                        size_t count)
{
    if (count >= (size_t)KERNEL_MAX_ELEMENTS)
        return FAIL(ERR_UNSUPPORTED, "a sum of vectors: expected less than 2^31 elements, found %zu", count);
    Tensor t = {.shape = {1, (int32_t)count, 1, 1}, .dtype = DTYPE_F32, .pitch = (int64_t)count};
    OpCall call = {.kind = OP_ADD, .in_count = vectors, .out = {t}, .out_count = 1};
    for (int k = 0; k < vectors; k++) call.in[k] = t, call.in[k].data = (void *)from[k];
    call.out[0].data = sum;
    TRY_CUDA(kernel_add(&call, cuda_stream(device, stream)));
    return OK;
}

Status cuda_hash(Device *device, const float *x, size_t count, uint64_t first, uint64_t *sum)
{
    TRY_CUDA(kernel_hash(x, count, first, sum, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_gate_extras(Device *device, const GateExtrasCall *call)
{
    TRY_CUDA(kernel_gate_extras(call, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_gate_decide(Device *device, const GateDecideCall *call)
{
    TRY_CUDA(kernel_gate_decide(call, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}
