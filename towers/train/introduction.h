/* The header of a run: model, data, devices, length and directory. Printed on the console and at the top of log.txt, so
 * that training on the wrong data is noticed. */
#pragma once

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"

/* One line per property, each ended by a newline. `device` describes the opened device; `sums` the way gradients are
 * summed, or "". Errors: ERR_MEMORY. */
NODISCARD Status introduction_print(const TrainJob *job, const char *device, const char *sums, FILE *to);

/* "guessing       22.8 % are right if all images are taken for daisy, the largest class": what an accuracy is to be compared with.
 * Nothing for a model or a set without classes, and for images of several. */
void guess_print(const TrainJob *job, FILE *to);

/* The commands to run next: evaluate or generate, export, compare, continue. `finished`: all steps are done, or it has
 * ended early, by `rule`. */
void next_steps_print(const TrainJob *job, bool finished, EndingRule rule, FILE *to);
