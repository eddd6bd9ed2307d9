/* Network: a graph with fixed weights and its own memory, for forward passes without a trainer: the classifier whose
 * features describe images, and the generator that makes them. It always computes in f32. */
#pragma once

#include "towers/graph/plan.h"
#include "towers/store/safetensors.h"

/* Where a network reads its weights. */
typedef struct NetworkWeights {
    /* borrowed, and narrowed to the network's tensors (weight_part.h): names as in the graph; further tensors are
     * ignored */
    SafeTensors *file;
    const char *path; /* of that file, for messages */
    /* or, if `file` is NULL, memory of a running trainer, in its layout; all borrowed */
    const Layout *layout;
    float *params, *running;
} NetworkWeights;

typedef struct Network {
    Device *device; /* borrowed */
    /* owned */
    Graph *graph;
    Layout *layout; /* NULL: that of the trainer */
    Plan *plan;
    void *arena[ARENA_COUNT]; /* NULL where the memory is the trainer's */
    float *staging;           /* host memory for the largest value that was put or got */
    size_t staging_bytes;
} Network;

/* Takes the graph, also if it fails; it must be finished, and made without training. `what` names the network in
 * messages. Errors: ERR_CHECKPOINT if the file lacks a tensor of the graph, or has it in another shape or spoiled
 * (weights.h). */
NODISCARD Status network_open(Graph *graph, const char *what, const NetworkWeights *weights, Device *device,
                              Network *network);
void network_close(Network *network); /* a zeroed one is fine */

/* Fill host arenas of a layout from a file, whose further tensors are ignored. Errors: ERR_CHECKPOINT, as above. */
NODISCARD Status network_read(const Layout *layout, const char *what, SafeTensors *file, const char *path,
                              float *params, float *running);

/* All f32, in host memory, without gaps: [n][h][w][c]. network_run computes from an input; network_get waits for a result. */
NODISCARD Status network_run(Network *network, Value input, const float *values);
NODISCARD Status network_get(Network *network, Value result, float *values);
