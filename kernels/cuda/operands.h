/* Operands that the CUDA kernels accept, checked once by prepare: element types, and sizes that 32-bit indices can count. */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"
#include "kernels/operands.h"

/* Launch a kernel for a call, on the compute stream. */
#define LAUNCH_KERNEL(launcher)                                                                                        \
    static Status launcher##_launch(Device *device, OpCall *call)                                                      \
    {                                                                                                                  \
        TRY_CUDA(kernel_##launcher(call, cuda_stream(device, STREAM_COMPUTE)));                                        \
        return OK;                                                                                                     \
    }

/* f32, f16 or bf16, and not too large. Absent operands pass. */
NODISCARD static inline Status check_activation(const OpCall *call, const Tensor *t)
{
    if (!t->data) return OK;
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return FAIL(ERR_UNSUPPORTED, "%s '%s': the GPU computes in f32, f16 or bf16, not %s", op_name(call->kind),
                    call->name, dtype_name(t->dtype));
    if (shape_count(t->shape) >= KERNEL_MAX_ELEMENTS)
        return FAIL(ERR_UNSUPPORTED, "%s '%s': %s has 2^31 elements or more; use a smaller batch", op_name(call->kind),
                    call->name, shape_text(t->shape));
    return OK;
}

/* Each present input of the first `in_count`, and out[0], in any mixture of types. */
NODISCARD static inline Status check_activations(const OpCall *call, int in_count)
{
    TRY(check_activation(call, &call->out[0]));
    for (int k = 0; k < in_count && k < call->in_count; k++) TRY(check_activation(call, &call->in[k]));
    return OK;
}

/* ... and all of one type. */
NODISCARD static inline Status check_same_dtype(const OpCall *call, int in_count)
{
    TRY(check_activations(call, in_count));
    return operands_same_dtype(call, 0, in_count);
}

/* Counters of a reducing kernel: zeroed device memory that the op keeps as its state. */
NODISCARD static inline Status counters_create(Device *device, OpCall *call)
{
    return device->backend->alloc(device, KERNEL_COUNTERS_BYTES, &call->state);
}

/* The counters of an op that sums over the pixels of x. */
NODISCARD static inline Status column_counters_create(Device *device, OpCall *call, const Tensor *x)
{
    if (x->shape.c > KERNEL_MAX_CHANNELS)
        return FAIL(ERR_UNSUPPORTED, "%s '%s': expected at most %d channels on a GPU, found %d", op_name(call->kind),
                    call->name, KERNEL_MAX_CHANNELS, x->shape.c);
    return counters_create(device, call);
}

static inline void counters_destroy(Device *device, OpCall *call)
{
    if (call->state) device->backend->release(device, call->state);
    call->state = NULL;
}
