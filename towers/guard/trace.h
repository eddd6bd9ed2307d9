/* Trace: run one batch of one tower op by op and check every value that each op writes. The plan is deterministic, so
 * the op that wrote the first NaN or Inf of a step writes it again. Nothing that a commit would change is modified. */
#pragma once

#include "towers/replica/finding.h"
#include "towers/replica/replica.h"

/* Statistics of the finite elements; NaN if there are none. */
typedef struct TensorScan {
    int64_t bad, first; /* number of elements that are not finite; the first of them in memory order */
    float value;        /* of the first bad element */
    double min, max, mean;
} TensorScan;

/* One output of one op. */
typedef struct TraceRow {
    int op;
    FindingPlace place;
    const OpCall *call;
    const char *layer, *tensor; /* `layer`: its name in the forward pass */
    Shape shape;
    Dtype dtype;
    TensorScan scan;
} TraceRow;

typedef struct TraceJob {
    Replica *replica;
    int tower, local; /* tower: number in the run; local: number in the replica */
    int64_t step;
    int phase;
    RandomKey key;
    float scale; /* of every sample's gradient */
    const Batch *batch;
    int64_t deadline_ns; /* CLOCK_MONOTONIC: stop then; 0: never */
    bool through;        /* run to the end after a finding, because other towers need this one's part of their sums */
    void (*row)(void *context, const TraceRow *row); /* called for each output up to the first bad one; may be NULL */
    void *context;
} TraceJob;

/* *found is FOUND_NOTHING if every output, the loss and all gradients are finite. ERR_COMM after the deadline. */
NODISCARD Status trace_run(const TraceJob *job, Finding *found);

/* The first value that is not finite among weights, their average, the statistics of local tower `local` (-1: of all)
 * and optimizer states. `first_tower`: the number of local tower 0 in the run. */
NODISCARD Status trace_state(Replica *replica, int first_tower, int local, Finding *found);
/* The gradients of a phase, parameter by parameter. */
NODISCARD Status trace_gradients(Replica *replica, int phase, FindingPlace place, Finding *found);
