/* The signals that ask a run to save and to stop: SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU. Schedulers let their users
 * choose one (Slurm: --signal; Grid Engine: s_rt, s_cpu; ulimit -S -t). SIGUSR1 is none where a launcher sends it to its
 * programs for purposes of its own. */
#pragma once

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"

#include <signal.h>

/* The set of them. */
void stop_signals(const TrainJob *job, sigset_t *set);
/* In a tower process: leave them to the supervisor, because a terminal or a scheduler sends them to all processes. The
 * kernel sends SIGXCPU to the one process that has used its time, which therefore asks by itself. */
void stop_signals_leave(const TrainJob *job, Ledger *ledger);
