/* Nodes and constants of an ONNX file that is being written, for the files onnx*.c of this folder. */
#pragma once

#include "proto/onnx.pb-c.h"
#include "towers/store/onnx.h"

enum { ONNX_ATTRIBUTES = 6, ONNX_NAME = 48 };
typedef enum OnnxType { /* TensorProto.DataType */
                        ONNX_FLOAT = 1,
                        ONNX_UINT8 = 2,
                        ONNX_INT8 = 3,
                        ONNX_INT32 = 6,
                        ONNX_INT64 = 7
} OnnxType;

/* A protobuf node and the arrays that it points to. */
typedef struct Node {
    Onnx__NodeProto proto;
    Onnx__AttributeProto attribute[ONNX_ATTRIBUTES], *attributes[ONNX_ATTRIBUTES];
    int64_t ints[ONNX_ATTRIBUTES][4];
    char *input[OP_MAX_IN], *output[1];
    char text[OP_MAX_IN + 1][ONNX_NAME], label[2 * ST_MAX_NAME];
} Node;

typedef struct Constant {
    Onnx__TensorProto proto;
    int64_t dims[ST_MAX_RANK];
    char name[ONNX_NAME];
    void *made; /* owned; NULL if the data is borrowed */
} Constant;

typedef struct Writer {
    const Graph *graph;
    const WeightList *weights;
    const OnnxBytes *bytes;  /* may be NULL, as the next */
    const OnnxRange *ranges; /* by value id */
    Value input, result;     /* Value 0: the input of an IMAGE op */
    const char *result_name;
    /* owned */
    bool *needed; /* by value id */
    Node *nodes;
    Constant *constants;
    Onnx__NodeProto **node_list;
    Onnx__TensorProto **constant_list;
    /* state */
    int node_count, constant_count;
    Status status; /* sticky */
} Writer;

/* Names in the graph are const, protobuf-c's fields are not; protobuf-c does not write to them. */
static inline char *borrowed(const char *text)
{
    return (char *)text;
}

/* Behind those that there are. Its inputs and outputs are named in their order; names are borrowed. */
Node *node_add(Writer *w, const char *type, const char *layer);
void node_reads(Node *node, const char *name);
void node_writes(Node *node, const char *name);
void attribute_int(Node *node, const char *name, int64_t value);
void attribute_float(Node *node, const char *name, float value);
void attribute_ints(Node *node, const char *name, int count, const int64_t *values);

/* Borrows name and data. */
Constant *constant_add(Writer *w, const char *name, OnnxType type, int rank, const int64_t *dims, const void *data,
                       size_t bytes);
/* A constant that owns `made`, whose name begins with `what`; returns its name. `made` NULL: no memory. */
const char *constant_own(Writer *w, const char *what, OnnxType type, int rank, const int64_t *dims, void *made,
                         size_t bytes);
/* A constant of `count` values (all `fill` if `values` is NULL), shaped {1, count, 1, 1} or {count}; returns its name. */
const char *constant_make(Writer *w, const char *what, int rank, int64_t count, const float *values, float fill);
/* The dimensions of a parameter as nodes read it: those of the file of weights, but four of a matrix that a convolution reads, or of the
 * weights of a convolution along the channels. Returns how many. */
int parameter_dims(const Writer *w, const StTensor *t, int64_t dims[ST_MAX_RANK]);
const char *constant_scalar(Writer *w, const char *what, float value); /* of rank 0 */
const char *constant_ints(Writer *w, const char *what, int count, const int64_t *values);

/* ---- onnx_values.c */

/* The next operand of `node` is this value of the graph. */
void reads_value(const Writer *w, Node *node, Value v);
/* Let `node`, the last one of its op, write the op's value, followed by a ReLU node if the op has one. */
void writes_value(Writer *w, Node *node, const char *layer, Value v, bool relu);

/* ---- onnx_int8.c */

/* Whether a value passes through eight bits, and what readers then read. */
bool int8_rounds(const Writer *w, Value v);
#define ONNX_INT8_VALUE "v%d_int8"
/* Nodes that round `from` as value `v` is rounded; returns the name of what they write: that of `from` and "_int8". */
const char *int8_round(Writer *w, const char *layer, Value v, const char *from);
/* Whether the weights of an op have eight bits. */
bool int8_weighs(const Writer *w, const Op *op);
/* The weights of such an op and its biases (NULL: none), with the batch norm that they include: names for its node to read. */
NODISCARD Status int8_weights(Writer *w, const Op *op, const char *names[2]);
