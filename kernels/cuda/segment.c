/* Segments on the GPU: CUDA graphs of what the compute stream is asked to do between begin and end.
 *
 * Capture is that of this thread alone, so that other threads may go on copying. A graph keeps the arguments of its
 * launches: addresses must stay, and what changes from step to step must lie in device memory. */
#include "kernels/cuda/cuda.h"

Status cuda_segment_begin(Device *device)
{
    TRY_CUDA(cudaStreamBeginCapture(cuda_stream(device, STREAM_COMPUTE), cudaStreamCaptureModeThreadLocal));
    return OK;
}

/* A capture that was broken off by a call that may not be captured ends here, with an error and the stream
 * as before. */
Status cuda_segment_end(Device *device, void **segment)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t made = NULL;
    *segment = NULL;
    cudaError_t error = cudaStreamEndCapture(cuda_stream(device, STREAM_COMPUTE), &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&made, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    TRY_CUDA(error);
    *segment = made;
    return OK;
}

Status cuda_segment_run(Device *device, void *segment)
{
    TRY_CUDA(cudaGraphLaunch((cudaGraphExec_t)segment, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

void cuda_segment_free(Device *device, void *segment)
{
    (void)device;
    if (segment) cudaGraphExecDestroy((cudaGraphExec_t)segment);
}
