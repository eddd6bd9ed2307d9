/* The extras of a tower and the decision of the gate, on the GPU: the rules of kernels/gate.h by one thread, between
 * the gradients and the update, so that the optimizer does not wait for the host. */
#include "kernels/cuda/device.cuh"

BOUNDED gate_extras_kernel(const __grid_constant__ GateExtrasCall t)
{
    if (threadIdx.x == 0) gate_extras_write(&t);
}

extern "C" cudaError_t kernel_gate_extras(const GateExtrasCall *call, cudaStream_t stream)
{
    LAUNCH((gate_extras_kernel), 1, WARP, stream, *call);
    return LAUNCH_ERROR();
}

BOUNDED gate_decide_kernel(const __grid_constant__ GateDecideCall v)
{
    if (threadIdx.x == 0) gate_rules_apply(&v);
}

extern "C" cudaError_t kernel_gate_decide(const GateDecideCall *call, cudaStream_t stream)
{
    LAUNCH((gate_decide_kernel), 1, WARP, stream, *call);
    return LAUNCH_ERROR();
}
