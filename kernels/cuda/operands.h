/* What the prepare and the launch of the CUDA kernels share: 32-bit indices must be able to count all operands. */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

/* Launch a kernel for a call, on the compute stream. */
#define LAUNCH_KERNEL(launcher)                                                                                        \
    static Status launcher##_launch(Device *device, OpCall *call)                                                      \
    {                                                                                                                  \
        TRY_CUDA(kernel_##launcher(call, cuda_stream(device, STREAM_COMPUTE)));                                        \
        return OK;                                                                                                     \
    }

/* An op that is one launch. */
#define PLAIN(name)                                                                                                    \
    LAUNCH_KERNEL(name)                                                                                                \
    const OpKernel cuda_##name = {.prepare = cuda_check, .launch = name##_launch};

/* Refuse operands that are too large: the prepare of ops that need no more. */
NODISCARD static inline Status cuda_check(Device *device, OpCall *call)
{
    (void)device;
    for (int k = 0; k < call->in_count + call->out_count; k++) {
        const Tensor *t = k < call->in_count ? &call->in[k] : &call->out[k - call->in_count];
        if (t->data && shape_count(t->shape) >= KERNEL_MAX_ELEMENTS)
            return FAIL(ERR_UNSUPPORTED, "%s '%s': %s has 2^31 elements or more; use a smaller batch",
                        op_name(call->kind), call->name, shape_text(t->shape));
    }
    return OK;
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
