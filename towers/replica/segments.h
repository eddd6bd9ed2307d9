/* Segments: stretches of a step that a device repeats as one launch, where it can (on a GPU, CUDA graphs).
 *
 * A stretch is a function that only launches. It is called for the first steps, in which libraries load what they need;
 * then what it launches is recorded once, and from there on repeated without calling it. One that cannot be recorded
 * goes on being called, and says why. What changes from step to step (pixels, labels, counters of random numbers, the
 * scale of the loss, the learning rate) lies at fixed places in device memory; what else tells one recording from
 * another is its key. */
#ifndef TOWERS_REPLICA_SEGMENTS_H
#define TOWERS_REPLICA_SEGMENTS_H

#include "kernels/backend.h"

enum { SEGMENT_WARM = 3 /* runs before the recording */, SEGMENT_TOWERS = 256 };

typedef struct Segments Segments;

typedef struct SegmentKey {
    const void *of;              /* the plan, or whatever else it is a stretch of; compared, not read */
    int kind, slot, first, end;  /* kind: of the caller's choice */
    int count;                   /* samples that count, which launches carry */
    bool towers[SEGMENT_TOWERS]; /* that take part, where it matters */
} SegmentKey;

/* Launches on STREAM_COMPUTE, always the same ones for a key: nothing else may come of a call. */
typedef Status (*Stretch)(void *context);

/* `device` is borrowed. Without `record`, or on a device that cannot, every stretch is called every time. */
NODISCARD Status segments_create(Device *device, bool record, Segments **made);
void segments_destroy(Segments *segments); /* NULL is fine */

NODISCARD Status segments_run(Segments *segments, const SegmentKey *key, Stretch stretch, void *context);
/* Why a stretch is not recorded, the first one; NULL: none has failed. */
const char *segments_complaint(const Segments *segments);

#endif
