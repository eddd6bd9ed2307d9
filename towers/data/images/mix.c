/* Draws of Philox(seed; batch, stream, block); see mix.h. A beta variate is that of two gamma variates (Marsaglia & Tsang,
 * "A Simple Method for Generating Gamma Variables", 2000), as logarithms, because a small alpha makes them tiny. */
#include "towers/data/images/mix.h"

#include "kernels/philox.h"

enum { STREAM_KIND = 0, STREAM_CENTER, STREAM_FIRST, STREAM_SECOND };

static const uint64_t MIX_KEY = 0x6d69780000000000u; /* separates these draws from other uses of the seed */
static const double TWO_PI = 6.283185307179586;

typedef struct Draw {
    uint64_t seed;
    int64_t batch;
} Draw;

static Philox words_of(const Draw *draw, uint32_t stream, uint32_t block)
{
    return philox(draw->seed ^ MIX_KEY, (uint32_t)draw->batch, (uint32_t)((uint64_t)draw->batch >> 32), stream, block);
}

/* In (0, 1). */
static double unit(uint32_t word)
{
    return (word + 0.5) * 0x1p-32;
}

/* The logarithm of a gamma variate of this shape. At least 95 % of the tries succeed. */
static double gamma_log(const Draw *draw, uint32_t stream, double shape)
{
    double raised = shape < 1 ? shape + 1 : shape, d = raised - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint32_t block = 0;; block++) {
        Philox words = words_of(draw, stream, block);
        double x = sqrt(-2 * log(unit(words.v[0]))) * cos(TWO_PI * unit(words.v[1])), root = 1 + c * x;
        double v = root * root * root;
        if (root <= 0 || log(unit(words.v[2])) >= x * x / 2 + d * (1 - v + log(v))) continue;
        return log(d * v) + (shape < 1 ? log(unit(words.v[3])) / shape : 0);
    }
}

/* 1 - lambda, which is distributed like lambda. */
static double share_draw(const Draw *draw, double alpha)
{
    return 1 / (1 + exp(gamma_log(draw, STREAM_FIRST, alpha) - gamma_log(draw, STREAM_SECOND, alpha)));
}

static int32_t clamped(int32_t at, int32_t side)
{
    return at < 0 ? 0 : at > side ? side : at;
}

Mix mix_plan(const MixRule *rule, uint64_t seed, int64_t batch, int32_t side)
{
    Mix mix = {0};
    Draw draw = {seed, batch};
    bool cut = rule->cutmix > 0 && (rule->mixup <= 0 || (words_of(&draw, STREAM_KIND, 0).v[0] & 1));
    if (!mix_is_on(rule)) return mix;
    double share = share_draw(&draw, cut ? rule->cutmix : rule->mixup);
    if (!cut) {
        mix.share = (int32_t)lrint(share * IMAGE_SHARE_ONE);
        mix.label = (double)mix.share / IMAGE_SHARE_ONE;
        return mix;
    }
    Philox center = words_of(&draw, STREAM_CENTER, 0);
    int32_t half = (int32_t)(0.5 * sqrt(share) * side);
    int32_t x = (int32_t)((uint64_t)center.v[0] * (uint64_t)side >> 32),
            y = (int32_t)((uint64_t)center.v[1] * (uint64_t)side >> 32);
    mix.cut.y = clamped(y - half, side);
    mix.cut.x = clamped(x - half, side);
    mix.cut.h = clamped(y + half, side) - mix.cut.y;
    mix.cut.w = clamped(x + half, side) - mix.cut.x;
    mix.label = (double)mix.cut.h * mix.cut.w / ((double)side * side);
    return mix;
}

void mix_record(const Mix *mix, int32_t partner, int32_t record[IMAGE_RECORD])
{
    record[IMAGE_PARTNER] = partner + 1;
    record[IMAGE_SHARE] = mix->share;
    record[IMAGE_CUT_Y] = mix->cut.y;
    record[IMAGE_CUT_X] = mix->cut.x;
    record[IMAGE_CUT_H] = mix->cut.h;
    record[IMAGE_CUT_W] = mix->cut.w;
}

/* ---- targets */

static double weight_of(const TargetRule *rule, int32_t label)
{
    return rule->weight ? (double)rule->weight[label] : 1;
}

void target_fill(const TargetRule *rule, int32_t label, int32_t partner, double share, float *targets)
{
    double even = (double)rule->smoothing / rule->classes, right = 1 - (double)rule->smoothing;
    memset(targets, 0, (size_t)rule->classes * sizeof *targets);
    if (label == LABEL_NONE) return;
    for (int k = 0; k < rule->classes; k++) {
        double part = (k == label ? 1 - share : 0) + (k == partner ? share : 0);
        targets[k] = (float)(weight_of(rule, k) * (right * part + even));
    }
}

void target_fill_multi_label(const TargetRule *rule, LabelSet own, LabelSet partner, double share, float *targets)
{
    double right = 1 - (double)rule->smoothing, even = (double)rule->smoothing / 2;
    int32_t at[2] = {0, 0};
    for (int32_t k = 0; k < rule->classes; k++) {
        bool has[2] = {at[0] < own.count && own.label[at[0]] == k, at[1] < partner.count && partner.label[at[1]] == k};
        targets[k] = (float)(right * (has[0] ? 1 - share : 0) + right * (has[1] ? share : 0) + even);
        for (int i = 0; i < 2; i++) at[i] += has[i];
    }
}

double target_weight(const TargetRule *rule, int32_t label, int32_t partner, double share)
{
    if (label == LABEL_NONE) return 0;
    return (1 - share) * weight_of(rule, label) + (share > 0 ? share * weight_of(rule, partner) : 0);
}
