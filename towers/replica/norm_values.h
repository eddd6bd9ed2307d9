/* How many values of a channel a batch norm's statistics are taken over: the pixels of its map times the samples of the tower,
 * or of all towers with BN_STATS_SYNC. A single value has no variance, so a step in which there is one leaves the running
 * statistics as they are (replica_unbias). A tower in which that is so in each step has none to export. */
#pragma once

#include "towers/graph/layout.h"
#include "towers/replica/job.h"

/* The running variance of a batch norm which training moves. */
bool norm_is_variance(const LayoutEntry *entry);
/* The batch norms that never see two values in a tower whose statistics are needed: ERR_ARG names one, and what to do. `layout`
 * was made for batches of `layout_samples`. `text`: what is said of those that see one value in the last batch of an epoch; ""
 * if there are none. */
NODISCARD Status norm_values_check(const TrainJob *job, const Layout *layout, int32_t layout_samples, char *text,
                                   size_t bytes);
