/* towers predict RUN IMAGE...: the classes of images by a trained network, with the run's own evaluation transform. */
#ifndef TOWERS_INCEPTION_CLI_PREDICT_H
#define TOWERS_INCEPTION_CLI_PREDICT_H

#include "inception/cli/job.h"

/* Prints a table, or JSON lines (--json), or CSV (--csv). ERR_FORMAT if images were damaged, after all others. */
NODISCARD Status predict_run(Options *options, JobFiles *files, FILE *to);

#endif
