/* Segments: stretches of plans that a device repeats as one launch, where it can (on a GPU, CUDA graphs).
 *
 * A stretch runs op by op for the first steps, in which libraries load what they need; then it is recorded once, and
 * from there on repeated. One that cannot be recorded goes on op by op, and says why. What changes from step to step
 * (pixels, labels, counters of random numbers, the scale of the loss) lies at fixed places in device memory; where a
 * tower's statistics lie depends on its slot, so every slot has recordings of its own. */
#ifndef TOWERS_SEGMENTS_H
#define TOWERS_SEGMENTS_H

#include "towers/graph/plan.h"

enum { SEGMENT_WARM = 3 /* runs before the recording */ };

typedef struct Segments Segments;

/* `device` is borrowed. Without `record`, or on a device that cannot, all runs are op by op. */
NODISCARD Status segments_create(Device *device, bool record, Segments **made);
void segments_destroy(Segments *segments); /* NULL is fine */

/* Ops first .. end - 1 of `plan`, bound for `slot`. */
NODISCARD Status segments_run(Segments *segments, Plan *plan, int slot, int first, int end);
/* Why a stretch is not recorded, the first one; NULL: none has failed. */
const char *segments_complaint(const Segments *segments);

#endif
