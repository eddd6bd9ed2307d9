/* Resolving a job's options: everything that the user left open, or that the model, a recipe, a file of weights, the data or the machine
 * say instead, is settled here, before what it determines is filled in; then options are const. */
#pragma once

#include "inception/job/job.h"

/* What model, recipe, weights, the kind of data and the device say. Fills in job.program.model, job.program.compute, job.backend and
 * job.sides. Errors: options that exclude each other, have no effect or do not fit the model; ERR_UNSUPPORTED, ERR_DEVICE: the device
 * cannot compute in the type of --amp. */
NODISCARD Status job_resolve(Options *options, JobFiles *files);
/* --batch-size max, and a batch that is larger than the data though nobody has asked for it; the job's local batches follow. Needs a job that is
 * filled in, because its memory decides. */
NODISCARD Status batch_resolve(Options *options, JobFiles *files);
