/* Fusion: which joined ops a training graph uses on a device.
 *
 * Levels, each with all of those before it:
 *   ii     every op has its own kernel (joining siblings and moving pools need no special kernels)
 *   ii-s   convolutions compute the sums of the batch norms that follow them
 *   iii-h  convolutions and max pools also normalize their input, and mask and sum its gradient
 *   auto   as far as the device has kernels
 * The device is asked for each convolution; if it has no kernel, the separate ops stay. */
#pragma once

#include "kernels/backend.h"
#include "towers/graph/fuse_level.h"
#include "towers/graph/graph.h"

typedef struct Fusion {
    bool possible; /* the backend has joined kernels, and the level asks for them */
    int convolutions;
    int statistics; /* convolutions that compute the sums of their batch norms */
    NormJoins norms, pools;
} Fusion;

/* ERR_UNSUPPORTED if `level` asks for kernels that the backend does not have for any shape. */
NODISCARD Status fuse_check(FuseLevel level, const Backend *backend);
/* After graph_train; `forward_end` moves with the list. */
NODISCARD Status fuse_graph(Graph *g, FuseLevel level, Device *device, int *forward_end, Fusion *made);
/* One line: "sums in 68 of 68 convolutions, 49 normalize their input, 46 sum the gradient of it; so do 2 and 2 max pools". */
void fusion_text(const Fusion *fusion, char *text, size_t bytes);
