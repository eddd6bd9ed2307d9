/* CapturedGraphs: launches of a step that a device repeats as one, where it can (on a GPU, CUDA graphs).
 *
 * `Launches` is a function that only launches. It is called in the first steps, in which libraries load what they need;
 * then its launches are captured once, and from there on repeated without calling it. Launches that cannot be captured
 * are called in every step, and the reason is reported. Values that change from step to step (pixels, labels, counters
 * of random numbers, loss scale, learning rate) lie at fixed places in device memory; anything else that distinguishes
 * one captured graph from another is part of its key. */
#ifndef TOWERS_REPLICA_CAPTURED_GRAPHS_H
#define TOWERS_REPLICA_CAPTURED_GRAPHS_H

#include "kernels/backend.h"

enum { CAPTURE_WARM = 3 /* runs before the capture */, CAPTURE_TOWERS = 256 };

typedef struct CapturedGraphs CapturedGraphs;

typedef struct CaptureKey {
    const void *of;              /* the plan, or whatever else the launches belong to; compared, not read */
    int kind, slot, first, end;  /* kind: of the caller's choice */
    int count;                   /* samples that count, which launches carry */
    bool towers[CAPTURE_TOWERS]; /* that take part, where it matters */
} CaptureKey;

/* Launches on STREAM_COMPUTE, always the same ones for a key: nothing else may come of a call. */
typedef Status (*Launches)(void *context);

/* `device` is borrowed. Without `capture`, or on a device that cannot capture, launches are called every time. */
NODISCARD Status captured_graphs_create(Device *device, bool capture, CapturedGraphs **made);
void captured_graphs_destroy(CapturedGraphs *graphs); /* NULL is fine */

/* `graphs` NULL: calls them without capture. */
NODISCARD Status captured_graphs_run(CapturedGraphs *graphs, const CaptureKey *key, Launches launches, void *context);
/* Why the first capture failed; NULL if none has. */
const char *captured_graphs_refusal(const CapturedGraphs *graphs);

#endif
