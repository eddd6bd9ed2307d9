/* Checks that all backends share; see operands.h. */
#include "kernels/operands.h"

Status operands_same_dtype(const OpCall *call, int first, int end)
{
    for (int k = first; k < end && k < call->in_count; k++)
        if (call->in[k].data && call->out[0].data && call->in[k].dtype != call->out[0].dtype)
            return FAIL(ERR_UNSUPPORTED, "%s '%s': input %d is %s, but the output is %s; expected the same dtype",
                        op_name(call->kind), call->name, k, dtype_name(call->in[k].dtype),
                        dtype_name(call->out[0].dtype));
    return OK;
}

static bool folds(int32_t small, int32_t big)
{
    return small == 1 || small == big;
}

Status operands_fold(const OpCall *call, const Tensor *small, const Tensor *big)
{
    Shape s = small->shape, b = big->shape;
    if (!folds(s.n, b.n) || !folds(s.c, b.c) || !folds(s.h, b.h) || !folds(s.w, b.w))
        return FAIL(ERR_SHAPE, "%s '%s': %s and %s differ in a size that is not 1", op_name(call->kind), call->name,
                    shape_text(s), shape_text(b));
    return OK;
}

Status operands_logits(const OpCall *call)
{
    Shape logits = call->in[0].shape;
    if (logits.h != 1 || logits.w != 1)
        return FAIL(ERR_SHAPE, "%s '%s': expected logits of shape Nx(classes)x1x1, found %s", op_name(call->kind),
                    call->name, shape_text(logits));
    if (call->out[1].data && call->out[1].dtype != DTYPE_F32)
        return FAIL(ERR_UNSUPPORTED, "%s '%s': expected f32 probabilities, found %s", op_name(call->kind), call->name,
                    dtype_name(call->out[1].dtype));
    return OK;
}

Status operands_window(const OpCall *call, bool places)
{
    const Window *w = &call->attr.pool.window;
    if (w->kh < 1 || w->kw < 1 || w->stride_h < 1 || w->stride_w < 1 || w->pad_h < 0 || w->pad_w < 0 ||
        w->pad_h >= w->kh || w->pad_w >= w->kw)
        return FAIL(ERR_SHAPE,
                    "%s '%s': window %dx%d stride %dx%d padding %dx%d: expected sizes and strides of 1 or more and "
                    "padding smaller than the window",
                    op_name(call->kind), call->name, w->kh, w->kw, w->stride_h, w->stride_w, w->pad_h, w->pad_w);
    if (places && (int64_t)w->kh * w->kw > 256)
        return FAIL(ERR_UNSUPPORTED, "%s '%s': expected a window of at most 256 elements, found %dx%d",
                    op_name(call->kind), call->name, w->kh, w->kw);
    return OK;
}

Status operands_copy(const OpCall *call)
{
    Shape x = call->in[0].shape, y = call->out[0].shape;
    int32_t first = call->attr.slice.first;
    int64_t c = 0;
    for (int k = 0; k < call->in_count; k++) c += call->in[k].data ? call->in[k].shape.c : 0;
    if (call->kind == OP_CONCAT && c != y.c)
        return FAIL(ERR_SHAPE, "concat '%s': the inputs have %lld channels, the output has %d", call->name,
                    (long long)c, y.c);
    if (call->kind == OP_SLICE && (first < 0 || first + y.c > x.c))
        return FAIL(ERR_SHAPE, "slice '%s': channels %d to %d exceed the input's %d", call->name, first, first + y.c,
                    x.c);
    if (call->kind == OP_RESHAPE && shape_count(x) != shape_count(y))
        return FAIL(ERR_SHAPE, "reshape '%s': %s and %s differ in their number of elements", call->name, shape_text(x),
                    shape_text(y));
    return operands_same_dtype(call, 0, OP_MAX_IN);
}

Status operands_pad(const OpCall *call)
{
    Shape x = call->in[0].shape, y = call->out[0].shape;
    int64_t h = (int64_t)x.h + call->attr.pad.top + call->attr.pad.bottom,
            w = (int64_t)x.w + call->attr.pad.left + call->attr.pad.right;
    if (y.n != x.n || y.c != x.c || y.h != h || y.w != w)
        return FAIL(ERR_SHAPE, "pad '%s': borders %d, %d, %d, %d do not give %s from %s", call->name,
                    call->attr.pad.top, call->attr.pad.bottom, call->attr.pad.left, call->attr.pad.right, shape_text(y),
                    shape_text(x));
    return operands_same_dtype(call, 0, 1);
}
