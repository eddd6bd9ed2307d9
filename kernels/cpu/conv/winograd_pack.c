/* Lines of pixels and the choice of the packing; see winograd_pack.h. */
#include "kernels/cpu/conv/winograd_pack.h"

#include "kernels/cpu/onednn_isa.h"

#if defined(__x86_64__)
const char *winograd_pack_declines(const Tensor *x, const Tensor *dy)
{
    enum { FEW_CHANNELS = 32, FEW_PIXELS = 256 };
    bool f32 = x->dtype == DTYPE_F32;
    if (x->dtype != dy->dtype || (!f32 && x->dtype != DTYPE_BF16)) return "types are not f32 or bf16";
    if (f32 && !wgrad_for_f32()) return "processor has no AVX-512 or AVX2";
    if (!f32 && !(onednn_has_bf16() && wgrad_avx512.usable())) return "processor has no AVX512-BF16";
    if (!f32 && onednn_has_amx()) return "plain products by AMX are faster";
    if (x->shape.c % WGRAD_LANES || dy->shape.c % WGRAD_LANES) return "channels are not multiples of 16";
    if (x->shape.c < FEW_CHANNELS || dy->shape.c < FEW_CHANNELS) return "too few channels";
    if (x->shape.n < winograd_pack_for(x)->images) return "a single image cannot be paired";
    return shape_pixels(dy->shape) < FEW_PIXELS ? "too few pixels" : NULL;
}

const WinogradPack *winograd_pack_for(const Tensor *x)
{
    if (x->dtype == DTYPE_BF16) return &winograd_pack_bf16;
    return wgrad_for_f32() == &wgrad_f32_avx2 ? &winograd_pack_f32_avx2 : &winograd_pack_f32;
}
#endif

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
