/* The inputs of each output; see resize_taps.h. TensorFlow's positions are computed in float like its own, because their
 * rounding decides which pixel is taken. */
#include "towers/data/images/resize_taps.h"

/* ---- Pillow's filters */

double resize_reach(ResizeFilter filter)
{
    return filter == RESIZE_BICUBIC ? 2 : 1;
}

/* ---- TensorFlow's filters */

static int32_t within(int64_t at, int32_t in)
{
    return (int32_t)(at < 0 ? 0 : at >= in ? in - 1 : at);
}

/* Convolution of a = -3/4, at a distance of `x` pixels below 2. */
static float bicubic(float x)
{
    const double a = -0.75;
    double d = (double)x;
    return (float)(x <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a);
}

/* Add a weight to input `at` or, beyond the border, to the last one. */
static void weight_add(float *weight, int32_t first, int64_t at, int32_t in, float value)
{
    if (weight) weight[within(at, in) - first] += value;
}

void tf_taps(ResizeFilter filter, int32_t in, int32_t out, int32_t x, float *weight, int32_t *first, int32_t *end)
{
    enum { STEPS = 1024 };
    float scale = (float)in / (float)out, from = (float)x * scale, till = (float)(x + 1) * scale;
    int64_t whole = (int64_t)floorf(from), last = filter == RESIZE_TF_NEAREST ? whole : (int64_t)ceilf(from);
    if (filter == RESIZE_TF_BICUBIC) last = whole + 2;
    if (filter == RESIZE_TF_AREA) last = (int64_t)ceilf(till) - 1;
    *first = within(filter == RESIZE_TF_BICUBIC ? whole - 1 : whole, in);
    *end = within(last, in) + 1;
    if (!weight) return;
    memset(weight, 0, (size_t)(*end - *first) * sizeof *weight);
    float part = from - (float)whole;
    if (filter == RESIZE_TF_NEAREST) weight[0] = 1;
    if (filter == RESIZE_TF_BILINEAR) {
        weight_add(weight, *first, whole, in, 1 - part);
        weight_add(weight, *first, last, in, part);
    }
    if (filter == RESIZE_TF_BICUBIC) {
        float near = (float)lrintf(part * STEPS) / STEPS;
        const float distance[4] = {1 + near, near, 1 - near, 2 - near};
        for (int k = 0; k < 4; k++) weight_add(weight, *first, whole - 1 + k, in, bicubic(distance[k]));
    }
    for (int64_t i = whole; filter == RESIZE_TF_AREA && i <= last; i++) {
        float covered = (float)i < from ? ((float)(i + 1) > till ? scale : (float)(i + 1) - from)
                                        : ((float)(i + 1) > till ? till - (float)i : 1);
        weight_add(weight, *first, i, in, covered / scale);
    }
}

/* ---- a window of the image */

void resize_taps(ResizeFilter filter, int32_t in, int32_t out, int32_t x, int32_t *first, int32_t *end)
{
    if (filter >= RESIZE_TF_BILINEAR) {
        tf_taps(filter, in, out, x, NULL, first, end);
        return;
    }
    double ratio = (double)in / out, reach = resize_reach(filter) * (ratio > 1 ? ratio : 1), center = (x + 0.5) * ratio;
    *first = (int32_t)fmax(center - reach + 0.5, 0);
    *end = (int32_t)fmin(center + reach + 0.5, in);
}

Rect resize_support(const Resize *r)
{
    int32_t y0, y1, x0, x1, unused;
    resize_taps(r->filter, r->in_h, r->out_h, r->window.y, &y0, &unused);
    resize_taps(r->filter, r->in_h, r->out_h, r->window.y + r->window.h - 1, &unused, &y1);
    resize_taps(r->filter, r->in_w, r->out_w, r->window.x, &x0, &unused);
    resize_taps(r->filter, r->in_w, r->out_w, r->window.x + r->window.w - 1, &unused, &x1);
    return (Rect){y0, x0, y1 - y0, x1 - x0};
}

Status resize_check(const Resize *r, const Pixels *in)
{
    if (r->in_h < 1 || r->in_w < 1 || r->in_h > IMAGE_SIDE_MAX || r->in_w > IMAGE_SIDE_MAX || r->out_h < 1 ||
        r->out_w < 1)
        return FAIL(ERR_ARG,
                    "cannot resize %d x %d pixels to %d x %d: sides are at least 1, those of an image at most "
                    "%d",
                    r->in_w, r->in_h, r->out_w, r->out_h, IMAGE_SIDE_MAX);
    if (in->c < 1 || in->c > 4) return FAIL(ERR_ARG, "cannot resize images of %d channels: expected 1 to 4", in->c);
    Rect w = r->window;
    if (w.y < 0 || w.x < 0 || w.h < 1 || w.w < 1 || w.y > r->out_h - w.h || w.x > r->out_w - w.w)
        return FAIL(ERR_ARG, "cannot cut %d x %d pixels at %d, %d out of %d x %d", w.w, w.h, w.x, w.y, r->out_w,
                    r->out_h);
    Rect support = resize_support(r);
    if (in->h < support.h || in->w < support.w)
        return FAIL(ERR_ARG, "resizing needs %d x %d pixels, found %d x %d", support.w, support.h, in->w, in->h);
    return OK;
}
