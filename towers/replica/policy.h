/* Policies of a run: what it does about towers whose batches, numbers or weights differ. */
#ifndef TOWERS_REPLICA_POLICY_H
#define TOWERS_REPLICA_POLICY_H

/* Which towers' batch-norm averages evaluation and exported weights use; every tower keeps its own. Towers that never
 * have samples do not count.
 *
 * LAST is the original Inception trainer, FIRST tf_cnn_benchmarks, MEAN timm's --dist-bn reduce. POOLED is
 * the mean of the variances plus the variance of the means, weighted by the towers' shares: of one batch the statistics
 * of all its samples together. Of running averages it is that of the averages, where means have moved closer: variances
 * come out low by what towers differ in one step but not in the long run (2 % of a first layer at 8 towers of 4). SYNC
 * changes training too: every layer normalizes with the statistics of all towers' batches together, so N towers of a
 * batch are one tower of N. */
typedef enum BnStats { BN_STATS_LAST = 0, BN_STATS_FIRST, BN_STATS_MEAN, BN_STATS_POOLED, BN_STATS_SYNC } BnStats;

/* A step that fails the check for NaN and Inf: end the run, leave the step out, or return to the last checkpoint and leave
 * it out from there on. */
typedef enum NanPolicy { NAN_POLICY_STOP = 0, NAN_POLICY_SKIP, NAN_POLICY_ROLLBACK } NanPolicy;

/* Replicas that no longer hold the same weights (silent data corruption: a flipped bit in a memory, a transfer that lost
 * something). */
typedef enum SdcPolicy { SDC_POLICY_WARN = 0, SDC_POLICY_STOP, SDC_POLICY_ROLLBACK } SdcPolicy;

#endif
