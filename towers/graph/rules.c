/* Checks for shape rules. Each failure names the layer, what was expected and what was found. */
#include "towers/graph/rules.h"
#include "towers/graph/list.h"

#include <stdarg.h>

/* Sides, strides, padding and dilation are below this, so that int32 sums of them cannot overflow. */
enum { WINDOW_LIMIT = 1 << 15 };

bool rule_has(const ShapeCall *c, int i)
{
    return i < c->op->in_count && c->op->in[i].id;
}

void rule_fail(ShapeCall *c, Status code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    list_fail(c->g, code, "%s: %s", c->op->name, text);
}

void rule_count(ShapeCall *c, const char *what, int64_t wanted, int64_t have)
{
    if (wanted != have) rule_fail(c, ERR_SHAPE, "%s: expected %" PRId64 ", found %" PRId64, what, wanted, have);
}

void rule_shape(ShapeCall *c, int i, const char *what, Shape wanted)
{
    if (rule_has(c, i) && !shape_equal(c->in[i], wanted))
        rule_fail(c, ERR_SHAPE, "%s: expected %s, found %s", what, shape_text(wanted), shape_text(c->in[i]));
}

void rule_dtype(ShapeCall *c, int i, const char *what, Dtype wanted)
{
    if (rule_has(c, i) && c->dtype[i] != wanted)
        rule_fail(c, ERR_SHAPE, "%s: expected %s, found %s", what, dtype_name(wanted), dtype_name(c->dtype[i]));
}

void rule_alike(ShapeCall *c)
{
    for (int i = 1; i < c->op->in_count; i++) {
        if (!rule_has(c, i)) rule_fail(c, ERR_ARG, "operand %d of %s is missing", i, op_name(c->op->kind));
        rule_shape(c, i, "operands of one shape", c->in[0]);
        rule_dtype(c, i, "operands of one dtype", c->dtype[0]);
    }
}

Shape rule_asked(ShapeCall *c)
{
    if (c->asked) return *c->asked;
    rule_fail(c, ERR_ARG, "%s needs the shape of its output", op_name(c->op->kind));
    return (Shape){1, 1, 1, 1};
}

static bool is_padding(int64_t pixels)
{
    return pixels >= 0 && pixels < WINDOW_LIMIT;
}

static bool window_is_sane(const Window *w)
{
    const int32_t sizes[] = {w->kh, w->kw, w->stride_h, w->stride_w};
    const int32_t counts[] = {w->pad_h, w->pad_w, w->dilate_h, w->dilate_w};
    bool sane = true;
    for (int k = 0; k < 4; k++)
        sane &= sizes[k] > 0 && sizes[k] < WINDOW_LIMIT && counts[k] >= 0 && counts[k] < WINDOW_LIMIT;
    return sane && is_padding((int64_t)w->pad_h + w->more_h) && is_padding((int64_t)w->pad_w + w->more_w);
}

Shape rule_window(ShapeCall *c, Shape x, const Window *window, int32_t channels)
{
    Shape none = {1, 1, 1, 1};
    char stride[48], padding[WINDOW_TEXT_BYTES], dilation[48] = "";
    padding_text(window, padding);
    if (window->dilate_h || window->dilate_w)
        snprintf(dilation, sizeof dilation, " dilation %dx%d", window->dilate_h + 1, window->dilate_w + 1);
    if (!window_is_sane(window)) {
        rule_fail(c, ERR_ARG,
                  "window %dx%d, stride %dx%d, padding %s%s: sizes, strides and dilations are 1 to %d, padding 0 to %d",
                  window->kh, window->kw, window->stride_h, window->stride_w, padding, dilation, WINDOW_LIMIT - 1,
                  WINDOW_LIMIT - 1);
        return none;
    }
    Shape y = window_out(window, x, channels);
    if (y.h > 0 && y.w > 0) return y;
    snprintf(stride, sizeof stride, window->stride_h == window->stride_w ? "%d" : "%dx%d", window->stride_h,
             window->stride_w);
    rule_fail(c, ERR_SHAPE, "window %dx%d stride %s%s%s%s does not fit input %dx%d (%s)", window->kh, window->kw,
              stride, window_is_padded(window) ? " padding " : "", window_is_padded(window) ? padding : "", dilation,
              x.h, x.w, shape_text(x));
    return none;
}

void rule_out(ShapeCall *c, int i, const char *suffix, Shape shape, Dtype dtype)
{
    c->out[i].shape = shape;
    c->out[i].dtype = dtype;
    c->out[i].suffix = suffix;
}

void rule_like_first(ShapeCall *c)
{
    rule_out(c, 0, NULL, c->in[0], c->dtype[0]);
}

Shape shape_vector(int32_t c)
{
    return (Shape){1, c, 1, 1};
}

void rule_norm(ShapeCall *c, int32_t channels, int first, int end, float epsilon)
{
    for (int i = first; i < end; i++) {
        rule_shape(c, i, "one number per channel", shape_vector(channels));
        rule_dtype(c, i, "dtype of the numbers per channel", DTYPE_F32);
    }
    if (!(epsilon > 0)) rule_fail(c, ERR_ARG, "expected an epsilon above 0, found %g", (double)epsilon);
}
