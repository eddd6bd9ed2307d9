/* The call stack of a tower process, written on request, to show where a hanging tower is.
 *
 * The supervisor sends STACK_SIGNAL to a process that has been silent for too long, before it is killed. The process
 * then writes its call stack, innermost first, to RUN/stack-tower-N.txt; neither a debugger nor permission to trace is
 * needed. N is its first tower. A process blocked in a system call forever writes nothing. */
#pragma once

#include <signal.h>

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"

/* Ignored by who does not expect it, and sent by nobody else: Slurm sends SIGUSR1 to all processes of a job that it is about
 * to end. */
enum { STACK_SIGNAL = SIGURG };

/* The file for the call stack of process `rank`: path[PATH_BYTES]. ERR_ARG if it is too long or there is no run
 * directory. */
NODISCARD Status stack_path(const TrainJob *job, int rank, char *path);
/* Call once in the process, from its main thread. Without a run directory the signal is ignored. */
void stack_watch(const TrainJob *job, int rank, Ledger *ledger);
