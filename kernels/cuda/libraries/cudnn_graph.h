/* A convolution as a graph of cuDNN's graph API. Operands are packed NHWC, sums are f32. */
#pragma once

#include "kernels/cuda/libraries/cudnn_library.h"

typedef struct CudnnGraph CudnnGraph;
typedef enum CudnnConv { CUDNN_CONV_FORWARD, CUDNN_CONV_DATA, CUDNN_CONV_FILTER } CudnnConv;

/* Forward: y = x * w. Data: x = y * transpose(w). Filter: w = sum of x * y. */
typedef struct CudnnSpec {
    CudnnConv kind;
    Shape x, w, y;
    Dtype dtype;
    Window window;
    bool accumulate; /* the result is added to what is there */
    bool bias, relu; /* forward alone: y = relu?(x * w + b), rounded once; b is of `dtype`, for each channel */
} CudnnSpec;

/* What cuDNN refuses of the graph is kept: cudnn_plans returns it. */
NODISCARD Status cudnn_graph_create(CudnnLibrary *library, const CudnnSpec *spec, CudnnGraph **made);
void cudnn_graph_destroy(CudnnGraph *graph); /* NULL is fine; plans live on */

/* The graph as cuDNN takes it (a Descriptor), and its library, which is set after a failure, too; both are borrowed. For
 * cudnn_plan.c. */
NODISCARD Status cudnn_graph_finish(CudnnGraph *graph, CudnnLibrary **library, void **finished);
