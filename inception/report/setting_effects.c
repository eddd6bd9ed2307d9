/* The effect of each option of a sweep on the scores; see setting_effects.h.
 *
 * A setting counts once, by the mean of its repetitions. With halving its score is that of the first rung, which all settings
 * have reached: later scores exist for the winners alone. Scores are replaced by their ranks (equal ones share the mean of
 * theirs), so a setting that diverged weighs no more than another bad one.
 *
 * The model is additive: the rank of a setting is a constant plus an effect of the value of each option, or, if most values
 * of a number are different, of their lower, middle and upper third. What an option explains is how much smaller the mean
 * square of the residuals becomes by its effects, beside those of all other options: 1 - (R / f) / (R0 / f0) with sums of
 * squares R, R0 and degrees of freedom f, f0 of the models with and without it (a partial adjusted R^2; with one option
 * alone Kelley's epsilon squared, 1935). Below 0 it is less than chance would bring. p: of all ways in which settings that are alike
 * in all other options can exchange their scores, the share that lets the option explain as much (a restricted permutation
 * test; Anderson & ter Braak, "Permutation tests for multi-factorial analysis of variance", 2003), exact if these ways are
 * few. The trend is Spearman's rank correlation of the values with the scores, given the other options (partial).
 *
 * Options whose values go along with those of others, or more effects than settings, leave no number: it would be a guess. */
#include "inception/report/setting_effects.h"

#include "kernels/base/text.h"
#include "kernels/philox.h"
#include "towers/files/json.h"

enum { SETTINGS_LEAST = 8, THIRDS = 3, EXACT_MOST = 20000, PERMUTATIONS = 999, PERMUTATION_STREAM = 0x65666663 };
static const double SMALL = 1e-9; /* of sums of squares, relative: rounding */

/* An option: the group of each setting, by its value or its third of the values. */
typedef struct Factor {
    const char *option;
    bool words;
    int groups;
    int *group;                 /* [count] */
    double *at, *rank, *effect; /* [count]: values and their ranks; the effect of each group */
} Factor;

typedef struct Design {
    int count, factors;
    const SweepSetting **setting; /* owned: [count], as are the next */
    double *score, *spare;        /* ranks of scores */
    int *next;
    Factor factor[EFFECTS_MOST];
    double *basis; /* orthonormal columns of [count] each */
    int rank, rank_most;
} Design;

/* ---- ranks and groups */

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

static void factor_fill(const SweepResult *result, const Design *d, Factor *f)
{
    int n = d->count;
    f->words = option_has_words(result, f->option);
    for (int i = 0; i < n; i++)
        f->at[i] = setting_place(result, (int)(d->setting[i] - result->settings), f->option, f->words);
    f->groups = values_number(f->at, n, f->group);
    midranks(f->at, n, f->rank);
    if (f->words || f->groups <= n / 2) return;
    for (int i = 0; i < n; i++) f->at[i] = (int)(THIRDS * (f->rank[i] - 0.5) / n);
    f->groups = values_number(f->at, n, f->group);
}

/* ---- the additive model: projections onto the columns of groups */

static double product(const double *x, const double *y, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) sum += x[i] * y[i];
    return sum;
}

/* Subtracts the projection of `x` onto columns [from, rank) of the basis. */
static void project_out(const Design *d, int from, double *x)
{
    for (int round = 0; round < 2; round++) /* twice is enough (Kahan) */
        for (int k = from; k < d->rank; k++) {
            const double *column = d->basis + (size_t)k * (size_t)d->count;
            double along = product(column, x, d->count);
            for (int i = 0; i < d->count; i++) x[i] -= along * column[i];
        }
}

/* A column joins the basis unless it depends on those that are there. */
static void column_add(Design *d, const double *x)
{
    if (d->rank == d->rank_most) return;
    double *column = d->basis + (size_t)d->rank * (size_t)d->count, whole = product(x, x, d->count);
    memcpy(column, x, (size_t)d->count * sizeof *column);
    project_out(d, 0, column);
    double left = product(column, column, d->count);
    if (left <= SMALL * whole) return;
    for (int i = 0; i < d->count; i++) column[i] /= sqrt(left);
    d->rank++;
}

