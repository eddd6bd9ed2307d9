/* ONNX export: the evaluation graph with its weights as a file for other runtimes (opset 17, IR version 8).
 *
 * Input "image": float32 {N, c, side, side}, NCHW, pixels in [0, 1]; the normalization is part of the file. Output
 * "logits": float32 {N, classes}, without softmax. N is dynamic. The metadata are those of the weights
 * (towers/replica/about.h): "model", "class_names" (a JSON array in the order of the logits), and so on. Weights are in
 * PyTorch's order (OIHW).
 *
 * With OnnxRange: weights and values of eight bits (onnx_int8.c), input and output as they are.
 *
 * With OnnxBytes: input "image": uint8 {N, side, side, c}, NHWC; output "probabilities": float32 {N, classes}.
 *
 * A generator has input "z": float32 {N, latent}, standard normal; output "image": float32 {N, c, side, side}, as above. */
#pragma once

#include "towers/store/weights.h"

enum { ONNX_PAIRS = 32 };
/* What the names of single numbers begin with that belong to a formula, as no parameter's does. */
#define ONNX_CONSTANT "towers::"

/* The normalization of a generator's images. */
typedef struct OnnxPixels {
    const float *mean, *std; /* [channels] */
} OnnxPixels;

/* What a classifier's file computes besides the network: pixels from bytes, probabilities from logits. */
typedef struct OnnxBytes {
    bool sigmoid;      /* of each logit, instead of the softmax */
    float temperature; /* by which logits are divided; 1: as they are */
} OnnxBytes;

/* The smallest and the largest number of a value. */
typedef struct OnnxRange {
    float low, high;
} OnnxRange;

/* `evaluation`: an f32 graph made without training and without passes; with `ranges`, with pass_fold_norms. `weights`: its parameters and running statistics by name.
 * `about`: the metadata, at most ONNX_PAIRS. `pixels`: NULL, or for a graph from the input "z" to the result "images".
 * `bytes`: NULL, or for a classifier. `ranges`: NULL, or of each value, by its id: weights and values have eight bits. Replaces `path` atomically. Errors: ERR_UNSUPPORTED naming an op without an ONNX counterpart. */
NODISCARD Status onnx_write(const char *path, const char *name, const Graph *evaluation, const WeightList *weights,
                            const StPair *about, int pairs, const OnnxPixels *pixels, const OnnxBytes *bytes,
                            const OnnxRange *ranges);
/* The metadata of an ONNX file; the pairs are borrowed until onnx_about_close. Errors: ERR_FORMAT if it is not one. */
typedef struct OnnxAbout OnnxAbout;
NODISCARD Status onnx_about_open(const char *path, OnnxAbout **made);
NODISCARD Status onnx_about_parse(const void *bytes, size_t count, const char *name, OnnxAbout **made);
int onnx_about_count(const OnnxAbout *about);
StPair onnx_about_at(const OnnxAbout *about, int index);
void onnx_about_close(OnnxAbout *about);
