/* compare: its results for runs whose difference is known, that equal runs are reported as equal, and that a run
 * directory is read strictly. */

#include "inception/report/compare.h"
#include "inception/report/run_difference.h"
#include "tests/support/noise.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/record/metrics.h"
#include "towers/record/run_view.h"

static const NoiseRun plain = {.towers = 4, .steps = 2000, .tower_noise = 0.2, .speed_factor = 1};

static void near(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("got %.9g, wanted %.9g within %g", got, wanted, tolerance);
}

/* ---- one run */

TEST(independent_towers)
{
    LossTruth truth;
    Run *run = noise_run(&plain, 11);
    assert_int_equal(loss_truth(run, &truth), OK);
    assert_int_equal(truth.used, 2000);
    assert_int_equal(truth.last, 3);
    for (int t = 0; t < 4; t++) {
        const TowerTruth *tower = &truth.tower[t];
        near(tower->ratio.mean, 4, 0.5);
        near(tower->expected, 4, 0);
        assert_true(tower->ratio.low < 4 && tower->ratio.high > 4);
        assert_true(tower->bias.low < 0 && tower->bias.high > 0);
    }
    near(truth.mean_noise, 0.1, 0.01);
    near(truth.last_noise, 0.2, 0.02);
    near(truth.correlation, 0, 0.05);
    assert_true(truth.window >= 3 && truth.window <= 5);
    assert_non_null(strstr(truth.verdict, "is an estimate of mean_loss in which no bias is found"));
    assert_int_equal(truth.bad_count, 0);
    loss_truth_clear(&truth);
    run_destroy(run);
}

TEST(biased_and_dependent)
{
    LossTruth truth;
    NoiseRun what = plain;
    what.last_shift = 0.05;
    what.shared = 0.2; /* half of each tower's variance is common: ratio 2 / (1 + 1/4) */
    Run *run = noise_run(&what, 12);
    assert_int_equal(loss_truth(run, &truth), OK);
    near(truth.tower[3].bias.mean, 0.0375, 0.01); /* the mean has a quarter of the shift */
    assert_non_null(strstr(truth.verdict, "is a biased estimate"));
    near(truth.correlation, 0.5, 0.05);
    near(truth.tower[0].ratio.mean, 1.6, 0.2);
    assert_true(truth.tower[0].ratio.high < 4);
    loss_truth_clear(&truth);
    run_destroy(run);
}

TEST(one_tower_and_few_steps)
{
    LossTruth truth;
    NoiseRun what = plain;
    what.towers = 1;
    Run *run = noise_run(&what, 13);
    assert_int_equal(loss_truth(run, &truth), OK);
    assert_non_null(strstr(truth.verdict, "With one tower"));
    loss_truth_clear(&truth);
    run_destroy(run);
    what = plain;
    for (what.steps = 1; what.steps < 30; what.steps++) {
        run = noise_run(&what, 14);
        assert_int_equal(loss_truth(run, &truth), OK);
        loss_truth_clear(&truth);
        run_destroy(run);
    }
}

/* Make one value of a made-up run not finite. */
static void poison(Run *run, int64_t index, int tower, bool loss, bool gradient)
{
    RunStep *step = &run->step[index];
    if (loss) ((double *)step->tower_loss)[tower] = NAN;
    if (loss && tower == run->towers - 1) step->last_tower_loss = NAN;
    if (gradient) ((double *)step->tower_grad_norm)[tower] = NAN;
    ((bool *)step->finite)[tower] = false;
    step->skipped = true;
}

TEST(not_finite)
{
    LossTruth truth;
    Run *run = noise_run(&plain, 15);
    poison(run, 100, 3, true, true); /* the last tower: seen at once */
    poison(run, 200, 1, true, true); /* another: a step later, the weights are gone */
    poison(run, 300, 0, false, true);
    poison(run, 400, 2, true, false); /* the gradient was fine: nothing follows */
    assert_int_equal(loss_truth(run, &truth), OK);
    assert_int_equal(truth.bad_count, 4);
    static const int64_t steps[] = {101, 201, 301, 401}, later[] = {0, 1, 1, -1};
    static const int towers[] = {3, 1, 0, 2};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(truth.bad[i].step, steps[i]);
        assert_int_equal(truth.bad[i].tower, towers[i]);
        assert_int_equal(truth.bad[i].later, later[i]);
    }
    assert_true(truth.bad[1].loss && truth.bad[1].gradient && !truth.bad[2].loss && truth.bad[2].gradient);
    assert_int_equal(truth.used, 2000 - 3); /* the losses of step 301 are fine */
    assert_non_null(strstr(truth.verdict, "4 values were not finite, 3 of them not in the last tower"));
    loss_truth_clear(&truth);
    run_destroy(run);
}

/* A run that only asked the last tower, as the original did: what it saw is in its own record. */
TEST(not_finite_and_gone_on)
{
    LossTruth truth;
    NoiseRun what = plain;
    what.steps = 50;
    Run *run = noise_run(&what, 16);
    free(run->args);
    run->args = strdup("nan-check: last                          # from command line\n");
    poison(run, 40, 1, false, true);
    for (int64_t i = 42; i < 50; i++)
        for (int t = 0; t < 4; t++) poison(run, i, t, true, true);
    for (int64_t i = 40; i < 50; i++) run->step[i].skipped = false;
    assert_int_equal(loss_truth(run, &truth), OK);
    assert_int_equal(truth.bad[0].step, 41);
    assert_int_equal(truth.bad[0].later, 2);
    assert_true(truth.bad[0].measured);
    loss_truth_clear(&truth);
    run_destroy(run);
}

/* ---- two runs */

/* How many of 100 pairs are said to differ. */
static double alarms(const NoiseRun *a, const NoiseRun *b, int pairs)
{
    int count = 0;
    for (int k = 0; k < pairs; k++) {
        RunDifference difference;
        Run *x = noise_run(a, 50000 + 64 * (uint64_t)k), *y = noise_run(b, 90000 + 64 * (uint64_t)k);
        assert_int_equal(run_difference(x, y, &difference), OK);
        count += strstr(difference.verdict, "No difference") == NULL;
        run_destroy(x);
        run_destroy(y);
    }
    return 100.0 * count / pairs;
}

