/* Data at an address (towers/data/remote/remote_set.h): brought into the cache of this machine before they are opened. Whoever opens data
 * asks here for their path; options and records keep the address. */
#pragma once

#include "inception/job/job.h"

/* The path of --data-path on this machine, NULL if it is not given; borrowed from options or files. An address is brought into the cache,
 * once for a job, with progress on stderr unless --quiet. A run that goes on demands the objects that it began with: ERR_ARG names one
 * that has changed. Errors: those of remote_set_bring. */
NODISCARD Status job_data_here(const Options *options, JobFiles *files, const char **path);

/* --cache-dir becomes absolute, so that a run finds it from any folder. --s3-endpoint, which is recorded, may hold no secret. */
NODISCARD Status remote_settle(Options *options);

/* With a --cache-limit below the size of the set: --shuffle-window, which is chosen if it is not given. ERR_ARG for what needs more shards at
 * once than the limit allows. */
NODISCARD Status remote_window_settle(Options *options, JobFiles *files);

/* Brings what the arguments from `first` on name by an address, and puts its path in their place. */
NODISCARD Status arguments_bring(Options *options, int first);

/* Makes the index of a set at an address, in the cache, and prints what it has. */
NODISCARD Status address_index(const Options *options, const char *address, FILE *to);
