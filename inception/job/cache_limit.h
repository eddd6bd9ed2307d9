/* --cache-limit: how much of a set may be in the cache at once. What is larger than that is read window by window. */
#pragma once

#include "inception/job/job.h"
#include "towers/remote/cached_objects.h"

/* "200G" in bytes; 0 if it is not given, -1 if it is no size. */
int64_t cache_limit_of(const Options *options);
/* ERR_ARG if it is no size. */
NODISCARD Status cache_limit_check(const Options *options);

/* Choose --shuffle-window if it is not given and these objects are more than the limit. ERR_ARG for what needs more shards at once than fit. */
NODISCARD Status cache_window_choose(Options *options, JobFiles *files, const CachedObjects *objects);
