/* pool_code.h with AVX2, in f32. */
#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"
#include "kernels/cpu/pool/pool_code.h"

const PoolCode pool_avx2 = {max_of_9, band_dx};
#endif
