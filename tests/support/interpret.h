/* Interpreter: runs a Graph op by op with the reference, every value in its own double-precision table entry.
 *
 * No plan, no sharing, no dtype: it defines the meaning of a graph, independent of how it runs. INPUT, PARAM and RUNNING
 * values are set by the caller; PACKs are assembled from their PARAMs before each run. */
#pragma once

#include "tests/support/reference.h"
#include "towers/graph/graph.h"

typedef struct Interpreter {
    const Graph *graph; /* borrowed */
    RefTensor *values;  /* owned; [id], entry 0 is the absent value */
    int count;
} Interpreter;

Interpreter interpreter_create(const Graph *graph);
void interpreter_destroy(Interpreter *it);

/* The storage of a value: shape_count(shape) doubles, packed NHWC. Write it for INPUT, PARAM, RUNNING; read it after a
 * run. */
double *interpreter_data(Interpreter *it, Value v);
void interpreter_run(Interpreter *it);
/* The gradient of a PARAM, where it was computed for a pack its part of that; NULL if there is none. */
double *interpreter_gradient(Interpreter *it, Value param);

/* Uniform values in [low, high) that depend on `seed` alone. */
void fill_uniform(double *data, int64_t count, uint64_t seed, double low, double high);
