/* The samples that each tower gets: no sample is dropped or repeated.
 *
 * Step s of an epoch takes samples order[s * G .. min((s + 1) * G, count)) of the epoch's order, G = sum of the towers'
 * shares; they are cut into consecutive runs, tower 0 first. A full batch is cut by the shares; a short one in
 * proportion to them (largest remainder, lower tower first), so a tower may get 0. */
#pragma once

#include "kernels/base/status.h"

enum { TOWERS_MAX = 4096 };

typedef struct Shares {
    int towers;
    int32_t batch[TOWERS_MAX]; /* samples of tower t in a full batch; 0 is legal, not all may be 0 */
} Shares;

int64_t shares_global(const Shares *shares);                         /* G */
int64_t shares_steps_per_epoch(const Shares *shares, int64_t count); /* ceil(count / G) */
/* Samples [*first, *first + *n) of the epoch's order for tower t at step s of the epoch. */
void shares_of(const Shares *shares, int64_t count, int64_t step_in_epoch, int tower, int64_t *first, int32_t *n);
