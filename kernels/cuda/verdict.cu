/* The tally of a tower and the verdict on a step, on the GPU: the rules of kernels/verdict.h by one thread, between the
 * gradients and the update, so that no host has to look before the optimizer runs. */
#include "kernels/cuda/device.cuh"

BOUNDED tally_kernel(const __grid_constant__ TallyCall t)
{
    if (threadIdx.x == 0) tally_write(&t);
}

extern "C" cudaError_t kernel_tally(const TallyCall *tally, cudaStream_t stream)
{
    LAUNCH((tally_kernel), 1, WARP, stream, *tally);
    return LAUNCH_ERROR();
}

BOUNDED decide_kernel(const __grid_constant__ Verdict v)
{
    if (threadIdx.x == 0) verdict_decide(&v);
}

extern "C" cudaError_t kernel_decide(const Verdict *verdict, cudaStream_t stream)
{
    LAUNCH((decide_kernel), 1, WARP, stream, *verdict);
    return LAUNCH_ERROR();
}
