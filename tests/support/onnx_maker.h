/* OnnxMaker: an ONNX file put together node by node, for tests of what reads one. Names are separated by blanks. */
#pragma once

#include "proto/onnx.pb-c.h"
#include "tests/support/unit.h"

enum { MAKER_MOST = 64, MAKER_NAMES = 12 };

typedef struct OnnxMaker {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__NodeProto node[MAKER_MOST], *nodes[MAKER_MOST];
    Onnx__TensorProto tensor[MAKER_MOST], *tensors[MAKER_MOST];
    Onnx__AttributeProto attribute[MAKER_MOST], *attributes[MAKER_MOST];
    Onnx__ValueInfoProto input, output[3], *inputs[1], *outputs[3];
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor kind;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension size[4], *sizes[4];
    void *memory[8 * MAKER_MOST]; /* owned */
    int memory_count, attribute_count;
} OnnxMaker;

/* A graph with the input "x" of these sizes (0: open) and one output. */
OnnxMaker *maker_start(const int64_t sizes[4], const char *output);
/* Attributes belong to the node that was added last. */
void maker_node(OnnxMaker *m, const char *type, const char *inputs, const char *outputs);
void maker_int(OnnxMaker *m, const char *name, int64_t value);
void maker_float(OnnxMaker *m, const char *name, float value);
void maker_text(OnnxMaker *m, const char *name, const char *value);
void maker_ints(OnnxMaker *m, const char *name, int count, const int64_t *values);
/* Floats from -0.5 to 0.5; whole numbers. */
Onnx__TensorProto *maker_floats(OnnxMaker *m, const char *name, int rank, const int64_t *dims);
Onnx__TensorProto *maker_value(OnnxMaker *m, const char *name, float value); /* of rank 0 */
void maker_constant(OnnxMaker *m, const char *name, float value);            /* likewise, by a node */
void maker_whole(OnnxMaker *m, const char *name, int count, const int64_t *values);
void maker_whole_of(OnnxMaker *m, const char *name, int rank, const int64_t *dims, const int64_t *values);
void maker_output(OnnxMaker *m, const char *name);
/* The file; free it. */
unsigned char *maker_bytes(OnnxMaker *m, size_t *count);
void maker_end(OnnxMaker *m);

#define SIZES(...)                                                                                                     \
    (const int64_t[])                                                                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
