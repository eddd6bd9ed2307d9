/* Shared by the CPU's own kernels: conversions of bf16, typed loads and stores, loops to vectorize.
 *
 * A kernel is written once as a VECTOR_INLINE body with a `dtype` argument; a CPU_CLONES function calls it through
 * BY_DTYPE with the dtype as a constant, so that the compiler makes one loop for f32 and one for bf16. All arithmetic
 * is f32. Column sums are in columns.h. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#ifdef _OPENMP
#define VECTOR_LOOP _Pragma("omp simd")
#elif defined(__clang__)
#define VECTOR_LOOP _Pragma("clang loop vectorize(enable)")
#else
#define VECTOR_LOOP _Pragma("GCC ivdep")
#endif

#define VECTOR_INLINE static inline __attribute__((always_inline))

/* Call a body with its dtype as a compile-time constant. */
#define BY_DTYPE(dtype, body, ...)                                                                                     \
    do {                                                                                                               \
        if ((dtype) == DTYPE_F32)                                                                                      \
            body(DTYPE_F32, __VA_ARGS__);                                                                              \
        else                                                                                                           \
            body(DTYPE_BF16, __VA_ARGS__);                                                                             \
    } while (0)

/* ---- numbers: bf16 is the upper half of an f32 */

static inline float bf16_to_f32(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Rounded to nearest even; NaN stays NaN. */
static inline uint16_t bf16_from_f32(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    return (uint16_t)(value != value ? (word >> 16) | 0x40u : rounded);
}

/* ---- elements of tensors */

enum { BLOCK_ELEMENTS = 512 }; /* a piece of a row that stays in the first-level cache as f32 */

VECTOR_INLINE float load(Dtype dtype, const void *base, int64_t index)
{
    return dtype == DTYPE_F32 ? ((const float *)base)[index] : bf16_to_f32(((const uint16_t *)base)[index]);
}

VECTOR_INLINE void store(Dtype dtype, void *base, int64_t index, float value)
{
    if (dtype == DTYPE_F32)
        ((float *)base)[index] = value;
    else
        ((uint16_t *)base)[index] = bf16_from_f32(value);
}

/* Address of element `index` of a tensor's storage. Called for every pixel, so the size is found without a call. */
static inline void *element_at(const Tensor *t, int64_t index)
{
    int64_t bytes = t->dtype == DTYPE_F32 || t->dtype == DTYPE_I32 ? 4 : t->dtype == DTYPE_U8 ? 1 : 2;
    return (char *)t->data + index * bytes;
}

/* Address of a pixel of an optional operand, or NULL. */
static inline void *optional_row(const Tensor *t, int64_t pixel)
{
    return t->data ? element_at(t, pixel * t->pitch) : NULL;
}
