/* Loss accounting: {sum, count, finite, weight} per tower, never a mean of means.
 *
 * The gradient is that of the mean over all samples of the global batch, whatever each tower's local batch. mean_loss = sum
 * of sums / sum of counts, and an empty tower contributes 0 samples; it has no loss (absent.h). If samples have weights
 * (--class-weights), their sum replaces the count. tests/unit/test_mean_loss.c has worked examples. */
#pragma once

#include "kernels/base/absent.h"
#include "kernels/gate.h"

/* One tower in one step: what GateSums has summed on its device, as every rank learns it. */
typedef struct TowerLoss {
    double sum;              /* of the per-sample losses of this tower's batch */
    int64_t count;           /* samples; 0 is legal */
    bool finite;             /* sum and all gradients of this tower */
    double weight;           /* sum of the samples' weights; 0: 1 each */
    bool grad_finite;        /* its gradients alone */
    double grad_norm;        /* of its own gradient, before the sum over towers */
    int64_t correct[2];      /* top-1, top-5 */
    double term[GATE_TERMS]; /* sums over the samples: the terms of the phase of the step; 0 beyond the last */
} TowerLoss;

/* The loss that is printed. LAST is the original Inception trainer, FIRST Keras' custom train_step, MEAN
 * the fix. */
typedef enum LossReport {
    LOSS_REPORT_LAST = 0,
    LOSS_REPORT_FIRST,
    LOSS_REPORT_MEAN,
    LOSS_REPORT_WORST,
    LOSS_REPORT_ALL
} LossReport;

/* The divisor of a sum of losses: the samples of the step, or the constant global batch (the tf.distribute tutorial). */
typedef enum LossDivisor { LOSS_DIVISOR_SAMPLES = 0, LOSS_DIVISOR_GLOBAL_BATCH } LossDivisor;

/* The divisor of a tower's sum. */
static inline double tower_loss_weight(const TowerLoss *tower)
{
    return tower->weight > 0 ? tower->weight : (double)tower->count;
}
Number tower_loss_mean(const TowerLoss *tower);           /* sum / weight; ABSENT for an empty tower */
Number tower_term_mean(const TowerLoss *tower, int term); /* the same of a term */

/* The mean over towers[0 .. count). `global_batch` is read by LOSS_DIVISOR_GLOBAL_BATCH only. ABSENT if there are
 * no samples. */
Number mean_loss(const TowerLoss *towers, int count, LossDivisor divisor, int64_t global_batch);
Number mean_term(const TowerLoss *towers, int count, int term, LossDivisor divisor, int64_t global_batch);
/* The tower whose loss `report` prints; -1: the mean (MEAN, ALL, or no tower has samples). LAST, FIRST and WORST skip
 * towers without samples; a non-finite loss is the worst. */
int reported_tower(const TowerLoss *towers, int count, LossReport report);
/* The value that `report` prints. */
Number reported_loss(const TowerLoss *towers, int count, LossReport report, LossDivisor divisor, int64_t global_batch);
/* Factor of each sample's gradient: 1 / (samples of the global batch) or 1 / global_batch. 0 if there are no
 * samples. */
double loss_scale(int64_t samples, LossDivisor divisor, int64_t global_batch);