static void factor_add(Design *d, const Factor *f)
{
    for (int g = 0; g < f->groups; g++) {
        for (int i = 0; i < d->count; i++) d->spare[i] = f->group[i] == g;
        column_add(d, d->spare);
    }
}

/* The basis of the constant and all options but one. */
static void others_add(Design *d, const Factor *but)
{
    d->rank = 0;
    for (int i = 0; i < d->count; i++) d->spare[i] = 1;
    column_add(d, d->spare);
    for (int k = 0; k < d->factors; k++)
        if (&d->factor[k] != but) factor_add(d, &d->factor[k]);
}

/* The squares of the ranks along the columns from `from` on. */
static double square_along(const Design *d, int from, const double *score)
{
    double sum = 0;
    for (int k = from; k < d->rank; k++) {
        double along = product(d->basis + (size_t)k * (size_t)d->count, score, d->count);
        sum += along * along;
    }
    return sum;
}

/* The squares of what the columns up to `rank` leave of `x`, which is overwritten by it. */
static double square_left(Design *d, int rank, double *x)
{
    int whole = d->rank;
    d->rank = rank;
    project_out(d, 0, x);
    d->rank = whole;
    return product(x, x, d->count);
}

/* The effects of all groups, by least squares: each is moved to the mean of what the others leave until nothing moves. */
static void effects_solve(Design *d)
{
    enum { ROUNDS = 1000 };
    for (int k = 0; k < d->factors; k++) memset(d->factor[k].effect, 0, (size_t)d->count * sizeof(double));
    for (int round = 0; round < ROUNDS; round++) {
        double moved = 0;
        for (int k = 0; k < d->factors; k++) {
            Factor *f = &d->factor[k];
            for (int g = 0; g < f->groups; g++) {
                double sum = 0;
                int size = 0;
                for (int i = 0; i < d->count; i++) {
                    if (f->group[i] != g) continue;
                    double rest = d->score[i] - (d->count + 1) / 2.0;
                    for (int o = 0; o < d->factors; o++)
                        if (o != k) rest -= d->factor[o].effect[d->factor[o].group[i]];
                    sum += rest;
                    size++;
                }
                moved = fmax(moved, fabs(sum / size - f->effect[g]));
                f->effect[g] = sum / size;
            }
        }
        if (moved < SMALL) return;
    }
}

/* ---- permutations */

typedef struct ScoreExchange {
    Design *d;
    int from;              /* the option's first column */
    double wanted, *score; /* [count], exchanged */
    int *member, *stratum; /* settings that are alike in all other options, beside each other */
    int members;
    int64_t all, as_much;
} ScoreExchange;

static bool alike(const Design *d, const Factor *but, int a, int b)
{
    for (int k = 0; k < d->factors; k++)
        if (&d->factor[k] != but && d->factor[k].group[a] != d->factor[k].group[b]) return false;
    return true;
}

static void exchange_check(ScoreExchange *e)
{
    e->all++;
    e->as_much += square_along(e->d, e->from, e->score) >= e->wanted * (1 - SMALL);
}

static void scores_swap(const ScoreExchange *e, int i, int k)
{
    double kept = e->score[e->member[i]];
    e->score[e->member[i]] = e->score[e->member[k]];
    e->score[e->member[k]] = kept;
}

/* Every way to exchange the scores of the members from `at` on. */
static void exchange_all(ScoreExchange *e, int at)
{
    if (at == e->members) {
        exchange_check(e);
        return;
    }
    for (int k = at; k < e->members && e->stratum[k] == e->stratum[at]; k++) {
        scores_swap(e, at, k);
        exchange_all(e, at + 1);
        scores_swap(e, at, k);
    }
}

static void exchange_some(ScoreExchange *e)
{
    exchange_check(e); /* as they are */
    for (uint32_t round = 0; round < PERMUTATIONS; round++) {
        int first = 0;
        for (int i = 0; i < e->members; i++) {
            if (e->stratum[i] != e->stratum[first]) first = i;
            Philox bits = philox(round, (uint32_t)i, PERMUTATION_STREAM, 0, 0);
            scores_swap(e, i, first + (int)((uint64_t)bits.v[0] * (uint64_t)(i - first + 1) >> 32));
        }
        exchange_check(e);
    }
}

