/* The effect of each option of a sweep on the scores; see sweep_table.h.
 *
 * A setting counts once, by the mean of its repetitions. With halving its score is that of the first rung, which all settings
 * have reached: later scores exist for the winners alone. Scores are replaced by their ranks (equal ones share the mean of
 * theirs), so a setting that diverged weighs no more than another bad one.
 *
 * The settings form groups: those of a value, or if most values of a number are different, the lower, middle and upper third.
 * Explained is epsilon squared (Kelley, "An Unbiased Correlation Ratio Measure", 1935), the share of the variance that lies
 * between n settings' k groups without what chance puts there: 1 - (1 - H / (n - 1)) (n - 1) / (n - k), H: Kruskal and Wallis,
 * "Use of Ranks in One-Criterion Variance Analysis", 1952. Other than a correlation it sees a best value in the middle. p is
 * that of a permutation test. The trend is Spearman's rank correlation of the values with the scores. */
#include "inception/report/sweep_table.h"

#include "kernels/philox.h"
#include "kernels/text.h"
#include "towers/files/json.h"

enum { SETTINGS_LEAST = 8, THIRDS = 3, PERMUTATIONS = 999, PERMUTATION_STREAM = 0x65666663 };

typedef struct Ranked {
    int count;
    const SweepSetting **setting;    /* owned: [count], as are the next */
    double *score, *at, *rank, *sum; /* ranks of scores; values of an option, their ranks; of each group */
    int *group, *size;
} Ranked;

static void midranks(const double *value, int count, double *rank)
{
    for (int i = 0; i < count; i++) {
        int below = 0, equal = 0;
        for (int k = 0; k < count; k++) below += value[k] < value[i], equal += value[k] == value[i];
        rank[i] = below + (equal + 1) / 2.0;
    }
}

/* Numbers the different values from the lowest on; returns how many there are. */
static int values_number(const double *value, int count, int *number)
{
    double before = -INFINITY;
    for (int different = 0;; different++) {
        double next = INFINITY;
        for (int i = 0; i < count; i++)
            if (value[i] > before) next = fmin(next, value[i]);
        if (next == INFINITY) return different;
        for (int i = 0; i < count; i++)
            if (value[i] == next) number[i] = different;
        before = next;
    }
}

/* The share of the variance of the ranks that lies between the groups, whose sums and sizes it leaves. */
static double share_between(Ranked *r, const double *score)
{
    double middle = (r->count + 1) / 2.0, between = 0, all = 0;
    for (int i = 0; i < r->count; i++) r->sum[i] = 0, r->size[i] = 0;
    for (int i = 0; i < r->count; i++) {
        r->sum[r->group[i]] += score[i] - middle;
        r->size[r->group[i]]++;
        all += (score[i] - middle) * (score[i] - middle);
    }
    for (int g = 0; g < r->count; g++)
        if (r->size[g]) between += r->sum[g] * r->sum[g] / r->size[g];
    return between / all;
}

static double chance(Ranked *r, double share)
{
    int as_much = 1;
    double *shuffled = r->rank;
    memcpy(shuffled, r->score, (size_t)r->count * sizeof *shuffled);
    for (uint32_t round = 0; round < PERMUTATIONS; round++) {
        for (int i = r->count - 1; i > 0; i--) {
            int k =
                (int)((uint64_t)philox(round, (uint32_t)i, PERMUTATION_STREAM, 0, 0).v[0] * (uint64_t)(i + 1) >> 32);
            double kept = shuffled[i];
            shuffled[i] = shuffled[k];
            shuffled[k] = kept;
        }
        as_much += share_between(r, shuffled) >= share - 1e-12;
    }
    return as_much / (PERMUTATIONS + 1.0);
}

static double correlation(const Ranked *r)
{
    double middle = (r->count + 1) / 2.0, xy = 0, xx = 0, yy = 0;
    for (int i = 0; i < r->count; i++) {
        double x = r->rank[i] - middle, y = r->score[i] - middle;
        xy += x * y, xx += x * x, yy += y * y;
    }
    return xy / sqrt(xx * yy);
}

/* The values of the best group: one, or from the lowest to the highest. */
static void best_find(const Ranked *r, const char *option, char best[EFFECT_BYTES])
{
    int top = 0, low = -1, high = -1;
    for (int g = 0; g < r->count; g++)
        if (r->size[g] && (!r->size[top] || r->sum[g] / r->size[g] > r->sum[top] / r->size[top])) top = g;
    for (int i = 0; i < r->count; i++) {
        if (r->group[i] != top) continue;
        if (low < 0 || r->at[i] < r->at[low]) low = i;
        if (high < 0 || r->at[i] > r->at[high]) high = i;
    }
    snprintf(best, EFFECT_BYTES, r->at[low] < r->at[high] ? "%.28s to %.28s" : "%.60s",
             setting_value(r->setting[low], option), setting_value(r->setting[high], option));
}

