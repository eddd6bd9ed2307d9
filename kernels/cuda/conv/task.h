/* Task: one convolution or matrix product, with the best plan that was found for it.
 *
 * Operands are packed NHWC, of one dtype, aligned to 16 bytes. Candidates are cuDNN's plans, where the window is one
 * pixel cuBLASLt's, and where there are few channels our own kernels ("direct"); the fastest on this device is taken,
 * from the plan cache or by timing. On a deterministic device nothing is timed: the library's first candidate that
 * gives the same bits every time is taken, so that all runs take the same one. */
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libraries/cublas.h"
#include "kernels/cuda/libraries/cudnn_plan.h"

typedef struct TaskSpec {
    CudnnConv kind;
    Shape x, w, y;
    int32_t channels; /* of x; behind them are zeros, in w too */
    Dtype dtype;
    Window window;
    bool accumulate; /* the result is added to what is there; not for CUDNN_CONV_FILTER */
    bool bias,
        relu;   /* y = relu?(x * w + b): by a plan that ends so, or by a pass behind another one, whichever is faster */
    bool dense; /* a matrix product, not a convolution */
} TaskSpec;

typedef struct Task {
    CudnnPlan *plan;      /* owned: one of the two, or neither */
    ProductPlan *product; /* owned */
    bool ends;            /* the plan adds the bias and applies the ReLU; else whoever runs the task does */
    DirectConv direct;    /* if there is neither; without data */
    bool direct_dw;       /* it is the gradient of the weights */
    bool wgmma;           /* by products of warpgroups */
    Dtype w_dtype;        /* of w: spec.dtype, except that all but cuDNN write the gradient of the weights in f32 */
    size_t workspace_bytes;
} Task;

/* Makes of a convolution's shapes those of a task. Channels are padded to rows of 16 bytes, which tensor cores want, except in
 * groups. cuDNN pads opposite sides alike: what one has more becomes rows and columns of x, *top and *left of them before it. */
void conv_fit(Dtype dtype, Shape *x, Shape *w, Shape *y, Window *window, int32_t *top, int32_t *left);

/* `name` for messages. */
NODISCARD Status task_choose(Device *device, const char *name, const TaskSpec *spec, Task *task);
void task_free(Device *device, Task *task);
/* The name of the plan, as in the plan cache. */
void task_plan_text(const Task *task, char *text, size_t bytes);
/* `bias`: of the operands' dtype, one for each channel of y; NULL unless the task ends with it. */
NODISCARD Status task_run(Device *device, const Task *task, void *x, void *w, void *y, void *bias, void *workspace);
