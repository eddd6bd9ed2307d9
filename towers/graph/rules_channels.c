/* Rules of ops that rearrange, sum or repeat elements. They are linear. CONCAT and SLICE, SUM_TO and SPREAD_TO,
 * CHANNEL_SUM and CHANNEL_SPREAD are each other's gradient; the gradient of a RESHAPE is a RESHAPE, that of a PAD
 * a PAD, and that of a SHUFFLE a SHUFFLE. */
#include "towers/graph/rules.h"

/* The gradient is an op of dy alone, with the shape of the operand: grad_reshape, grad_sum_to, grad_spread_to, grad_channel_sum, grad_channel_spread. */
#define GRADIENT_OF_DY(name, KIND)                                                                                     \
    void grad_##name(GradCall *c)                                                                                      \
    {                                                                                                                  \
        Shape x = grad_shape(c, 0);                                                                                    \
        grad_give(c, 0, grad_op(c, OP_##KIND, "dx", OPERANDS(c->dy[0]), NULL, &x));                                    \
    }

void shape_concat(ShapeCall *c)
{
    Shape y = c->in[0];
    for (int i = 1; i < c->op->in_count; i++) {
        if (!rule_has(c, i)) rule_fail(c, ERR_ARG, "operand %d of concat is missing", i);
        Shape wanted = {y.n, c->in[i].c, y.h, y.w};
        rule_shape(c, i, "n, h and w of the first operand", wanted);
        rule_dtype(c, i, "operands of one dtype", c->dtype[0]);
        if (__builtin_add_overflow(y.c, c->in[i].c, &y.c)) rule_fail(c, ERR_SHAPE, "too many channels");
    }
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

void grad_concat(GradCall *c)
{
    OpAttr attr = {.slice.first = 0};
    for (int i = 0; i < c->op.in_count; i++) {
        Shape x = grad_shape(c, i);
        if (grad_wanted(c, i)) grad_give(c, i, grad_op(c, OP_SLICE, "dx", OPERANDS(c->dy[0]), &attr, &x));
        attr.slice.first += x.c;
    }
}

void shape_slice(ShapeCall *c)
{
    Shape x = c->in[0], y = rule_asked(c);
    int32_t first = c->op->attr.slice.first;
    if (first < 0 || (int64_t)first + y.c > x.c)
        rule_fail(c, ERR_SHAPE, "channels %d to %" PRId64 " exceed the operand's %d (%s)", first, (int64_t)first + y.c,
                  x.c, shape_text(x));
    if (y.n != x.n || y.h != x.h || y.w != x.w)
        rule_fail(c, ERR_SHAPE, "a slice of %s cannot have the shape %s", shape_text(x), shape_text(y));
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

void grad_slice(GradCall *c)
{
    grad_give_channels(c, 0, c->dy[0], c->op.attr.slice.first);
}

void shape_shuffle(ShapeCall *c)
{
    int32_t groups = c->op->attr.shuffle.groups;
    if (groups < 1 || c->in[0].c % groups)
        rule_fail(c, ERR_SHAPE, "%d channels cannot be divided among %d groups", c->in[0].c, groups);
    rule_like_first(c);
}

/* The other way round. */
void grad_shuffle(GradCall *c)
{
    OpAttr attr = {.shuffle.groups = grad_shape(c, 0).c / c->op.attr.shuffle.groups};
    grad_give(c, 0, grad_op(c, OP_SHUFFLE, "dx", OPERANDS(c->dy[0]), &attr, NULL));
}

void shape_reshape(ShapeCall *c)
{
    Shape x = c->in[0], y = rule_asked(c);
    if (shape_count(x) != shape_count(y))
        rule_fail(c, ERR_SHAPE, "%s has %" PRId64 " elements, %s has %" PRId64, shape_text(x), shape_count(x),
                  shape_text(y), shape_count(y));
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

GRADIENT_OF_DY(reshape, RESHAPE)

void shape_pad(ShapeCall *c)
{
    const Op *op = c->op;
    Shape x = c->in[0], y = x;
    int64_t h = (int64_t)x.h + op->attr.pad.top + op->attr.pad.bottom,
            w = (int64_t)x.w + op->attr.pad.left + op->attr.pad.right;
    if (h < 1 || w < 1 || h > INT32_MAX || w > INT32_MAX)
        rule_fail(c, ERR_SHAPE, "%s cannot be padded to a height of %" PRId64 " and a width of %" PRId64, shape_text(x),
                  h, w);
    else
        y.h = (int32_t)h, y.w = (int32_t)w;
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

void grad_pad(GradCall *c)
{
    OpAttr attr = c->op.attr;
    attr.pad.top = -attr.pad.top, attr.pad.bottom = -attr.pad.bottom;
    attr.pad.left = -attr.pad.left, attr.pad.right = -attr.pad.right;
    grad_give(c, 0, grad_op(c, OP_PAD, "dx", OPERANDS(c->dy[0]), &attr, NULL));
}

/* ---- sums and spreads */

static bool is_summed(Shape few, Shape many)
{
    return (few.n == 1 || few.n == many.n) && (few.c == 1 || few.c == many.c) && (few.h == 1 || few.h == many.h) &&
           (few.w == 1 || few.w == many.w);
}

void shape_sum_to(ShapeCall *c)
{
    Shape x = c->in[0], y = rule_asked(c);
    if (!is_summed(y, x))
        rule_fail(c, ERR_SHAPE, "%s cannot be reduced to %s: expected each size to be equal or 1", shape_text(x),
                  shape_text(y));
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

GRADIENT_OF_DY(sum_to, SPREAD_TO)

void shape_spread_to(ShapeCall *c)
{
    Shape x = c->in[0], y = rule_asked(c);
    if (!is_summed(x, y))
        rule_fail(c, ERR_SHAPE, "%s cannot be broadcast to %s: expected each size to be 1 or equal", shape_text(x),
                  shape_text(y));
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

GRADIENT_OF_DY(spread_to, SUM_TO)

void shape_channel_sum(ShapeCall *c)
{
    rule_out(c, 0, NULL, shape_vector(c->in[0].c), DTYPE_F32);
}

GRADIENT_OF_DY(channel_sum, CHANNEL_SPREAD)

void shape_channel_spread(ShapeCall *c)
{
    Shape y = rule_asked(c);
    rule_shape(c, 0, "one number per channel", shape_vector(y.c));
    rule_dtype(c, 0, "dtype of the numbers per channel", DTYPE_F32);
    rule_out(c, 0, NULL, y, graph_options(c->g)->compute);
}

GRADIENT_OF_DY(channel_spread, CHANNEL_SUM)
