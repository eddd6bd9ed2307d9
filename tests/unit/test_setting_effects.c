/* What mattered in a sweep: an effect that another option hides, an optimum in the middle, words, scores up to the first rung,
 * settings without one, and silence where settings are too few or options go along with each other; and what is said of a sweep. The numbers are those of
 * statsmodels' OLS on scipy's ranks, and of all permutations. */
#include "inception/report/sweep_table.h"
#include "tests/support/unit.h"

enum { MOST = 32 };

typedef struct Sweep {
    SweepResult result;
    SweepSetting setting[MOST];
    SweepRow run[MOST];
    const SweepRow *row[MOST];
    int64_t rung[2];
} Sweep;

/* Score of a setting after the first rung, and at its end. */
static void setting_add(Sweep *s, const char *lr, const char *opt, double first, double last)
{
    int i = s->result.count++;
    s->result.settings = s->setting;
    s->result.rung = s->rung;
    s->result.repeats = 1;
    s->run[i] =
        (SweepRow){.score = {first, last}, .kind = {SCORED_BY_ACCURACY, SCORED_BY_ACCURACY}, .failed = isnan(first)};
    s->row[i] = &s->run[i];
    s->setting[i] =
        (SweepSetting){.number = i + 1, .rows = &s->row[i], .values = json_pack("{s:s, s:s}", "lr", lr, "opt", opt)};
}

static SettingEffects effects_of(Sweep *s)
{
    SettingEffects effects;
    assert_int_equal(setting_effects(&s->result, &effects), OK);
    return effects;
}

static void settings_free(Sweep *s)
{
    for (int i = 0; i < s->result.count; i++) json_decref(s->setting[i].values);
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9)) fail_msg("got %.15g, wanted %.15g", got, wanted);
}

static const SettingEffect *effect_of(const SettingEffects *e, const char *option)
{
    for (int i = 0; i < e->count; i++)
        if (!strcmp(e->row[i].option, option)) return &e->row[i];
    fail_msg("no row for '%s'", option);
    return NULL;
}

/* Scores rise strictly with the rate, but all of one optimizer are below all of the other: the rate explains all that the optimizer
 * leaves, and only 24 of the 576 exchanges within the optimizers do as well. */
TEST(all_else_equal)
{
    static const char *const lr[] = {"0.001", "0.002", "0.01", "0.1"};
    static const double score[] = {70.3, 75.9, 79.7, 81.4, 20.8, 42.2, 61.2, 70.2};
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 8; i++) setting_add(&s, lr[i % 4], i < 4 ? "adam" : "momentum", score[i], NAN);
    SettingEffects e = effects_of(&s);
    assert_int_equal(e.count, 2);
    const SettingEffect *rate = effect_of(&e, "lr"), *opt = effect_of(&e, "opt");
    near(rate->explained, 1);
    near(rate->p, 24 / 576.);
    near(rate->trend, 1);
    assert_string_equal(rate->best, "0.1");
    near(opt->explained, 1);
    near(opt->p, 2 / 16.);
    assert_true(is_absent(opt->trend));
    assert_string_equal(opt->best, "adam");
    settings_free(&s);
}

/* Each rate has its own optimizer, so nobody can tell which of them matters. */
TEST(confounded)
{
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 8; i++) setting_add(&s, i < 4 ? "0.1" : "0.2", i < 4 ? "adam" : "sgd", .1 * i, NAN);
    SettingEffects e = effects_of(&s);
    assert_int_equal(e.count, 2);
    for (int i = 0; i < 2; i++)
        assert_true(is_absent(e.row[i].explained) && is_absent(e.row[i].p) && is_absent(e.row[i].trend));
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    setting_effects_print(&e, to);
    fclose(to);
    assert_non_null(strstr(text, "lr                             -      -      -  -\n"));
    assert_non_null(strstr(text, "cannot be told from that of the other options"));
    free(text);
    settings_free(&s);
}

/* Fewer effects than settings, but not by chance alone: below 0. Unequal groups. */
TEST(less_than_chance)
{
    static const double score[] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 9; i++)
        setting_add(&s, i == 8 || i / 2 % 2 == 0 ? "1" : "2", i % 2 || i == 8 ? "sgd" : "adam", score[i], NAN);
    SettingEffects e = effects_of(&s);
    near(effect_of(&e, "opt")->explained, -0.15191964135234448);
    near(effect_of(&e, "opt")->p, 2448 / 2880.);
    near(effect_of(&e, "lr")->explained, -0.11616270486716718);
    near(effect_of(&e, "lr")->p, 1776 / 2880.);
    near(effect_of(&e, "lr")->trend, -0.20806035209490734);
    settings_free(&s);
}

