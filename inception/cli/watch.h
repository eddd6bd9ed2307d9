/* The observer of a training run with a generator (Observation, towers/replica/job.h). At each observation it writes a
 * grid of images of the same noise, RUN/generated/step-N.png, and with --features the KID of generated images. */
#ifndef TOWERS_INCEPTION_CLI_WATCH_H
#define TOWERS_INCEPTION_CLI_WATCH_H

#include "inception/cli/job.h"

/* Does nothing for a model without a generator. Called after job_open, before the processes are forked. */
NODISCARD Status watch_start(const Options *options, JobFiles *files);
void watch_stop(Watch *watch); /* NULL is fine */

#endif
