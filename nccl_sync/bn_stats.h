/* Which towers' batch-norm averages evaluation and exported weights use; every tower keeps its own.
 *
 * LAST is the original Inception trainer, FIRST tf_cnn_benchmarks, MEAN timm's --dist-bn reduce. POOLED is exact for
 * towers of equal batches: the mean of the variances plus the variance of the means. */
#ifndef TOWERS_NCCL_SYNC_BN_STATS_H
#define TOWERS_NCCL_SYNC_BN_STATS_H

typedef enum BnStats { BN_STATS_LAST = 0, BN_STATS_FIRST, BN_STATS_MEAN, BN_STATS_POOLED } BnStats;

#endif
