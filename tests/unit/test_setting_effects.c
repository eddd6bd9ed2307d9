/* What mattered in a sweep: an optimum in the middle, words, scores up to the first rung, settings without one, and silence where
 * settings are too few. */
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

/* Twelve draws of a rate that is best in the middle: no correlation sees it. The ranks of the thirds are 4 3 2 1, 12 11 10 9 and
 * 8 7 6 5: of all 143, 128 lie between them, so 1 - 15 / 143 * 11 / 9. */
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
    assert_true(fabs(e.row[0].explained - (1 - 15 / 143. * 11 / 9)) < 1e-12);
    assert_true(e.row[0].p <= 0.002 && fabs(e.row[0].trend - 49 / 143.) < 1e-12);
    assert_string_equal(e.row[0].best, "0.001 to 0.004");
    assert_string_equal(e.row[1].option, "opt"); /* 36 and 42 of 78: no more than chance */
    assert_true(e.row[1].explained == 0 && e.row[1].p > 0.5 && isnan(e.row[1].trend));
    settings_free(&s);
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
