/* The samples that each tower gets: no sample is dropped or repeated.
 *
 * Step s of an epoch takes samples order[s * G .. min((s + 1) * G, count)) of the epoch's order, G = sum of the towers'
 * local batches; they are cut into consecutive runs, tower 0 first. A full batch is cut into the local batches; a short one in
 * proportion to them (largest remainder, lower tower first), so a tower may get 0. */
#pragma once

#include "kernels/base/status.h"

enum { TOWERS_MAX = 4096 };

typedef struct LocalBatches {
    int towers;
    const int32_t *batch; /* borrowed [towers]: samples of tower t in a full batch; 0 is legal, not all may be 0 */
} LocalBatches;

int64_t global_batch_of(const LocalBatches *local);                   /* G */
int64_t steps_per_epoch_of(const LocalBatches *local, int64_t count); /* ceil(count / G) */
/* Samples [*first, *first + *n) of the epoch's order for tower t at step s of the epoch. */
void local_batch_of(const LocalBatches *local, int64_t count, int64_t step_in_epoch, int tower, int64_t *first,
                    int32_t *n);
