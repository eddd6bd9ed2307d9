/* The calls that a tower process is in, written down when it is asked: what a tower that hangs was doing.
 *
 * The supervisor sends STACK_SIGNAL to a process that has been silent for too long, before it is killed. The process
 * itself then writes its calls, innermost first, to RUN/stack-tower-N.txt: no debugger is needed, and no permission to
 * trace. N is its first tower. A process that a system call keeps for ever writes nothing. */
#ifndef TOWERS_GUARD_STACK_H
#define TOWERS_GUARD_STACK_H

#include <signal.h>

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"

enum { STACK_SIGNAL = SIGUSR1 };

/* Where process `rank` writes its calls: path[PATH_BYTES]. ERR_ARG: a path that is too long, or no run directory. */
NODISCARD Status stack_path(const TrainJob *job, int rank, char *path);
/* Call in the process, once, from its main thread. Without a run directory the signal is ignored. */
void stack_watch(const TrainJob *job, int rank, Ledger *ledger);

#endif