TEST(equal_runs_are_equal)
{
    static const struct {
        int64_t steps;
        double shared, loss_memory, speed_memory;
    } rows[] = {{100, 0, 0, 0}, {600, 0, 0, 0.5}, {600, 0.3, 0.9, 0.9}, {300, 0.3, 0.95, 0.95}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        NoiseRun what = {.towers = 2,
                         .steps = rows[i].steps,
                         .tower_noise = 0.2,
                         .shared = rows[i].shared,
                         .shared_memory = rows[i].loss_memory,
                         .speed_memory = rows[i].speed_memory,
                         .speed_factor = 1};
        double share = alarms(&what, &what, 400);
        if (share > 5) fail_msg("row %zu: %.1f of 100 pairs of equal runs differ", i, share);
    }
}

TEST(other_models_and_data_are_reported)
{
    NoiseRun what = {.towers = 2, .steps = 100, .tower_noise = 0.2, .speed_factor = 1};
    Run *x = noise_run(&what, 1), *y = noise_run(&what, 2);
    RunDifference difference;
    assert_int_equal(run_difference(x, y, &difference), OK);
    assert_string_equal(difference.subjects, "");
    free(x->environment);
    free(y->environment);
    x->environment = strdup("{\"model\": \"a\", \"data\": \"d\", \"classes\": 10}");
    y->environment = strdup("{\"model\": \"b\", \"data\": \"d\", \"classes\": 9}");
    assert_int_equal(run_difference(x, y, &difference), OK);
    assert_string_equal(difference.subjects,
                        "The runs differ in model (a, b), classes: their numbers do not measure the same thing.");
    free(x->args);
    free(y->args);
    x->args = strdup("smoothing: 0.1   # from command line\nmixup: 0   # from default\n");
    y->args = strdup("smoothing: 0   # from default\nclass-weights: auto   # from command line\n");
    assert_int_equal(run_difference(x, y, &difference), OK);
    assert_non_null(strstr(difference.subjects,
                           "thing. The runs differ in smoothing (0.1, 0), class-weights (0, auto): "
                           "their losses do not measure the same thing."));
    run_destroy(x);
    run_destroy(y);
}

TEST(different_runs_differ)
{
    NoiseRun base = {.towers = 2,
                     .steps = 600,
                     .tower_noise = 0.2,
                     .shared = 0.05,
                     .shared_memory = 0.9,
                     .speed_memory = 0.5,
                     .speed_factor = 1},
             lower = base, faster = base;
    lower.loss_shift = -0.15;
    faster.speed_factor = 1.05;
    assert_true(alarms(&base, &lower, 100) > 90);
    assert_true(alarms(&base, &faster, 100) > 90);
}

TEST(accuracy_and_sameness)
{
    RunDifference d;
    Run *a = noise_run(&plain, 1), *b = noise_run(&plain, 1);
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(d.same);
    assert_non_null(strstr(d.verdict, "bit for bit"));
    Run *both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        both[i]->epochs = 1;
        both[i]->epoch = calloc(1, sizeof(EpochRecord));
        both[i]->epoch[0].test_top1 = i ? 0.90 : 0.88;
        both[i]->classes = 1;
        both[i]->confusion = calloc(1, sizeof(int64_t));
        both[i]->confusion[0] = 10000;
    }
    assert_int_equal(run_difference(a, b, &d), OK);
    near(d.accuracy.change.mean, 0.02, 1e-12);
    assert_non_null(strstr(d.verdict, "test accuracy is 2.00 points higher"));
    b->confusion[0] = 100; /* too few samples to be sure */
    a->confusion[0] = 100;
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_non_null(strstr(d.verdict, "No difference"));
    run_destroy(a);
    run_destroy(b);
}

/* The same course in images, eight times the batch, and a loss that is worse by 0.1: by step number the run would look
 * better by far, as it has seen eight times the images. */
TEST(batches_of_other_sizes)
{
    NoiseRun small = {.towers = 2, .steps = 960, .tower_noise = 0.1, .speed_factor = 1}, large = small, towers = small;
    large.share = 200;
    large.steps = 120;
    large.loss_shift = 0.1;
    towers.towers = 16; /* likewise by the number of towers */
    towers.steps = 120;
    towers.loss_shift = 0.1;
    const NoiseRun *others[] = {&large, &towers};
    for (int i = 0; i < 2; i++) {
        RunDifference d;
        Run *a = noise_run(&small, 21), *b = noise_run(others[i], 22);
        if (i == 1) /* the course follows the images of a tower: take the one of eight times as many */
            for (int64_t k = 0; k < b->steps; k++)
                b->step[k].mean_loss += 2 * exp(-8 * (double)k / 80) - 2 * exp(-(double)k / 80);
        assert_int_equal(run_difference(a, b, &d), OK);
        assert_int_equal(d.steps, 60);
        assert_int_equal(d.images_from, 60 * 400);
        assert_int_equal(d.images_to, 120 * 400);
        near(d.loss.change.mean, 0.1, 0.02);
        assert_true(d.loss.change.p < 0.01);
        assert_non_null(strstr(d.verdict, "its loss after the same number of images is 0."));
        assert_non_null(strstr(d.verdict, "higher"));
        RunDifference back;
        assert_int_equal(run_difference(b, a, &back), OK);
        near(back.loss.change.mean, -d.loss.change.mean, 1e-12);
        a->step[902].mean_loss = NAN; /* one of eight steps over the images of one: no mean of the other seven */
        assert_int_equal(run_difference(a, b, &d), OK);
        assert_true(d.a_lost == 1 && d.b_lost == 0);
        run_destroy(a);
        run_destroy(b);
    }
}

static void steps_remove(Run *run, int64_t first, int64_t count)
{
    run->steps -= count;
    memmove(run->step + first, run->step + first + count, (size_t)(run->steps - first) * sizeof *run->step);
}

/* A branch records no step before its first, and a run may leave others out: the losses of the rest are still compared
 * with those over the same images. */
