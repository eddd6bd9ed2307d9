/* Tiles of wgrad with AMX: 32 outputs x 32 inputs in four tile registers, summed over 16 words at a time.
 *
 * tdpbf16ps: C[m][n] += sum over k < 16 of A[m][k] . B[k][n], a word of A times a word of B being two products. A is 16
 * outputs of a panel of dy, one output a row; B is 16 pixels of a panel of x. The list of conv.c takes them where they
 * multiply small integers rightly. A program that defines WGRAD_TILES_EMULATED before including this file brings its
 * own tile_* (the tests do). */
#include "kernels/cpu/conv/wgrad.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { SIDE = 16, TILE_ROW_BYTES = 64 };

typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

#ifndef WGRAD_TILES_EMULATED
#define tile_configure(config) _tile_loadconfig(config)
#define tile_release() _tile_release()
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, base, stride) _tile_loadd(t, base, stride)
#define tile_store(t, base, stride) _tile_stored(t, base, stride)
#define tile_multiply(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILES_CODE __attribute__((target("amx-tile,amx-bf16")))
#else
#define TILES_CODE
#endif

/* Adds the products to registers 0 1 / 2 3; outputs are in 4 and 5, inputs in 6 and 7. */
TILES_CODE static void products_add(const WgradTile *tile, bool second_outs, bool second_ins)
{
    const int64_t x_stride = (int64_t)tile->vectors * WGRAD_LANES * (int64_t)sizeof(uint32_t);
    for (int64_t group = 0; group < tile->groups; group++)
        for (int64_t k = 0; k < tile->columns; k += SIDE) {
            const uint32_t *dy = tile->dy + group * tile->dy_group + k * WGRAD_LANES;
            const uint32_t *x = tile->x + group * tile->x_group + k * tile->vectors * WGRAD_LANES;
            tile_load(4, dy, TILE_ROW_BYTES);
            tile_load(6, x, x_stride);
            tile_multiply(0, 4, 6);
            if (second_ins) {
                tile_load(7, x + WGRAD_LANES, x_stride);
                tile_multiply(1, 4, 7);
            }
            if (!second_outs) continue;
            tile_load(5, dy + tile->dy_panel, TILE_ROW_BYTES);
            tile_multiply(2, 5, 6);
            if (second_ins) tile_multiply(3, 5, 7);
        }
}

static void sums_copy(const WgradTile *tile, float *to, int64_t to_out, const float *from, int64_t from_out)
{
    for (int m = 0; m < tile->outs; m++)
        memcpy(to + m * to_out, from + m * from_out, (size_t)tile->ins * sizeof(float));
}

TILES_CODE static void tiles_begin(void)
{
    TileConfig config = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = TILE_ROW_BYTES;
        config.rows[t] = SIDE;
    }
    tile_configure(&config);
}

TILES_CODE static void tiles_end(void)
{
    tile_release();
}

/* Registers are loaded and stored whole: a part of a tile at the edge of dw goes through `edge`. */
TILES_CODE static void tile_run(const WgradTile *tile)
{
    float edge[4 * SIDE * SIDE] __attribute__((aligned(64)));
    bool whole = tile->outs % SIDE == 0 && tile->ins % SIDE == 0;
    bool second_outs = tile->outs > SIDE, second_ins = tile->ins > SIDE;
    int64_t out = whole ? tile->dw_out : 2 * SIDE, bytes = out * (int64_t)sizeof(float);
    float *sums = whole ? tile->dw : edge;
    if (tile->add && !whole) sums_copy(tile, edge, out, tile->dw, tile->dw_out);
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    if (tile->add) {
        tile_load(0, sums, bytes);
        if (second_ins) tile_load(1, sums + SIDE, bytes);
        if (second_outs) tile_load(2, sums + SIDE * out, bytes);
        if (second_outs && second_ins) tile_load(3, sums + SIDE * out + SIDE, bytes);
    }
    products_add(tile, second_outs, second_ins);
    tile_store(0, sums, bytes);
    if (second_ins) tile_store(1, sums + SIDE, bytes);
    if (second_outs) tile_store(2, sums + SIDE * out, bytes);
    if (second_outs && second_ins) tile_store(3, sums + SIDE * out + SIDE, bytes);
    if (!whole) sums_copy(tile, tile->dw, tile->dw_out, edge, out);
}

/* ---- does it multiply? */

static uint32_t word_of(int low, int high)
{
    float values[2] = {(float)low, (float)high};
    uint32_t bits[2];
    memcpy(bits, values, sizeof bits);
    return bits[0] >> 16 | (bits[1] & 0xFFFF0000u);
}

/* 32 x 32 sums over 32 words of small integers, exact in bf16 and f32. */
bool wgrad_amx_multiplies(void)
{
    enum { OUTS = 2 * SIDE, INS = 2 * SIDE, WORDS = 32 };
    uint32_t dy[OUTS * WORDS], x[WORDS * INS];
    float dw[OUTS * INS];
    for (int m = 0; m < OUTS; m++)
        for (int k = 0; k < WORDS; k++)
            dy[m / SIDE * SIDE * WORDS + k / SIDE * SIDE * SIDE + m % SIDE * SIDE + k % SIDE] =
                word_of((m + 2 * k) % 7 - 3, (3 * m + k) % 5 - 2);
    for (int k = 0; k < WORDS; k++)
        for (int n = 0; n < INS; n++) x[k * INS + n] = word_of((n * k) % 5 - 1, (n + k) % 7 - 2);
    WgradTile tile = {x, dy, 1, 1, WORDS, 0, 0, 0, 0, SIDE * WORDS, 2, OUTS, INS, dw, INS, false};
    tiles_begin();
    tile_run(&tile);
    tiles_end();
    for (int m = 0; m < OUTS; m++)
        for (int n = 0; n < INS; n++) {
            int sum = 0;
            for (int k = 0; k < WORDS; k++)
                sum += ((m + 2 * k) % 7 - 3) * ((n * k) % 5 - 1) + ((3 * m + k) % 5 - 2) * ((n + k) % 7 - 2);
            if (dw[m * INS + n] != (float)sum) return false;
        }
    return true;
}

const WgradCode wgrad_amx = {.images = 2,
                             .panels = 2,
                             .vectors = 2,
                             .step = SIDE,
                             .dy_bytes = WGRAD_L2_BLOCK_BYTES,
                             .begin = tiles_begin,
                             .end = tiles_end,
                             .tile = tile_run,
                             .pack = wgrad_pack,
                             .pack_rows = wgrad_pack_rows};
#endif
