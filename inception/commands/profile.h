/* bench --profile: the time of each op in a step of one tower, or in its forward pass in evaluation. */
#pragma once

#include "inception/job/job.h"

/* Run one tower's program several times in this process, timing each op separately, and print two tables: by kind of
 * op, and the slowest layers. The machine's peak rates (a large matrix product, a large copy) are measured first. */
NODISCARD Status profile_run(const JobFiles *files, bool inference, FILE *to);
