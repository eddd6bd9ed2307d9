/* info and --dry-run: describe a model, or the run that would start. */
#ifndef TOWERS_INCEPTION_CLI_INFO_H
#define TOWERS_INCEPTION_CLI_INFO_H

#include "inception/cli/job.h"

/* The list of models and their variants. */
NODISCARD Status info_models(FILE *to);
/* Layers with output shape, parameters and multiply-adds; totals; the memory plan by class in bytes, for a batch of
 * `n`; if asked for, the op list and the kernel of each op. */
NODISCARD Status info_model(const JobFiles *files, int32_t n, bool ops, bool kernels, FILE *to);
/* Towers, data, steps, and the memory plan of one tower. */
NODISCARD Status info_run(const JobFiles *files, FILE *to);

#endif
