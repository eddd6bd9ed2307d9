/* Separable resampling in float; definition in resize_tf.h. */
#include "towers/data/images/resize_tf.h"
#include "kernels/base/array.h"

/* The taps of all outputs along one axis. */
typedef struct TapAxis {
    int32_t taps;   /* words per output */
    int32_t *first; /* [count]; owned */
    int32_t *n;     /* [count], behind `first` */
    float *weight;  /* [count][taps]; owned */
    size_t first_room, weight_room;
} TapAxis;

struct ResizerTf {
    TapAxis rows, columns;
    float *across; /* owned: input rows after the first pass */
    size_t across_room;
    bool *done; /* owned: which of them are there */
    size_t done_room;
};

static Status axis_fill(TapAxis *axis, ResizeFilter filter, int32_t in, int32_t out, int32_t from, int32_t count)
{
    double ratio = (double)in / out;
    axis->taps = filter == RESIZE_TF_AREA ? (int32_t)ceil(ratio) + 2 : 4;
    size_t weights = (size_t)count * (size_t)axis->taps;
    TRY(array_reserve(&axis->first, &axis->first_room, 2 * (size_t)count, sizeof *axis->first, "the taps of a filter"));
    TRY(array_reserve(&axis->weight, &axis->weight_room, weights, sizeof *axis->weight, "the weights of a filter"));
    axis->n = axis->first + count;
    for (int32_t i = 0; i < count; i++) {
        int32_t end;
        tf_taps(filter, in, out, from + i, axis->weight + (size_t)i * (size_t)axis->taps, &axis->first[i], &end);
        axis->n[i] = end - axis->first[i];
    }
    return OK;
}

static void axis_free(TapAxis *axis)
{
    free(axis->first);
    free(axis->weight);
}

Status resizer_tf_create(ResizerTf **made)
{
    *made = calloc(1, sizeof **made);
    return *made ? OK : FAIL(ERR_MEMORY, "no memory for the resizer");
}

void resizer_tf_destroy(ResizerTf *resizer)
{
    if (!resizer) return;
    axis_free(&resizer->rows);
    axis_free(&resizer->columns);
    free(resizer->across);
    free(resizer->done);
    free(resizer);
}

static void row_resize_tf(const TapAxis *axis, int32_t count, int32_t left, int32_t c, const uint8_t *in, float *out)
{
    for (int32_t x = 0; x < count; x++) {
        const float *weight = axis->weight + (size_t)x * (size_t)axis->taps;
        const uint8_t *from = in + (size_t)(axis->first[x] - left) * (size_t)c;
        for (int32_t k = 0; k < c; k++, from++) {
            float sum = 0;
            for (int32_t i = 0; i < axis->n[x]; i++) sum += weight[i] * (float)from[(size_t)i * (size_t)c];
            *out++ = sum;
        }
    }
}

Status resizer_tf_run(ResizerTf *r, const Resize *resize, const Pixels *in, float *out)
{
    if (resize->filter < RESIZE_TF_BILINEAR || resize->filter > RESIZE_TF_AREA)
        return FAIL(ERR_ARG, "resize filter %d: expected one of TensorFlow's four", (int)resize->filter);
    TRY(resize_check(resize, in));
    const Rect w = resize->window, support = resize_support(resize);
    TRY(axis_fill(&r->rows, resize->filter, resize->in_h, resize->out_h, w.y, w.h));
    TRY(axis_fill(&r->columns, resize->filter, resize->in_w, resize->out_w, w.x, w.w));
    size_t width = (size_t)w.w * (size_t)in->c, rows = (size_t)support.h;
    TRY(array_reserve(&r->across, &r->across_room, rows * width, sizeof *r->across, "an image that is resized"));
    TRY(array_reserve(&r->done, &r->done_room, rows, sizeof *r->done, "an image that is resized"));
    memset(r->done, 0, rows * sizeof *r->done);
    for (int32_t y = 0; y < w.h; y++, out += width) {
        memset(out, 0, width * sizeof *out);
        for (int32_t i = 0; i < r->rows.n[y]; i++) {
            size_t row = (size_t)(r->rows.first[y] + i - support.y);
            float *across = r->across + row * width,
                  weight = r->rows.weight[(size_t)y * (size_t)r->rows.taps + (size_t)i];
            if (!r->done[row]) /* shrinking, most filters skip rows */
                row_resize_tf(&r->columns, w.w, support.x, in->c, in->at + row * in->pitch, across);
            r->done[row] = true;
            for (size_t k = 0; k < width; k++) out[k] += weight * across[k];
        }
    }
    return OK;
}
