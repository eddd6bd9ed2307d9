/* The header of a run: what is trained on which data, on which devices, for how long and into which directory. Printed
 * on the console and at the top of log.txt, so that nobody trains on the wrong data without seeing it. */
#ifndef TOWERS_TRAIN_INTRODUCTION_H
#define TOWERS_TRAIN_INTRODUCTION_H

#include <stdio.h>

#include "towers/train/train.h"

/* One line per property, each ended by a newline. `device` describes the opened device; `sums` says how gradients are
 * summed, or is "". Errors: ERR_MEMORY. */
NODISCARD Status introduction_print(const TrainJob *job, const char *device, const char *sums, FILE *to);

/* The commands that follow a run: evaluate, export, compare, continue. `finished`: all steps are done. */
void next_steps_print(const TrainJob *job, bool finished, FILE *to);

#endif
