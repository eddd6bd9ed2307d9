/* Fault injection: hooks with which tests make a tower fail at a given step (towers/replica/hooks.h). Compiled in only
 * with -DTOWERS_FAULTS=ON.
 *
 * TOWERS_FAULT="kind:tower=T,step=S[,activity=A][,layer=NAME][,index=N][,ms=N]
 * [,where=loss|grad|both|weights|statistics|slot]", several separated by ';'. Kinds: nan, inf (set the tower's loss and
 * gradients, or one value of its process's weights, statistics or slot 0 after the update; with a layer, its output in
 * the activity forward or the first gradient that it computes in the activity backward: the element `index`, or all),
 * hang, exit, kill, delay (ms per step from S on), crawl (only show progress for ms), bitflip (one bit of a weight,
 * after the update). Steps count from 1. "layer=conv2" means the first op in the list whose name is conv2 or starts
 * with "conv2."; with activity=backward, the first such op of the backward pass. */
#ifndef TOWERS_GUARD_FAULT_H
#define TOWERS_GUARD_FAULT_H

#include <stdint.h>

#include "kernels/status.h"

/* Set run_hooks according to TOWERS_FAULT. ERR_ARG names an invalid word. Does nothing in a build without faults. */
NODISCARD Status faults_load(void);
/* faults_load from a text; "": no faults. ERR_UNSUPPORTED in a build without faults. */
NODISCARD Status faults_load_text(const char *text);
/* The text of all faults if one of them affects this tower in this step; else "". */
const char *faults_text_at(int tower, int64_t step);

#endif
