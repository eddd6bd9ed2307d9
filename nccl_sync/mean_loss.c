/* Loss accounting over towers; see mean_loss.h. */
#include "nccl_sync/mean_loss.h"

Number tower_loss_mean(const TowerLoss *tower)
{
    return tower->count > 0 ? tower->sum / tower_loss_weight(tower) : ABSENT;
}

Number tower_term_mean(const TowerLoss *tower, int term)
{
    return tower->count > 0 ? tower->term[term] / tower_loss_weight(tower) : ABSENT;
}

/* The number of the term, or LOSS. */
enum { LOSS = -1 };

static Number mean_over(const TowerLoss *towers, int count, int term, LossDivisor divisor, int64_t global_batch)
{
    double sum = 0;
    double weight = 0;
    for (int t = 0; t < count; t++) {
        if (towers[t].count <= 0) continue;
        sum += term == LOSS ? towers[t].sum : towers[t].term[term];
        weight += tower_loss_weight(&towers[t]);
    }
    if (weight <= 0) return ABSENT;
    return sum / (divisor == LOSS_DIVISOR_GLOBAL_BATCH ? (double)global_batch : weight);
}

Number mean_loss(const TowerLoss *towers, int count, LossDivisor divisor, int64_t global_batch)
{
    return mean_over(towers, count, LOSS, divisor, global_batch);
}

Number mean_term(const TowerLoss *towers, int count, int term, LossDivisor divisor, int64_t global_batch)
{
    return mean_over(towers, count, term, divisor, global_batch);
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
