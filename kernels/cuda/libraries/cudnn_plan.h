/* Plans of cuDNN that run a graph. They come from its heuristics (mode A, then the fallback list), best guess first, and
 * those that break a rule are passed over. */
#pragma once

#include "kernels/cuda/libraries/cudnn_graph.h"

enum { CUDNN_PLANS = 64, CUDNN_PLAN_BYTES = 640 };

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
const char *cudnn_plan_text(const CudnnPlan *plan); /* "engine 12 knobs 0=3 4=1", CUDNN_PLAN_BYTES at most */

/* Enqueue on the library's stream. `bias`: NULL if the graph has none. */
NODISCARD Status cudnn_plan_run(CudnnPlan *plan, void *x, void *w, void *y, void *bias, void *workspace);
