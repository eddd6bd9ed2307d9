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
 * no run directory, or no thread. The ledger is borrowed. */
Heartbeat *heartbeat_start(const TrainJob *job, const Ledger *ledger);
/* Why the run cannot go on, if its directory was renamed, removed or replaced, as the heartbeat has seen within a second; else
 * NULL. */
const char *heartbeat_moved(const Heartbeat *heartbeat);
/* The same for the held directory (kernels/base/place.h), now; false: it is where it was. */
enum { MOVED_BYTES = 3 * 4096 };
bool run_dir_moved(const char *run_dir, char why[MOVED_BYTES]);
/* End it and remove the file; NULL is fine. A thread that storage blocks is left alone after a second, and then the ledger
 * must not be freed: false. */
bool heartbeat_end(Heartbeat *heartbeat);

/* Does the outcome say that the run has ended as it should, after this step? All its files were written before. */
bool outcome_completes(const char *run_dir, int64_t step);
/* Does it say that a run of `steps` steps has nothing left to do: all are done, or a rule has ended it before? */
bool outcome_ends(const char *run_dir, int64_t steps);
/* Remove the outcome of an earlier process: the run goes on. A run that is refused, or is complete, keeps it. */
void outcome_forget(const char *run_dir);
/* Write the end of a training run. `rank`: of this supervisor, with `host` (NULL: there is one program). Storage that
 * fails is passed over: the message is printed in any case. False if storage has not answered for a minute
 * (--comm-timeout, if it is longer); after two seconds the console says what is not recorded yet. */
bool outcome_write(const TrainJob *job, int rank, const char *host, Status status, const char *message,
                   const TrainResult *result);
/* The training has ended with the status `trained`, and outcome_write has said so, but what followed ends with another one, with whose
 * code the process exits (its result could not be printed), or there is more to say (offers.h): write outcome.json again. Of a
 * failure, the thread's message says why. */
void outcome_again(const TrainJob *job, const TrainResult *result, Status trained, Status status, int exit_code);