TEST(steps_without_records)
{
    NoiseRun what = {.towers = 2, .steps = 40, .tower_noise = 0.1, .speed_factor = 1};
    for (int swapped = 0; swapped < 2; swapped++) {
        RunDifference d;
        Run *a = noise_run(&what, 23), *b = noise_run(&what, 23);
        steps_remove(b, 25, 2);
        steps_remove(b, 0, 10);
        assert_int_equal(swapped ? run_difference(b, a, &d) : run_difference(a, b, &d), OK);
        assert_int_equal(d.steps, 14); /* the later half of 28 pairs: 24, 25, 28 to 40 */
        assert_int_equal(d.images_from, 24 * 50);
        assert_int_equal(d.images_to, 40 * 50);
        near(d.loss.change.mean, 0, 0);
        assert_false(d.same); /* it has fewer rows */
        run_destroy(a);
        run_destroy(b);
    }
}

/* Every sixth step is that of a short batch, the only one that the other run has a row for: the same weights, the same losses of the
 * same images, and no step of 50 images is taken for one of 2. */
TEST(rows_of_short_batches)
{
    RunDifference d;
    NoiseRun what = {.towers = 2, .steps = 600, .tower_noise = 0.1, .speed_factor = 1};
    Run *a = noise_run(&what, 24), *b = noise_run(&what, 24), *both[] = {a, b};
    for (int k = 0; k < 2; k++) {
        int64_t seen = 0;
        for (int64_t i = 0; i < 600; i++) {
            RunStep *s = &both[k]->step[i];
            s->images = i % 6 == 5 ? 2 : 50;
            if (i % 6 == 5) s->mean_loss += 1, s->images_per_sec /= 3;
            s->images_seen = seen += s->images;
        }
    }
    b->steps = 0;
    for (int64_t i = 5; i < 600; i += 6) b->step[b->steps++] = b->step[i];
    for (int swapped = 0; swapped < 2; swapped++) {
        assert_int_equal(swapped ? run_difference(b, a, &d) : run_difference(a, b, &d), OK);
        assert_int_equal(d.steps, 50);
        near(d.loss.change.mean, 0, 0);
        near(d.loss.a, d.loss.b, 0);
        near(d.speed.a, d.speed.b, 0);
        assert_string_equal(d.verdict, "No difference that is statistically significant.");
    }
    for (int64_t i = 0; i < b->steps; i++) b->step[i].images_seen = 0; /* an older version: nobody knows */
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(!d.images_known && is_absent(d.loss.a) && is_absent(d.speed.b) && is_absent(d.loss.change.p));
    assert_string_equal(d.verdict, "Nothing was recorded by which the runs could be compared.");
    run_destroy(a);
    run_destroy(b);
}

static void evaluated(Run *run, double accuracy, int64_t images)
{
    run->epochs = 1;
    run->epoch = calloc(1, sizeof *run->epoch);
    epoch_clear(run->epoch);
    run->epoch[0].test_top1 = accuracy;
    if (!images) return;
    run->classes = 1;
    run->confusion = calloc(1, sizeof *run->confusion);
    run->confusion[0] = images;
}

/* A run whose loss is lost has no loss to compare with, and takes none from the other; accuracies that no test was made for are not
 * called equal. */
TEST(a_diverged_run)
{
    NoiseRun what = {.towers = 2, .steps = 100, .tower_noise = 0.1, .speed_factor = 1};
    for (int swapped = 0; swapped < 2; swapped++) {
        RunDifference d;
        Run *good = noise_run(&what, 25), *bad = noise_run(&what, 26);
        evaluated(good, 0.63, 0);
        evaluated(bad, 0, 0);
        for (int64_t i = 3; i < 100; i++) bad->step[i].mean_loss = NAN;
        assert_int_equal(run_difference(swapped ? good : bad, swapped ? bad : good, &d), OK);
        const Number *healthy = swapped ? &d.loss.a : &d.loss.b, *lost = swapped ? &d.loss.b : &d.loss.a;
        double sum = 0;
        for (int64_t i = 50; i < 100; i++) sum += good->step[i].mean_loss / 50;
        near(*healthy, sum, 1e-12);
        assert_true(isnan(*lost) && !is_absent(*lost) && is_absent(d.loss.change.mean) &&
                    is_absent(d.accuracy.change.p));
        assert_int_equal(swapped ? d.b_lost : d.a_lost, 97);
        assert_null(strstr(d.verdict, "No difference"));
        assert_non_null(strstr(d.verdict, swapped ? "loss of the second run is not finite"
                                                  : "loss of the first run is not finite"));
        assert_non_null(strstr(d.verdict, "accuracies were not tested"));
        bad->step[99].mean_loss = 1e30; /* huge, but a number */
        assert_int_equal(run_difference(bad, good, &d), OK);
        near(d.loss.b,
             (good->step[1].mean_loss + good->step[2].mean_loss + good->step[99].mean_loss - good->step[1].mean_loss) /
                 2,
             1e-9);
        free(bad->environment);
        free(good->environment);
        bad->environment = strdup("{\"evaluation_data\": {\"images\": 500}}");
        good->environment = strdup("{\"evaluation_data\": {\"images\": 500}}");
        assert_int_equal(run_difference(bad, good, &d), OK);
        assert_true(d.accuracy.change.p < 1e-9); /* the number of images is known without a confusion matrix, too */
        run_destroy(good);
        run_destroy(bad);
    }
}

static void predictions_put(const char *name, const char *predicted, const char *labels)
{
    char text[4096], path[64];
    Text list = text_start(text, sizeof text);
    text_add(&list, "sample,label,predicted,file\n");
    for (int i = 0; predicted[i]; i++) text_add(&list, "%d,%c,%c,\"a, %d.png\"\n", i, labels[i], predicted[i], i);
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/" PREDICTIONS_CSV, name);
    scratch_put(path, text);
}

