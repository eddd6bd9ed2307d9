/* What a report says first: each rule of advice.h on a run to which it applies and on one to which it does not, how often chance
 * sets one off, and that no sentence says what the records do not have. */
#include "inception/report/answer.h"
#include "tests/support/noise.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

enum { CLASSES = 3, EPOCHS = 10, STEPS = 600 };

static const NoiseRun quiet = {.towers = 1, .steps = STEPS, .tower_noise = 0.05, .speed_factor = 1};

/* A run with ten epochs: `accuracy`, `test_loss`, `train_loss` and `rate` change by so much from each to the next, and jump up and
 * down by `jitter`. Its classes are recognized in `right` of `samples` images each, and else taken for the next one. */
typedef struct Course {
    double accuracy, test_loss, train_loss, rate, jitter;
    int64_t right[CLASSES], samples[CLASSES];
    const char *args, *environment;
    uint64_t seed;
} Course;

static const Course flat = {
    .train_loss = -0.01, .rate = 1, .jitter = 0.01, .right = {900, 900, 900}, .samples = {1000, 1000, 1000}};

static Run *run_with(const Course *c)
{
    Run *run = noise_run(&quiet, c->seed);
    run->epochs = EPOCHS;
    run->epoch = calloc(EPOCHS, sizeof *run->epoch);
    run->classes = CLASSES;
    run->confusion = calloc(CLASSES * CLASSES, sizeof *run->confusion);
    assert_true(run->epoch && run->confusion);
    for (int i = 0; i < EPOCHS; i++) {
        EpochRecord *e = &run->epoch[i];
        epoch_clear(e);
        e->epoch = i + 1;
        e->step = (i + 1) * STEPS / EPOCHS;
        e->test_top1 = 0.85 + i * c->accuracy + c->jitter * noise_normal(c->seed, (uint32_t)i);
        e->test_loss = 0.5 + i * c->test_loss + c->jitter * noise_normal(c->seed + 1, (uint32_t)i);
        e->train_loss = 0.4 + i * c->train_loss + c->jitter * noise_normal(c->seed + 2, (uint32_t)i);
        e->lr = pow(c->rate, i);
    }
    for (int k = 0; k < CLASSES; k++) {
        run->confusion[k * CLASSES + k] = c->right[k];
        run->confusion[k * CLASSES + (k + 1) % CLASSES] = c->samples[k] - c->right[k];
    }
    /* The matrix is that of the best evaluation. */
    double best = 0, wanted = (double)(c->right[0] + c->right[1] + c->right[2]) /
                              (double)(c->samples[0] + c->samples[1] + c->samples[2]);
    for (int i = 0; i < EPOCHS; i++) best = fmax(best, run->epoch[i].test_top1);
    for (int i = 0; i < EPOCHS; i++) run->epoch[i].test_top1 += wanted - best;
    if (c->args) {
        free(run->args);
        run->args = strdup(c->args);
    }
    return run;
}

static RunAnswer said; /* by the last call of kind_of */

static AdviceKind kind_of_run(Run *run, const char *environment)
{
    Advice advice;
    json_t *root = environment ? json_loads(environment, 0, NULL) : NULL;
    advice_make(run, run, root, &advice);
    answer_make(run, run, root, &advice, &said);
    json_decref(root);
    return advice.kind;
}

static AdviceKind kind_of(const Course *course)
{
    Run *run = run_with(course);
    AdviceKind kind = kind_of_run(run, course->environment);
    run_destroy(run);
    return kind;
}

static void says(const char *text)
{
    if (!strstr(said.found, text) && !strstr(said.next, text))
        fail_msg("'%s' is not in: %s%s", text, said.found, said.next);
}

static void says_not(const char *text)
{
    if (strstr(said.found, text) || strstr(said.next, text)) fail_msg("'%s' is in: %s%s", text, said.found, said.next);
}

TEST(nothing_stands_out)
{
    assert_int_equal(kind_of(&flat), ADVICE_NOTHING);
    says("The test accuracy is 90.00 % of 3000 images (95 % interval 88.9 to 91.0 %; always naming the most frequent "
         "class: 33.3 %)");
    says("It no longer clearly rises (over the last 5 evaluations). ");
    says("No class is clearly weaker than the others. No step was damaged. ");
    says("nothing stands out");
    Run *run = run_with(&flat); /* a matrix of other weights says nothing of this accuracy */
    for (int i = 0; i < EPOCHS; i++) run->epoch[i].test_top1 -= 0.1;
    kind_of_run(run, NULL);
    says("The test accuracy is 80.00 %, with the weights of epoch ");
    run_destroy(run);
}

