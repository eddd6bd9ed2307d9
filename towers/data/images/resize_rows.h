/* The two inner loops of resizing, in plain C and for AVX2; both give the same integers.
 *
 * A weight has WEIGHT_BITS fractional bits and is stored in two 16-bit words, weight = high 2^LOW_BITS + low with low
 * >= 0, because processors multiply 16-bit words fastest. An output has `taps` high words, then `taps` low words; taps
 * is a multiple of 4, and words after the last input are 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEIGHT_BITS = 22, LOW_BITS = 11 };

typedef struct Axis {
    int32_t first_of_all, end_of_all; /* input pixels that any output depends on */
    int32_t count, taps;              /* outputs; words per output */
    int32_t *first;                   /* [count]: first input of an output */
    int32_t *n;                       /* [count], behind `first`: number of inputs */
    int16_t *weight;                  /* [count][2][taps] */
    size_t first_room, weight_room;
} Axis;

/* Resize one row of `c` channels to axis->count pixels; `in` is pixel axis->first_of_all. The AVX2 version takes two
 * rows of three channels, may read PIXELS_SLACK bytes after each, and may write one byte after each, which the next row
 * overwrites. */
void row_resize(const Axis *axis, int32_t c, const uint8_t *in, uint8_t *out);
void row_pair_resize_avx2(const Axis *axis, const uint8_t *in0, const uint8_t *in1, uint8_t *out0, uint8_t *out1);

/* out[k] = sum over i < n of weight i times in[i * pitch + k], k < width. */
void column_resize(const int16_t *weight, int32_t n, int32_t taps, const uint8_t *in, size_t pitch, size_t width,
                   uint8_t *out);
void column_resize_avx2(const int16_t *weight, int32_t n, int32_t taps, const uint8_t *in, size_t pitch, size_t width,
                        uint8_t *out);

/* True if this processor supports AVX2. */
bool resize_has_avx2(void);

static inline int32_t weight_value(const int16_t *weight, int32_t taps, int32_t i)
{
    return weight[i] * (1 << LOW_BITS) + weight[taps + i];
}

static inline uint8_t rounded_byte(int32_t sum)
{
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}
