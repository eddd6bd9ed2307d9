/* The extras of a tower and the decision of the gate: launches; the kernels are in gate.cu. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"

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
