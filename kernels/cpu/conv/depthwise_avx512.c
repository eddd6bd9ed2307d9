/* depthwise_code.h with AVX-512, in f32 and, with its bf16, in bf16. */
#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"

#include "kernels/cpu/conv/depthwise_code.h"

const DepthwiseCode depthwise_avx512 = {depthwise_row, depthwise_taps};
#endif
