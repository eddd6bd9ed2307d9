/* Fusion: which joined ops a training graph gets on a device, and what came of it.
 *
 * Levels, each with all of those before it:
 *   ii     every op by a kernel of its own (siblings joined, pools moved: those are passes that need no kernel)
 *   ii-s   convolutions make the sums of the batch norms behind them
 *   iii-h  convolutions normalize their input on the way in, and mask and sum the gradient of it on the way out
 *   auto   as far as the device has kernels
 * Each convolution is asked for by itself; where the device has no kernel the separate ops stay. */
#ifndef TOWERS_GRAPH_FUSE_H
#define TOWERS_GRAPH_FUSE_H

#include "kernels/backend.h"
#include "towers/graph/fuse_level.h"
#include "towers/graph/graph.h"

typedef struct Fusion {
    bool possible; /* the backend has joined kernels, and they were asked for */
    int convolutions;
    int statistics; /* of them make the sums of their batch norms */
    NormJoins norms;
} Fusion;

/* ERR_UNSUPPORTED if `level` asks for kernels that the backend does not have for any shape. */
NODISCARD Status fuse_check(FuseLevel level, const Backend *backend);
/* After graph_train; `forward_end` moves with the list. */
NODISCARD Status fuse_graph(Graph *g, FuseLevel level, Device *device, int *forward_end, Fusion *made);
/* One line: "sums in 68 of 68 convolutions, 49 normalize their input, 46 sum the gradient of it". */
void fusion_text(const Fusion *fusion, char *text, size_t bytes);

#endif
