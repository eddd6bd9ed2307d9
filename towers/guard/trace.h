/* Trace: one batch of one tower, run op by op, looking at every number that every op writes. The plan is deterministic,
 * so the op that wrote the first NaN or Inf of a step writes it again. Nothing that a commit would move is touched. */
#ifndef TOWERS_GUARD_TRACE_H
#define TOWERS_GUARD_TRACE_H

#include "towers/replica/finding.h"
#include "towers/replica/replica.h"

/* Over the finite elements; NaN if there are none. */
typedef struct TensorScan {
    int64_t bad, first; /* how many are not finite, and the first of them in the order of memory */
    float value;        /* of that one */
    double min, max, mean;
} TensorScan;

/* One output of one op. */
typedef struct TraceRow {
    int op;
    FindingPlace place;
    const OpCall *call;
    const char *layer, *tensor; /* the layer as the forward pass calls it */
    Shape shape;
    Dtype dtype;
    TensorScan scan;
} TraceRow;

typedef struct TraceJob {
    Replica *replica;
    int tower, slot; /* number in the run; number in the replica */
    int64_t step;
    uint64_t seed;
    float scale; /* of every sample's gradient */
    const Batch *batch;
    int64_t deadline_ns; /* CLOCK_MONOTONIC: give up then; 0: never */
    bool through;        /* run on to the end after a finding: other towers wait for this one's part of their sums */
    void (*row)(void *context, const TraceRow *row); /* called for every output up to the first bad one; NULL */
    void *context;
} TraceJob;

/* FOUND_NOTHING if every output, the loss and all gradients are finite. ERR_COMM after the deadline. */
NODISCARD Status trace_run(const TraceJob *job, Finding *found);

/* Weights, their average, the statistics of local tower `slot` (-1: of all) and optimizer slots: the first of these
 * that is not finite. `first_tower`: the number of slot 0 in the run. */
NODISCARD Status trace_state(Replica *replica, int first_tower, int slot, Finding *found);
/* The gradient arena, parameter by parameter. */
NODISCARD Status trace_gradients(Replica *replica, FindingPlace place, Finding *found);

#endif
