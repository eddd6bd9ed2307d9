/* A small graph of operations for cuDNN's graph API.
 *
 * Tensors are numbered from 1 in the order they are declared; all are NHWC, given by strides. The builder keeps its
 * first failure and does nothing after it; cudnn_plans returns it. */
#pragma once

#include "kernels/cuda/cudnn_library.h"

enum { CUDNN_TENSORS = 32, CUDNN_OPERATIONS = 12 };

typedef struct CudnnGraph CudnnGraph;
typedef enum CudnnConv { CUDNN_CONV_FORWARD, CUDNN_CONV_DATA, CUDNN_CONV_FILTER } CudnnConv;
typedef enum CudnnPointwise { CUDNN_ADD, CUDNN_SUB, CUDNN_MUL, CUDNN_RELU, CUDNN_RELU_BACKWARD } CudnnPointwise;

NODISCARD Status cudnn_graph_create(CudnnLibrary *library, CudnnGraph **made);
void cudnn_graph_destroy(CudnnGraph *graph); /* NULL is fine; plans live on */

int cudnn_tensor(CudnnGraph *g, Shape shape, Dtype dtype);  /* in memory, packed */
int cudnn_virtual(CudnnGraph *g, Shape shape, Dtype dtype); /* only inside the graph */
int cudnn_channels(CudnnGraph *g, int32_t c, Dtype dtype);  /* {1, c, 1, 1} */

/* Forward: y = x * w. Data: x = y * transpose(w) + beta x. Filter: w = sum of x * y. Sums are f32. */
void cudnn_conv(CudnnGraph *g, CudnnConv kind, const Window *window, int x, int w, int y, float beta);
/* y = a op b in f32; RELU reads a alone, RELU_BACKWARD: y = b > 0 ? a : 0. */
void cudnn_pointwise(CudnnGraph *g, CudnnPointwise op, int a, int b, int y);
/* Per channel: sum of x, sum of x^2. */
void cudnn_statistics(CudnnGraph *g, int x, int sum, int square_sum);

/* Batch norm backward, its sums per channel: from dy (after the ReLU's mask) and x the gradients of scale and bias and
 * the three factors of dx = dy_factor dy + x_factor x + constant. All per-channel tensors are f32. */
typedef struct CudnnNormSums {
    int mean, inverse_deviation, scale, x, dy;                        /* read */
    int scale_gradient, bias_gradient, dy_factor, x_factor, constant; /* written */
} CudnnNormSums;
void cudnn_norm_sums(CudnnGraph *g, const CudnnNormSums *sums);
