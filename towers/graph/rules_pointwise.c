/* Rules of ops that work element by element: activations, dropout, stochastic depth, sums and products, and the two sources of
 * activations, IMAGE and RANDOM. The derivative of a ReLU at 0 is 0, and constant elsewhere: RELU_DX and LEAKY_RELU_DX
 * pass a second derivative on to dy only. */
#include "towers/graph/rules.h"

/* The output is like the first operand. */
#define LIKE_FIRST(name)                                                                                               \
    void shape_##name(ShapeCall *c)                                                                                    \
    {                                                                                                                  \
        rule_like_first(c);                                                                                            \
    }
/* So are the other operands. */
#define ALIKE(name)                                                                                                    \
    void shape_##name(ShapeCall *c)                                                                                    \
    {                                                                                                                  \
        rule_alike(c);                                                                                                 \
        rule_like_first(c);                                                                                            \
    }

static void counter(ShapeCall *c, int i)
{
    rule_shape(c, i, "shape of the counter", shape_vector(4));
    rule_dtype(c, i, "dtype of the counter", DTYPE_I32);
}

void shape_image(ShapeCall *c)
{
    enum { MAX_CHANNELS = 4 };
    Shape x = c->in[0], y = rule_asked(c);
    rule_dtype(c, 0, "dtype of the pixels", DTYPE_U8);
    if (x.n != y.n + 1) rule_count(c, "images", x.n, y.n); /* the one more is mixed in */
    if (x.c != 1) rule_count(c, "channels of the pixels", y.c, x.c);
    if (y.c > MAX_CHANNELS) rule_fail(c, ERR_SHAPE, "expected at most %d image channels, found %d", MAX_CHANNELS, y.c);
    if (y.h > x.h || y.w > x.w)
        rule_fail(c, ERR_SHAPE, "cannot crop %dx%d from pixels of %dx%d (%s)", y.h, y.w, x.h, x.w, shape_text(x));
    rule_shape(c, 1, "shape of augment", (Shape){x.n, IMAGE_RECORD, 1, 1});
    rule_dtype(c, 1, "dtype of augment", DTYPE_I32);
    rule_out(c, 0, NULL, y, graph_options(c->g)->compute);
}

NO_GRADIENT(image)

void shape_random(ShapeCall *c)
{
    counter(c, 0);
    rule_out(c, 0, NULL, rule_asked(c), graph_options(c->g)->compute);
}

NO_GRADIENT(random)

/* ---- activations */

LIKE_FIRST(relu)

void grad_relu(GradCall *c)
{
    grad_give(c, 0, grad_before_relu(c));
}

ALIKE(relu_dx)

void grad_relu_dx(GradCall *c)
{
    grad_give(c, 0, grad_op(c, OP_RELU_DX, "dy", OPERANDS(c->dy[0], c->op.in[1]), NULL, NULL));
}

LIKE_FIRST(leaky_relu)

/* Unless alpha is below 0, y has the sign of x, which then need not be kept. */
void grad_leaky_relu(GradCall *c)
{
    Value sign = c->op.attr.leaky.alpha < 0 ? c->op.in[0] : c->op.out[0];
    grad_give(c, 0, grad_op(c, OP_LEAKY_RELU_DX, "dx", OPERANDS(c->dy[0], sign), &c->op.attr, NULL));
}

ALIKE(leaky_relu_dx)

void grad_leaky_relu_dx(GradCall *c)
{
    grad_give(c, 0, grad_op(c, OP_LEAKY_RELU_DX, "dy", OPERANDS(c->dy[0], c->op.in[1]), &c->op.attr, NULL));
}