/* The same images: B is right for nine that A misses, A for none that B misses. Two sets of images would be no evidence. */
TEST_WITH(image_by_image, scratch_make, scratch_drop)
{
    RunDifference d;
    char a_path[256], b_path[256];
    NoiseRun what = {.towers = 1, .steps = 40, .tower_noise = 0.1, .speed_factor = 1};
    Run *a = noise_run(&what, 27), *b = noise_run(&what, 27), *both[] = {a, b};
    snprintf(a_path, sizeof a_path, "%s/a", scratch);
    snprintf(b_path, sizeof b_path, "%s/b", scratch);
    for (int k = 0; k < 2; k++) {
        free(both[k]->path);
        both[k]->path = strdup(k ? b_path : a_path);
        evaluated(both[k], (k ? 21 : 12) / 30., 30);
    }
    predictions_put("a", "111111111222222222000000000000", "000000000000000000000000000000");
    predictions_put("b", "000000000222222222000000000000", "000000000000000000000000000000");
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_int_equal(d.paired.images, 30);
    assert_int_equal(d.paired.only_a, 0);
    assert_int_equal(d.paired.only_b, 9);
    near(d.accuracy.change.mean, 0.3, 1e-12);
    near(d.accuracy.change.p, 2 / 512., 1e-12);
    assert_non_null(strstr(d.verdict, "test accuracy is 30.00 points higher"));
    assert_int_equal(run_difference(b, a, &d), OK);
    near(d.accuracy.change.mean, -0.3, 1e-12);
    static const struct {
        const char *predicted, *labels;
    } others[] = {{"000000000222222222000000000000", "010000000000000000000000000000"},  /* another label */
                  {"00000000022222222200000000000", "00000000000000000000000000000"},    /* fewer images */
                  {"000000000222222220000000000000", "000000000000000000000000000000"}}; /* not what results.csv says */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        predictions_put("b", others[i].predicted, others[i].labels);
        assert_int_equal(run_difference(a, b, &d), OK);
        assert_int_equal(d.paired.images, 0);
        near(d.accuracy.change.p, share_difference(21, 30, 12, 30).p, 0);
    }
    scratch_put("b/" PREDICTIONS_CSV, "sample,label,predicted,file\n0,1\n");
    assert_int_equal(run_difference(a, b, &d), ERR_FORMAT);
    run_destroy(a);
    run_destroy(b);
}

/* The first tenth of the steps warms up and has no say. */
TEST(speeds_after_the_warm_up)
{
    RunDifference d;
    NoiseRun what = {.towers = 2, .steps = 100, .tower_noise = 0.1, .speed_factor = 1};
    Run *a = noise_run(&what, 33), *b = noise_run(&what, 33);
    for (int64_t i = 0; i < 10; i++) b->step[i].images_per_sec /= 2;
    assert_int_equal(run_difference(a, b, &d), OK);
    near(d.speed.b, d.speed.a, 0);
    b->step[10].images_per_sec /= 2;
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(d.speed.b < d.speed.a);
    run_destroy(a);
    run_destroy(b);
}

/* Steps that a file system or another program held up, or that a clock made too short. */
TEST(speeds_with_outliers)
{
    RunDifference d;
    NoiseRun few = {.towers = 2, .steps = 32, .tower_noise = 0.1, .speed_factor = 1}, faster = few;
    faster.speed_factor = 1.3;
    Run *a = noise_run(&few, 31), *b = noise_run(&faster, 32);
    a->step[10].images_per_sec = 20000;
    a->step[20].images_per_sec = 0.5;
    b->step[12].images_per_sec = 14000;
    b->step[31].images_per_sec = 1;
    assert_int_equal(run_difference(a, b, &d), OK);
    near(d.speed.a, 100, 5);
    near(d.speed.change.mean, 30, 8);
    assert_true(d.speed.change.low > 10 && d.speed.change.high < 50);
    assert_true(d.speed.change.p < 0.01);
    run_destroy(a);
    run_destroy(b);
}

/* ---- terms and KID of a GAN */

/* A run whose steps have a term that is twice the loss plus one, and at every other step a second one. */
static Run *run_with_terms(uint64_t seed)
{
    Run *run = noise_run(&plain, seed);
    run->term_name = calloc(2, sizeof *run->term_name);
    run->term_name[0] = strdup("slope");
    run->term_name[1] = strdup("penalty");
    run->term_names = 2;
    run->term = calloc(2 * (size_t)run->steps, sizeof *run->term);
    run->blocks = realloc(run->blocks, (size_t)(run->block_count + 1) * sizeof *run->blocks);
    double *tower = calloc(4 * (size_t)run->steps, sizeof *tower);
    run->blocks[run->block_count++] = tower;
    for (int64_t i = 0; i < run->steps; i++, tower += 4) {
        const RunStep *s = &run->step[i];
        for (int t = 0; t < 4; t++) tower[t] = 2 * s->tower_loss[t] + 1;
        if (i % 2) run->term[run->terms++] = (RunTerm){s->step, 1, 7, tower};
        run->term[run->terms++] = (RunTerm){s->step, 0, 2 * s->mean_loss + 1, tower};
    }
    return run;
}

TEST(terms_stand_for_losses)
{
    Run *run = run_with_terms(41), view;
    LossTruth truth, of_loss;
    bool found;
    assert_int_equal(run_term(run, 1, &view, &found), OK);
    assert_true(found && view.steps == run->steps / 2 && view.step[3].step == 8);
    near(view.step[3].mean_loss, 7, 0);
    run_view_free(&view);
    assert_int_equal(run_term(run, 0, &view, &found), OK);
    assert_true(found && view.steps == run->steps);
    assert_int_equal(loss_truth(run, &of_loss), OK);
    assert_int_equal(loss_truth(&view, &truth), OK);
    near(truth.mean_noise, 2 * of_loss.mean_noise, 1e-9);
    near(truth.tower[3].ratio.mean, of_loss.tower[3].ratio.mean, 1e-9);
    near(truth.tower[3].bias.mean, 2 * of_loss.tower[3].bias.mean, 1e-9);
    loss_truth_clear(&truth);
    loss_truth_clear(&of_loss);
    run_view_free(&view);
    run->terms = 0;
    assert_int_equal(run_term(run, 0, &view, &found), OK);
    assert_false(found);
    run_view_free(&view);
    run_destroy(run);
}

static void kid_set(Run *run, const char *features, double kid, double deviation)
{
    static const RunKid before = {.step = 1, .kid = 90, .deviation = 1};
    free(run->kid);
    for (int i = 0; i < run->features_names; i++) free(run->features_name[i]);
    free(run->features_name);
    run->kid = calloc(3, sizeof *run->kid);
    run->kid[0] = before;
    run->kid[1] = (RunKid){.step = 9, .kid = kid, .deviation = deviation};
    run->kid[2] = (RunKid){.step = 12, .kid = NAN, .deviation = NAN}; /* it could not be computed */
    run->kids = 3;
    run->features_names = 1;
    run->features_name = calloc(1, sizeof *run->features_name);
    run->features_name[0] = strdup(features);
}

