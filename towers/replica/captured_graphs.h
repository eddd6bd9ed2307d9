/* CapturedGraphs: launches of a step that a device repeats as one (CUDA graphs on a GPU).
 *
 * `Launches` is a function that only launches. It is called in the first steps, in which libraries load what they need;
 * then its launches are captured once, and from then on they are repeated without calling it. Launches that cannot be
 * captured are called in every step, and the reason is reported. Values that change from step to step (pixels, labels,
 * random counters, loss scale, learning rate) are at fixed addresses in device memory; anything else that distinguishes
 * one captured graph from another is part of its key. */
#pragma once

#include "kernels/backend.h"

enum { CAPTURE_WARM = 3 /* runs before the capture */ };

typedef struct CapturedGraphs CapturedGraphs;

typedef struct CaptureKey {
    const void *of;              /* identifies the owner of the launches, e.g. a plan; compared, not read */
    int kind, index, first, end; /* kind, and what index counts: chosen by the caller */
    int phase;
    int count; /* number of counted samples, an argument of launches */
} CaptureKey;

/* Launches on STREAM_COMPUTE, always the same for a key; a call must have no other effect. */
typedef Status (*Launches)(void *context);

/* `device` is borrowed. Without `capture`, or on a device that cannot capture, launches are called every time. */
NODISCARD Status captured_graphs_create(Device *device, bool capture, CapturedGraphs **made);
void captured_graphs_destroy(CapturedGraphs *graphs); /* NULL is fine */

/* `graphs` NULL: call the launches without capture. */
NODISCARD Status captured_graphs_run(CapturedGraphs *graphs, const CaptureKey *key, Launches launches, void *context);
/* Why the first capture failed; NULL if none has. */
const char *captured_graphs_refusal(const CapturedGraphs *graphs);
