/* How a run goes and how it ended, for those who look at its directory from outside: RUN/heartbeat.json while it runs,
 * then RUN/outcome.json and a last line of log.txt. If there is neither a fresh heartbeat nor an outcome, the machine
 * or the supervisor was killed, or the run failed before its first step. Rank 0's supervisor writes the files; each
 * supervisor adds its line, if it sees the directory. */
#pragma once

#include "towers/train/result.h"

/* The time in UTC, for records: "2026-01-31T12:00:00Z". */
void now_text(char text[32]);

typedef struct Heartbeat Heartbeat;
/* Begin to write RUN/heartbeat.json every few seconds in a thread of its own, which storage may block. NULL if there is
 * no run directory, or no thread. Both are borrowed. */
Heartbeat *heartbeat_start(const TrainJob *job, const Ledger *ledger);
/* End it and remove the file; NULL is fine. A blocked thread is left alone, and then the ledger must not be freed:
 * false. */
bool heartbeat_end(Heartbeat *heartbeat);

/* Remove the outcome of an earlier process: the run goes on. A run that is refused keeps it. */
void outcome_forget(const char *run_dir);
/* Write the end of a training run. `rank`: of this supervisor, with `host` (NULL: there is one program). Storage that
 * fails is passed over: the message is printed in any case. */
void outcome_write(const TrainJob *job, int rank, const char *host, Status status, const char *message,
                   const TrainResult *result);
