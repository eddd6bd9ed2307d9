/* Tiles of wgrad in f32 for AVX2: 16 outputs x up to 6 vectors of 8 inputs, in parts of 4 outputs x 2 or 3 vectors, whose
 * sums stay in registers. */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/lanes_avx2.h"

enum {
    OUTS = 4,
    VECTORS = 3,     /* of a part, at most */
    TILE_VECTORS = 3 /* of 16 inputs, in a tile, at most */
};

/* The first `count` lanes. */
TILE_INLINE __m256i lanes_mask(int count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Some pixels of a row, for 4 outputs, added to sums[OUTS][vectors][LANES]. Each call sums by itself first: the rounding
 * error of f32 grows with the length of a sum. */
TILE_INLINE void stretch_sum(const float *x, const float *dy, int64_t columns, int64_t width, const int vectors,
                             float *sums)
{
    Vector sum[OUTS][VECTORS];
    for (int m = 0; m < OUTS; m++)
        for (int v = 0; v < vectors; v++) sum[m][v] = (Vector){0};
    for (int64_t k = 0; k < columns; k++, x += width, dy += WGRAD_LANES) {
        Vector b[VECTORS];
        for (int v = 0; v < vectors; v++) b[v] = floats_load(x + v * LANES);
        for (int m = 0; m < OUTS; m++) {
            Vector a = _mm256_broadcast_ss(dy + m);
            for (int v = 0; v < vectors; v++) sum[m][v] = _mm256_fmadd_ps(a, b[v], sum[m][v]);
        }
    }
    for (int m = 0; m < OUTS; m++)
        for (int v = 0; v < vectors; v++) {
            float *to = sums + (m * vectors + v) * LANES;
            floats_store(to, floats_load(to) + sum[m][v]);
        }
}

/* A row of pixels, added to sums[part of the inputs][part of the outputs]. Parts read the same pixels again, so these are
 * cut into stretches that stay in the first-level cache. */
TILE_INLINE void row_run(const WgradTile *tile, const float *x, const float *dy, const int vectors, float *sums)
{
    enum { STRETCH = 64 };
    const int64_t width = (int64_t)tile->vectors * WGRAD_LANES;
    for (int64_t at = 0; at < tile->columns; at += STRETCH) {
        int64_t columns = tile->columns - at < STRETCH ? tile->columns - at : STRETCH;
        float *part = sums;
        for (int in = 0; in < width; in += vectors * LANES)
            for (int out = 0; out < tile->outs; out += OUTS, part += OUTS * vectors * LANES)
                stretch_sum(x + at * width + in, dy + at * WGRAD_LANES + out, columns, width, vectors, part);
    }
}

TILE_CODE static void row_of_2(const WgradTile *tile, const float *x, const float *dy, float *sums)
{
    row_run(tile, x, dy, 2, sums);
}

TILE_CODE static void row_of_3(const WgradTile *tile, const float *x, const float *dy, float *sums)
{
    row_run(tile, x, dy, 3, sums);
}

/* One vector of sums; `left`: lanes that exist. Masked stores are slow on some processors. */
TILE_INLINE void sums_store(const float *sums, bool add, int left, float *to)
{
    Vector value = floats_load(sums);
    if (left >= LANES) {
        if (add) value += floats_load(to);
        floats_store(to, value);
    } else if (left > 0) {
        __m256i mask = lanes_mask(left);
        if (add) value += _mm256_maskload_ps(to, mask);
        _mm256_maskstore_ps(to, mask, value);
    }
}

TILE_CODE static void tile_store(const WgradTile *tile, int vectors, const float *sums)
{
    for (int in = 0; in < tile->vectors * WGRAD_LANES; in += vectors * LANES)
        for (int out = 0; out < tile->outs; out += OUTS)
            for (int m = out; m < out + OUTS; m++)
                for (int c = in; c < in + vectors * LANES; c += LANES, sums += LANES)
                    if (m < tile->outs) sums_store(sums, tile->add, tile->ins - c, tile->dw + m * tile->dw_out + c);
}

static void tile_run(const WgradTile *tile)
{
    /* A tile has 6, 4 or 2 vectors of 8 inputs: two parts of 3, or parts of 2. */
    const int vectors = tile->vectors == TILE_VECTORS ? 3 : 2;
    _Alignas(32) float sums[WGRAD_LANES * TILE_VECTORS * WGRAD_LANES] = {0};
    for (int64_t pair = 0; pair < tile->pairs; pair++)
        for (int64_t row = 0; row < tile->rows; row++) {
            const uint32_t *x = tile->x + pair * tile->x_pair + row * tile->x_row;
            const uint32_t *dy = tile->dy + pair * tile->dy_pair + row * tile->dy_row;
            (vectors == 3 ? row_of_3 : row_of_2)(tile, (const float *)(const void *)x, (const float *)(const void *)dy,
                                                 sums);
        }
    tile_store(tile, vectors, sums);
}

TILE_CODE static void pack(const WgradPanels *panels, int64_t at, const WgradRow *row)
{
    for (int64_t p = 0; p < row->pixels; p++) {
        const float *from = (const float *)row->even + p * row->step;
        for (int k = 0; k < panels->count; k++) {
            int first = panels->first[k], end = panels->first[k + 1];
            float *to = (float *)(void *)(panels->words + first * panels->pixels + (at + p) * (end - first));
            for (int c = first; c < end; c += LANES, to += LANES)
                _mm256_storeu_ps(to, c + LANES <= row->channels
                                         ? _mm256_loadu_ps(from + c)
                                         : _mm256_maskload_ps(from + c, lanes_mask(row->channels - c)));
        }
    }
}

static bool usable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const WgradCode wgrad_f32_avx2 = {.name = "avx2_f32",
                                  .images = 1,
                                  .panels = 1,
                                  .vectors = TILE_VECTORS,
                                  .step = 1,
                                  .dy_bytes = WGRAD_BLOCK_BYTES,
                                  .usable = usable,
                                  .tile = tile_run,
                                  .pack = pack};
#endif
