/* bench --scaling: how much faster N towers are than one, and what causes each lost percent.
 *
 * Three runs alternate over several rounds, so that changes of the machine's speed affect all of them: one tower alone
 * on its device with its share of the batch; all towers on synthetic data; and, if a data set is given, all towers on
 * it. By the ledger's clocks a tower's step is data + computation + waiting for the last tower + all-reduce + update.
 * The time lost to a part is that by which it takes longer than with one tower alone:
 *   contention   the same computation is slower beside other towers (memory, caches, cores, clocks)
 *   skew         waiting for the tower that arrives last at the all-reduce
 *   reduction    from the last arrival to the gate's decision
 *   data         waiting for batches
 *   rest         update, bookkeeping
 * Intervals are Student's t over the rounds, paired within a round. */
#ifndef TOWERS_INCEPTION_CLI_SCALING_H
#define TOWERS_INCEPTION_CLI_SCALING_H

#include "inception/cli/job.h"

NODISCARD Status scaling_run(Options *options, JobFiles *files, int *signal_number); /* after bench_open */

#endif
