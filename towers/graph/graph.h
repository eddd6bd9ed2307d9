/* Graph: one flat, append-only list of ops. Gradients are more ops in the same list.
 *
 * A Value is an index into the list of values. Every value is written by exactly one op, before all its readers, or by
 * none: INPUT, PARAM and RUNNING are filled from outside and never written by an op, so that a step can be refused as a
 * whole. Each op kind has a shape rule and a gradient rule (rules_*.c); a kernel per backend runs it (kernels/).
 *
 * Sticky error: the first failure is kept with the name of the layer, later calls return Value 0 and do nothing, and
 * graph_finish returns it. A model file needs no check after each line. */
#pragma once

#include "kernels/op.h"
#include "towers/graph/names.h"

typedef struct Graph Graph;
typedef struct Device Device; /* kernels/backend.h */

typedef struct Value {
    int32_t id; /* 0: none (an optional operand that is absent, or the result after an error) */
} Value;

typedef enum Role {
    ROLE_TEMP = 0,        /* lives from its op to its last reader */
    ROLE_INPUT,           /* uploaded for every step: pixels, labels, counter, dloss */
    ROLE_PARAM,           /* f32 weights; changed by the optimizer only */
    ROLE_PACK,            /* several PARAMs seen as one, stacked along n (they lie side by side in the arena) */
    ROLE_RUNNING,         /* batch-norm running averages; changed by the commit only */
    ROLE_BATCH_STATISTIC, /* the update of a RUNNING by this step (batch mean, batch variance): kept until the commit */
    ROLE_FOLDED, /* made of PARAMs and RUNNING ones by the first ops of an evaluation: kept until these change */
    ROLE_GRAD,   /* gradient of a PARAM or PACK: lies in the gradient arena */
    ROLE_RESULT  /* read by the host after the step (loss, correct predictions): kept */
} Role;

typedef enum InitKind {
    INIT_ZERO = 0,
    INIT_CONSTANT,         /* a */
    INIT_UNIFORM,          /* [-a, a) */
    INIT_NORMAL,           /* standard deviation a */
    INIT_TRUNCATED_NORMAL, /* standard deviation a, cut at two of them (TensorFlow's) */
    INIT_GLOROT_UNIFORM,   /* Glorot & Bengio 2010; Keras default */
    INIT_HE_NORMAL         /* He et al. 2015, fan out */
} InitKind;

typedef struct Init {
    InitKind kind;
    float a;
} Init;

typedef struct ValueInfo {
    Shape shape;
    Dtype dtype;
    Role role;
    const char *name;         /* owned by the graph: "Mixed_5b.branch1x1.conv.weight"; never NULL */
    int32_t op;               /* index of the op that writes it, -1 if none */
    int32_t out;              /* which of that op's outputs */
    Init init;                /* PARAM, RUNNING */
    bool decay;               /* PARAM: weight decay applies (weights yes; batch norm and biases no) */
    Value of;                 /* GRAD: its PARAM or PACK; BATCH_STATISTIC: its RUNNING */
    int64_t values;           /* BATCH_STATISTIC: each of its elements is taken over so many */
    bool unbiased;            /* BATCH_STATISTIC: a biased variance, to be made unbiased before averaging */
    Value members[OP_MAX_IN]; /* PACK: its PARAMs */
    int member_count;
    int rank;       /* PARAM: dimensions in files of weights; 0: those of its layer */
    int32_t pixels; /* outputs of a layer that become a map, its PARAM and RUNNING: the map's pixels (graph_unfold) */
} ValueInfo;

typedef struct Op {
    OpKind kind;
    OpAttr attr;
    const char *name; /* owned by the graph: the layer */
    Value in[OP_MAX_IN];
    Value out[OP_MAX_OUT];
    int in_count; /* operands given (absent optional ones in between are Value 0) */
} Op;

typedef struct GraphOptions {
    bool training;      /* batch norm uses the batch, dropout drops, aux heads exist */
    Dtype compute;      /* dtype of activations and their gradients: F32, BF16, F16 */
    const char *freeze; /* borrowed: names of parameters that are not trained (names.h); NULL: none. A batch norm all of
                           whose parameters are frozen normalizes with its running averages in training too */
} GraphOptions;

NODISCARD Status graph_create(const GraphOptions *options, Graph **made);
void graph_destroy(Graph *g); /* NULL is fine */

