/* Separable triangle-filter resampling in fixed point; definition in resize.h. Output position x covers the input
 * around centre = (x + 1/2) r, r = in / out, with weights max(0, 1 - |i + 1/2 - centre| / max(r, 1)), normalised to
 * sum 1. */
#include "towers/data/resize.h"

#include <math.h>
#include <stdlib.h>

enum { WEIGHT_BITS = 22, SIDE_MAX = 65500 };

/* One axis: output x is the sum over i of weight[x * taps + i] * input[first[x] + i], i < n[x]. */
typedef struct Axis {
    int32_t in, out, taps;
    int32_t *first, *n, *weight; /* owned */
} Axis;

struct Resizer {
    Axis rows, columns; /* along h, along w */
    int32_t c;
};

static void fill_taps(Axis *axis, int32_t x)
{
    double ratio = (double)axis->in / axis->out, reach = ratio > 1 ? ratio : 1, centre = (x + 0.5) * ratio, sum = 0;
    int32_t first = (int32_t)fmax(centre - reach + 0.5, 0), end = (int32_t)fmin(centre + reach + 0.5, axis->in);
    int32_t *weight = axis->weight + (size_t)x * (size_t)axis->taps;
    for (int32_t i = first; i < end; i++) sum += fmax(0, 1 - fabs((i + 0.5 - centre) / reach));
    for (int32_t i = first; i < end; i++) {
        double share = fmax(0, 1 - fabs((i + 0.5 - centre) / reach)) / sum;
        weight[i - first] = (int32_t)(0.5 + share * (1 << WEIGHT_BITS));
    }
    axis->first[x] = first;
    axis->n[x] = end - first;
}

static Status axis_init(Axis *axis, int32_t in, int32_t out)
{
    if (in < 1 || out < 1 || in > SIDE_MAX || out > SIDE_MAX)
        return FAIL(ERR_ARG, "cannot resize %d pixels to %d: sides are from 1 to %d", in, out, SIDE_MAX);
    double ratio = (double)in / out;
    axis->in = in;
    axis->out = out;
    axis->taps = 2 * (int32_t)ceil(ratio > 1 ? ratio : 1) + 1;
    axis->first = calloc((size_t)out, sizeof *axis->first);
    axis->n = calloc((size_t)out, sizeof *axis->n);
    axis->weight = calloc((size_t)out * (size_t)axis->taps, sizeof *axis->weight);
    if (!axis->first || !axis->n || !axis->weight) return FAIL(ERR_MEMORY, "weights to resize %d to %d", in, out);
    for (int32_t x = 0; x < out; x++) fill_taps(axis, x);
    return OK;
}

static void axis_free(Axis *axis)
{
    free(axis->first);
    free(axis->n);
    free(axis->weight);
}

Status resizer_create(int32_t in_h, int32_t in_w, int32_t out_h, int32_t out_w, int32_t c, Resizer **made)
{
    Status st = OK;
    if (c < 1 || c > 4) return FAIL(ERR_ARG, "cannot resize images of %d channels: wanted 1 to 4", c);
    Resizer *r = calloc(1, sizeof *r);
    if (!r) return FAIL(ERR_MEMORY, "resizer");
    r->c = c;
    TRY_OUT(axis_init(&r->rows, in_h, out_h));
    TRY_OUT(axis_init(&r->columns, in_w, out_w));
    *made = r;
    r = NULL;
out:
    resizer_destroy(r);
    return st;
}

void resizer_destroy(Resizer *resizer)
{
    if (!resizer) return;
    axis_free(&resizer->rows);
    axis_free(&resizer->columns);
    free(resizer);
}

size_t resizer_scratch_bytes(const Resizer *resizer)
{
    return (size_t)resizer->rows.in * (size_t)resizer->columns.out * (size_t)resizer->c;
}

static uint8_t to_byte(int32_t sum)
{
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void resize_row(const Axis *axis, int32_t c, const uint8_t *in, uint8_t *out)
{
    for (int32_t x = 0; x < axis->out; x++) {
        const int32_t *weight = axis->weight + (size_t)x * (size_t)axis->taps;
        for (int32_t k = 0; k < c; k++) {
            const uint8_t *from = in + (size_t)axis->first[x] * (size_t)c + k;
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int32_t i = 0; i < axis->n[x]; i++) sum += from[(size_t)i * (size_t)c] * weight[i];
            *out++ = to_byte(sum);
        }
    }
}

/* Output row y from `scratch`, whose rows have `width` bytes; a block of columns at a time, so that sums stay
 * at hand. */
static void resize_column(const Axis *axis, int32_t y, const uint8_t *scratch, size_t width, uint8_t *out)
{
    enum { BLOCK = 256 };
    const int32_t *weight = axis->weight + (size_t)y * (size_t)axis->taps;
    const uint8_t *from = scratch + (size_t)axis->first[y] * width;
    for (size_t at = 0; at < width; at += BLOCK) {
        size_t n = width - at < BLOCK ? width - at : BLOCK;
        int32_t sum[BLOCK];
        for (size_t k = 0; k < n; k++) sum[k] = 1 << (WEIGHT_BITS - 1);
        for (int32_t i = 0; i < axis->n[y]; i++)
            for (size_t k = 0; k < n; k++) sum[k] += from[(size_t)i * width + at + k] * weight[i];
        for (size_t k = 0; k < n; k++) out[at + k] = to_byte(sum[k]);
    }
}

void resizer_run(const Resizer *resizer, const uint8_t *in, uint8_t *scratch, uint8_t *out, size_t out_pitch)
{
    size_t in_width = (size_t)resizer->columns.in * (size_t)resizer->c;
    size_t width = (size_t)resizer->columns.out * (size_t)resizer->c;
    for (int32_t y = 0; y < resizer->rows.in; y++)
        resize_row(&resizer->columns, resizer->c, in + (size_t)y * in_width, scratch + (size_t)y * width);
    for (int32_t y = 0; y < resizer->rows.out; y++)
        resize_column(&resizer->rows, y, scratch, width, out + (size_t)y * out_pitch);
}