TEST(too_short)
{
    Course rising = flat;
    rising.accuracy = 0.01, rising.jitter = 0.0001;
    rising.train_loss = 0;
    assert_int_equal(kind_of(&rising), ADVICE_SHORT);
    says("It still rises, by 1.00 points from an evaluation to the next (over the last 5 evaluations). ");
    says("more --epochs, as accuracy rose to the end.");
    rising.rate =
        0.8; /* the rate falls below the half of it in five evaluations, but nothing is left to learn in either case */
    rising.train_loss = 0.01, rising.test_loss = -0.02;
    assert_int_equal(kind_of(&rising), ADVICE_SHORT);
    rising.test_loss = 0;
    rising.train_loss = -0.01;
    assert_int_equal(kind_of(&rising), ADVICE_NOTHING); /* the rise ends with the rate */
    says("It still rises while the learning rate falls, by 1.00 points");
    Course falling = flat;
    falling.accuracy = -0.01, falling.jitter = 0.0001;
    assert_int_equal(kind_of(&falling), ADVICE_NOTHING);
    says("It falls, by 1.00 points from an evaluation to the next");
}

TEST(overfits)
{
    Course c = flat;
    c.test_loss = 0.05, c.jitter = 0.001;
    c.args = "augment: false  # from default\nauto-augment: none  # from default\nmixup: 0  # from default\n";
    assert_int_equal(kind_of(&c), ADVICE_OVERFITS);
    says(
        "the test loss has risen from 0.5 in epoch 1 to 0.95 while the training loss fell: --augment, or more images.");
    c.args = "augment: true  # from recipe\nauto-augment: none  # from default\nmixup: 0  # from default\n";
    kind_of(&c);
    says("--mixup 0.2");
    c.args = "augment: true  # from recipe\nmixup: 0.4  # from default\n";
    kind_of(&c);
    says("--weight-decay");
    c.train_loss = 0.02; /* both rise: that is another trouble */
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
    c.train_loss = -0.01, c.test_loss = 0;
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
}

TEST(rate_too_high)
{
    Run *run = run_with(&flat);
    for (int64_t i = STEPS * 9 / 10; i < STEPS; i++) run->step[i].mean_loss += 0.1;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_RATE);
    says("a lower --lr, as the training loss rose from 0.3");
    for (int64_t i = STEPS / 2; i < STEPS; i++) run->step[i].mean_loss = 0.3 + 0.001 * noise_normal(1, (uint32_t)i);
    assert_int_equal(kind_of_run(run, NULL), ADVICE_NOTHING);
    for (int64_t i = STEPS * 9 / 10; i < STEPS; i++)
        run->step[i].mean_loss += 0.02; /* clear, but less than a tenth of it */
    assert_int_equal(kind_of_run(run, NULL), ADVICE_NOTHING);
    for (int64_t i = STEPS * 9 / 10; i < STEPS; i++) run->step[i].mean_loss += 0.02;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_RATE);
    run_destroy(run);
}

TEST(damaged)
{
    Run *run = run_with(&flat);
    bool *finite = (bool *)run->step[99].finite;
    *finite = false;
    run->step[99].mean_loss = NAN;
    run->step[99].skipped = true;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_DAMAGED);
    says("1 of 600 steps was damaged, first step 100, whose loss or gradient was not finite; it was refused and "
         "changed no weight. ");
    says("a lower --lr, or --clip-norm 1.");
    free(run->args);
    run->args = strdup("nan-check: last  # from command line\n");
    run->step[99].skipped = false;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_DAMAGED);
    says("; the weights have taken it. ");
    says("--nan-check all");
    run->step[99].overflow = run->step[99].skipped = true; /* the scale of fp16 tries what fits */
    assert_int_equal(kind_of_run(run, NULL), ADVICE_NOTHING);
    says("No step was damaged. 1 step overflowed in fp16 and was left out. ");
    run_destroy(run);
}

/* The capsule of the step is in the folder of the run. */
TEST_WITH(damaged_with_a_capsule, scratch_make, scratch_drop)
{
    char path[PATH_BYTES];
    Run *run = run_with(&flat);
    free(run->path);
    run->path = strdup(scratch);
    *(bool *)run->step[6].finite = false;
    scratch_path(path, "nan-step-7-tower-0");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(kind_of_run(run, NULL), ADVICE_DAMAGED);
    says("find out where it began: towers replay ");
    says("/nan-step-7-tower-0.");
    run_destroy(run);
}

TEST(unbalanced)
{
    Course c = flat;
    c.environment =
        "{\"training_data\": {\"class_images\": [9000, 9000, 1000]}, \"class_names\": [\"cat\", \"dog\", \"<owl>\"]}";
    c.right[2] = 700;
    assert_int_equal(kind_of(&c), ADVICE_UNBALANCED);
    says("The weakest class is <owl> (70.0 % of 1000, most often taken for cat: 300 times). ");
    says("--class-weights auto, as classes with few training images are recognized less often (70.0 % of their test "
         "images, 90.0 %");
    c.right[2] = 890;
    assert_int_equal(kind_of(&c), ADVICE_NOTHING); /* as well as the others */
    c.right[2] = 700;
    c.args = "class-weights: auto  # from command line\n";
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
    c.args = "sampler: balanced  # from command line\n";
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
    c.args = NULL;
    c.environment = "{\"training_data\": {\"class_images\": [1000, 1000, 1000]}}";
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
    says("The weakest class is class 2 ("); /* names are not known */
}