TEST(last_kids_are_compared)
{
    RunDifference d;
    Run *a = noise_run(&plain, 1), *b = noise_run(&plain, 1);
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(is_absent(d.kid.a) && is_absent(d.kid.b) && is_absent(d.kid.change.p));
    kid_set(a, "fashion_cnn 12ab", 8, 0.3);
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(d.kid.a == 8 && is_absent(d.kid.b) && is_absent(d.kid.change.p) && !d.other_features);
    kid_set(b, "fashion_cnn 12ab", 5, 0.4);
    assert_int_equal(run_difference(a, b, &d), OK);
    near(d.kid.change.mean, -3, 1e-12);
    near(d.kid.change.error, 0.5, 1e-12);
    near(d.kid.change.low, -3 - 1.959964 * 0.5, 1e-5);
    near(d.kid.change.p, 1.9732e-9, 1e-12);
    assert_non_null(strstr(d.verdict, "the KID of its images is 3 lower, so they are closer to the data"));
    kid_set(b, "fashion_cnn 12ab", 7, 0.4);
    assert_int_equal(run_difference(a, b, &d), OK);
    near(d.kid.change.p, 0.0455, 1e-4);
    assert_null(strstr(d.verdict, "KID"));
    kid_set(b, "fashion_cnn 77cd", 5, 0.4);
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(d.other_features && d.kid.b == 5 && is_absent(d.kid.change.mean) && is_absent(d.kid.change.p));
    run_destroy(a);
    run_destroy(b);
}

/* ---- several runs */

/* The number of a row of a ranking, or of another list. */
static double row_number(const json_t *rows, size_t row, const char *key)
{
    return json_number_value(json_object_get(json_array_get(rows, row), key));
}

/* Losses and KID are better if they are lower, accuracies if higher; a run whose loss is lost is the last wherever it stood. Each row has
 * the numbers of its own run. */
