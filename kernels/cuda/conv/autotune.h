/* Timing of candidates for one task on the device, each with cold caches, as it will find them in a training step. */
#ifndef TOWERS_KERNELS_CUDA_CONV_AUTOTUNE_H
#define TOWERS_KERNELS_CUDA_CONV_AUTOTUNE_H

#include "kernels/backend.h"

/* Enqueue candidate `number` once on LANE_COMPUTE. */
typedef Status CandidateRun(Device *device, void *context, int number);

/* The fastest of `count` candidates: the least time of a few runs. A candidate that fails to launch loses; ERR_DEVICE
 * if all do, ERR_MEMORY where there is none for timing. `*best` is a candidate (the first) also in an error. */
NODISCARD Status autotune(Device *device, CandidateRun *run, void *context, int count, int *best, double *microseconds);

#endif