const GraphOptions *graph_options(const Graph *g);
/* The sticky error: OK, or the first failure (its text becomes the thread's message). */
NODISCARD Status graph_finish(Graph *g);
bool graph_failed(const Graph *g);
/* Fails the graph from a builder; the scope is prepended to the message. Returns Value 0. */
Value graph_fail(Graph *g, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Names: `graph_scope(g, "Mixed_5b")` makes later names "Mixed_5b.<name>"; "" ends the scope. Inputs and
 * results keep their plain names, by which the host finds them. */
void graph_scope(Graph *g, const char *scope);

/* The scope of a network that reads several inputs with one set of weights. Ops are named "<scope>.<reading>.<name>",
 * parameters "<scope>.<name>", and a parameter that exists is used again. The next graph_scope ends it. */
void graph_scope_shared(Graph *g, const char *scope, const char *reading);

Value graph_input(Graph *g, const char *name, Shape shape, Dtype dtype);
Value graph_param(Graph *g, const char *name, Shape shape, Init init, bool decay);
Value graph_running(Graph *g, const char *name, Shape shape, float start);
/* The outputs x of layer `name` (parameters and running statistics `<name>.*`) become a map of so many pixels. In memory they are numbered
 * pixel by pixel; files of weights number them channel by channel, as PyTorch's view does. */
void graph_unfold(Graph *g, Value x, const char *name, int32_t pixels);
/* In files of weights this PARAM has 2 dimensions {n, c}, or 3 {c, h, w} with n = 1, and not those of its layer. */
void graph_rank(Graph *g, Value param, int rank);
/* PARAMs of equal c, h, w stacked along n. The layout places them side by side. */
Value graph_pack(Graph *g, const Value *params, int count);

/* Append an op. `in` holds `count` operands (Value 0 for an absent optional one). Outputs are created by the shape
 * rule; returns the first. `shape` is read only by kinds whose output shape does not follow from their inputs (CONV_DX,
 * CONV_DW, MAX_POOL_DX, an adaptive AVG_POOL, AVG_POOL_DX, DENSE_DX, DENSE_DW, SLICE, RESHAPE, SUM_TO, SPREAD_TO,
 * CHANNEL_SPREAD, RANDOM, IMAGE); else pass NULL. */
Value graph_op(Graph *g, OpKind kind, const char *name, const Value *in, int count, const OpAttr *attr,
               const Shape *shape);
/* Output `out` of the op that wrote `v`. */
Value graph_output(const Graph *g, Value v, int out);

/* Keeps a value until the end of the step, under the name by which the host finds it ("loss", "correct"). */
void graph_result(Graph *g, Value v, const char *name);
/* `batch` (an output of an op) feeds `running` at commit; each of its elements is taken over so many values. `unbiased`: it is their
 * biased variance, and is multiplied by n / (n - 1) first, n as many as the step's batch really has. */
void graph_batch_statistic(Graph *g, Value batch, Value running, int64_t values, bool unbiased);

/* Append ops for d(y)/d(wrt[i]) * dy, summed over y's elements. A gradient that does not exist (y does not depend on
 * wrt[i]) is Value 0. Kinds without a gradient rule fail the graph ("batchnorm_dx has no gradient rule"). Contributions
 * of several readers are added (OP_ADD, or the `acc` operand where the kind has one), and those of SLICEs that together
 * cover a value become one CONCAT. The results are ordinary values: call it again for second derivatives. */
void graph_grad(Graph *g, Value y, Value dy, const Value *wrt, int count, Value *grads);

/* Gradients of the PARAMs and PACKs that `loss` depends on and whose names pass `trains` (NULL: all), marked ROLE_GRAD.
 * No gradient is made of anything that does not depend on one of them. A PACK is trained as a whole or not at all.
 * `dloss`: f32 scalar value. */
void graph_train(Graph *g, Value loss, Value dloss, const NameFilter *trains);

/* Checks a shape in a model file: `c` channels of `side` x `side`. Only compared if the image that enters the network
 * (the output of the first IMAGE op, else the first input with a height or width) has the canonical side. */
void graph_canonical(Graph *g, int32_t side);
void graph_expect(Graph *g, Value v, int32_t c, int32_t side);

int graph_op_count(const Graph *g);
const Op *graph_op_at(const Graph *g, int index);
int graph_value_count(const Graph *g); /* ids are 1 .. count */
const ValueInfo *graph_value(const Graph *g, Value v);
Shape graph_shape(const Graph *g, Value v);         /* {1,1,1,1} for Value 0: builders may continue after an error */
Value graph_find(const Graph *g, const char *name); /* INPUT, PARAM, RUNNING or result by name; Value 0 if none */

/* A fresh number for dropout and random streams: 1, 2, ... in the order of the calls. */
uint32_t graph_next_stream(Graph *g);

/* The list as text, one op a line, for `info --ops` and tests. */
void graph_print(const Graph *g, FILE *to);

/* Passes over the forward list, each a file (pass_*.c), applied before graph_train. Each rewrites the list in place.
 * Ids stay. A rewrite that would change the meaning of a value is not made if the caller lists the value in `keep`
 * (count) or if it is a result. `changed` counts rewrites. */
NODISCARD Status pass_pool_behind_conv(Graph *g, Value *keep, int count,
                                       int *changed); /* avgpool then 1x1 -> 1x1 then avgpool */
NODISCARD Status pass_sibling_convs(Graph *g, Value *keep, int count, int *changed); /* 1x1 convs of one input -> one */
/* For an evaluation, after the others: convolutions include the batch norms behind them. The first `changed` ops of the list
 * make their weights and biases (ROLE_FOLDED) and need to run only after PARAM or RUNNING has changed. */
NODISCARD Status pass_fold_norms(Graph *g, int *changed);
/* After graph_train (`forward_end`: ops before it): batch norms and cheap ops after them are recomputed for the backward
 * pass instead of being kept. `changed` counts ops added. */
NODISCARD Status pass_recompute(Graph *g, int forward_end, int *changed);

typedef struct NormPools {
    int inputs;    /* max pools that normalize their input */
    int gradients; /* batch norms that gather the gradient of their pool */
} NormPools;
/* After graph_train, for a device that knows the times of ops (Backend.op_time): batch norms with ReLU that only a max pool
 * reads move into it (MAX_POOL_NORM), and the gradient that the pool sends back into theirs (MAX_POOL_NORM_DX), where that is as
 * fast. `forward_end` moves with the list. */
NODISCARD Status pass_norm_into_pool(Graph *g, Device *device, int *forward_end, NormPools *made);
