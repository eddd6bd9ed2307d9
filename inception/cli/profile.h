/* bench --profile: where the time of one tower's step goes, op by op. */
#ifndef TOWERS_INCEPTION_CLI_PROFILE_H
#define TOWERS_INCEPTION_CLI_PROFILE_H

#include "inception/cli/job.h"

/* Runs one tower's program `rounds` times in this process, timing every op apart, and prints two tables: by kind, and
 * the layers that take longest; with the machine's own peaks (a large matrix product, a large copy) measured first. */
NODISCARD Status profile_run(const JobFiles *files, int rounds, FILE *to);

#endif