/* False: its settings cannot be compared. */
static bool effect_find(Ranked *r, const SweepResult *result, const char *option, SettingEffect *effect)
{
    bool words = option_has_words(result, option);
    int n = r->count;
    for (int i = 0; i < n; i++)
        r->at[i] = setting_place(result, (int)(r->setting[i] - result->settings), option, words);
    int groups = values_number(r->at, n, r->group);
    midranks(r->at, n, r->rank);
    *effect = (SettingEffect){.option = option, .trend = words ? NAN : correlation(r)};
    if (groups > n / 2 && !words) {
        for (int i = 0; i < n; i++) r->group[i] = (int)(THIRDS * (r->rank[i] - 0.5) / n);
        groups = THIRDS;
    }
    if (groups < 2 || groups > n / 2) return false;
    double share = share_between(r, r->score);
    best_find(r, option, effect->best);
    effect->explained = fmax(0, 1 - (1 - share) * (n - 1) / (n - groups));
    effect->p = chance(r, share);
    return true;
}

static int by_explained(const void *a, const void *b)
{
    const SettingEffect *x = a, *y = b;
    return x->explained != y->explained ? (x->explained < y->explained ? 1 : -1) : (x->p > y->p) - (x->p < y->p);
}

/* Those with a score of the first one's kind, and the ranks of their scores: the best has the highest. */
static void scores_rank(const SweepResult *result, Ranked *r)
{
    ScoreKind kind = NOT_SCORED;
    for (int i = 0; i < result->count; i++) {
        SweepScore score = sweep_score(result->settings[i].rows, result->repeats, 0);
        if (kind == NOT_SCORED) kind = score.kind;
        if (!score.count || score.kind != kind) continue;
        r->at[r->count] = kind <= SCORED_BY_MAP ? score.mean : -score.mean;
        r->setting[r->count++] = &result->settings[i];
    }
    midranks(r->at, r->count, r->score);
}

static void of_what(const SweepResult *result, SettingEffects *effects)
{
    Text of = text_start(effects->of, sizeof effects->of);
    text_add(&of, "over %d settings", effects->settings);
    if (result->rungs > 1)
        text_add(&of, ", by their scores up to epoch %" PRId64 ", before halving stopped any",
                 effects->epoch = result->rung[0]);
    if (effects->left_out)
        text_add(&of, "; %d without a score %s left out", effects->left_out, effects->left_out == 1 ? "is" : "are");
}

Status setting_effects(const SweepResult *result, SettingEffects *effects)
{
    Status st = OK;
    size_t n = (size_t)result->count;
    const char *option;
    json_t *value;
    Ranked r = {.setting = calloc(n, sizeof *r.setting),
                .score = calloc(4 * n, sizeof *r.score),
                .group = calloc(2 * n, sizeof *r.group)};
    *effects = (SettingEffects){0};
    if (!r.setting || !r.score || !r.group)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory to compare %d settings", result->count));
    r.at = r.score + n, r.rank = r.at + n, r.sum = r.rank + n;
    r.size = r.group + n;
    scores_rank(result, &r);
    effects->settings = r.count;
    effects->left_out = result->count - r.count;
    of_what(result, effects);
    bool differ = false;
    for (int i = 1; i < r.count; i++) differ |= r.score[i] != r.score[0];
    if (r.count < SETTINGS_LEAST || !differ) goto out;
    json_object_foreach(result->settings[0].values, option, value)
    {
        if (effects->count < EFFECTS_MOST)
            effects->count += effect_find(&r, result, option, &effects->row[effects->count]);
    }
    qsort(effects->row, (size_t)effects->count, sizeof *effects->row, by_explained);
out:
    free(r.setting);
    free(r.score);
    free(r.group);
    return st;
}

void setting_effects_print(const SettingEffects *effects, FILE *to)
{
    if (!effects->count) return;
    text_printf(to, "\nWhat mattered, %s\n\n  %-22s  explains      p  trend  best\n", effects->of, "option");
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        char trend[16] = "-";
        if (isfinite(e->trend)) snprintf(trend, sizeof trend, "%+.2f", e->trend);
        text_printf(to, "  %-22.22s  %6.0f %%  %5.3f  %5s  %s\n", e->option, 100 * e->explained, e->p, trend, e->best);
    }
    fputs("  (share of the spread of the scores, by ranks; p: that chance explains as much; trend: +1 if more is "
          "better)\n",
          to);
}

json_t *setting_effects_json(const SettingEffects *effects)
{
    json_t *rows = json_array();
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        json_array_append_new(rows,
                              json_pack("{s:s, s:f, s:f, s:o, s:o}", "option", e->option, "explained", e->explained,
                                        "p", e->p, "trend", json_finite(e->trend), "best", json_text(e->best)));
    }
    return json_pack("{s:i, s:i, s:o, s:o}", "settings", effects->settings, "left_out", effects->left_out, "epoch",
                     effects->epoch ? json_integer(effects->epoch) : json_null(), "options", rows);
}
