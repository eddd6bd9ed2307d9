/* Captured graphs on the GPU: CUDA graphs of the work enqueued on the compute stream between begin and end.
 *
 * Capture is local to this thread, so that other threads may continue to copy. A graph keeps the arguments of its
 * launches: addresses must stay the same, and values that change from step to step must lie in device memory. */
#include "kernels/cuda/cuda.h"

Status cuda_capture_begin(Device *device)
{
    TRY_CUDA(cudaStreamBeginCapture(cuda_stream(device, STREAM_COMPUTE), cudaStreamCaptureModeThreadLocal));
    return OK;
}

/* A capture that was broken off by a call that may not be captured ends here, with an error and the stream
 * as before. */
Status cuda_capture_end(Device *device, void **made)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    *made = NULL;
    cudaError_t error = cudaStreamEndCapture(cuda_stream(device, STREAM_COMPUTE), &graph);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
    if (graph) cuda_freed(cudaGraphDestroy(graph));
    TRY_CUDA(error);
    *made = executable;
    return OK;
}

Status cuda_graph_launch(Device *device, void *graph)
{
    TRY_CUDA(cudaGraphLaunch((cudaGraphExec_t)graph, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

void cuda_graph_free(Device *device, void *graph)
{
    (void)device;
    if (graph) cuda_freed(cudaGraphExecDestroy((cudaGraphExec_t)graph));
}
