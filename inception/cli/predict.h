/* towers predict RUN IMAGE...: classify images with a trained network, using the run's own evaluation transform. */
#ifndef TOWERS_INCEPTION_CLI_PREDICT_H
#define TOWERS_INCEPTION_CLI_PREDICT_H

#include "inception/cli/job.h"

/* Prints a table, JSON lines (--json) or CSV (--csv). ERR_FORMAT if any image is damaged, after all predictions. */
NODISCARD Status predict_run(Options *options, JobFiles *files, FILE *to);

#endif
