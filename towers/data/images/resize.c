/* Separable resampling in fixed point; definition in resize.h. Output position x has its center at (x + 1/2) r, r = in
 * / out, and weights f((i + 1/2 - center) / max(r, 1)), normalized to sum 1, over all i within the filter's support
 * times max(r, 1). */
#include "towers/data/images/resize.h"

#include "kernels/base/array.h"
#include "towers/data/images/resize_rows.h"

struct Resizer {
    Axis rows, columns; /* along h, along w */
    double *exact;      /* owned: weights of one output before rounding */
    size_t exact_room;
    uint8_t *scratch; /* owned: the image after the first pass */
    size_t scratch_room;
};

static double filter_value(ResizeFilter filter, double x)
{
    x = fabs(x);
    if (filter == RESIZE_BILINEAR) return x < 1 ? 1 - x : 0;
    const double a = -0.5;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

static void weights_fill(Axis *axis, ResizeFilter filter, int32_t in, int32_t out, int32_t x, int32_t at, double *exact)
{
    double ratio = (double)in / out, scale = 1 / (ratio > 1 ? ratio : 1), center = (x + 0.5) * ratio, sum = 0;
    int32_t first, end, taps = axis->taps;
    int16_t *weight = axis->weight + 2 * (size_t)at * (size_t)taps;
    resize_taps(filter, in, out, x, &first, &end);
    for (int32_t i = first; i < end; i++) sum += exact[i - first] = filter_value(filter, (i + 0.5 - center) * scale);
    for (int32_t i = 0; i < taps; i++) {
        double share = i < end - first ? exact[i] / sum * (1 << WEIGHT_BITS) : 0;
        int32_t value = (int32_t)(share < 0 ? share - 0.5 : share + 0.5); /* rounded away from 0, as in Pillow */
        weight[i] = (int16_t)(value >> LOW_BITS);
        weight[taps + i] = (int16_t)(value & ((1 << LOW_BITS) - 1));
    }
    axis->first[at] = first;
    axis->n[at] = end - first;
}

static Status axis_fill(Resizer *r, Axis *axis, ResizeFilter filter, int32_t in, int32_t out, int32_t from,
                        int32_t count)
{
    double ratio = (double)in / out, reach = resize_reach(filter) * (ratio > 1 ? ratio : 1);
    int32_t taps = (2 * (int32_t)ceil(reach) + 1 + 3) / 4 * 4;
    size_t weights = 2 * (size_t)count * (size_t)taps;
    TRY(array_reserve(&axis->first, &axis->first_room, 2 * (size_t)count, sizeof *axis->first, "the taps of a filter"));
    TRY(array_reserve(&axis->weight, &axis->weight_room, weights, sizeof *axis->weight, "the weights of a filter"));
    TRY(array_reserve(&r->exact, &r->exact_room, (size_t)taps, sizeof *r->exact, "the weights of a filter"));
    axis->n = axis->first + count;
    axis->count = count;
    axis->taps = taps;
    for (int32_t i = 0; i < count; i++) weights_fill(axis, filter, in, out, from + i, i, r->exact);
    axis->first_of_all = axis->first[0];
    axis->end_of_all = axis->first[count - 1] + axis->n[count - 1];
    return OK;
}

static void axis_free(Axis *axis)
{
    free(axis->first);
    free(axis->weight);
}

Status resizer_create(Resizer **made)
{
    *made = calloc(1, sizeof **made);
    return *made ? OK : FAIL(ERR_MEMORY, "no memory for the resizer");
}

void resizer_destroy(Resizer *resizer)
{
    if (!resizer) return;
    axis_free(&resizer->rows);
    axis_free(&resizer->columns);
    free(resizer->exact);
    free(resizer->scratch);
    free(resizer);
}

/* ---- the two passes in plain C */

void row_resize(const Axis *axis, int32_t c, const uint8_t *in, uint8_t *out)
{
    for (int32_t x = 0; x < axis->count; x++) {
        const int16_t *weight = axis->weight + 2 * (size_t)x * (size_t)axis->taps;
        for (int32_t k = 0; k < c; k++) {
            const uint8_t *from = in + (size_t)(axis->first[x] - axis->first_of_all) * (size_t)c + k;
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int32_t i = 0; i < axis->n[x]; i++)
                sum += from[(size_t)i * (size_t)c] * weight_value(weight, axis->taps, i);
            *out++ = rounded_byte(sum);
        }
    }
}