/* Names of another number of classes than were evaluated are not theirs; without an evaluation they are all there is. */
TEST(names_of_classes)
{
    char text[64];
    Run *run = run_with(&flat);
    json_t *two = json_pack("{s:[ss]}", "class_names", "cat", ""),
           *three = json_pack("{s:[sss]}", "class_names", "a", "b", "c");
    assert_string_equal(class_name(two, run, 0, text), "class 0");
    assert_string_equal(class_name(three, run, 2, text), "c");
    assert_string_equal(class_name(NULL, run, 2, text), "class 2");
    run->classes = 0;
    assert_string_equal(class_name(two, run, 0, text), "cat");
    assert_string_equal(class_name(two, run, 1, text), "class 1");
    json_decref(two);
    json_decref(three);
    run_destroy(run);
}

TEST(learned_nothing)
{
    Course c = flat;
    for (int k = 0; k < CLASSES; k++) c.right[k] = 340;
    assert_int_equal(kind_of(&c), ADVICE_LEARNED_NOTHING);
    says("--lr auto");
    for (int k = 0; k < CLASSES; k++) c.right[k] = 400;
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
    Run *run = run_with(&flat); /* without an evaluation */
    run->epochs = run->classes = 0;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_FEW);
    says("The run has no evaluation, so its accuracy is not known. The training loss went from 2.");
    says("a run that is evaluated");
    says_not("class");
    for (int64_t i = 0; i < STEPS; i++) run->step[i].mean_loss = 2.3 + 0.05 * noise_normal(3, (uint32_t)i);
    assert_int_equal(kind_of_run(run, NULL), ADVICE_LEARNED_NOTHING);
    run_destroy(run);
}

TEST(few_images)
{
    Course c = flat;
    for (int k = 0; k < CLASSES; k++) c.samples[k] = 7, c.right[k] = 3; /* 9 of 21: guessing, or 63 % */
    assert_int_equal(kind_of(&c), ADVICE_FEW_IMAGES);
    says("more images for evaluation, as 21 are too few to tell this from guessing.");
    for (int k = 0; k < CLASSES; k++) c.right[k] = 6;
    assert_int_equal(kind_of(&c), ADVICE_NOTHING);
}

TEST(few_evaluations)
{
    Run *run = run_with(&flat);
    run->epochs = 3;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_FEW);
    says("; 3 evaluations are too few to say whether it still rises. ");
    says("at least 5 evaluations");
    for (int64_t i = 0; i < 2; i++) run->epoch[i].test_top1 = ABSENT;
    assert_int_equal(kind_of_run(run, NULL), ADVICE_FEW);
    says_not("too few to say"); /* nothing to compare it with */
    run_destroy(run);
}

/* Networks that train against each other: no advice, and no accuracy that they do not have. */
TEST(several_phases)
{
    Run *run = run_with(&flat);
    run->epochs = run->classes = 0;
    run->phase = "critic";
    assert_int_equal(kind_of_run(run, NULL), ADVICE_NONE);
    says("The generated images were not measured");
    says_not("accuracy");
    assert_string_equal(said.next, "");
    RunKid *kid = calloc(2, sizeof *kid);
    assert_non_null(kid);
    kid[0] = (RunKid){.step = 100, .kid = 0.5};
    kid[1] = (RunKid){.step = 600, .kid = 0.125};
    run->kid = kid;
    run->kids = 2;
    kind_of_run(run, NULL);
    says("The KID of the generated images is 0.125 after step 600, from 0.5 at first; lower is closer");
    run_destroy(run);
}

/* Runs in which nothing changes but by chance. A weak class of few images is no finding. */
TEST(chance)
{
    enum { RUNS = 400 };
    int found = 0, rises = 0;
    for (uint64_t k = 0; k < RUNS; k++) {
        Course c = flat;
        c.seed = 100 * k;
        c.train_loss = 0;
        found += kind_of(&c) != ADVICE_NOTHING;
        rises += strstr(said.found, "still rises") != NULL;
    }
    if (found > 0.03 * RUNS || rises > 0.02 * RUNS) fail_msg("%d findings, %d rises of %d runs", found, rises, RUNS);
    Course few = flat;
    for (int i = 0; i < CLASSES; i++) few.samples[i] = 20, few.right[i] = 18;
    few.right[1] = 15;
    kind_of(&few);
    says("No class is clearly weaker");
    few.right[1] = 3;
    kind_of(&few);
    says("The weakest class is class 1 (15.0 % of 20, most often taken for class 2: 17 times). ");
}