/* Twelve draws of a rate that is best in the middle: no correlation sees it. */
TEST(best_in_the_middle)
{
    static const char *const lr[] = {"0.0001", "0.0002", "0.0003", "0.0004", "0.001", "0.002",
                                     "0.003",  "0.004",  "0.01",   "0.02",   "0.03",  "0.04"};
    static const double score[] = {.4, .3, .2, .1, .99, .98, .97, .96, .8, .7, .6, .5};
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 12; i++) setting_add(&s, lr[i], i % 2 ? "adam" : "sgd", score[i], NAN);
    SettingEffects e = effects_of(&s);
    assert_int_equal(e.count, 2);
    assert_int_equal(e.epoch, 0);
    assert_string_equal(e.of, "over 12 settings");
    assert_string_equal(e.row[0].option, "lr");
    near(e.row[0].explained, 0.8928571428571429);
    assert_true(e.row[0].p <= 0.002); /* 2 6!^2 ways are drawn from */
    assert_string_equal(e.row[0].best, "0.001 to 0.004");
    assert_string_equal(e.row[1].option, "opt");
    near(e.row[1].explained, 0.1);
    near(e.row[1].p, 3712 / 13824.);
    assert_true(is_absent(e.row[1].trend));
    settings_free(&s);
}

/* Of losses the lowest is the best, and so is its group. */
TEST(losses_and_kid)
{
    static const ScoreKind kinds[] = {SCORED_BY_LOSS, SCORED_BY_KID};
    for (int k = 0; k < 2; k++) {
        Sweep s = {.result.rungs = 1};
        for (int i = 0; i < 8; i++) setting_add(&s, i < 4 ? "0.1" : "0.2", "adam", .1 * (i + 1), NAN);
        for (int i = 0; i < 8; i++) s.run[i].kind[0] = kinds[k];
        SettingEffects e = effects_of(&s);
        assert_string_equal(e.row[0].best, "0.1");
        assert_true(e.row[0].trend < -0.8);
        settings_free(&s);
    }
}

/* Halving: the winners' last scores are not compared with the first ones of those that it stopped. */
TEST(first_rung)
{
    Sweep s = {.result.rungs = 2, .rung = {3, INT64_MAX}};
    for (int i = 0; i < 8; i++) setting_add(&s, i < 4 ? "0.1" : "0.2", "adam", .1 * (i + 1), i == 2 ? 0.99 : NAN);
    setting_add(&s, "0.3", "adam", NAN, NAN);
    SettingEffects e = effects_of(&s);
    assert_int_equal(e.count, 1); /* no other option varies */
    assert_int_equal(e.epoch, 3);
    assert_string_equal(
        e.of,
        "over 8 settings, by their scores up to epoch 3, before halving stopped any; 1 without a score is left out");
    assert_true(fabs(e.row[0].explained - (1 - 10 / 42. * 7 / 6)) < 1e-12);
    assert_true(fabs(e.row[0].trend - 32 / sqrt(42 * 32)) < 1e-12);
    assert_string_equal(e.row[0].best, "0.2");
    settings_free(&s);
}

/* A repetition that failed has scores of the epochs before. */
TEST(a_failed_run_does_not_count)
{
    SweepRow run[] = {{.score = {.8}, .kind = {SCORED_BY_ACCURACY}, .failed = true},
                      {.score = {.5}, .kind = {SCORED_BY_ACCURACY}},
                      {.score = {.7}, .kind = {SCORED_BY_ACCURACY}}};
    const SweepRow *rows[] = {&run[0], &run[1], &run[2]};
    SweepScore score = sweep_score(rows, 3, 0);
    assert_int_equal(score.count, 2);
    assert_true(fabs(score.mean - .6) < 1e-12);
}

TEST(too_few)
{
    Sweep s = {.result.rungs = 1}, same = {.result.rungs = 1};
    for (int i = 0; i < 7; i++) setting_add(&s, i % 2 ? "0.1" : "0.2", "adam", .1 * i, NAN);
    assert_int_equal(effects_of(&s).count, 0);
    for (int i = 0; i < 9; i++) setting_add(&same, i % 2 ? "0.1" : "0.2", "adam", .5, NAN);
    assert_int_equal(effects_of(&same).count, 0);
    settings_free(&s);
    settings_free(&same);
}

/* ---- the sweep in words: settings are in the order of their rank */

