/* What the files of a NetFile share: net_file.c makes it, net_structure.c and net_write.c write it. */
#pragma once

#include "inception/networks/onnx_head.h"

enum { NAME_BYTES = 128, TEXT_BYTES = 256 };

struct NetFile {
    OnnxFile *file;
    OnnxSurvey survey;
    ImageForm form;
    OnnxHead head[HEADS_MAX];
    NetTensor *tensor; /* [survey.binding_count] */
    void **owned;      /* [survey.binding_count]: values that are not as they are in the file */
    int restored;      /* norms */
    Model model;
    char name[NAME_BYTES], paper[TEXT_BYTES], defaults[TEXT_BYTES], digest[NET_FILE_DIGEST + 1];
};

/* Writes network->digest, that of the opened file. */
NODISCARD Status net_digest_make(NetFile *network);

/* A file is written from its messages of protobuf-c in memory: for a moment they have other contents, and what was taken out of
 * them is put back. */
/* Numbers of a tensor, taken out of its message and put back. */
typedef struct TensorNumbers {
    protobuf_c_boolean has_raw_data;
    ProtobufCBinaryData raw_data;
    size_t n_float_data, n_int32_data, n_int64_data, n_double_data, n_dims;
    int64_t *dims;
} TensorNumbers;

TensorNumbers net_numbers_take(Onnx__TensorProto *tensor);
void net_numbers_return(Onnx__TensorProto *tensor, const TensorNumbers *taken);
/* The message as it is now; free *bytes. */
NODISCARD Status net_file_pack(const Onnx__ModelProto *model, unsigned char **bytes, size_t *count);
