/* Rules of batch normalization (Ioffe & Szegedy, arXiv:1502.03167) over n, h, w, and of layer normalization (Ba et al.,
 * arXiv:1607.06450) over c.
 *
 * BATCHNORM_APPLY takes a given mean and variance: running averages, in evaluation and in frozen layers.
 *
 * BATCHNORM emits the batch mean and biased variance as values of their own: they feed the running averages and
 * BATCHNORM_DX. Differentiating through them is refused, as is the second derivative. */
#include "towers/graph/rules.h"

static void channel_vectors(ShapeCall *c, int32_t channels, int first, int end)
{
    rule_norm(c, channels, first, end, c->op->attr.norm.epsilon);
}

void shape_batchnorm(ShapeCall *c)
{
    Shape vector = shape_vector(c->in[0].c);
    channel_vectors(c, vector.c, 1, 3);
    rule_like_first(c);
    rule_out(c, 1, "mean", vector, DTYPE_F32);
    rule_out(c, 2, "var", vector, DTYPE_F32);
}

/* in: dy, x, vectors up to `end`; out: dx, dbeta, dgamma */
static void norm_dx(ShapeCall *c, int end)
{
    Shape vector = shape_vector(c->in[0].c);
    rule_shape(c, 1, "shape of x", c->in[0]);
    rule_dtype(c, 1, "dtype of x", c->dtype[0]);
    channel_vectors(c, vector.c, 2, end);
    rule_like_first(c);
    rule_out(c, 1, "dbeta", vector, DTYPE_F32);
    rule_out(c, 2, "dgamma", vector, DTYPE_F32);
}

void shape_batchnorm_dx(ShapeCall *c)
{
    norm_dx(c, 6);
}

void shape_batchnorm_apply(ShapeCall *c)
{
    channel_vectors(c, c->in[0].c, 1, 5);
    rule_like_first(c);
}

void shape_norm_fold(ShapeCall *c)
{
    rule_dtype(c, 0, "dtype of the weights", DTYPE_F32);
    channel_vectors(c, c->in[0].n, 1, 5);
    rule_like_first(c);
    rule_out(c, 1, "bias", shape_vector(c->in[0].n), DTYPE_F32);
}

NO_GRADIENT(norm_fold)

void grad_batchnorm(GradCall *c)
{
    const Op *op = &c->op;
    if (c->dy[1].id || c->dy[2].id) {
        graph_fail(c->g, ERR_UNSUPPORTED, "%s: the mean and variance of batchnorm have no gradient rule", op->name);
        return;
    }
    Value x = op->in[0], beta = op->in[1], gamma = op->in[2];
    Value dx =
        grad_op(c, OP_BATCHNORM_DX, "dx", OPERANDS(c->dy[0], x, beta, op->out[1], op->out[2], gamma), &op->attr, NULL);
    grad_give(c, 1, graph_output(c->g, dx, 1));
    if (gamma.id) grad_give(c, 2, graph_output(c->g, dx, 2));
    grad_give(c, 0, dx);
}

NO_GRADIENT(batchnorm_dx)

/* With fixed mean and variance y is linear in x: dx = gamma / sqrt(var + epsilon) * dy, which is the same op with a mean
 * and beta of 0. */
void grad_batchnorm_apply(GradCall *c)
{
    const Op *op = &c->op;
    for (int i = 1; i < op->in_count; i++) {
        if (!grad_wanted(c, i)) continue;
        graph_fail(c->g, ERR_UNSUPPORTED, "%s: %s has no gradient rule for %s, only for its input", op->name,
                   op_name(op->kind), graph_value(c->g, op->in[i])->name);
        return;
    }
    OpAttr zero = {.affine.scale = 0}, linear = {.norm.epsilon = op->attr.norm.epsilon};
    Value dy = op->attr.norm.relu ? grad_before_relu(c) : c->dy[0];
    Value zeros = grad_op(c, OP_AFFINE, "zeros", OPERANDS(op->in[1]), &zero, NULL);
    Value gamma = op->in_count > 4 ? op->in[4] : (Value){0};
    grad_give(c, 0, grad_op(c, OP_BATCHNORM_APPLY, "dx", OPERANDS(dy, zeros, zeros, op->in[3], gamma), &linear, NULL));
}

/* ---- layer normalization */

void shape_layernorm(ShapeCall *c)
{
    channel_vectors(c, c->in[0].c, 1, 3);
    rule_like_first(c);
}

void grad_layernorm(GradCall *c)
{
    Value dx = grad_op(c, OP_LAYERNORM_DX, "dx", OPERANDS(c->dy[0], c->op.in[0], c->op.in[2]), &c->op.attr, NULL);
    grad_give(c, 1, graph_output(c->g, dx, 1));
    grad_give(c, 2, graph_output(c->g, dx, 2));
    grad_give(c, 0, dx);
}

void shape_layernorm_dx(ShapeCall *c)
{
    norm_dx(c, 3);
}

NO_GRADIENT(layernorm_dx)
