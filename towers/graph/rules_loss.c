/* Rules of softmax and sigmoid cross-entropy. Loss, probabilities and correct predictions are f32 whatever the
 * logits are; only the loss has a gradient, and no second one. Targets and weights have none. */
#include "towers/graph/rules.h"

/* `targets`: their input, which may be absent. */
static void label_column(ShapeCall *c, Shape logits, int targets)
{
    if (logits.h != 1 || logits.w != 1)
        rule_fail(c, ERR_SHAPE, "expected logits of shape Nx(classes)x1x1, found %s", shape_text(logits));
    rule_shape(c, 1, "one label per sample", (Shape){logits.n, 1, 1, 1});
    rule_dtype(c, 1, "dtype of the labels", DTYPE_I32);
    float smoothing = c->op->attr.loss.smoothing;
    if (!(smoothing >= 0 && smoothing < 1))
        rule_fail(c, ERR_ARG, "expected label smoothing of at least 0 and below 1, found %g", (double)smoothing);
    if (!rule_has(c, targets)) return;
    rule_shape(c, targets, "shape of the targets", logits);
    rule_dtype(c, targets, "dtype of the targets", DTYPE_F32);
    if (smoothing > 0) rule_fail(c, ERR_ARG, "targets contain the smoothing: expected 0, found %g", (double)smoothing);
}

void shape_softmax_loss(ShapeCall *c)
{
    label_column(c, c->in[0], 2);
    rule_out(c, 0, NULL, shape_vector(1), DTYPE_F32);
    rule_out(c, 1, "prob", c->in[0], DTYPE_F32);
    rule_out(c, 2, "correct", shape_vector(2), DTYPE_F32);
}

/* The dtype of dlogits: that of the logits of `prob`. */
static Dtype logits_dtype(const ShapeCall *c)
{
    const Graph *g = c->g;
    int32_t writer = graph_value(g, c->op->in[0])->op;
    if (writer < 0) return DTYPE_F32;
    OpKind kind = graph_op_at(g, writer)->kind;
    if (kind != OP_SOFTMAX_LOSS && kind != OP_SIGMOID_LOSS) return DTYPE_F32;
    return graph_value(g, graph_op_at(g, writer)->in[0])->dtype;
}

/* `targets`: their input, which the weights follow. */
static void class_weights(ShapeCall *c, int targets)
{
    if (!rule_has(c, targets + 1)) return;
    rule_shape(c, targets + 1, "one weight per class", shape_vector(c->in[0].c));
    rule_dtype(c, targets + 1, "dtype of the weights", DTYPE_F32);
}

void shape_sigmoid_loss(ShapeCall *c)
{
    shape_softmax_loss(c);
    class_weights(c, 2);
}

static void grad_operands(ShapeCall *c)
{
    label_column(c, c->in[0], 3);
    rule_dtype(c, 0, "dtype of the probabilities", DTYPE_F32);
    rule_shape(c, 2, "shape of dloss", shape_vector(1));
    rule_dtype(c, 2, "dtype of dloss", DTYPE_F32);
    rule_out(c, 0, NULL, c->in[0], logits_dtype(c));
}

void shape_softmax_loss_dx(ShapeCall *c)
{
    grad_operands(c);
}

void shape_sigmoid_loss_dx(ShapeCall *c)
{
    grad_operands(c);
    class_weights(c, 3);
}

/* Only the loss itself can be differentiated. */
static void give_loss(GradCall *c, OpKind kind)
{
    const Op *op = &c->op;
    if (c->dy[1].id || c->dy[2].id) {
        graph_fail(c->g, ERR_UNSUPPORTED, "%s: the probabilities and correct counts of %s have no gradient rule",
                   op->name, op_name(op->kind));
        return;
    }
    Value in[] = {op->out[1], op->in[1], c->dy[0], op->in[2], op->in[3]};
    grad_give(c, 0, grad_op(c, kind, "dx", in, 5, &op->attr, NULL));
}

void grad_softmax_loss(GradCall *c)
{
    give_loss(c, OP_SOFTMAX_LOSS_DX);
}

void grad_sigmoid_loss(GradCall *c)
{
    give_loss(c, OP_SIGMOID_LOSS_DX);
}

NO_GRADIENT(sigmoid_loss_dx)
NO_GRADIENT(softmax_loss_dx)
