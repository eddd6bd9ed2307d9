/* pool_code.h with AVX-512. */
#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"
#include "kernels/cpu/pool/pool_code.h"

const PoolCode pool_avx512 = {max_of_9, band_dx};
#endif
