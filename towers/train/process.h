/* A tower process from start to end. */
#pragma once

#include "towers/replica/tower_process.h"

/* Set up, train (or evaluate) and tear down a tower process. When this returns an error, it has been written to the
 * ledger and the communicator has been aborted. */
NODISCARD Status tower_process_train(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_timed(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
NODISCARD Status tower_process_eval(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);
