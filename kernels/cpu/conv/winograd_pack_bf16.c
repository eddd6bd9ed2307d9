/* winograd_pack.h for bf16. */
#include "kernels/cpu/conv/winograd_pack.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/words_bf16.h"

#include "kernels/cpu/conv/winograd_transforms.h"

const WinogradPack winograd_pack_bf16 = {.images = IMAGES,
                                         .element_bytes = ELEMENT_BYTES,
                                         .channels = CHANNELS,
                                         .products = &wgrad_avx512,
                                         .back = &winograd_back_avx512,
                                         .x_squares = x_squares_pack,
                                         .dy_squares = dy_squares_pack,
                                         .x_line = x_line_pack,
                                         .dy_line = dy_line_pack,
                                         .pixel = pixel_pack};
#endif
