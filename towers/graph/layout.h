/* Layout: the order of parameters (the order in which backward completes their gradients) and of batch-norm running statistics in
 * their arenas. It is made once, from the training graphs of all phases (model.h); graphs of other batch sizes and the
 * evaluation graph look names up in it, so all share the same arenas. */
#pragma once

#include "towers/graph/graph.h"

/* The memory of a plan. The layout orders the first four; plan.h places the rest. */
typedef enum Arena {
    ARENA_PARAM = 0,        /* f32 master weights */
    ARENA_GRAD,             /* f32, layout of PARAM, trained parameters only */
    ARENA_RUNNING,          /* running averages */
    ARENA_BATCH_STATISTICS, /* this step's batch statistics, layout of RUNNING */
    ARENA_INPUT,            /* pixels, labels, counter, ... */
    ARENA_FOLDED,  /* weights that include batch norms (ROLE_FOLDED): the same for all batch sizes of a network */
    ARENA_RESULT,  /* loss, correct predictions: read by the host */
    ARENA_SCRATCH, /* everything else, and the shared workspace at its end */
    ARENA_COUNT
} Arena;

typedef struct LayoutEntry {
    const char *name; /* owned by the layout */
    Shape shape;
    size_t first; /* element offset in the arena (a multiple of 16, except inside a pack) */
    size_t count; /* elements */
    Init init;    /* resolved: GLOROT_UNIFORM and HE_NORMAL have become UNIFORM and NORMAL with their width */
    bool decay;
    int rank;       /* on disk: 4 for weights of a convolution, 2 of a dense layer, else 1 */
    int32_t pixels; /* the outputs of its layer become a map of so many pixels (graph_unfold), or 0 */
    unsigned moves; /* bit p: phase p trains this parameter, or its batch norms feed this statistic */
} LayoutEntry;

/* The parameters that a phase trains, in the order in which its backward pass completes their gradients. */
typedef struct LayoutPhase {
    int first_param, param_count;
    size_t first, elements; /* of PARAM, GRAD and the optimizer states */
} LayoutPhase;
enum { LAYOUT_PHASES = 4 };

typedef struct Layout {
    LayoutEntry *params; /* in arena order */
    int param_count;
    size_t param_elements;            /* f32 elements of the PARAM arena, padding included */
    int trained_count;                /* the first parameters have a gradient, so many; frozen ones follow */
    size_t trained_elements;          /* f32 elements of GRAD and of an optimizer state: the beginning of PARAM */
    LayoutPhase phase[LAYOUT_PHASES]; /* together the trained parameters */
    int phase_count;
    LayoutEntry *running; /* statistics */
    int running_count;
    size_t running_elements; /* f32 elements of the RUNNING and BATCH_STATISTICS arenas */
    /* [running_elements]: ValueInfo.values of the batch statistic that feeds each element; 0: none does */
    int64_t *running_values;
    bool *running_unbiased; /* [running_elements]: its ValueInfo.unbiased */
} Layout;

NODISCARD Status layout_create(const Graph *training, Layout **made); /* of a single phase */
/* Layout of several phases: one graph for each. Parameters and running statistics of the same name are the same. ERR_UNSUPPORTED if two phases
 * train the same parameter. */
NODISCARD Status layout_create_phases(const Graph *const *training, int count, Layout **made);
void layout_destroy(Layout *layout);
/* The end of the i-th one in its arena, including its padding. */
size_t layout_param_end(const Layout *layout, int i);
size_t layout_running_end(const Layout *layout, int i);
const LayoutEntry *layout_param(const Layout *layout, const char *name); /* NULL if none */
const LayoutEntry *layout_running(const Layout *layout, const char *name);
/* Starting values by Philox(seed; hash of the name, element): they do not depend on the order of the list. */
void layout_init_params(const Layout *layout, uint64_t seed, float *params);
void layout_init_running(const Layout *layout, float *running);