void column_resize(const int16_t *weight, int32_t n, int32_t taps, const uint8_t *in, size_t pitch, size_t width,
                   uint8_t *out)
{
    enum { BLOCK = 256 }; /* columns whose sums stay in registers or cache */
    for (size_t at = 0; at < width; at += BLOCK) {
        size_t block = width - at < BLOCK ? width - at : BLOCK;
        int32_t sum[BLOCK];
        for (size_t k = 0; k < block; k++) sum[k] = 1 << (WEIGHT_BITS - 1);
        for (int32_t i = 0; i < n; i++) {
            int32_t value = weight_value(weight, taps, i);
            for (size_t k = 0; k < block; k++) sum[k] += in[(size_t)i * pitch + at + k] * value;
        }
        for (size_t k = 0; k < block; k++) out[at + k] = rounded_byte(sum[k]);
    }
}

/* ---- one image */

static void rows_run(const Resizer *r, const Pixels *in, size_t pitch)
{
    const Axis *axis = &r->columns;
    int32_t y = 0, h = r->rows.end_of_all - r->rows.first_of_all;
    bool wide = in->c == 3 && resize_has_avx2();
    for (; wide && y + 1 < h; y += 2)
        row_pair_resize_avx2(axis, in->at + (size_t)y * in->pitch, in->at + (size_t)(y + 1) * in->pitch,
                             r->scratch + (size_t)y * pitch, r->scratch + (size_t)(y + 1) * pitch);
    for (; y < h; y++) row_resize(axis, in->c, in->at + (size_t)y * in->pitch, r->scratch + (size_t)y * pitch);
}

Status resizer_run(Resizer *r, const Resize *resize, const Pixels *in, uint8_t *out, size_t out_pitch)
{
    if (resize->filter > RESIZE_BICUBIC)
        return FAIL(ERR_ARG, "resize filter %d: expected bilinear or bicubic", (int)resize->filter);
    TRY(resize_check(resize, in));
    const Rect w = resize->window;
    if (resize->in_h == resize->out_h && resize->in_w == resize->out_w) { /* each filter is 1 at 0 and 0 at integers */
        const Rect support = resize_support(resize);
        const uint8_t *from =
            in->at + (size_t)(w.y - support.y) * in->pitch + (size_t)(w.x - support.x) * (size_t)in->c;
        for (int32_t y = 0; y < w.h; y++)
            memcpy(out + (size_t)y * out_pitch, from + (size_t)y * in->pitch, (size_t)w.w * (size_t)in->c);
        return OK;
    }
    TRY(axis_fill(r, &r->rows, resize->filter, resize->in_h, resize->out_h, w.y, w.h));
    TRY(axis_fill(r, &r->columns, resize->filter, resize->in_w, resize->out_w, w.x, w.w));
    size_t width = (size_t)w.w * (size_t)in->c;
    size_t bytes = (size_t)(r->rows.end_of_all - r->rows.first_of_all) * width;
    TRY(array_reserve(&r->scratch, &r->scratch_room, bytes + PIXELS_SLACK, 1, "an image that is resized"));
    rows_run(r, in, width);
    const Axis *axis = &r->rows;
    void (*run)(const int16_t *, int32_t, int32_t, const uint8_t *, size_t, size_t, uint8_t *) =
        resize_has_avx2() ? column_resize_avx2 : column_resize;
    for (int32_t y = 0; y < axis->count; y++)
        run(axis->weight + 2 * (size_t)y * (size_t)axis->taps, axis->n[y], axis->taps,
            r->scratch + (size_t)(axis->first[y] - axis->first_of_all) * width, width, width,
            out + (size_t)y * out_pitch);
    return OK;
}
