/* OnnxFile: an ONNX file with its names resolved. Every name of a value has a number, each node reads numbers that an earlier node
 * writes, and tensors have as many elements as their dimensions say. What a file claims is compared with its size before memory is
 * taken, so that a small file cannot ask for much. */
#pragma once

#include "inception/networks/net_file.h"
#include "proto/onnx.pb-c.h"
#include "towers/store/onnx.h"

typedef enum OnnxElement { /* TensorProto.DataType */
                           ELEMENT_FLOAT = 1,
                           ELEMENT_UINT8 = 2,
                           ELEMENT_INT8 = 3,
                           ELEMENT_UINT16 = 4,
                           ELEMENT_INT16 = 5,
                           ELEMENT_INT32 = 6,
                           ELEMENT_INT64 = 7,
                           ELEMENT_BOOL = 9,
                           ELEMENT_FLOAT16 = 10,
                           ELEMENT_DOUBLE = 11,
                           ELEMENT_BFLOAT16 = 16
} OnnxElement;

/* Numbers of the file. */
typedef struct OnnxTensor {
    Onnx__TensorProto *proto;
    OnnxElement type;
    int rank;
    int64_t dims[NET_FILE_RANK], count;
    const void *raw; /* little endian, packed; NULL: in the typed fields of `proto`, or absent */
    bool absent;     /* a structure without weights */
} OnnxTensor;

typedef struct OnnxNode {
    Onnx__NodeProto *proto;
    const char *type, *name; /* name: that of its first output, if it has none */
    int *in, *out;           /* numbers of values; 0: left out */
    int in_count, out_count;
    unsigned needed; /* bit k: by output k of the graph */
    bool foreign;    /* of another domain than ONNX's own operators */
} OnnxNode;

/* A value that an initializer, an input or a node gives. */
typedef struct OnnxValue {
    const char *name;
    int tensor; /* index of the initializer, or -1 */
    int writer; /* index of the node, or -1 */
    int reader; /* index of the last needed node that reads it, or -1 */
    int reads;  /* by needed nodes, and by the outputs of the graph */
    /* those reads that ask for its numbers: Shape asks for the sizes alone, by which exporters know the batch, and CastLike for the type of its
     * second */
    int operands;
} OnnxValue;

typedef struct OnnxFile {
    int64_t opset;
    bool structure; /* its trained values are left out */
    /* a structure of a program that did not see a normalization behind Shape or CastLike (OnnxValue.operands) */
    bool counts_all_reads;
    bool unmarked; /* this program wrote it before its single numbers had such names (ONNX_CONSTANT) */
    /* owned */
    char *path;
    Onnx__ModelProto *model;
    OnnxNode *node;
    int node_count;
    OnnxTensor *tensor; /* initializers */
    int tensor_count;
    OnnxValue *value; /* [1 .. value_count] */
    int value_count;
    int image; /* the number of the only input that is no initializer */
    int output[MODEL_HEADS], output_count;
    int *numbers;
    uint64_t external; /* bytes read from other files */
    bool alone;        /* it has no folder with other files */
} OnnxFile;

NODISCARD Status onnx_open(const char *path, OnnxFile **made);
/* `alone`: there is no folder from which other files may be read. */
NODISCARD Status onnx_parse(const void *bytes, size_t count, const char *name, bool alone, OnnxFile **made);
void onnx_close(OnnxFile *file);
/* The number of a name; 0 if the file has none. */
int onnx_value(const OnnxFile *file, const char *name);

bool onnx_type_is(const OnnxNode *node, const char *const *types); /* one of these, which end in NULL */
const Onnx__AttributeProto *onnx_attribute(const OnnxNode *node, const char *name); /* NULL if there is none */
int64_t onnx_int(const OnnxNode *node, const char *name, int64_t otherwise);
double onnx_float(const OnnxNode *node, const char *name, double otherwise);
bool onnx_text_is(const OnnxNode *node, const char *name, const char *text); /* also if it is left out and text is "" */

/* ---- onnx_tensor.c */

enum { ONNX_FILE_BYTES = INT32_MAX }; /* at most, of a file and of the elements of a tensor */

const char *onnx_tensor_name(const Onnx__TensorProto *proto); /* "" if it has none */
/* The numbers of a message, which are in it; those of a node's attribute always are. ERR_FORMAT if they are not as many as its dimensions say. */
NODISCARD Status onnx_tensor(const OnnxFile *file, Onnx__TensorProto *proto, OnnxTensor *tensor);
/* Moves the data of a tensor from another file into the message, as if it had always been there. ERR_FORMAT, ERR_MEMORY. */
NODISCARD Status onnx_external_read(OnnxFile *file, Onnx__TensorProto *proto);
double onnx_element(const OnnxTensor *tensor, int64_t at);

/* A file is marked as a structure by this key of its metadata, whose value names the version of this program's reading. */
extern const char onnx_structure_key[], onnx_structure_mark[];
