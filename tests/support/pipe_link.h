/* A link between the leaders of groups that one test forks: pipes in place of MPI, so that sums over groups run without a
 * launcher, and under sanitizers. */
#pragma once

#include "nccl_sync/link.h"

/* Before the groups are forked. Aborts if there are no pipes. */
void pipe_link_create(int groups);
void pipe_link_destroy(void);
/* A LinkOpen, in the leaders. */
NODISCARD Status pipe_link_open(const CommConfig *config, Link **made);