TEST(rankings)
{
    static const struct {
        const char *by;
        double accuracy[3], kid[3]; /* 0: none */
        bool lost;                  /* the first run has diverged */
        int order[3];               /* the first run's loss is the lowest, the last one's the highest */
    } rows[] = {{"loss", {0}, {0}, false, {0, 1, 2}},
                {"loss", {0}, {0}, true, {1, 2, 0}},
                {"loss", {0.5, 0, 0.7}, {0}, false, {0, 1, 2}}, /* not all were evaluated */
                {"accuracy", {0.5, 0.9, 0.7}, {0}, false, {1, 2, 0}},
                {"accuracy", {0.5, 0.9, 0.7}, {3, 2, 1}, true, {1, 2, 0}},
                {"kid", {0}, {8, 3, 5}, false, {1, 2, 0}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        Run *runs[3];
        json_t *root = json_object();
        for (int i = 0; i < 3; i++) {
            runs[i] = noise_run(
                &(NoiseRun){.towers = 2, .steps = 100, .tower_noise = 0.01, .loss_shift = i, .speed_factor = 1 + i},
                61 + (uint64_t)i);
            if (rows[r].accuracy[i] > 0) evaluated(runs[i], rows[r].accuracy[i], 200);
            if (rows[r].kid[i] > 0) kid_set(runs[i], "fashion_cnn 12ab", rows[r].kid[i], 0.1);
        }
        for (int64_t k = 60; rows[r].lost && k < 100; k++) runs[0]->step[k].mean_loss = NAN;
        assert_int_equal(ranking_emit(runs, 3, root, NULL), OK);
        json_t *ranking = json_object_get(root, "ranking"), *found = json_object_get(ranking, "rows");
        assert_string_equal(json_string_value(json_object_get(ranking, "by")), rows[r].by);
        for (size_t k = 0; k < 3; k++) {
            int i = rows[r].order[k];
            bool lost = rows[r].lost && i == 0;
            if (fabs(row_number(found, k, "images_per_sec") - 100 * (1 + i)) > 10)
                fail_msg("case %zu, rank %zu: %g images per second, wanted those of run %d", r, k + 1,
                         row_number(found, k, "images_per_sec"), i);
            assert_true(json_is_null(json_object_get(json_array_get(found, k), "mean_loss")) == lost);
            if (!lost) near(row_number(found, k, "mean_loss"), 1.2 + i, 0.3);
            near(row_number(found, k, "accuracy"), rows[r].accuracy[i], 0);
            near(row_number(found, k, "kid"), !strcmp(rows[r].by, "kid") ? rows[r].kid[i] : 0, 0);
        }
        for (int i = 0; i < 3; i++) run_destroy(runs[i]);
        json_decref(root);
    }
}

/* A run of a fold, evaluated after two epochs; the lr tells the setting. */
static Run *fold_run(const char *fold, const char *lr, double first, double last)
{
    Run *run = noise_run(&(NoiseRun){.towers = 1, .steps = 4, .tower_noise = 0.1, .speed_factor = 1}, 71);
    free(run->args);
    assert_true(asprintf(&run->args, "fold: %s # from command line\nlr: %s # from command line\n", fold, lr) > 0);
    run->epochs = 2;
    run->epoch = calloc(2, sizeof *run->epoch);
    for (int i = 0; i < 2; i++) {
        epoch_clear(&run->epoch[i]);
        run->epoch[i].epoch = i + 1;
        run->epoch[i].test_top1 = i ? last : first;
    }
    return run;
}

/* Settings are compared by the scores of their ends, and in folds that are the same images: 1/5 and 1/3 are not. */
TEST(folds_that_are_pairs)
{
    static const struct {
        const char *fold[2]; /* of the other setting; the first has 1/5 and 2/5 */
        int pairs;
    } rows[] = {{{"1/5", "2/5"}, 2}, {{"1/5", "3/5"}, 1}, {{"1/3", "2/3"}, 0}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        json_t *root = json_object();
        Run *runs[] = {fold_run("1/5", "0.1", 0.9, 0.3), fold_run("2/5", "0.1", 0.8, 0.5),
                       fold_run(rows[r].fold[0], "0.2", 0.1, 0.6), fold_run(rows[r].fold[1], "0.2", 0.2, 0.7)};
        assert_int_equal(fold_scores((const Run *const *)runs, 4, root, NULL), OK);
        const json_t *folds = json_object_get(root, "folds"), *settings = json_object_get(folds, "settings"),
                     *differences = json_object_get(folds, "differences");
        assert_int_equal(json_array_size(settings), 2);
        near(row_number(settings, 0, "mean"), 0.4, 1e-12);
        near(row_number(settings, 1, "mean"), 0.65, 1e-12);
        assert_int_equal(json_array_size(differences), 1);
        assert_int_equal(row_number(differences, 0, "folds"), rows[r].pairs);
        assert_true(json_is_null(json_object_get(json_array_get(differences, 0), "mean")) == !rows[r].pairs);
        if (rows[r].pairs) near(row_number(differences, 0, "mean"), rows[r].pairs == 2 ? 0.25 : 0.3, 1e-12);
        for (int i = 0; i < 4; i++) run_destroy(runs[i]);
        json_decref(root);
    }
}

/* Two folds in which the other setting is better by the same: no interval of width 0, and no p of 0. */
TEST(equal_differences_of_folds)
{
    char *text = NULL;
    size_t bytes;
    json_t *root = json_object();
    Run *runs[] = {fold_run("1/5", "0.1", 0, 0.9), fold_run("2/5", "0.1", 0, 0.8), fold_run("1/5", "0.2", 0, 0.8),
                   fold_run("2/5", "0.2", 0, 0.7)};
    assert_int_equal(fold_scores((const Run *const *)runs, 4, root, NULL), OK);
    const json_t *differences = json_object_get(json_object_get(root, "folds"), "differences");
    const json_t *row = json_array_get(differences, 0);
    near(row_number(differences, 0, "mean"), -0.1, 1e-12);
    assert_true(json_is_null(json_object_get(row, "p")) && json_is_null(json_object_get(row, "low")));
    FILE *to = open_memstream(&text, &bytes);
    assert_int_equal(fold_scores((const Run *const *)runs, 4, NULL, to), OK);
    fclose(to);
    if (!strstr(text, "B - A over 2 folds: -10.000 in each of them, which does not show what chance does\n"))
        fail_msg("%s", text);
    free(text);
    for (int i = 0; i < 4; i++) run_destroy(runs[i]);
    json_decref(root);
}

/* ---- reading */

static void steps_write(int count)
{
    Metrics *metrics;
    assert_int_equal(metrics_open(scratch, -1, 1, 0, false, &metrics), OK);
    for (int i = 1; i <= count; i++) {
        TowerLoss towers[] = {{1.0 * i, 4, true}, {NAN, 4, i != 3}};
        double norms[] = {0.5, INFINITY};
        int64_t arrival[] = {10, 20};
        TermRecord term[] = {{.name = "penalty", .mean = NAN, .tower = norms},
                             {.name = "slope", .mean = i, .tower = norms}};
        if (i != 3) towers[1] = (TowerLoss){2.0 * i, 4, true}, norms[1] = 0.5;
        for (int t = 0; t < 2; t++) towers[t].grad_norm = norms[t];
        StepRecord record = {.step = i,
                             .lr = 0.1,
                             .images = 8,
                             .images_per_sec = 100,
                             .tower = towers,
                             .towers = 2,
                             .mean_loss = i == 3 ? NAN : 3.0 * i / 8,
                             .arrival_us = arrival,
                             .skipped = i == 3};
        if (i == 2) record.terms = 2, record.term = term;
        metrics_step(metrics, &record);
    }
    EpochRecord epoch = {
        .epoch = 1, .step = count, .train_loss = 0.5, .test_top1 = 0.75, .test_loss = NAN, .kid = ABSENT};
    metrics_epoch(metrics, &epoch);
    metrics_close(metrics);
}

TEST_WITH(what_is_written_is_read, scratch_make, scratch_drop)
{
    Run *run;
    char text[64];
    steps_write(5);
    scratch_put("args.yaml", "# towers train\nlr: 0.5 # from default\nname: \"a b\"\nempty:\n"
                             "path: \"q\\\"#\\\\ # from x \\u00E9\\U0001F600\" # from file \"f:3\"\nquiet: 1");
    scratch_put("confusion.csv", "3,1\n0,4\n");
    scratch_put("generated.jsonl", "{\"step\":0,\"file\":\"a.png\"}\n{\"step\":4,\"kid\":1.5,\"kid_deviation\":0.25,"
                                   "\"features\":\"net 1f\"}\n");
    scratch_put("layers.jsonl", "{\"step\": 2, \"layers\": {\"a.weight\": [0.5, null], \"b\": [1, 2]}}\n");
    assert_int_equal(run_read(scratch, 0, &run), OK);
    assert_int_equal(run->steps, 5);
    assert_int_equal(run->towers, 2);
    assert_false(run->cut);
    near(run->step[1].tower_loss[1], 1, 0);
    near(run->step[1].arrival_us[1], 20, 0);
    assert_true(is_absent(run->step[1].data_us[0]));
    assert_true(is_not_finite(run->step[2].tower_loss[1]) && !run->step[2].finite[1] && run->step[2].skipped);
    assert_int_equal(run->epochs, 1);
    near(run->epoch[0].test_top1, 0.75, 0);
    assert_true(is_not_finite(run->epoch[0].test_loss) && is_absent(run->epoch[0].kid));
    assert_int_equal(run->classes, 2);
    assert_int_equal(run->confusion[3], 4);
    assert_int_equal(run->layers.count, 2);
    assert_string_equal(run->layers.name[1], "b");
    assert_int_equal(run->terms, 2);
    assert_true(run->term[0].step == 2 && isnan(run->term[0].mean));
    assert_string_equal(run->term_name[run->term[1].name], "slope");
    near(run->term[1].mean, 2, 0);
    near(run->term[1].tower[1], 0.5, 0);
    assert_int_equal(run->kids, 1);
    assert_true(run->kid[0].step == 4 && run->kid[0].kid == 1.5 && run->kid[0].deviation == 0.25);
    assert_string_equal(run->features_name[run->kid[0].features], "net 1f");
    assert_true(run_argument(run, "lr", text, sizeof text));
    assert_string_equal(text, "0.5");
    assert_true(run_argument(run, "name", text, sizeof text));
    assert_string_equal(text, "a b");
    assert_true(run_argument(run, "path", text, sizeof text));
    assert_string_equal(text, "q\"#\\ # from x \xc3\xa9\xf0\x9f\x98\x80");
    assert_true(run_argument(run, "quiet", text, sizeof text));
    assert_false(run_argument(run, "empty", text, sizeof text));
    assert_false(run_argument(run, "l", text, sizeof text));
    run_destroy(run);
}

/* What is cut off would mean defaults; a run without the file is read. */
static Run *run_of(const char *steps, const char *epochs)
{
    Run *run;
    scratch_put("metrics.jsonl", steps);
    scratch_put("results.csv", epochs);
    assert_int_equal(run_read(scratch, 0, &run), OK);
    return run;
}

/* A tower without samples has no loss, wherever it stands; one whose loss is not finite has one. Written now and by older versions. */
TEST_WITH(absent_is_not_nan, scratch_make, scratch_drop)
{
    const TowerLoss towers[] = {
        {3, 2, true, .grad_norm = 1}, {0, 0, true}, {NAN, 2, false, .grad_norm = NAN}, {8, 2, true, .grad_norm = 1}};
    Number term_of[] = {1, ABSENT, NAN, 4};
    const TermRecord term = {.name = "slope", .mean = 2, .tower = term_of};
    StepRecord record = {.step = 1,
                         .images = 6,
                         .images_seen = 6,
                         .mean_loss = NAN,
                         .tower = towers,
                         .towers = 4,
                         .top1 = ABSENT,
                         .term = &term,
                         .terms = 1};
    Metrics *metrics;
    EpochRecord epoch;
    Run *run;
    assert_int_equal(metrics_open(scratch, -1, 1, 0, false, &metrics), OK);
    metrics_step(metrics, &record);
    const TowerLoss none[4] = {{0, 0, true}, {0, 0, true}, {0, 0, true}, {0, 0, true}};
    record.step = 2, record.images = 0, record.mean_loss = record.base_loss = ABSENT, record.tower = none,
    record.terms = 0;
    metrics_step(metrics, &record);
    epoch_clear(&epoch);
    epoch.epoch = 1, epoch.step = 2, epoch.train_loss = NAN;
    metrics_epoch(metrics, &epoch);
    metrics_close(metrics);
    char *text = scratch_text("metrics.jsonl");
    assert_non_null(strstr(text, "\"tower_loss\":[1.5,null,4],\"tower_count\":[2,0,2,2]"));
    assert_non_null(strstr(text, "\"tower_terms\":{\"slope\":[1,null,4]}"));
    assert_non_null(strstr(text, "\"tower_loss\":[],"));
    char *older = strdup(text), *at = strstr(older, "[1.5,null,4]");
    assert_int_equal(run_read(scratch, 0, &run), OK);
    for (int version = 0; version < 2; version++) {
        const RunStep *s = run->step;
        assert_true(s->tower_loss[0] == 1.5 && is_absent(s->tower_loss[1]) && is_not_finite(s->tower_loss[2]) &&
                    s->tower_loss[3] == 4 && is_not_finite(s->mean_loss) && is_absent(s->top1));
        assert_true(is_absent(s[1].tower_loss[0]) && is_absent(s[1].mean_loss) && is_absent(s[1].last_tower_loss));
        assert_true(is_absent(run->term[0].tower[1]) && is_not_finite(run->term[0].tower[2]) &&
                    run->term[0].tower[3] == 4);
        assert_true(is_not_finite(run->epoch[0].train_loss) && is_absent(run->epoch[0].test_top1) &&
                    is_absent(run->epoch[0].kid));
        run_destroy(run);
        if (version) break;
        char *made = NULL;
        *at = 0;
        assert_true(asprintf(&made, "%s[1.5,null,null,4]%s", older, at + strlen("[1.5,null,4]")) > 0);
        run = run_of(
            made,
            "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds,wasserstein,kid\n"
            "1,2,nan,nan,nan,nan,nan,0.1,5,6,nan,nan\n");
        free(made);
    }
    run = run_of(text, "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds\n"
                       "1,2,nan,nan,nan,0.5,nan,0.1,5,6\n");
    assert_true(is_not_finite(run->epoch[0].test_loss) &&
                is_absent(run->epoch[0].test_top5)); /* it was evaluated, and diverged */
    run_destroy(run);
    free(older);
    char *wrong = NULL, *list = strstr(text, "[1.5,null,4]");
    *list = 0;
    assert_true(asprintf(&wrong, "%s[1.5,null]%s", text, list + strlen("[1.5,null,4]")) > 0);
    scratch_put("metrics.jsonl", wrong);
    assert_int_equal(run_read(scratch, 0, &run), ERR_FORMAT);
    assert_non_null(strstr(status_message(), "'tower_loss' needs an element for each of 3 towers with samples"));
    free(wrong);
    free(text);
}

/* What older versions did not record, the images seen: from rows without gaps, or from epochs over all images; else nothing. */
TEST_WITH(images_of_older_runs, scratch_make, scratch_drop)
{
    static const struct {
        const char *name;
        int images, steps[4], counts[4];
        int64_t seen[4];
    } rows[] = {{"each step", 0, {1, 2, 3, 4}, {8, 8, 4, 8}, {8, 16, 20, 28}},
                {"gaps in epochs of 20 images", 20, {2, 3, 5, 6}, {8, 4, 8, 4}, {16, 20, 36, 40}},
                {"gaps, and nobody knows the images", 0, {2, 3, 5, 6}, {8, 4, 8, 4}, {0, 0, 0, 0}},
                {"short batches alone", 20, {3, 6, 9, 12}, {4, 4, 4, 4}, {0, 0, 0, 0}},
                {"a gap in the middle", 0, {1, 2, 5, 6}, {8, 8, 8, 8}, {8, 16, 0, 0}}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char text[4096], environment[64];
        Text lines = text_start(text, sizeof text);
        for (int i = 0; i < 4; i++)
            text_add(&lines,
                     "{\"step\":%d,\"epoch\":%d,\"lr\":1,\"images\":%d,\"images_per_sec\":1,\"mean_loss\":1,\"total_"
                     "loss\":1,"
                     "\"last_tower_loss\":1,\"tower_loss\":[1],\"tower_count\":[%d],\"finite\":[true],\"grad_norm\":1,"
                     "\"tower_grad_norm\":[1],\"arrival_us\":[],\"data_us\":[],\"top1\":0,\"skipped\":false}\n",
                     rows[r].steps[i], (rows[r].steps[i] - 1) / 3, rows[r].counts[i], rows[r].counts[i]);
        snprintf(environment, sizeof environment, "{\"training_data\": {\"images\": %d}}", rows[r].images);
        scratch_put("env.json", environment);
        Run *run = run_of(text, "");
        for (int i = 0; i < 4; i++)
            if (run->step[i].images_seen != rows[r].seen[i])
                fail_msg("%s, row %d: %" PRId64 " images seen", rows[r].name, i, run->step[i].images_seen);
        run_destroy(run);
    }
}

TEST_WITH(settings_cut_short_are_refused, scratch_make, scratch_drop)
{
    static const char *const cut[] = {"", "# towers train\nlr: 0.5 # from default\n", "# towers train\nlr: 0.5\nqui"};
    Run *run;
    steps_write(3);
    assert_int_equal(run_read(scratch, 0, &run), OK);
    run_destroy(run);
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        scratch_put("args.yaml", cut[i]);
        assert_int_equal(run_read(scratch, 0, &run), ERR_FORMAT);
        assert_non_null(strstr(status_message(), i ? "args.yaml is cut short" : "args.yaml is empty"));
    }
}

