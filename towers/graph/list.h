/* Internals of a Graph (list.c), for the files of this folder that append to it, rewrite it or fail it.
 *
 * Values are numbered from 1; values[0] stands for "none". Names are owned by the graph and never move, so they may be
 * shared between ops, values and a rewritten list. Pointers into `ops` and `values` are valid until the next append. */
#pragma once

#include "towers/graph/layers.h"

struct Graph {
    GraphOptions options;
    LayerStyle style;
    /* owned */
    Op *ops;
    ValueInfo *values;
    char **texts;
    void **scratch;
    /* state */
    int op_count, value_count, text_count, scratch_count; /* value_count ids in use: 1 .. value_count */
    size_t op_room, value_room, text_room, scratch_room;
    const char *scope;         /* one of `texts`, or "" */
    const char *weights_scope; /* of parameters and running statistics; NULL: `scope`, and no parameter is used twice */
    int32_t canonical;
    uint32_t streams;
    Status status;
    char why[1024];
};

/* Append without checking shapes. On failure the graph has failed, and the result is Value 0, -1 or "". */
Value list_value(Graph *g, const ValueInfo *info);
int list_op(Graph *g, const Op *op);
const char *list_text(Graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fails without prepending the scope, for messages that name their layer. */
Value list_fail(Graph *g, Status code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Zeroed memory that graph_finish frees; NULL after failing the graph. */
void *list_scratch(Graph *g, int count, size_t item_bytes);
/* The number of reads of each value, by id, as scratch memory. */
int *list_readers(Graph *g);
/* True for a PARAM that is a member of a PACK. */
bool list_packed(const Graph *g, Value param);

/* Replaces the list by `ops`, in topological order, unless the graph has failed. `ops` is scratch memory, and is exchanged for
 * that of the list. Values keep their ids; each value that an op wrote is written by one of `ops`, or its op is -1 and nobody
 * reads it. */
void list_replace(Graph *g, Op *ops, int op_count);

/* The op as a call with shapes, dtypes and pitches but fake addresses, for queries to a device. */
OpCall list_call(const Graph *g, const Op *op);
