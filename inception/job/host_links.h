/* Host links: whether the programs of a run can connect to each other, at any port, as MPI wants to. */
#pragma once

#include "kernels/status.h"
#include "nccl_sync/hosts/star.h"
#include "towers/replica/launch.h"

/* Before the fork; collective. Each program listens on a free port and connects to each other one, in a run of more
 * than 256 programs to those of the 128 ranks before and behind it. `text`, on every rank: "" or the first two that
 * cannot connect, the port, the cause and the number of the other pairs. Takes NET_ATTEMPT_MS only if some cannot. */
NODISCARD Status host_links_check(Star *control, const Launch *launch, char *text, size_t bytes);