/* Cut at every byte: the whole lines are read, nothing else, and nothing fails. */
TEST_WITH(cut_short_anywhere, scratch_make, scratch_drop)
{
    steps_write(3);
    char *text = scratch_text("metrics.jsonl");
    size_t length = strlen(text);
    for (size_t n = 0; n <= length; n++) {
        char path[PATH_BYTES];
        Run *run;
        int64_t lines = 0;
        scratch_path(path, "metrics.jsonl");
        assert_int_equal(file_replace(path, text, n), OK);
        assert_int_equal(run_read(scratch, 0, &run), OK);
        for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
        assert_int_equal(run->steps, lines);
        assert_int_equal(run->cut, n > 0 && text[n - 1] != '\n');
        run_destroy(run);
    }
    free(text);
}

/* A whole line that is wrong is refused by number, wherever it stands. */
TEST_WITH(wrong_lines_are_refused, scratch_make, scratch_drop)
{
    static const struct {
        const char *from, *to;
    } edits[] = {
        {"\"step\":2", "\"step\":1"},
        {"\"step\":2", "\"step\":-2"},
        {"\"step\":2", "\"step\":\"2\""},
        {"\"images\":", "\"images\":100000000000000000"},
        {"\"lr\":", "\"lx\":"},
        {"\"finite\":[true,true]", "\"finite\":[true]"},
        {"\"skipped\":false", "\"skipped\":0"},
        {"\"tower_loss\":[", "\"tower_loss\":[1,"},
        {"\"lr\":", "\"lr\":1,\"lr\":"},
        {"\"terms\":{", "\"terms\":[],\"other\":{"},
        {"\"slope\":2", "\"slope\":\"2\""},
        {"\"slope\":[", "\"slope\":[1,"},
        {"\"slope\":[0.5", "\"slope\":[\"0\""},
    };
    steps_write(3);
    char *text = scratch_text("metrics.jsonl");
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *second = strchr(text, '\n') + 1, *at = strstr(second, edits[i].from), *made;
        Run *run;
        assert_true(asprintf(&made, "%.*s%s%s", (int)(at - text), text, edits[i].to, at + strlen(edits[i].from)) > 0);
        scratch_put("metrics.jsonl", made);
        assert_int_equal(run_read(scratch, 0, &run), ERR_FORMAT);
        if (!strstr(status_message(), "line 2"))
            fail_msg("edit %zu: the message does not name the line: %s", i, status_message());
        free(made);
    }
    free(text);
}

