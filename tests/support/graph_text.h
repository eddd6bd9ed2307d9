/* Shared by tests of op lists: a graph to start from, its list as text, and checks that hold for every list. */
#pragma once

#include "towers/graph/layers.h"

/* An empty graph; destroy it. */
Graph *new_graph(bool training, Dtype compute);
/* An f32 input. */
Value new_input(Graph *g, const char *name, int32_t n, int32_t c, int32_t h, int32_t w);

/* The ops from index `first` on, one a line, equal `wanted`. */
void assert_ops(const Graph *g, int first, const char *wanted);
/* The graph has failed with this code and message. */
void assert_failure(Graph *g, Status code, const char *message);
/* The graph has not failed; every value is written once, before it is read, by the op it names; leaves by none. */
void assert_sound(Graph *g);
