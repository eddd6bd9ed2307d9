/* A run that --upload has copied to an object store. */
#pragma once

#include "inception/job/job.h"

/* --resume s3://BUCKET/runs/NAME: the run comes into `root`, the folder of runs, as NAME or as --experiment, and --resume is that directory from
 * then on. Errors: those of run_bring; ERR_ARG of a call that downloads nothing. */
NODISCARD Status remote_run_bring(Options *options, const char *root, JobFiles *files);
/* With the settings of the run: if it was copied, it is copied to where it was brought from, which may be a copy of its first place. */
NODISCARD Status remote_run_settle(Options *options, const char *address);