TEST_WITH(wrong_neighbors_are_refused, scratch_make, scratch_drop)
{
    static const char header[] =
        "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds\n";
    char beyond[2][256];
    snprintf(beyond[0], sizeof *beyond, "%s1,1,0.5,0.5,0.5,1.5,,0.1,1,1\n", header);
    snprintf(beyond[1], sizeof *beyond, "%s1,1,0.5,-0.5,0.5,0.5,,0.1,1,1\n", header);
    const char *const others[][2] = {{"results.csv", beyond[0]},
                                     {"results.csv", beyond[1]},
                                     {"results.csv", "nonsense\n"},
                                     {"confusion.csv", "1,2\n3\n"},
                                     {"confusion.csv", "1,2\n"},
                                     {"confusion.csv", "1,-2\n3,4\n"},
                                     {"layers.jsonl", "{\"step\":1,\"layers\":{\"a\":[1]}}\n"},
                                     {"generated.jsonl", "{\"kid\":1}\n"},
                                     {"generated.jsonl", "{\"step\":1,\"kid\":1}\n"}};
    steps_write(3);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        Run *run;
        scratch_put("results.csv", "");
        scratch_put("confusion.csv", "");
        scratch_put("layers.jsonl", "");
        scratch_put("generated.jsonl", "");
        scratch_put(others[i][0], others[i][1]);
        assert_fails(run_read(scratch, 0, &run), ERR_FORMAT, others[i][0]);
    }
}

TEST_WITH(no_run, scratch_make, scratch_drop)
{
    Run *run;
    assert_int_equal(run_read("/nonexistent/run", 0, &run), ERR_ARG);
    assert_int_equal(run_read(scratch, 0, &run), ERR_FORMAT);
    scratch_put("metrics.jsonl", "");
    LossTruth truth;
    assert_int_equal(run_read(scratch, 0, &run), OK);
    assert_int_equal(loss_truth(run, &truth), ERR_FORMAT);
    run_destroy(run);
}
