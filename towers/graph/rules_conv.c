/* Rules of convolution and dense layers.
 *
 * Both families are closed under differentiation. With <CONV(x, w), dy> = <x, CONV_DX(dy, w)> = <w, CONV_DW(x, dy)>,
 * an expression linear in x, w and dy, the gradients of each of the three are the other two; so second
 * derivatives (a gradient penalty) need no further kernels. CONV_DX is also the transposed convolution.
 *
 * The gradients of bias and weights come before that of x: they are final one op earlier, and if this op is the last
 * reader of x, its storage is free for its gradient. */
#include "towers/graph/rules.h"

static void conv_dtypes(ShapeCall *c, int weights)
{
    rule_dtype(c, weights, "dtype of the weights", DTYPE_F32);
    if (c->op->attr.conv.window.ceil)
        rule_fail(c, ERR_ARG, "a convolution does not support rounding up (ceil_mode) of its output size");
}

/* x, w and y as one convolution has them, in whole groups. */
static void conv_fits(ShapeCall *c, Shape x, Shape w, Shape y)
{
    const Window *window = &c->op->attr.conv.window;
    if (x.c % w.c)
        rule_count(c, "input channels of the weights", x.c, w.c);
    else if (w.n % conv_groups(x, w))
        rule_fail(c, ERR_SHAPE, "%d output channels cannot be divided among %d groups", w.n, conv_groups(x, w));
    rule_count(c, "height of the window", window->kh, w.h);
    rule_count(c, "width of the window", window->kw, w.w);
    Shape wanted = rule_window(c, x, window, w.n);
    if (!shape_equal(wanted, y))
        rule_fail(c, ERR_SHAPE, "a convolution of %s makes %s, not %s", shape_text(x), shape_text(wanted),
                  shape_text(y));
}

void shape_conv(ShapeCall *c)
{
    Shape x = c->in[0], w = c->in[1];
    conv_dtypes(c, 1);
    Shape y = rule_window(c, x, &c->op->attr.conv.window, w.n);
    conv_fits(c, x, w, y);
    rule_shape(c, 2, "shape of the bias", shape_vector(w.n));
    rule_dtype(c, 2, "dtype of the bias", DTYPE_F32);
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

void shape_conv_dx(ShapeCall *c)
{
    Shape x = rule_asked(c);
    conv_dtypes(c, 1);
    conv_fits(c, x, c->in[1], c->in[0]);
    rule_shape(c, 2, "shape of acc", x);
    rule_dtype(c, 2, "dtype of acc", c->dtype[0]);
    rule_out(c, 0, NULL, x, c->dtype[0]);
}

void shape_conv_dw(ShapeCall *c)
{
    Shape w = rule_asked(c);
    conv_dtypes(c, OP_MAX_IN);
    conv_fits(c, c->in[0], w, c->in[1]);
    rule_dtype(c, 1, "dtype of dy", c->dtype[0]);
    rule_out(c, 0, NULL, w, DTYPE_F32);
}

/* ---- dense */

static void dense_fits(ShapeCall *c, Shape x, Shape w, Shape y)
{
    rule_count(c, "input channels of the weights", x.c, w.c);
    rule_count(c, "input height of the weights", x.h, w.h);
    rule_count(c, "input width of the weights", x.w, w.w);
    Shape wanted = {x.n, w.n, 1, 1};
    if (!shape_equal(wanted, y))
        rule_fail(c, ERR_SHAPE, "a dense layer of %s makes %s, not %s", shape_text(x), shape_text(wanted),
                  shape_text(y));
}

void shape_dense(ShapeCall *c)
{
    Shape x = c->in[0], w = c->in[1], y = {x.n, w.n, 1, 1};
    dense_fits(c, x, w, y);
    rule_dtype(c, 1, "dtype of the weights", DTYPE_F32);
    rule_shape(c, 2, "shape of the bias", shape_vector(w.n));
    rule_dtype(c, 2, "dtype of the bias", DTYPE_F32);
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

void shape_dense_dx(ShapeCall *c)
{
    Shape x = rule_asked(c);
    dense_fits(c, x, c->in[1], c->in[0]);
    rule_dtype(c, 1, "dtype of the weights", DTYPE_F32);
    rule_out(c, 0, NULL, x, c->dtype[0]);
}

void shape_dense_dw(ShapeCall *c)
{
    Shape w = rule_asked(c);
    dense_fits(c, c->in[0], w, c->in[1]);
    rule_dtype(c, 1, "dtype of dy", c->dtype[0]);
    rule_out(c, 0, NULL, w, DTYPE_F32);
}

/* ---- gradients */

/* The gradient of operand i by an op of `kind`: y of x and w, dx of dy and w, or dw of x and dy. Adding inside the kernel
 * is free for a 1x1 convolution (a matrix product); others would need an extra pass. */
static void give(GradCall *c, int i, OpKind kind, const char *name, Value a, Value b)
{
    if (!grad_wanted(c, i)) return;
    bool conv = kind == OP_CONV || kind == OP_CONV_DX || kind == OP_CONV_DW;
    OpAttr attr = {0};
    if (conv) attr.conv.window = c->op.attr.conv.window; /* without the ReLU */
    Shape shape = grad_shape(c, i);
    Value acc = kind == OP_CONV_DX && window_is_point(&attr.conv.window) ? grad_take(c, i) : (Value){0};
    grad_give(c, i, grad_op(c, kind, name, OPERANDS(a, b, acc), conv ? &attr : NULL, &shape));
}

static void give_bias(GradCall *c, Value dy)
{
    if (grad_wanted(c, 2)) grad_give(c, 2, grad_op(c, OP_CHANNEL_SUM, "db", OPERANDS(dy), NULL, NULL));
}

void grad_conv(GradCall *c)
{
    Value dy = c->op.attr.conv.relu ? grad_before_relu(c) : c->dy[0];
    give_bias(c, dy);
    give(c, 1, OP_CONV_DW, "dw", c->op.in[0], dy);
    give(c, 0, OP_CONV_DX, "dx", dy, c->op.in[1]);
}

void grad_conv_dx(GradCall *c)
{
    give(c, 1, OP_CONV_DW, "dw", c->dy[0], c->op.in[0]);
    give(c, 0, OP_CONV, "dy", c->dy[0], c->op.in[1]);
    grad_give(c, 2, c->dy[0]);
}

void grad_conv_dw(GradCall *c)
{
    give(c, 1, OP_CONV, "dy", c->op.in[0], c->dy[0]);
    give(c, 0, OP_CONV_DX, "dx", c->op.in[1], c->dy[0]);
}

void grad_dense(GradCall *c)
{
    Value dy = c->op.attr.dense.relu ? grad_before_relu(c) : c->dy[0];
    give_bias(c, dy);
    give(c, 1, OP_DENSE_DW, "dw", c->op.in[0], dy);
    give(c, 0, OP_DENSE_DX, "dx", dy, c->op.in[1]);
}

void grad_dense_dx(GradCall *c)
{
    give(c, 1, OP_DENSE_DW, "dw", c->dy[0], c->op.in[0]);
    give(c, 0, OP_DENSE, "dy", c->dy[0], c->op.in[1]);
}

void grad_dense_dw(GradCall *c)
{
    give(c, 1, OP_DENSE, "dy", c->op.in[0], c->dy[0]);
    give(c, 0, OP_DENSE_DX, "dx", c->op.in[1], c->dy[0]);
}
