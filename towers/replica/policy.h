/* Policies of a run: batch-norm statistics of several towers, values that are not finite, replicas that differ. */
#pragma once

#include <stdint.h>

/* The towers whose batch-norm averages are used by evaluation and export; every tower keeps its own. Towers that never
 * have samples are ignored.
 *
 * LAST is that of the original Inception trainer, FIRST of tf_cnn_benchmarks, MEAN of timm's --dist-bn reduce. POOLED is
 * the mean of the variances plus the variance of the means, weighted by the towers' local batches: for one batch the statistics
 * of all its samples together. For running averages the means are closer than in any single step, so variances are
 * underestimated by the differences between towers within a step (2 % in a first layer with 8 towers of 4). SYNC changes
 * training too: every layer normalizes with the statistics of all towers' batches together, so N towers of a batch equal
 * one tower of N batches. */
typedef enum BnStats { BN_STATS_LAST = 0, BN_STATS_FIRST, BN_STATS_MEAN, BN_STATS_POOLED, BN_STATS_SYNC } BnStats;

/* Action on a step with NaN or Inf: end the run, skip the step, or return to the last checkpoint and skip the step from
 * there on. */
typedef enum NanPolicy { NAN_POLICY_STOP = 0, NAN_POLICY_SKIP, NAN_POLICY_ROLLBACK } NanPolicy;

/* Action if replicas no longer hold the same weights (silent data corruption: a flipped bit, a faulty transfer). */
typedef enum SdcPolicy { SDC_POLICY_WARN = 0, SDC_POLICY_STOP, SDC_POLICY_ROLLBACK } SdcPolicy;

/* Of a result that is submitted to MLPerf: by the settings of its reference, or by settings of one's own. */
typedef enum MlperfDivision { MLPERF_OPEN = 0, MLPERF_CLOSED } MlperfDivision;

/* Test-time augmentation: evaluation and prediction use the mean of the probabilities of an image and, with FLIP, of its
 * mirror image. */
typedef enum Tta { TTA_NONE = 0, TTA_FLIP } Tta;

/* --img-size-schedule: the side of training images after so many epochs. */
enum { SIDE_STAGES = 16 };
typedef struct SideStage {
    int64_t epoch;
    int32_t side;
} SideStage;

/* The number of an evaluation that decides (stopping.h). AUTO in a TrainJob: no number decides anything. As an option
 * it means KID of models that generate images, else accuracy, which is mAP if samples have any number of classes. */
typedef enum Monitor { MONITOR_AUTO = 0, MONITOR_ACCURACY, MONITOR_LOSS, MONITOR_KID } Monitor;
/* Whether the threshold of ReduceLROnPlateau is a share of the best value, or a difference. */
typedef enum ThresholdMode { THRESHOLD_REL = 0, THRESHOLD_ABS } ThresholdMode;
