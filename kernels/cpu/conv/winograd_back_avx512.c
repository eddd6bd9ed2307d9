/* WinogradBack with vectors of AVX-512. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx512.h"

#include "kernels/cpu/conv/winograd_back.h"

const WinogradBack winograd_back_avx512 = {.squares = SQUARES_BACK, .line = line_back};
#endif