/* ABSENT: no two settings are alike in all other options. */
static Number chance(Design *d, const Factor *f, int from, double square)
{
    int *member = d->next, *stratum = d->next + d->count;
    double ways = 1;
    ScoreExchange e = {.d = d, .from = from, .wanted = square, .score = d->spare, .member = member, .stratum = stratum};
    memcpy(e.score, d->score, (size_t)d->count * sizeof *e.score);
    for (int i = 0; i < d->count; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++) first = !alike(d, f, i, k);
        int size = 0;
        for (int k = i; first && k < d->count; k++) {
            if (!alike(d, f, i, k)) continue;
            member[e.members + size] = k, stratum[e.members + size] = i;
            ways *= ++size;
        }
        if (size > 1) e.members += size;
    }
    if (!e.members) return ABSENT;
    if (ways <= EXACT_MOST)
        exchange_all(&e, 0);
    else
        exchange_some(&e);
    return (double)e.as_much / (double)e.all;
}

/* ---- an option */

/* The values of the best group: one, or from the lowest to the highest. */
static void best_find(const Design *d, const Factor *f, char best[EFFECT_BYTES])
{
    int top = 0, low = -1, high = -1;
    for (int g = 1; g < f->groups; g++)
        if (f->effect[g] > f->effect[top]) top = g;
    for (int i = 0; i < d->count; i++) {
        if (f->group[i] != top) continue;
        if (low < 0 || f->rank[i] < f->rank[low]) low = i;
        if (high < 0 || f->rank[i] > f->rank[high]) high = i;
    }
    snprintf(best, EFFECT_BYTES, f->rank[low] < f->rank[high] ? "%.28s to %.28s" : "%.60s",
             setting_value(d->setting[low], f->option), setting_value(d->setting[high], f->option));
}

/* The correlation of what the other options leave of the ranks of values and of scores. */
static Number trend_find(Design *d, const Factor *f, int others)
{
    double *x = f->at, *y = d->spare; /* the values are not needed any more */
    memcpy(x, f->rank, (size_t)d->count * sizeof *x);
    memcpy(y, d->score, (size_t)d->count * sizeof *y);
    double whole = product(x, x, d->count), xx = square_left(d, others, x), yy = square_left(d, others, y);
    return f->words || xx <= SMALL * whole ? ABSENT : product(x, y, d->count) / sqrt(xx * yy);
}

static SettingEffect effect_find(Design *d, const Factor *f)
{
    SettingEffect effect = {.option = f->option, .explained = ABSENT, .p = ABSENT, .trend = ABSENT, .best = "-"};
    others_add(d, f);
    int others = d->rank;
    factor_add(d, f);
    int own = d->rank - others, left = d->count - d->rank;
    memcpy(d->spare, d->score, (size_t)d->count * sizeof *d->spare);
    double whole = product(d->score, d->score, d->count), without = square_left(d, others, d->spare);
    if (own < f->groups - 1 || left < 1 || without <= SMALL * whole) return effect;
    double square = fmin(square_along(d, others, d->score), without);
    effect.explained = 1 - (without - square) / left / (without / (left + own));
    if (without - square <= SMALL * without) effect.explained = 1;
    effect.p = chance(d, f, others, square);
    effect.trend = trend_find(d, f, others);
    best_find(d, f, effect.best);
    return effect;
}

/* Options without a number last. */
static int by_explained(const void *a, const void *b)
{
    const SettingEffect *x = a, *y = b;
    bool no_x = is_absent(x->explained), no_y = is_absent(y->explained);
    if (no_x || no_y) return no_x - no_y;
    return x->explained != y->explained ? (x->explained < y->explained ? 1 : -1) : (x->p > y->p) - (x->p < y->p);
}