/* dy passes on to a second derivative, x does not. */
#define UNARY(KIND, name, formula) LIKE_FIRST(name)
#define UNARY_GRAD(KIND, name, formula, slope)                                                                         \
    LIKE_FIRST(name)                                                                                                   \
    ALIKE(name##_dx)                                                                                                   \
    void grad_##name(GradCall *c)                                                                                      \
    {                                                                                                                  \
        grad_give(c, 0, grad_op(c, OP_##KIND##_DX, "dx", OPERANDS(c->dy[0], c->op.in[0]), NULL, NULL));                \
    }                                                                                                                  \
    void grad_##name##_dx(GradCall *c)                                                                                 \
    {                                                                                                                  \
        if (grad_wanted(c, 1)) grad_no_rule(c);                                                                        \
        grad_give(c, 0, grad_op(c, OP_##KIND##_DX, "dy", OPERANDS(c->dy[0], c->op.in[1]), NULL, NULL));                \
    }
#include "kernels/ops.def"

static Value one_minus(GradCall *c, const char *name, Value x)
{
    OpAttr attr = {.affine = {.scale = -1, .shift = 1}};
    return grad_op(c, OP_AFFINE, name, OPERANDS(x), &attr, NULL);
}

/* dx = dy (1 - y^2) */
void grad_tanh(GradCall *c)
{
    Value y = c->op.out[0];
    Value square = grad_op(c, OP_MUL, "square", OPERANDS(y, y), NULL, NULL);
    Value slope = one_minus(c, "slope", square);
    grad_give(c, 0, grad_op(c, OP_MUL, "dx", OPERANDS(c->dy[0], slope), NULL, NULL));
}

/* dx = dy y (1 - y) */
void grad_sigmoid(GradCall *c)
{
    Value y = c->op.out[0];
    Value other = one_minus(c, "other", y);
    Value slope = grad_op(c, OP_MUL, "slope", OPERANDS(y, other), NULL, NULL);
    grad_give(c, 0, grad_op(c, OP_MUL, "dx", OPERANDS(c->dy[0], slope), NULL, NULL));
}

/* What keeps by chance, elements or samples. */
#define KEEPS(KIND, name, title)                                                                                       \
    void shape_##name(ShapeCall *c)                                                                                    \
    {                                                                                                                  \
        float keep = c->op->attr.dropout.keep;                                                                         \
        if (!(keep > 0 && keep <= 1))                                                                                  \
            rule_fail(c, ERR_ARG, title ": expected a probability to keep in (0, 1], found %g", (double)keep);         \
        counter(c, 1);                                                                                                 \
        rule_like_first(c);                                                                                            \
    }                                                                                                                  \
    void grad_##name(GradCall *c)                                                                                      \
    {                                                                                                                  \
        if (grad_wanted(c, 0))                                                                                         \
            grad_give(c, 0, grad_op(c, KIND, "dx", OPERANDS(c->dy[0], c->op.in[1]), &c->op.attr, NULL));               \
    }

KEEPS(OP_DROPOUT, dropout, "dropout")
KEEPS(OP_STOCHASTIC_DEPTH, stochastic_depth, "stochastic depth")

/* ---- sums and products */

ALIKE(add)

void grad_add(GradCall *c)
{
    Value dy = c->op.attr.add.relu ? grad_before_relu(c) : c->dy[0];
    for (int i = 0; i < c->op.in_count; i++) grad_give(c, i, dy);
}

/* One number for each channel of every sample, or, in f32, of all samples: a parameter. */
static bool is_factor(Shape b, Dtype dtype, Shape a, Dtype like)
{
    bool channels = b.c == a.c && b.h == 1 && b.w == 1;
    return channels && ((b.n == a.n && dtype == like) || (b.n == 1 && dtype == DTYPE_F32));
}

void shape_mul(ShapeCall *c)
{
    if (!rule_has(c, 1) || !is_factor(c->in[1], c->dtype[1], c->in[0], c->dtype[0])) rule_alike(c);
    rule_like_first(c);
}

/* The gradient of factors: of those of all samples in f32, as of all parameters. */
static Value factor_gradient(GradCall *c, Value product)
{
    Shape b = grad_shape(c, 1);
    if (b.n == 1 && graph_value(c->g, c->op.in[1])->dtype == DTYPE_F32)
        return grad_op(c, OP_CHANNEL_SUM, "db", OPERANDS(product), NULL, NULL);
    return grad_op(c, OP_SUM_TO, "db", OPERANDS(product), NULL, &b);
}

void grad_mul(GradCall *c)
{
    Value a = c->op.in[0], b = c->op.in[1];
    if (grad_wanted(c, 0)) grad_give(c, 0, grad_op(c, OP_MUL, "da", OPERANDS(c->dy[0], b), NULL, NULL));
    if (!grad_wanted(c, 1)) return;
    bool mixed = graph_value(c->g, a)->dtype != graph_value(c->g, b)->dtype; /* a in 16 bits, b a parameter */
    bool spread = mixed || !shape_equal(grad_shape(c, 0), grad_shape(c, 1));
    Value product = grad_op(c, OP_MUL, spread ? "product" : "db", OPERANDS(c->dy[0], a), NULL, NULL);
    grad_give(c, 1, spread ? factor_gradient(c, product) : product);
}

LIKE_FIRST(affine)

/* Nothing depends on x if it is multiplied by 0. */
void grad_affine(GradCall *c)
{
    if (c->op.attr.affine.scale == 0) return;
    OpAttr attr = {.affine.scale = c->op.attr.affine.scale};
    bool same = attr.affine.scale == 1;
    grad_give(c, 0, same ? c->dy[0] : grad_op(c, OP_AFFINE, "dx", OPERANDS(c->dy[0]), &attr, NULL));
}

LIKE_FIRST(power)

/* dx = dy p x^(p - 1) */
void grad_power(GradCall *c)
{
    float p = c->op.attr.power.exponent;
    OpAttr less = {.power.exponent = p - 1}, times = {.affine.scale = p};
    Value power = grad_op(c, OP_POWER, "power", OPERANDS(c->op.in[0]), &less, NULL);
    Value slope = grad_op(c, OP_AFFINE, "slope", OPERANDS(power), &times, NULL);
    grad_give(c, 0, grad_op(c, OP_MUL, "dx", OPERANDS(c->dy[0], slope), NULL, NULL));
}
