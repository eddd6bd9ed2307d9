/* What vectors without arithmetic of bf16 have in common, included at the end of lanes_avx2.h and lanes_neon.h: words are floats, and
 * `dtype` is always f32. lanes_avx512.h says what each function is for. */
#pragma once

#define BY_WORDS(dtype, body, ...) ((void)(dtype), body(DTYPE_F32, __VA_ARGS__))

TILE_INLINE Vector vector_load(Dtype dtype, const void *base, int64_t index)
{
    (void)dtype;
    return floats_load((const float *)base + index);
}

TILE_INLINE void vector_store(Dtype dtype, void *base, int64_t index, Vector value)
{
    (void)dtype;
    floats_store((float *)base + index, value);
}

TILE_INLINE void some_store_exact(Dtype dtype, void *base, int64_t index, Vector value, Mask mask)
{
    some_store(dtype, base, index, value, mask);
}

/* ---- words */

TILE_INLINE void words_join(Dtype dtype, uint32_t *to, Vector low, Vector high)
{
    (void)dtype, (void)high;
    floats_store((float *)(void *)to, low);
}

TILE_INLINE Words words_load(const uint32_t *from)
{
    return floats_load((const float *)(const void *)from);
}

TILE_INLINE Vector words_multiply(Dtype dtype, Vector sum, Words a, Words b)
{
    (void)dtype;
    return add_product(sum, a, b);
}

TILE_INLINE Vector pixel_load(Dtype dtype, const void *even, const void *odd)
{
    (void)dtype, (void)odd;
    return floats_load(even);
}

TILE_INLINE void pixel_store(Dtype dtype, uint32_t *to, Vector value)
{
    (void)dtype;
    floats_store((float *)(void *)to, value);
}
