/* Plan: a graph on a device, the address of every value and the prepared calls that run it.
 *
 * Two values overlap only if they are never alive together; slices of concats, reshapes and in-place results share
 * storage. After plan_create nothing allocates; the arenas belong to the caller. */
#pragma once

#include "kernels/backend.h"
#include "towers/graph/layout.h"

typedef struct PlanOptions {
    bool no_alias; /* every value its own storage: for A/B and tests */
} PlanOptions;

typedef struct Plan Plan;

/* `graph`, `layout` and `device` are borrowed and must outlive the plan. Prepares every kernel. */
NODISCARD Status plan_create(const Graph *graph, const Layout *layout, Device *device, const PlanOptions *options,
                             Plan **made);
void plan_destroy(Plan *plan);

/* The bytes of the arenas of such a plan, without the workspaces of kernels; needs no device. */
NODISCARD Status plan_measure(const Graph *graph, const Layout *layout, const Backend *backend,
                              const PlanOptions *options, size_t bytes[ARENA_COUNT]);

size_t plan_bytes(const Plan *plan, Arena arena);    /* what the caller must provide */
void plan_bind(Plan *plan, Arena arena, void *base); /* set or change an arena's memory; cheap, any time between runs */
NODISCARD Status plan_run(Plan *plan, int first, int end); /* ops first .. end - 1, enqueued on STREAM_COMPUTE */
/* Call when the values of ARENA_FOLDED have been made by another plan, as kernels keep what they make of them. */
void plan_renew(Plan *plan);
int plan_op_count(const Plan *plan);
const OpCall *plan_call(const Plan *plan, int op); /* for profiles and `info` */
Tensor plan_tensor(const Plan *plan, Value v);     /* its address (after plan_bind) */

/* The end (exclusive) of the ops that write or read the gradients [0, elements) of the arena: after them the gradients
 * are final and may be reduced in place. */
int plan_ready_after(const Plan *plan, size_t elements);

typedef struct PlanReport {
    size_t arena_bytes[ARENA_COUNT];
    size_t workspace_bytes; /* part of SCRATCH */
    int64_t peak_elements;  /* most elements of TEMP values alive at once, by liveness alone */
    int64_t all_elements;   /* all TEMP values, were each to have its own storage */
    int shared_values;      /* values that share storage with another (slices, in place) */
    int copied_concats;     /* concat inputs and slices that had to be copied */
} PlanReport;
void plan_report(const Plan *plan, PlanReport *report);