/* Those with a score of the first one's kind, and the ranks of their scores: the best has the highest. */
static void scores_rank(const SweepResult *result, Design *d)
{
    ScoreKind kind = NOT_SCORED;
    for (int i = 0; i < result->count; i++) {
        SweepScore score = sweep_score(result->settings[i].rows, result->repeats, 0);
        if (kind == NOT_SCORED) kind = score.kind;
        if (!score.count || score.kind != kind) continue;
        d->spare[d->count] = run_scores_better(kind, 1, kind, 0) ? score.mean : -score.mean;
        d->setting[d->count++] = &result->settings[i];
    }
    midranks(d->spare, d->count, d->score);
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

/* Options of one value among the settings with a score are left out. */
static void factors_make(const SweepResult *result, Design *d, double *numbers, int *groups)
{
    size_t n = (size_t)result->count;
    const char *option;
    json_t *value;
    json_object_foreach(result->settings[0].values, option, value)
    {
        if (d->factors == EFFECTS_MOST) break;
        Factor *f = &d->factor[d->factors];
        size_t k = (size_t)d->factors;
        *f = (Factor){.option = option,
                      .group = groups + k * n,
                      .at = numbers + 3 * k * n,
                      .rank = numbers + (3 * k + 1) * n,
                      .effect = numbers + (3 * k + 2) * n};
        factor_fill(result, d, f);
        d->factors += f->groups > 1;
    }
}

static Status basis_make(Design *d)
{
    int columns = 1;
    for (int k = 0; k < d->factors; k++) columns += d->factor[k].groups;
    d->rank_most = columns < d->count ? columns : d->count;
    d->basis = calloc((size_t)d->rank_most * (size_t)d->count, sizeof *d->basis);
    return d->basis ? OK : FAIL(ERR_MEMORY, "no memory to compare %d settings", d->count);
}

Status setting_effects(const SweepResult *result, SettingEffects *effects)
{
    Status st = OK;
    size_t n = (size_t)result->count, options = json_object_size(result->settings[0].values);
    Design d = {.setting = calloc(n, sizeof *d.setting),
                .score = calloc((2 + 3 * options) * n, sizeof *d.score),
                .next = calloc((2 + options) * n, sizeof *d.next)};
    *effects = (SettingEffects){0};
    if (!d.setting || !d.score || !d.next) TRY_OUT(FAIL(ERR_MEMORY, "no memory to compare %d settings", result->count));
    d.spare = d.score + n;
    scores_rank(result, &d);
    effects->settings = d.count;
    effects->left_out = result->count - d.count;
    of_what(result, effects);
    bool differ = false;
    for (int i = 1; i < d.count; i++) differ |= d.score[i] != d.score[0];
    if (d.count < SETTINGS_LEAST || !differ) goto out;
    factors_make(result, &d, d.spare + n, d.next + 2 * n);
    TRY_OUT(basis_make(&d));
    effects_solve(&d);
    for (int k = 0; k < d.factors; k++) effects->row[effects->count++] = effect_find(&d, &d.factor[k]);
    qsort(effects->row, (size_t)effects->count, sizeof *effects->row, by_explained);
out:
    free(d.setting);
    free(d.score);
    free(d.next);
    free(d.basis);
    return st;
}

void setting_effects_print(const SettingEffects *effects, FILE *to)
{
    char explained[NUMBER_TEXT], p[NUMBER_TEXT], trend[NUMBER_TEXT];
    bool confounded = false;
    if (!effects->count) return;
    text_printf(to, "\nWhat mattered, %s\n\n  %-22s  explains      p  trend  best\n", effects->of, "option");
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        confounded |= is_absent(e->explained);
        text_printf(to, "  %-22.22s  %8s  %5s  %5s  %s\n", e->option,
                    number_text(100 * e->explained, "%.0f %%", explained), number_text(e->p, "%.3f", p),
                    number_text(e->trend, "%+.2f", trend), e->best);
    }
    fputs("  (explains: share of the spread of the scores, by ranks, that the other options leave, less what\n"
          "  chance brings; p: how often chance explains as much; trend: +1 if more is better, all else equal)\n",
          to);
    if (confounded) fputs("  (-: its effect cannot be told from that of the other options)\n", to);
}

json_t *setting_effects_json(const SettingEffects *effects)
{
    json_t *rows = json_array();
    for (int i = 0; i < effects->count; i++) {
        const SettingEffect *e = &effects->row[i];
        json_array_append_new(rows, json_pack("{s:s, s:o, s:o, s:o, s:o}", "option", e->option, "explained",
                                              json_finite(e->explained), "p", json_finite(e->p), "trend",
                                              json_finite(e->trend), "best",
                                              is_absent(e->explained) ? json_null() : json_text(e->best)));
    }
    return json_pack("{s:i, s:i, s:o, s:o}", "settings", effects->settings, "left_out", effects->left_out, "epoch",
                     effects->epoch ? json_integer(effects->epoch) : json_null(), "options", rows);
}
