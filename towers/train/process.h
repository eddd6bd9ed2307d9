/* The lives of a tower process, and their set-up. */
#ifndef TOWERS_TRAIN_PROCESS_H
#define TOWERS_TRAIN_PROCESS_H

#include "towers/replica/tower_process.h"

/* The life of a tower process: set up, train (or evaluate), tear down. A failure has been written to the ledger and has
 * aborted the communicator when this returns. */
NODISCARD Status tower_process_train(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_timed(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_eval(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);

#endif
