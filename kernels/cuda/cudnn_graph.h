/* cuDNN through its graph API: describe a small graph of operations, ask for plans that run it, run one.
 *
 * Tensors are numbered from 1 in the order they are declared; all are NHWC, given by strides. The builder keeps its
 * first failure and does nothing after it; cudnn_plans returns it. Plans come from cuDNN's heuristics (mode A, then the
 * fallback list), best guess first, and those that break a rule are passed over. A library opened from a description
 * (the JSON that cuDNN writes and reads for a device) builds plans on machines without that device, or without any, but
 * cannot run them. */
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/check.h"

typedef struct CudnnLibrary CudnnLibrary;

/* `refused` is borrowed. */
NODISCARD Status cudnn_open(cudaStream_t stream, PlanRefusals *refused, CudnnLibrary **made);
NODISCARD Status cudnn_open_described(const char *json, CudnnLibrary **made);
void cudnn_close(CudnnLibrary *library);       /* NULL is fine */
void cudnn_describe(char *text, size_t bytes); /* "cuDNN 9.19.0" */
/* The last failure (status_message) is one that passes over a candidate. NULL: nobody counts them. */
void plan_refused(PlanRefusals *refused);
bool cudnn_joins(void); /* 9.8 or newer: the library has engines for joined convolutions (conv_graph.h) */
/* The description of the device that `library` runs on. */
NODISCARD Status cudnn_device_json(CudnnLibrary *library, int ordinal, char *json, size_t bytes);

/* ---- graphs */

enum { CUDNN_TENSORS = 32, CUDNN_OPERATIONS = 12, CUDNN_PLANS = 64 };

typedef struct CudnnGraph CudnnGraph;
typedef enum CudnnConv { CUDNN_CONV_FORWARD, CUDNN_CONV_DATA, CUDNN_CONV_FILTER } CudnnConv;
typedef enum CudnnPointwise { CUDNN_ADD, CUDNN_SUB, CUDNN_MUL, CUDNN_RELU, CUDNN_RELU_BACKWARD } CudnnPointwise;

NODISCARD Status cudnn_graph_create(CudnnLibrary *library, CudnnGraph **made);
void cudnn_graph_destroy(CudnnGraph *graph); /* NULL is fine; plans live on */

int cudnn_tensor(CudnnGraph *g, Shape shape, Dtype dtype, int64_t pitch); /* in memory; pitch 0: packed */
int cudnn_virtual(CudnnGraph *g, Shape shape, Dtype dtype);               /* only inside the graph */
int cudnn_channels(CudnnGraph *g, int32_t c, Dtype dtype);                /* {1, c, 1, 1} */

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

/* ---- plans */

/* Engines that convert f32 operands to 16 bits, add up in 16 bits, or give other bits in another run are never taken. */
typedef struct CudnnRules {
    bool tensor_cores;       /* for f32 operands these round to TF32; 16-bit operands lose nothing by them */
    bool no_runtime_compile; /* engines that come compiled: no compiler at run time, no driver needed for the plan */
    size_t workspace_max;    /* bytes; 0: any */
} CudnnRules;

typedef struct CudnnPlan CudnnPlan;

/* The first `wanted` plans (at most CUDNN_PLANS) that keep the rules. ERR_UNSUPPORTED if there is none. A candidate that the
 * library fails to make is passed over and counted, and so is a graph that it refuses. */
NODISCARD Status cudnn_plans(CudnnGraph *g, const CudnnRules *rules, int wanted, CudnnPlan **plans, int *found);
/* The plan that cudnn_plan_text named earlier, in a process of the same library and device. ERR_UNSUPPORTED if it
 * breaks a rule. */
NODISCARD Status cudnn_plan_named(CudnnGraph *g, const CudnnRules *rules, const char *text, CudnnPlan **made);
void cudnn_plan_destroy(CudnnPlan *plan); /* NULL is fine */

size_t cudnn_plan_workspace(const CudnnPlan *plan);
enum { CUDNN_PLAN_BYTES = 640 };
const char *cudnn_plan_text(const CudnnPlan *plan); /* "engine 12 knobs 0=3 4=1", CUDNN_PLAN_BYTES at most */

/* Enqueue on the library's stream. `memory[k]` belongs to tensor `tensor[k]`. */
NODISCARD Status cudnn_plan_run(CudnnPlan *plan, const int *tensor, void *const *memory, int count, void *workspace);