static char *answer_of(Sweep *s)
{
    char *text = NULL;
    size_t bytes;
    SettingEffects effects = effects_of(s);
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    sweep_answer(&s->result, &effects, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void says(Sweep *s, const char *wanted, bool there)
{
    char *text = answer_of(s);
    if (!strstr(text, wanted) == there) fail_msg("'%s' is %s: %s", wanted, there ? "missing" : "there", text);
    free(text);
}

/* The largest rate is the best: a larger one is tried next, unless a run failed there, or less would be as good. */
TEST(beyond_what_was_tried)
{
    static const char *const lr[] = {"0.8", "0.7", "0.6", "0.5", "0.4", "0.3", "0.2", "0.1"};
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 8; i++) setting_add(&s, lr[i], "adam", .9 - .1 * i, NAN);
    says(&s, "The best setting is t001, with accuracy 90.00 %: lr 0.8, opt adam. lr explains ", true);
    says(&s, "<b>What to try next:</b> values of lr above 0.8, the largest that was tried.</p>", true);
    setting_add(&s, "0.9", "adam", NAN, NAN);
    says(&s, "values of lr above", false);
    says(&s, "Runs of 1 of 9 settings failed. ", true);
    says(&s, "<b>What to try next:</b> each setting with several seeds", true);
    settings_free(&s);
    Sweep falling = {.result.rungs = 1};
    for (int i = 0; i < 8; i++) setting_add(&falling, lr[7 - i], "<b>", .9 - .1 * i, NAN);
    says(&falling, "values of lr below 0.1, the smallest that was tried.", true);
    says(&falling, "opt &lt;b&gt;", true);
    settings_free(&falling);
    Sweep chance = {.result.rungs = 1};
    for (int i = 0; i < 8; i++)
        setting_add(&chance, lr[(3 * i) % 8], "adam", .9 - .1 * i, NAN); /* 0.8 is the best of no order */
    says(&chance, "No option explains the scores better than chance. ", true);
    says(&chance, "values of lr", false);
    settings_free(&chance);
}

/* As in all_else_equal: what 24 of 576 exchanges do as well is no finding where two options are asked. */
TEST(two_options_are_asked)
{
    static const char *const lr[] = {"0.1", "0.01", "0.002", "0.001"};
    static const double score[] = {.814, .797, .759, .703, .702, .612, .422, .208};
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 8; i++) setting_add(&s, lr[i % 4], i < 4 ? "adam" : "momentum", score[i], NAN);
    says(&s, "No option explains the scores better than chance. ", true);
    says(&s, "each setting with several seeds", true);
    settings_free(&s);
}

/* Two settings with five repetitions, seeds or folds. */
TEST(best_two)
{
    enum { REPEATS = 5 };
    static const double noise[] = {0.01, -0.02, 0.03, 0, -0.01};
    SweepRow run[2 * REPEATS] = {0};
    const SweepRow *row[2 * REPEATS];
    Sweep s = {.result.rungs = 1};
    for (int i = 0; i < 2; i++) setting_add(&s, i ? "0.1" : "0.2", "adam", .5, NAN);
    for (int k = 0; k < 2 * REPEATS; k++) {
        run[k] = (SweepRow){.score = {k < REPEATS ? 0.8 + noise[k] : 0.7}};
        row[k] = &run[k];
    }
    s.result.repeats = REPEATS;
    s.setting[0].rows = row, s.setting[1].rows = row + REPEATS;
    says(&s, "(mean of 5 runs, deviation 1.92)", true);
    /* p is 1 - t / sqrt(t^2 + 4) (1 + 2 / (t^2 + 4)) */
    says(&s, "nothing stands out: t001 is clearly before t002 (p = 0.00029).", true);
    /* training sets of folds overlap: the variance of the mean is (1/5 + 1/4) s^2 */
    s.result.folds = REPEATS;
    says(&s, "nothing stands out: t001 is clearly before t002 (p = 0.0014).", true);
    s.result.folds = 0;
    for (int k = REPEATS; k < 2 * REPEATS; k++) run[k].score[0] = 0.79;
    says(&s, "more seeds of the best two, as chance may have put t001 before t002 (p = 0.2", true);
    for (int k = 0; k < 2 * REPEATS; k++) run[k].score[0] = (k < REPEATS ? 0.9 : 0.8) - 0.1 * (k % REPEATS % 2);
    s.result.repeats = 2;
    says(&s, "more seeds of the best two, as 2 with the same difference do not show what chance alone does.", true);
    s.result.repeats = 1;
    says(&s, "each setting with several seeds", true);
    s.result.count = 1;
    says(&s, "more settings, as only one has a score.", true);
    s.result.count = 2;
    settings_free(&s);
}
