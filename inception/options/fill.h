/* Filling a job: the options that are settings of a lower floor as they are, by the column `fill` of options.def. */
#pragma once

#include "inception/options/options.h"
#include "towers/replica/job.h"

/* Texts remain those of `options`. */
void options_fill(const Options *options, TrainJob *job);
