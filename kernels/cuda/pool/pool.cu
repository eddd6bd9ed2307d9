/* Maximum over windows, as kernels/cpu/pool/ computes it: the kernel is that of pool.cuh, over x as it is. Bytes moved: x
 * once, as neighbors find in the cache what their windows share, y and one byte of argmax. */
#include "kernels/cuda/pool/pool.cuh"

cudaError_t kernel_max_pool(const OpCall *call, cudaStream_t stream)
{
    PoolOperands o = pool_operands(call);
    o.argmax = call->out[1];
    BY_FORMAT(o.in.dtype, pool_wide(o), max_pool, o, AsIs(), stream);
    return LAUNCH_ERROR();
}
