/* Vectors of 4 lanes and words of f32, for every processor of 64-bit ARM; the names are those of lanes_avx512.h. Nothing here
 * multiplies bf16, so `dtype` is always f32. NEON has no masks of loads and stores: fewer lanes go through a copy. */
#pragma once

#include "kernels/cpu/vector.h"

#include <arm_neon.h>

#define TILE_CODE
#define TILE_INLINE static inline __attribute__((always_inline))
#define LANES_NAME "NEON"

enum {
    LANES = 4,
    TILE_ROWS = 8 /* of a product in registers (gemm_tile.h): 8 x 3 sums */
};

typedef float32x4_t Vector, Words;

/* The second operand is the result if one is NaN. */
TILE_INLINE Vector vector_relu(Vector a)
{
    const Vector zero = vdupq_n_f32(0);
    return vbslq_f32(vcgtq_f32(zero, a), zero, a);
}

/* a + factor b, rounded once */
TILE_INLINE Vector add_times(Vector a, Vector b, float factor)
{
    return vfmaq_n_f32(a, b, factor);
}

/* sum + a b, rounded once */
TILE_INLINE Vector add_product(Vector sum, Vector a, Vector b)
{
    return vfmaq_f32(sum, a, b);
}

TILE_INLINE Vector floats_load(const float *from)
{
    return vld1q_f32(from);
}

TILE_INLINE void floats_store(float *to, Vector value)
{
    vst1q_f32(to, value);
}

/* The first `count` lanes, if there are fewer; others are 0, or stay as they are. */
TILE_INLINE Vector floats_load_some(const float *from, int count)
{
    float lanes[LANES] = {0};
    if (count >= LANES) return vld1q_f32(from);
    for (int i = 0; i < count; i++) lanes[i] = from[i];
    return vld1q_f32(lanes);
}

TILE_INLINE void floats_store_some(float *to, int count, Vector value)
{
    float lanes[LANES];
    if (count >= LANES) {
        vst1q_f32(to, value);
        return;
    }
    vst1q_f32(lanes, value);
    for (int i = 0; i < count; i++) to[i] = lanes[i];
}

/* Exchanges lanes of two rows that are `step` apart: one step of a transposition. */
TILE_INLINE void rows_exchange(Vector *a, Vector *b, int step)
{
    const Vector first = *a, second = *b;
    if (step == 1) {
        *a = vtrn1q_f32(first, second);
        *b = vtrn2q_f32(first, second);
    } else {
        const float64x2_t low = vreinterpretq_f64_f32(first), high = vreinterpretq_f64_f32(second);
        *a = vreinterpretq_f32_f64(vtrn1q_f64(low, high));
        *b = vreinterpretq_f32_f64(vtrn2q_f64(low, high));
    }
}

TILE_INLINE Words words_spread(uint32_t word)
{
    return vreinterpretq_f32_u32(vdupq_n_u32(word));
}

/* ---- some lanes, and choices by lane */

typedef uint32x4_t Mask; /* 0 or all bits */
typedef uint32x4_t Positions, Bytes;

TILE_INLINE Mask mask_first(int64_t count)
{
    const int32x4_t lane = {0, 1, 2, 3};
    return vcgtq_s32(vdupq_n_s32((int)smaller(count, LANES)), lane);
}

TILE_INLINE bool mask_any(Mask mask)
{
    return vmaxvq_u32(mask) != 0;
}

TILE_INLINE Mask mask_or(Mask a, Mask b)
{
    return vorrq_u32(a, b);
}

TILE_INLINE int mask_count(Mask mask)
{
    return (int)vaddvq_u32(vshrq_n_u32(mask, 31));
}

/* Masks are those of mask_first. */
TILE_INLINE Vector some_load(Dtype dtype, const void *base, int64_t index, Mask mask)
{
    (void)dtype;
    return floats_load_some((const float *)base + index, mask_count(mask));
}

TILE_INLINE void some_store(Dtype dtype, void *base, int64_t index, Vector value, Mask mask)
{
    (void)dtype;
    floats_store_some((float *)base + index, mask_count(mask), value);
}

/* The larger one; b if they are equal or one is NaN. */
TILE_INLINE Vector vector_max(Vector a, Vector b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

TILE_INLINE Mask vector_above(Vector a, Vector b)
{
    return vcgtq_f32(a, b);
}

TILE_INLINE Mask vector_is_nan(Vector a)
{
    return vmvnq_u32(vceqq_f32(a, a));
}

TILE_INLINE Vector add_some(Vector a, Vector b, Mask mask)
{
    return vbslq_f32(mask, vaddq_f32(a, b), a);
}

TILE_INLINE Positions positions_same(int position)
{
    return vdupq_n_u32((uint32_t)position);
}

TILE_INLINE Positions positions_choose(Positions a, Positions b, Mask mask)
{
    return vbslq_u32(mask, b, a);
}

TILE_INLINE void positions_store(uint8_t *to, Positions positions, Mask mask)
{
    const uint16x4_t halves = vmovn_u32(positions);
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(halves, halves))), 0);
    const int count = mask_count(mask);
    if (count == LANES)
        memcpy(to, &bytes, sizeof bytes);
    else
        memcpy(to, &bytes, (size_t)count);
}

/* As 32-bit integers. */
TILE_INLINE Bytes bytes_load(const uint8_t *from, Mask mask)
{
    uint32_t bytes = 0;
    const int count = mask_count(mask);
    if (count == LANES)
        memcpy(&bytes, from, sizeof bytes);
    else
        memcpy(&bytes, from, (size_t)count);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
}

TILE_INLINE Mask bytes_equal(Bytes bytes, int value)
{
    return vceqq_u32(bytes, vdupq_n_u32((uint32_t)value));
}

#include "kernels/cpu/conv/lanes_f32.h"
