/* The one matrix product of our own kernels: a tile of rows x vectors sums that stay in registers, for the kind of vectors
 * whose header (lanes_*.h) was included before. Rows, vectors and dtype are constant arguments.
 *
 * For every step of the sum, a word of each row of A is spread over a vector and multiplied with the vectors of a row of B. A
 * word is what one instruction multiplies: a float, or a VNNI pair of bf16. With 8 x 3 sums there are 24 products for 11
 * loads, so that only the products limit the speed. */
#pragma once

#include "kernels/cpu/vector.h"

enum { GEMM_ROWS = 14, GEMM_VECTORS = 3 };

typedef Vector GemmSums[GEMM_ROWS][GEMM_VECTORS];
typedef uint32_t __attribute__((may_alias)) GemmWord; /* floats too */

/* Unrolled early enough that sums become registers. */
#define GEMM_EACH_ROW _Pragma("GCC unroll 14") for (int m = 0; m < rows; m++)

/* Every row begins with `start`; NULL: with zeros. */
TILE_INLINE void gemm_begin(const int rows, const int vectors, const float *start, GemmSums sum)
{
    GEMM_EACH_ROW for (int v = 0; v < vectors; v++) sum[m][v] = start ? floats_load(start + v * LANES) : (Vector){0};
}

/* One step. Row m of A is at a[m / shared]: as an instruction can add a multiple of a register to an address, `shared`
 * neighbors have one pointer and are `row` words apart. `at`: words from there. */
TILE_INLINE void gemm_step(Dtype dtype, const int rows, const int vectors, const GemmWord *const *a, const int shared,
                           int64_t row, int64_t at, const GemmWord *b, GemmSums sum)
{
    Words wide[GEMM_VECTORS];
    for (int v = 0; v < vectors; v++) wide[v] = words_load(b + v * LANES);
    GEMM_EACH_ROW
    {
        Words word = words_spread(a[m / shared][m % shared * row + at]);
        for (int v = 0; v < vectors; v++) sum[m][v] = words_multiply(dtype, sum[m][v], word, wide[v]);
    }
}

/* `depth` steps: rows of A are `row` words apart, steps a_step words in A and b_step words in B. */
TILE_INLINE void gemm_add(Dtype dtype, const int rows, const int vectors, const GemmWord *a, int64_t row,
                          int64_t a_step, const GemmWord *b, int64_t b_step, int64_t depth, GemmSums sum)
{
    for (int64_t k = 0; k < depth; k++, a += a_step, b += b_step)
        gemm_step(dtype, rows, vectors, &a, rows, row, 0, b, sum);
}

/* To C, whose rows are `row` floats apart; `add`: to what it holds. */
TILE_INLINE void gemm_store(const int rows, const int vectors, GemmSums sum, float *c, int64_t row, const bool add)
{
    GEMM_EACH_ROW for (int v = 0; v < vectors; v++)
    {
        float *to = c + m * row + v * LANES;
        if (add) sum[m][v] += floats_load(to);
        floats_store(to, sum[m][v]);
    }
}

/* The same for the part of a tile that C has: `height` rows of `width` floats. */
TILE_INLINE void gemm_store_part(const int rows, const int vectors, GemmSums sum, float *c, int64_t row, int height,
                                 int width, bool add)
{
    GEMM_EACH_ROW for (int v = 0; v < vectors; v++)
    {
        float *to = c + m * row + v * LANES;
        int left = width - v * LANES;
        if (m >= height) return;
        if (add) sum[m][v] += floats_load_some(to, left);
        floats_store_some(to, left, sum[m][v]);
    }
}

/* ---- packing of convolutions' weights, which are stored as OHWI */

TILE_INLINE void square_transpose(Vector rows[LANES])
{
    for (int step = 1; step < LANES; step *= 2)
        for (int i = 0; i < LANES; i++)
            if (!(i & step)) rows_exchange(&rows[i], &rows[i + step], step);
}

/* Tap i of a vector of inputs from `in` on, for as many outputs from `out` on; rows of w have `taps` times `channels`.
 * `rotated`: for the gradient, whose inputs are the outputs of the convolution and whose taps are reversed. */
TILE_INLINE void tap_load(const float *w, int taps, int64_t channels, bool rotated, int i, int64_t in, int64_t out,
                          Vector to[LANES])
{
    const int64_t row = taps * channels;
    if (rotated) w += in * row + (taps - 1 - i) * channels + out;
    if (!rotated) w += out * row + i * channels + in;
    for (int k = 0; k < LANES; k++) to[k] = floats_load(w + k * row);
    if (!rotated) square_transpose(to);
}
