/* Reference: every op kind and every optimizer as naive loops in double precision; all backends are compared with it.
 *
 * Written to be read beside the formulas in kernels/ops.def; nothing here is fast, parallel or clever. Tensors are
 * packed NHWC; integers (labels, argmax, counters, pixels) are stored as doubles too. Shapes are not checked; the caller
 * must do so. */
#pragma once

#include "kernels/op.h"
#include "kernels/optimizer.h"

typedef struct RefTensor {
    Shape shape;
    double *data; /* owned by whoever made it; NULL: operand absent, output not wanted */
} RefTensor;

RefTensor ref_create(Shape shape); /* zeroed */
void ref_destroy(RefTensor *t);

/* Run one op. `in` has OP_MAX_IN entries and `out` OP_MAX_OUT; outputs have their shape and memory already. */
void reference_run(OpKind kind, const OpAttr *attr, const RefTensor *in, RefTensor *out);

/* One element under one optimizer. `state` is updated in place; returns the new parameter. */
typedef struct RefUpdate {
    double param, grad, state[OPTIMIZER_STATES];
} RefUpdate;
void reference_update(const OptimizerHyper *hyper, const OptimizerSegment *segment, const OptimizerScalars *scalars,
                      RefUpdate *element);

/* A segment under LARS or LAMB, with the norms of the whole tensor; returns its trust ratio. */
double reference_update_layer(const OptimizerHyper *hyper, const OptimizerSegment *segment,
                              const OptimizerScalars *scalars, RefUpdate *elements);

/* To and from the bits of a 16-bit dtype; round to nearest even. f32 is rounded as the compiler does it. */
double dtype_round(Dtype dtype, double value);
void dtype_store(Dtype dtype, void *data, int64_t index, double value);
double dtype_load(Dtype dtype, const void *data, int64_t index);
