/* Loss accounting over towers; see mean_loss.h. */
#include "nccl_sync/mean_loss.h"

Number tower_loss_mean(const TowerLoss *tower)
{
    return tower->count > 0 ? tower->sum / tower_loss_weight(tower) : ABSENT;
}

Number mean_loss(const TowerLoss *towers, int count, LossDivisor divisor, int64_t global_batch)
{
    double sum = 0;
    double weight = 0;
    for (int t = 0; t < count; t++) {
        if (towers[t].count <= 0) continue;
        sum += towers[t].sum;
        weight += tower_loss_weight(&towers[t]);
    }
    if (weight <= 0) return ABSENT;
    return sum / (divisor == LOSS_DIVISOR_GLOBAL_BATCH ? (double)global_batch : weight);
}

/* A loss that is not finite is worse than any number. */
static bool is_worse(double a, double b)
{
    return isfinite(b) && (!isfinite(a) || a > b);
}

int reported_tower(const TowerLoss *towers, int count, LossReport report)
{
    int first = -1, last = -1, worst = -1;
    for (int t = 0; t < count; t++) {
        if (towers[t].count <= 0) continue;
        if (first < 0) first = t;
        if (worst < 0 || is_worse(tower_loss_mean(&towers[t]), tower_loss_mean(&towers[worst]))) worst = t;
        last = t;
    }
    switch (report) {
    case LOSS_REPORT_LAST: return last;
    case LOSS_REPORT_FIRST: return first;
    case LOSS_REPORT_WORST: return worst;
    case LOSS_REPORT_MEAN:
    case LOSS_REPORT_ALL: break;
    }
    return -1;
}

Number reported_loss(const TowerLoss *towers, int count, LossReport report, LossDivisor divisor, int64_t global_batch)
{
    int tower = reported_tower(towers, count, report);
    return tower < 0 ? mean_loss(towers, count, divisor, global_batch) : tower_loss_mean(&towers[tower]);
}

double loss_scale(int64_t samples, LossDivisor divisor, int64_t global_batch)
{
    if (samples <= 0) return 0;
    return 1.0 / (double)(divisor == LOSS_DIVISOR_GLOBAL_BATCH ? global_batch : samples);
}

int nan_culprit(const TowerLoss *towers, int count, NanCheck check)
{
    int culprit = -1;
    for (int t = 0; t < count; t++) {
        bool loss = isfinite(towers[t].sum);
        if (towers[t].count <= 0) continue;
        if (check == NAN_CHECK_LAST)
            culprit = isnan(towers[t].sum) ? t : -1; /* of the last tower; Inf passes, as in the original */
        else if (culprit < 0 &&
                 ((check == NAN_CHECK_MEAN && !loss) || (check == NAN_CHECK_ALL && !(loss && towers[t].finite))))
            culprit = t;
    }
    return culprit;
}
