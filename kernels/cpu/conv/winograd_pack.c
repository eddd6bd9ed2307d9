/* Lines of pixels, and which words are theirs; see winograd_pack.h. */
#include "kernels/cpu/conv/winograd_pack.h"

#include "kernels/cpu/onednn.h"

#include <stddef.h>

const WinogradPack *winograd_pack_for(const Tensor *x, const Tensor *dy)
{
    if (x->dtype != dy->dtype) return NULL;
#if defined(__x86_64__)
    if (x->dtype == DTYPE_F32 && onednn_has_avx512() && wgrad_f32.usable()) return &winograd_pack_f32;
    /* With AMX plain products of bf16 are faster. */
    if (x->dtype == DTYPE_BF16 && onednn_has_bf16() && !onednn_has_amx() && wgrad_avx512.usable())
        return &winograd_pack_bf16;
#endif
    return NULL;
}

Lines lines_of(const Tensor *t, bool down)
{
    Shape s = t->shape;
    int64_t row = s.w * t->pitch;
    return down ? (Lines){s.n, s.w, s.h, s.h * row, t->pitch, row} : (Lines){s.n, s.h, s.w, s.h * row, row, t->pitch};
}

int lines_stacks(const Lines *lines, const WinogradPack *pack)
{
    return (lines->images + pack->images - 1) / pack->images;
}

PixelRow lines_row(const Lines *lines, const WinogradPack *pack, const void *base, int64_t stack, int64_t line,
                   int64_t channel)
{
    static const float zeros[WGRAD_LANES];
    bool even = line >= 0 && line < lines->across, odd = even && pack->images * stack + 1 < lines->images;
    int64_t at = pack->images * stack * lines->image + line * lines->line + channel;
    const char *elements = base;
    return (PixelRow){.even = even ? elements + at * pack->element_bytes : (const char *)zeros,
                      .odd = odd ? elements + (at + lines->image) * pack->element_bytes : (const char *)zeros,
                      .even_step = even ? lines->step : 0,
                      .odd_step = odd ? lines->step : 0,
                      .length = lines->length};
}
