/* Layout and Plan: the address of every value of a graph, and the prepared calls that run it.
 *
 * Layout: the order of parameters (the order in which backward completes their gradients) and of batch-norm states.
 * It is made once, from the training graphs of all phases (model.h); graphs of other batch sizes and the evaluation
 * graph look names up in it, so all share the same arenas.
 *
 * Plan: a graph on a device. Two values overlap only if they are never alive together; slices of concats, reshapes and
 * in-place results share storage. After plan_create nothing allocates; the arenas belong to the caller. */
#pragma once

#include "kernels/backend.h"
#include "towers/graph/graph.h"

typedef struct LayoutEntry {
    const char *name; /* owned by the layout */
    Shape shape;
    size_t first; /* element offset in the arena (a multiple of 16, except inside a pack) */
    size_t count; /* elements */
    Init init;    /* resolved: GLOROT_UNIFORM and HE_NORMAL have become UNIFORM and NORMAL with their width */
    bool decay;
    int rank;       /* on disk: 4 for weights of a convolution, 2 of a dense layer, else 1 */
    int32_t pixels; /* the outputs of its layer become a map of so many pixels (graph_unfold), or 0 */
    unsigned moves; /* bit p: phase p trains this parameter, or its batch norms feed this state */
} LayoutEntry;

/* The parameters that a phase trains, in the order in which its backward pass completes their gradients. */
typedef struct LayoutPhase {
    int first_param, param_count;
    size_t first, elements; /* of PARAM, GRAD and the slots */
} LayoutPhase;
enum { LAYOUT_PHASES = 4 };

typedef struct Layout {
    LayoutEntry *params; /* in arena order */
    int param_count;
    size_t param_elements;            /* f32 elements of the PARAM arena, padding included */
    int trained_count;                /* the first parameters have a gradient, so many; frozen ones follow */
    size_t trained_elements;          /* f32 elements of the GRAD and slot arenas: the beginning of PARAM */
    LayoutPhase phase[LAYOUT_PHASES]; /* together the trained parameters */
    int phase_count;
    LayoutEntry *states;
    int state_count;
    size_t state_elements;      /* f32 elements of the STATE and STAT arenas */
    int64_t *state_variance_of; /* [state_elements]: ValueInfo.variance_of of the STAT that feeds each element */
} Layout;

NODISCARD Status layout_create(const Graph *training, Layout **made); /* of a single phase */
/* Layout of several phases: one graph for each. Parameters and states of the same name are the same. ERR_UNSUPPORTED if two phases
 * train the same parameter. */
NODISCARD Status layout_create_phases(const Graph *const *training, int count, Layout **made);
void layout_destroy(Layout *layout);
/* The end of the i-th one in its arena, including its padding. */
size_t layout_param_end(const Layout *layout, int i);
size_t layout_state_end(const Layout *layout, int i);
const LayoutEntry *layout_param(const Layout *layout, const char *name); /* NULL if none */
const LayoutEntry *layout_state(const Layout *layout, const char *name);
/* Starting values by Philox(seed; hash of the name, element): they do not depend on the order of the list. */
void layout_init_params(const Layout *layout, uint64_t seed, float *params);
void layout_init_states(const Layout *layout, float *states);

typedef enum Arena {
    ARENA_PARAM = 0, /* f32 master weights */
    ARENA_GRAD,      /* f32, layout of PARAM, trained parameters only */
    ARENA_STATE,     /* running averages */
    ARENA_STAT,      /* this step's batch statistics, layout of STATE */
    ARENA_INPUT,     /* pixels, labels, counter, ... */
    ARENA_FOLDED,    /* weights that include batch norms (ROLE_FOLDED): the same for all batch sizes of a network */
    ARENA_RESULT,    /* loss, correct predictions: read by the host */
    ARENA_SCRATCH,   /* everything else, and the shared workspace at its end */
    ARENA_COUNT
} Arena;

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
