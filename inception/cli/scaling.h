/* bench --scaling: how much faster N towers are than one, and where each lost percent goes.
 *
 * Three runs take turns, several rounds of them, so that a machine that changes its pace changes it for all: one tower
 * alone on its device with its share of the batch; all towers on made-up data; and, if a data set is named, all towers
 * on that. A tower's step is data + computation + waiting for the last tower + sum + update, by the ledger's clocks;
 * what each part takes longer than alone is what is lost to it:
 *   contention   the same computation is slower beside the others (memory, caches, cores, clocks)
 *   skew         waiting for the tower that arrives last at the sum
 *   reduction    from the last arrival to the gate's decision
 *   data         waiting for batches
 *   rest         update, bookkeeping
 * Intervals are Student's t over the rounds, paired within a round. */
#ifndef TOWERS_INCEPTION_CLI_SCALING_H
#define TOWERS_INCEPTION_CLI_SCALING_H

#include "inception/cli/job.h"

NODISCARD Status scaling_run(Options *options, JobFiles *files, int *signal_number); /* as bench_open left them */

#endif
