/* The tally of a tower and the verdict on a step: launches; the kernels are in verdict.cu. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

Status cuda_tally(Device *device, const TallyCall *tally)
{
    TRY_CUDA(kernel_tally(tally, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

Status cuda_decide(Device *device, const Verdict *verdict)
{
    TRY_CUDA(kernel_decide(verdict, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}
