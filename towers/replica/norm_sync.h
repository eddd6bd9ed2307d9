/* Batch normalization over the batches of all towers (BN_STATS_SYNC); otherwise all functions do nothing. */
#pragma once

#include "towers/replica/tower_process.h"

bool norm_sync_sums(OpKind kind); /* true if launches of such an op call Device.allreduce */
NODISCARD Status norm_sync_open(TowerProcess *p);
void norm_sync_close(TowerProcess *p);
/* A tower without samples joins the sums of a whole step of this phase. */
NODISCARD Status norm_sync_idle(TowerProcess *p, int phase);
size_t norm_sync_floats(const TrainJob *job, const Layout *layout); /* at the end of the communicator's buffer */
/* Floats that one collective of this job may sum: gradients and extras, statistics, or the counts of an evaluation. */
size_t job_comm_room(const TrainJob *job, const Layout *layout);
