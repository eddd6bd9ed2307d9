/* pool_code.h with NEON, in f32. */
#if defined(__aarch64__)
#include "kernels/cpu/conv/lanes_neon.h"
#include "kernels/cpu/pool/pool_code.h"

const PoolCode pool_neon = {max_of_9, band_dx};
#endif
