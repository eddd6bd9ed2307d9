/* The ends of a network from a file: the image that enters, the products whose outputs are the classes, and the logits. */
#pragma once

#include "inception/networks/onnx_walk.h"

/* The image as the file's input describes it. */
typedef struct ImageForm {
    char axes[5]; /* "NCHW" or "NHWC" */
    int32_t side, channels;
    int64_t batch; /* 0: any */
    bool bytes;    /* of 0 to 255 */
    bool open;     /* the file does not say its side */
} ImageForm;

/* A side that the file leaves open is that of ImageNet. ERR_ARG if the input is no square image of 1 or 3 channels. */
NODISCARD Status onnx_image(const OnnxFile *file, ImageForm *form);
/* The last product before each output; what lies between only chooses, averages, adds or normalizes. */
void onnx_heads(const OnnxFile *file, OnnxHead heads[HEADS_MAX]);
/* The logits after a walk. */
void onnx_logits(OnnxWalk *w, ModelHeads *heads);
