/* winograd_1x1.h with vectors of AVX2. */
#include "kernels/cpu/conv/conv_impl.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

#include "kernels/cpu/conv/winograd_1x1.h"

#include "kernels/cpu/conv/winograd_code.h"

const WinogradCode winograd_1x1_avx2 = {.lanes = LANES, .weights = weights_chunk, .outputs = tiles_chunk};
#endif
