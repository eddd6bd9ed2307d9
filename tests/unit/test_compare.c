/* compare: its results for runs whose difference is known, that equal runs are reported as equal, and that a run
 * directory is read strictly. */

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
        int64_t images;
        Run *a = noise_run(&what, 23), *b = noise_run(&what, 23);
        steps_remove(b, 25, 2);
        steps_remove(b, 0, 10);
        assert_int_equal(run_images(b, &images), OK);
        assert_int_equal(images, 40 * 50);
        assert_int_equal(swapped ? run_difference(b, a, &d) : run_difference(a, b, &d), OK);
        assert_int_equal(d.steps, 14); /* the later half of 28 pairs: 24, 25, 28 to 40 */
        assert_int_equal(d.images_from, 24 * 50);
        assert_int_equal(d.images_to, 40 * 50);
        near(d.loss.change.mean, 0, 0);
        run_destroy(a);
        run_destroy(b);
    }
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
    assert_true(isnan(d.kid.a) && isnan(d.kid.b) && d.kid.change.p == 1);
    kid_set(a, "fashion_cnn 12ab", 8, 0.3);
    assert_int_equal(run_difference(a, b, &d), OK);
    assert_true(d.kid.a == 8 && isnan(d.kid.b) && d.kid.change.p == 1 && !d.other_features);
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
    assert_true(d.other_features && d.kid.b == 5 && isnan(d.kid.change.mean) && d.kid.change.p == 1);
    run_destroy(a);
    run_destroy(b);
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
        StepRecord record = {.step = i,
                             .lr = 0.1,
                             .images = 8,
                             .images_per_sec = 100,
                             .tower = towers,
                             .towers = 2,
                             .mean_loss = i == 3 ? NAN : 3.0 * i / 8,
                             .tower_grad_norm = norms,
                             .arrival_us = arrival,
                             .skipped = i == 3};
        if (i == 2) record.terms = 2, record.term = term;
        metrics_step(metrics, &record);
    }
    EpochRecord epoch = {.epoch = 1, .step = count, .train_loss = 0.5, .test_top1 = 0.75, .test_loss = NAN, .kid = NAN};
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
    assert_true(isnan(run->step[1].data_us[0]));
    assert_true(isnan(run->step[2].tower_loss[1]) && !run->step[2].finite[1] && run->step[2].skipped);
    assert_int_equal(run->epochs, 1);
    near(run->epoch[0].test_top1, 0.75, 0);
    assert_true(isnan(run->epoch[0].test_loss));
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
    static const char *const others[][2] = {{"results.csv", "nonsense\n"},
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
