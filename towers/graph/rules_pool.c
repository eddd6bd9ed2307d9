/* Rules of pooling. AVG_POOL is linear, so it and AVG_POOL_DX are each other's gradient; MAX_POOL_DX has none. Forms fused with a
 * batch norm enter the list after the gradients.
 *
 * If only this pooling reads a ReLU, the ReLU's mask moves into MAX_POOL_DX: an element that is a maximum is positive
 * exactly if the maximum is, so masking with the small y replaces a pass of RELU_DX over the large x. */
#include "towers/graph/rules.h"

static Shape pooled(ShapeCall *c, Shape x)
{
    const Window *w = &c->op->attr.pool.window;
    Shape y = rule_window(c, x, w, x.c);
    int32_t most_h = w->pad_h + (w->more_h > 0 ? w->more_h : 0), most_w = w->pad_w + (w->more_w > 0 ? w->more_w : 0);
    if (w->dilate_h || w->dilate_w) rule_fail(c, ERR_UNSUPPORTED, "a pooling does not support dilation");
    if (most_h >= w->kh || most_w >= w->kw)
        rule_fail(c, ERR_SHAPE, "padding %dx%d leaves windows %dx%d without any input", most_h, most_w, w->kh, w->kw);
    return y;
}

/* dy has the shape that pooling gives the requested one. */
static void pool_dx(ShapeCall *c, int acc)
{
    Shape x = rule_asked(c);
    if (!c->op->attr.pool.adaptive) rule_shape(c, 0, "shape of dy", pooled(c, x));
    rule_shape(c, acc, "shape of acc", x);
    rule_dtype(c, acc, "dtype of acc", c->dtype[0]);
    rule_out(c, 0, NULL, x, c->dtype[0]);
}

static Shape maximum(ShapeCall *c, Shape x)
{
    enum { PLACES = 256 };
    const Window *w = &c->op->attr.pool.window;
    Shape y = pooled(c, x);
    if ((int64_t)w->kh * w->kw > PLACES)
        rule_fail(c, ERR_UNSUPPORTED,
                  "window %dx%d has %" PRId64 " elements; the argmax of a maximum pooling holds at most %d", w->kh,
                  w->kw, (int64_t)w->kh * w->kw, PLACES);
    return y;
}

void shape_max_pool(ShapeCall *c)
{
    Shape y = maximum(c, c->in[0]);
    rule_out(c, 0, NULL, y, c->dtype[0]);
    rule_out(c, 1, "argmax", y, DTYPE_U8);
}

void shape_max_pool_dx(ShapeCall *c)
{
    pool_dx(c, 2);
    rule_shape(c, 1, "shape of argmax", c->in[0]);
    rule_dtype(c, 1, "dtype of argmax", DTYPE_U8);
    rule_shape(c, 3, "shape of the ReLU's y", c->in[0]);
    rule_dtype(c, 3, "dtype of the ReLU's y", c->dtype[0]);
}

void shape_max_pool_norm(ShapeCall *c)
{
    rule_norm(c, c->in[0].c, 1, 5, c->op->attr.pool.epsilon);
    shape_max_pool(c);
}

void shape_max_pool_norm_dx(ShapeCall *c)
{
    Shape x = c->in[2], vector = shape_vector(x.c);
    rule_shape(c, 0, "shape of dy", maximum(c, x));
    rule_shape(c, 1, "shape of argmax", c->in[0]);
    rule_dtype(c, 1, "dtype of argmax", DTYPE_U8);
    rule_dtype(c, 2, "dtype of x", c->dtype[0]);
    rule_norm(c, x.c, 3, 7, c->op->attr.pool.epsilon);
    rule_out(c, 0, NULL, x, c->dtype[0]);
    rule_out(c, 1, "dbeta", vector, DTYPE_F32);
    rule_out(c, 2, "dgamma", vector, DTYPE_F32);
}

/* Sides may differ in any way; {n, c} must agree. */
static void adaptive_fits(ShapeCall *c, Shape x, Shape y)
{
    if (x.n != y.n || x.c != y.c)
        rule_fail(c, ERR_SHAPE, "average pooling cannot change the number of samples or channels: %s to %s",
                  shape_text(x), shape_text(y));
}

void shape_avg_pool(ShapeCall *c)
{
    bool adaptive = c->op->attr.pool.adaptive;
    Shape y = adaptive ? rule_asked(c) : pooled(c, c->in[0]);
    if (adaptive) adaptive_fits(c, c->in[0], y);
    rule_out(c, 0, NULL, y, c->dtype[0]);
}

void shape_avg_pool_dx(ShapeCall *c)
{
    pool_dx(c, 1);
    if (c->op->attr.pool.adaptive) adaptive_fits(c, rule_asked(c), c->in[0]);
}

void grad_max_pool(GradCall *c)
{
    if (!grad_wanted(c, 0) || !c->dy[0].id) return;
    Shape x = grad_shape(c, 0);
    Value relu_y = grad_claim_relu(c, 0) ? c->op.out[0] : (Value){0};
    Value acc = grad_take(c, 0);
    grad_give(c, 0, grad_op(c, OP_MAX_POOL_DX, "dx", OPERANDS(c->dy[0], c->op.out[1], acc, relu_y), &c->op.attr, &x));
}

NO_GRADIENT(max_pool_dx)
NO_GRADIENT(max_pool_norm)
NO_GRADIENT(max_pool_norm_dx)

void grad_avg_pool(GradCall *c)
{
    Shape x = grad_shape(c, 0);
    Value acc = grad_take(c, 0);
    grad_give(c, 0, grad_op(c, OP_AVG_POOL_DX, "dx", OPERANDS(c->dy[0], acc), &c->op.attr, &x));
}

void grad_avg_pool_dx(GradCall *c)
{
    Shape dy = grad_shape(c, 0);
    if (grad_wanted(c, 0)) grad_give(c, 0, grad_op(c, OP_AVG_POOL, "dy", OPERANDS(c->dy[0]), &c->op.attr, &dy));
    grad_give(c, 1, c->dy[0]);
}
