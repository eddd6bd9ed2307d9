/* depthwise_code.h with AVX2, in f32. */
#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

#include "kernels/cpu/conv/depthwise_code.h"

const DepthwiseCode depthwise_avx2 = {depthwise_row, depthwise_taps};
#endif
