/* Rules of each op kind. Every row of ops.def has a shape rule and a gradient rule, found by name (`shape_conv`,
 * `grad_conv`), so that the linker reports a missing one.
 *
 * A shape rule checks the operands and describes the outputs. A gradient rule appends ops and gives their results to
 * the operands that want them. Both report through the sticky error and may continue after it. */
#pragma once

#include "towers/graph/graph.h"

typedef struct ShapeCall {
    Graph *g;
    const Op *op; /* kind, attr, name, in; no outputs yet */
    const Shape *asked;
    Shape in[OP_MAX_IN];
    Dtype dtype[OP_MAX_IN];
    struct {
        Shape shape;
        Dtype dtype;
        const char *suffix; /* of the name of a second or third output */
    } out[OP_MAX_OUT];
} ShapeCall;

typedef struct GradCall {
    struct GradSweep *sweep;
    Graph *g;
    Op op; /* a copy: the list grows while the rule works */
    Value dy[OP_MAX_OUT];
} GradCall;

#define OP(KIND, name, ...)                                                                                            \
    void shape_##name(ShapeCall *c);                                                                                   \
    void grad_##name(GradCall *c);
#include "kernels/ops.def"

typedef struct OpRules {
    void (*shape)(ShapeCall *c);
    void (*grad)(GradCall *c);
} OpRules;
extern const OpRules op_rules[OP_COUNT]; /* op_rules.c */

/* ---- for shape rules (rules.c) */
bool rule_has(const ShapeCall *c, int i);
/* Fail as "<layer>: <message>". */
void rule_fail(ShapeCall *c, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Fails unless the two are equal. */
void rule_count(ShapeCall *c, const char *what, int64_t wanted, int64_t have);
/* Operand i, if given, has this shape. */
void rule_shape(ShapeCall *c, int i, const char *what, Shape wanted);
void rule_dtype(ShapeCall *c, int i, const char *what, Dtype wanted);
/* All operands given have the shape (and the dtype) of the first. */
void rule_alike(ShapeCall *c);
/* The shape the caller asked for; fails if there is none. */
Shape rule_asked(ShapeCall *c);
/* x under a window, with `channels` channels; {1,1,1,1} after failing if the window does not fit. */
Shape rule_window(ShapeCall *c, Shape x, const Window *window, int32_t channels);
void rule_out(ShapeCall *c, int i, const char *suffix, Shape shape, Dtype dtype);
/* One output like the first operand. */
void rule_like_first(ShapeCall *c);
static inline bool dtype_is_float(Dtype dtype)
{
    return dtype != DTYPE_U8 && dtype != DTYPE_I32;
}
/* {1, c, 1, 1} */
Shape shape_vector(int32_t c);
/* Operands first .. end - 1 are numbers per channel of a norm with this epsilon. */
void rule_norm(ShapeCall *c, int32_t channels, int first, int end, float epsilon);

/* ---- for gradient rules (grad.c) */
#define OPERANDS(...) (const Value[]){__VA_ARGS__}, (int)(sizeof((const Value[]){__VA_ARGS__}) / sizeof(Value))
bool grad_wanted(const GradCall *c, int i);
/* Append an op named "<layer>.<suffix>". */
Value grad_op(GradCall *c, OpKind kind, const char *suffix, const Value *in, int count, const OpAttr *attr,
              const Shape *shape);
/* A contribution to the gradient of operand i (Value 0: nothing). */
void grad_give(GradCall *c, int i, Value dx);
/* A contribution to channels first .. first + c of the operand only. */
void grad_give_channels(GradCall *c, int i, Value dx, int32_t first);
/* The last contribution to operand i, to be added through an `acc` operand; Value 0 if there is none. */
Value grad_take(GradCall *c, int i);
Shape grad_shape(const GradCall *c, int i);
/* dy[0] before the ReLU at the end of the op: one RELU_DX, unless the pooling that follows has masked it. */
Value grad_before_relu(GradCall *c);
/* True if operand i ends in a ReLU and only this op passes a gradient to it. Then the caller must apply the mask, and the
 * op that wrote the operand does not. */
bool grad_claim_relu(GradCall *c, int i);
void grad_no_rule(GradCall *c);
/* The gradient rule of an op without one: it is refused. */
#define NO_GRADIENT(name)                                                                                              \
    void grad_##name(GradCall *c)                                                                                      \
    {                                                                                                                  \
        grad_no_rule(c);                                                                                               \
    }
