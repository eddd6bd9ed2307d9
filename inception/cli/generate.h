/* towers generate RUN: a grid of images from the generator of a run, as a PNG. */
#ifndef TOWERS_INCEPTION_CLI_GENERATE_H
#define TOWERS_INCEPTION_CLI_GENERATE_H

#include "inception/cli/job.h"

NODISCARD Status generate_run(Options *options, JobFiles *files, FILE *to);

#endif
