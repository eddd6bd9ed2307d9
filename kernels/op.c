/* Names and sizes of the op kinds; see op.h. */
#include "kernels/op.h"
#include "kernels/base/text.h"

static const struct {
    const char *name;
    int inputs, outputs, min_inputs;
} rows[OP_COUNT] = {
    [OP_NONE] = {"none", 0, 0, 0},
#define OP(KIND, name, inputs, outputs, min_inputs, storage, formula)                                                  \
    [OP_##KIND] = {#name, inputs, outputs, min_inputs},
#include "kernels/ops.def"
};

const OpStorage op_storage[OP_COUNT] = {
#define STORAGE(strided_in, strided_out, in_place)                                                                     \
    {                                                                                                                  \
        strided_in, strided_out, in_place                                                                              \
    }
#define OP(KIND, name, inputs, outputs, min_inputs, storage, formula) [OP_##KIND] = storage,
#include "kernels/ops.def"
};

const char *op_name(OpKind kind)
{
    return rows[kind].name;
}

int op_max_inputs(OpKind kind)
{
    return rows[kind].inputs;
}

int op_min_inputs(OpKind kind)
{
    return rows[kind].min_inputs;
}

int op_outputs(OpKind kind)
{
    return rows[kind].outputs;
}

static int32_t side_out(int32_t side, int32_t span, int32_t stride, int32_t pad, int32_t more, bool ceil)
{
    int32_t room = side + 2 * pad + more - span + (ceil ? stride - 1 : 0);
    if (room < 0) return 0;
    int32_t out = room / stride + 1;
    if (ceil && (out - 1) * stride >= side + pad) out--;
    return out;
}

Shape window_out(const Window *w, Shape x, int32_t channels)
{
    return (Shape){x.n, channels,
                   side_out(x.h, window_span(w->kh, w->dilate_h), w->stride_h, w->pad_h, w->more_h, w->ceil),
                   side_out(x.w, window_span(w->kw, w->dilate_w), w->stride_w, w->pad_w, w->more_w, w->ceil)};
}

const char *padding_text(const Window *w, char text[WINDOW_TEXT_BYTES])
{
    if (w->more_h || w->more_w)
        snprintf(text, WINDOW_TEXT_BYTES, "%d:%dx%d:%d", w->pad_h, w->pad_h + w->more_h, w->pad_w,
                 w->pad_w + w->more_w);
    else
        snprintf(text, WINDOW_TEXT_BYTES, "%dx%d", w->pad_h, w->pad_w);
    return text;
}

const char *window_text(const Window *w, char text[WINDOW_TEXT_BYTES])
{
    Text to = text_start(text, WINDOW_TEXT_BYTES);
    text_add(&to, "stride %dx%d pad %dx%d", w->stride_h, w->stride_w, w->pad_h, w->pad_w);
    if (w->more_h || w->more_w) text_add(&to, " more %dx%d", w->more_h, w->more_w);
    if (w->dilate_h || w->dilate_w) text_add(&to, " dilate %dx%d", w->dilate_h, w->dilate_w);
    return text;
}

bool window_is_padded(const Window *w)
{
    return w->pad_h || w->pad_w || w->more_h || w->more_w;
}

bool window_is_point(const Window *w)
{
    return w->kh == 1 && w->kw == 1 && w->stride_h == 1 && w->stride_w == 1 && !window_is_padded(w);
}

int64_t op_macs(const OpCall *call)
{
    switch (call->kind) {
    case OP_CONV: return shape_pixels(call->out[0].shape) * shape_count(call->in[1].shape);
    case OP_CONV_DX: return shape_pixels(call->in[0].shape) * shape_count(call->in[1].shape);
    case OP_CONV_DW: return shape_pixels(call->in[1].shape) * shape_count(call->out[0].shape);
    case OP_DENSE: return (int64_t)call->in[0].shape.n * shape_count(call->in[1].shape);
    case OP_DENSE_DX: return (int64_t)call->in[0].shape.n * shape_count(call->in[1].shape);
    case OP_DENSE_DW: return (int64_t)call->in[0].shape.n * shape_count(call->out[0].shape);
    default: return 0;
    }
}
