/* WinogradBack with vectors of AVX2. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

#include "kernels/cpu/conv/winograd_back.h"

const WinogradBack winograd_back_avx2 = {.squares = SQUARES_BACK, .line = line_back};
#endif
