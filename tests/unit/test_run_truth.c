/* The records of a run, compared with plain loops in double: losses, correct predictions and the confusion matrix of
 * an evaluation, the parts of the loss, averages, times, dropout of several towers, statistics of batch norm. The
 * weights are given and the learning rate is 0, so every number follows from the data. And what a run keeps: its best
 * checkpoint, and its counts of bad samples and of skipped steps. */

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/support/scratch.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/data/loading/sheet.h"
#include "towers/data/sources/reader.h"
#include "towers/files/csv.h"
#include "towers/graph/layers.h"
#include "towers/record/run_read.h"
#include "towers/replica/hooks.h"
#include "towers/store/checkpoint.h"
#include "towers/train/process.h"

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 10, TRAIN = 64, TEST = 50, TEST_BLOCK = 16, TOP = 5 };

static const double WEIGHT_DECAY = 0.25, AUX_WEIGHT = 0.3;
static const Init zero = {.kind = INIT_ZERO};

/* ---- networks, and their weights */

static void linear(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    graph_canonical(g, SIDE);
    heads->logits = dense(g, x, "head", options->classes, false, zero);
}

static void two_heads(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    linear(g, options, networks, x, heads);
    if (options->aux) heads->aux[heads->aux_count++] = dense(g, x, "aux", options->classes, false, zero);
}

static void dropped(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    linear(g, options, networks, dropout(g, x, 0.5f), heads);
}

static void skipped(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    linear(g, options, networks, stochastic_depth(g, x, 0.5f), heads);
}

static void normed(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    linear(g, options, networks, conv_bn_relu(g, x, (ConvUnit){"unit", 1, 1, 1, .fit = VALID}), heads);
}

static Model model_of(void (*build)(Graph *, const ModelOptions *, const void *, Value, ModelHeads *))
{
    return (Model){.name = "given",
                   .title = "",
                   .paper = "",
                   .side = SIDE,
                   .min_side = SIDE,
                   .aux_min_side = SIDE,
                   .channels = 1,
                   .classes = CLASSES,
                   .aux_weight = (float)AUX_WEIGHT,
                   .std = {1, 1, 1},
                   .build = build};
}

typedef struct Weights {
    float head[CLASSES][PIXELS], aux[CLASSES][PIXELS];
} Weights;

static Weights given;

static void tensors_put(const char *name, const StTensor *tensors, int count)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    assert_int_equal(safetensors_replace(path, tensors, count, NULL, 0), OK);
}

static void weights_make(void)
{
    static const float zeros[CLASSES], one = 1;
    uint64_t state = 1;
    for (int i = 0; i < 2 * CLASSES * PIXELS; i++) {
        float *rows = i < CLASSES * PIXELS ? &given.head[0][0] : &given.aux[0][0];
        state = state * 6364136223846793005u + 1442695040888963407u;
        rows[i % (CLASSES * PIXELS)] = (float)((double)(state >> 40) / 8388608.0 - 1.0);
    }
    const StTensor tensors[] = {
        {"aux.weight", ST_F32, 2, {CLASSES, PIXELS}, given.aux, sizeof given.aux},
        {"aux.bias", ST_F32, 1, {CLASSES}, zeros, sizeof zeros},
        {"head.weight", ST_F32, 2, {CLASSES, PIXELS}, given.head, sizeof given.head},
        {"head.bias", ST_F32, 1, {CLASSES}, zeros, sizeof zeros},
        {"unit.conv.weight", ST_F32, 4, {1, 1, 1, 1}, &one, sizeof one},
        {"unit.bn.weight", ST_F32, 1, {1}, &one, sizeof one},
        {"unit.bn.bias", ST_F32, 1, {1}, zeros, sizeof one},
        {"unit.bn.running_mean", ST_F32, 1, {1}, zeros, sizeof one},
        {"unit.bn.running_var", ST_F32, 1, {1}, &one, sizeof one},
    };
    tensors_put("two_heads.safetensors", tensors, 4);
    tensors_put("linear.safetensors", tensors + 2, 2);
    tensors_put("normed.safetensors", tensors + 2, 7);
}

/* ---- plain loops */

typedef struct Guess {
    double loss, probability; /* of the best class */
    int label, best, rank;    /* rank of the true class, from 0 */
} Guess;

static void pixels_read(const Source *data, int64_t index, uint8_t pixels[PIXELS], int32_t *label)
{
    Bytes bytes = {0};
    assert_int_equal(source_read(data, index, &bytes, label), OK);
    assert_int_equal(bytes.size, PIXELS);
    memcpy(pixels, bytes.data, PIXELS);
    bytes_free(&bytes);
}

/* Returns the sample's label. */
static int32_t logits_compute(const Source *data, int64_t index, float (*rows)[PIXELS], double logit[CLASSES])
{
    uint8_t pixels[PIXELS];
    int32_t label;
    pixels_read(data, index, pixels, &label);
    for (int k = 0; k < CLASSES; k++) {
        logit[k] = 0;
        for (int i = 0; i < PIXELS; i++) logit[k] += (double)rows[k][i] * pixels[i] / 255;
    }
    return label;
}

static Guess guess(const Source *data, int64_t index, float (*rows)[PIXELS])
{
    double logit[CLASSES], sum = 0;
    int32_t label = logits_compute(data, index, rows, logit);
    Guess found = {.label = label};
    for (int k = 0; k < CLASSES; k++) {
        sum += exp(logit[k] - logit[label]);
        found.rank += logit[k] > logit[label];
        if (logit[k] > logit[found.best]) found.best = k;
    }
    found.loss = log(sum);
    found.probability = exp(logit[found.best] - logit[label]) / sum;
    return found;
}

static double loss_of(const Source *data, float (*rows)[PIXELS])
{
    int64_t count = source_info(data)->count;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += guess(data, i, rows).loss;
    return sum / (double)count;
}

static double hits_of(const Source *data, int top)
{
    int64_t count = source_info(data)->count;
    int correct = 0;
    for (int64_t i = 0; i < count; i++) correct += guess(data, i, given.head).rank < top;
    return correct / (double)count;
}

static double square_sum(float (*rows)[PIXELS])
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < PIXELS; i++) sum += (double)rows[c][i] * (double)rows[c][i];
    return sum;
}

static void near(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-5 * fmax(1, fabs(wanted)))) fail_msg("%s is %.9g, wanted %.9g", what, got, wanted);
}

/* ---- runs */

static Source *train_data, *test_data;
static EvalSample found_of[TEST]; /* by the last evaluation of the last run */

static TrainJob job_of(const Model *model, int towers)
{
    const Backend *cpu;
    assert_int_equal(backend_find("cpu", &cpu, NULL, 0), OK);
    TrainJob job = job_plain(cpu, model, train_data, SIDE, towers, TRAIN / towers);
    job.program.aux_weight = (float)AUX_WEIGHT;
    job.eval_batch = TEST_BLOCK;
    job.eval_interval = 1;
    return job;
}

/* Runs in the folder `name`; *correct receives what the ledger says of its last step, unless NULL. */
static Status run_try(TrainJob job, const char *name, int64_t correct[2])
{
    char start[PATH_BYTES], run_dir[PATH_BYTES];
    scratch_path(start, job.program.model->build == two_heads ? "two_heads.safetensors"
                        : job.program.model->build == normed  ? "normed.safetensors"
                                                              : "linear.safetensors");
    scratch_path(run_dir, name);
    assert_int_equal(directory_create(run_dir), OK);
    job.initial_weights = start;
    job.run_dir = run_dir;
    JobMemory memory = job_memory(&job);
    Ledger *ledger = memory.ledger;
    if (job.test) assert_int_equal(ledger_samples(ledger, TEST, 0), OK);
    Status st = tower_process_train(&job, 0, ledger, memory.shared);
    for (int k = 0; correct && k < 2; k++) {
        correct[k] = 0;
        for (int t = 0; t < job.local_batches.towers; t++) correct[k] += ledger_row(ledger, t, 1)->loss.correct[k];
    }
    if (job.test) memcpy(found_of, ledger->sample, sizeof found_of);
    job_memory_free(&memory);
    return st;
}

/* Runs to its end. */
static Run *run_live(TrainJob job, const char *name, int64_t correct[2])
{
    char path[PATH_BYTES];
    Run *run = NULL;
    scratch_path(path, name);
    if (run_try(job, name, correct) != OK || run_read(path, 0, &run) != OK) fail_msg("%s", status_message());
    return run;
}

/* A number of the last line of metrics.jsonl, or the element `index` of an array of them. */
static double metric(const char *name, const char *key, size_t index)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    char *text = scratch_text(path);
    text[strlen(text) - 1] = 0;
    const char *last = strrchr(text, '\n');
    json_t *line = json_loads(last ? last + 1 : text, 0, NULL);
    const json_t *value = json_object_get(line, key);
    if (json_is_array(value)) value = json_array_get(value, index);
    if (!json_is_number(value)) fail_msg("metrics.jsonl has no number %s", key);
    double number = json_number_value(value);
    json_decref(line);
    free(text);
    return number;
}

/* ---- what they say */

/* The canvas is larger than what the network sees: training crops at random, evaluation in the middle. */
TEST(test_evaluation)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    int64_t wanted[CLASSES][CLASSES] = {{0}};
    job.test = test_data;
    job.data.train = (Transform){.shift = true, .flip = FLIP_RANDOM};
    job.program.canvas = SIDE + 4;
    Run *run = run_live(job, "evaluation", NULL);
    assert_int_equal(run->epochs, 1);
    near("test_loss", run->epoch[0].test_loss, loss_of(test_data, given.head));
    near("test_top1", run->epoch[0].test_top1, hits_of(test_data, 1));
    near("test_top5", run->epoch[0].test_top5, hits_of(test_data, TOP));
    assert_true(hits_of(test_data, 1) < hits_of(test_data, TOP));
    for (int64_t i = 0; i < TEST; i++) {
        Guess found = guess(test_data, i, given.head);
        wanted[found.label][found.best]++;
    }
    assert_int_equal(run->classes, CLASSES);
    assert_memory_equal(run->confusion, wanted, sizeof wanted);
    run_destroy(run);
}

/* The values kept for each sample, and the list of the most confident mistakes. */
TEST(test_mistakes)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 2);
    int mistakes = 0, rows = 0;
    double before = 1;
    job.test = test_data;
    run_destroy(run_live(job, "mistakes", NULL));
    for (int64_t i = 0; i < TEST; i++) {
        Guess wanted = guess(test_data, i, given.head);
        assert_int_equal(found_of[i].label, wanted.label);
        assert_int_equal(found_of[i].predicted, wanted.best);
        near("probability", (double)found_of[i].probability, wanted.probability);
        near("loss", (double)found_of[i].loss, wanted.loss);
        mistakes += wanted.best != wanted.label;
    }
    assert_true(mistakes > SHEET_IMAGES); /* or nothing below is cut off */
    char *text = scratch_text("mistakes/mistakes.csv"), *rest = text;
    assert_string_equal(strsep(&rest, "\n"), "sample,file,label,predicted,probability,loss");
    for (char *row; (row = strsep(&rest, "\n")) && *row; rows++) {
        Guess wanted = guess(test_data, atoll(csv_take(&row)), given.head);
        assert_non_null(csv_take(&row));
        assert_int_equal(atoi(csv_take(&row)), wanted.label);
        assert_int_equal(atoi(csv_take(&row)), wanted.best);
        assert_true(wanted.best != wanted.label && wanted.probability <= before + 1e-6);
        before = wanted.probability;
        near("probability in the list", atof(csv_take(&row)), wanted.probability);
        near("loss in the list", atof(csv_take(&row)), wanted.loss);
    }
    assert_int_equal(rows, SHEET_IMAGES);
    free(text);
    text = scratch_text("mistakes/mistakes.jpg");
    assert_memory_equal(text, "\xff\xd8\xff", 3);
    free(text);
    text = scratch_text("mistakes/first-batch.jpg");
    assert_memory_equal(text, "\xff\xd8\xff", 3);
    free(text);
}

/* With --loss bce each class is a decision of its own. */
TEST(test_losses_of_decisions)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 2);
    double sum = 0;
    job.test = test_data;
    job.program.loss = LOSS_BCE;
    job.program.targets = true;
    Run *run = run_live(job, "decisions", NULL);
    for (int64_t i = 0; i < TEST; i++) {
        double logit[CLASSES], loss = 0;
        int32_t label = logits_compute(test_data, i, given.head, logit);
        for (int k = 0; k < CLASSES; k++) loss += log1p(exp(k == label ? -logit[k] : logit[k])) / CLASSES;
        near("loss", (double)found_of[i].loss, loss);
        sum += loss;
    }
    near("test_loss", run->epoch[0].test_loss, sum / TEST);
    run_destroy(run);
}

TEST(test_training)
{
    Model model = model_of(linear);
    for (int towers = 1; towers <= 4; towers *= 2) {
        char name[32];
        int64_t correct[2];
        snprintf(name, sizeof name, "training%d", towers);
        Run *run = run_live(job_of(&model, towers), name, correct);
        near("train_loss", run->epoch[0].train_loss, loss_of(train_data, given.head));
        near("train_top1", run->epoch[0].train_top1, hits_of(train_data, 1));
        near("top1 of the ledger", (double)correct[0] / TRAIN, hits_of(train_data, 1));
        near("top5 of the ledger", (double)correct[1] / TRAIN, hits_of(train_data, TOP));
        run_destroy(run);
    }
}

/* A number of the newest checkpoint's state. */
static double state_number(const char *name, const char *key)
{
    char path[PATH_BYTES];
    Checkpoint *checkpoint;
    scratch_path(path, name);
    assert_int_equal(checkpoint_open_latest(path, true, &checkpoint, NULL, 0), OK);
    json_t *state = json_loads(checkpoint->state_json, 0, NULL);
    const json_t *value = json_object_get(state, key);
    if (!json_is_number(value)) fail_msg("state.json has no number %s", key);
    double number = json_number_value(value);
    json_decref(state);
    checkpoint_close(checkpoint);
    return number;
}

TEST(test_parts_of_the_loss)
{
    Model model = model_of(two_heads);
    TrainJob job = job_of(&model, 2);
    double main_loss = loss_of(train_data, given.head), aux = loss_of(train_data, given.aux),
           base = main_loss + AUX_WEIGHT * aux, weights = square_sum(given.head) + square_sum(given.aux);
    assert_true(fabs(main_loss - aux) > 0.01);
    job.program.options.aux = true;
    job.weight_decay = WEIGHT_DECAY;
    job.epochs = 3;
    run_destroy(run_live(job, "parts", NULL));
    near("main_loss", metric("parts", "main_loss", 0), main_loss);
    near("aux_loss", metric("parts", "aux_loss", 0), aux);
    near("base_loss", metric("parts", "base_loss", 0), base);
    near("l2_loss", metric("parts", "l2_loss", 0), WEIGHT_DECAY / 2 * weights);
    near("total_loss", metric("parts", "total_loss", 0), base + WEIGHT_DECAY / 2 * weights);
    double moved = 1 - 0.9 * 0.9 * 0.9; /* three times 0.1 of the same number */
    near("base_average", state_number("parts", "base_average"), moved * base);
    near("total_average", state_number("parts", "total_average"), moved * (base + WEIGHT_DECAY / 2 * weights));
    job.program.freeze = "aux.*";
    run_destroy(run_live(job, "frozen", NULL));
    near("l2_loss without what is frozen", metric("frozen", "l2_loss", 0), WEIGHT_DECAY / 2 * square_sum(given.head));
}

/* A tower's gradients arrive within its step, after it has gone forward and back. */
TEST(test_times)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    job.epochs = 20;
    Run *run = run_live(job, "times", NULL);
    double arrival = 0, step = 0, passes = 0;
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *s = &run->step[i];
        step += (double)s->images / s->images_per_sec * 1e6;
        arrival += s->arrival_us[0];
        passes += s->forward_us[0] + s->backward_us[0];
        assert_true(s->forward_us[0] >= 0 && s->backward_us[0] >= 0 && s->data_us[0] >= 0 && s->copy_us[0] >= 0);
    }
    if (!(arrival <= step)) fail_msg("gradients arrive after %g us of steps of %g us", arrival, step);
    if (!(arrival + 2 * (double)run->steps >= passes)) fail_msg("%g us of passes, arrival after %g", passes, arrival);
    run_destroy(run);
}

/* Every tower and every step has masks of its own: the same images have other losses. */
TEST(test_dropout)
{
    Model model = model_of(dropped);
    Source *all = train_data;
    assert_int_equal(source_synthetic(1, CLASSES, SIDE, SIDE, 1, 7, &train_data), OK);
    TrainJob job = job_of(&model, 2);
    uint8_t pixels[PIXELS];
    static unsigned char images[16 + 2 * PIXELS] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 3};
    char path[PATH_BYTES];
    int32_t label;
    pixels_read(train_data, 0, pixels, &label);
    for (int i = 0; i < 2; i++) memcpy(images + 16 + i * PIXELS, pixels, PIXELS);
    source_close(train_data);
    scratch_path(path, "train-images-idx3-ubyte");
    assert_int_equal(file_replace(path, images, sizeof images), OK);
    scratch_path(path, "train-labels-idx1-ubyte");
    assert_int_equal(file_replace(path, labels, sizeof labels), OK);
    if (source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &train_data) != OK) fail_msg("%s", status_message());
    job.train = train_data;
    job.local_batches = batches_equal(2, 1);
    job.epochs = 2;
    Run *run = run_live(job, "dropout", NULL);
    assert_int_equal(run->steps, 2);
    assert_true(run->step[0].tower_loss[0] != run->step[0].tower_loss[1]);
    assert_true(run->step[1].tower_loss[0] != run->step[1].tower_loss[1]);
    assert_true(run->step[0].tower_loss[0] != run->step[1].tower_loss[0]);
    run_destroy(run);
    source_close(train_data);
    train_data = all;
}

static void masks_follow_samples(Model model, const char *what)
{
    double loss[4];
    for (int way = 0; way < 4; way++) {
        char name[16];
        TrainJob job = job_of(&model, way == 1 ? 3 : way == 3 ? 2 : 1);
        if (way == 1) job.local_batches = batches_of(3, (int32_t[]){13, 0, 51});
        if (way == 2) job.local_batches = batches_equal(1, 16);
        if (way == 3) job.local_batches = batches_of(2, (int32_t[]){7, 25});
        job.accumulate = TRAIN / (int)global_batch_of(&job.local_batches);
        snprintf(name, sizeof name, "%s-%d", what, way);
        Run *run = run_live(job, name, NULL);
        assert_int_equal(run->steps, 1);
        run_destroy(run);
        loss[way] = metric(name, "mean_loss", 0);
    }
    if (fabs(loss[0] - loss_of(train_data, given.head)) < 0.01) fail_msg("nothing was dropped");
    near("the loss of three towers", loss[1], loss[0]);
    near("the loss of four batches", loss[2], loss[0]);
    near("the loss of two towers with two batches", loss[3], loss[0]);
}

/* A sample has the mask of its place in the step, whatever tower and batch it is in; so it is with what stochastic depth drops. */
TEST(test_masks_follow_samples)
{
    masks_follow_samples(model_of(dropped), "masks");
    masks_follow_samples(model_of(skipped), "depth");
}

/* PyTorch's running variance is that of a sample: divided by one less than the number of values. */
TEST(test_running_variance)
{
    Model model = model_of(normed);
    char path[PATH_BYTES];
    double sum = 0, squares = 0, values = (double)TRAIN * PIXELS;
    SafeTensors *file;
    float mean, variance;
    run_destroy(run_live(job_of(&model, 1), "normed", NULL));
    for (int64_t i = 0; i < TRAIN; i++) {
        uint8_t pixels[PIXELS];
        int32_t label;
        pixels_read(train_data, i, pixels, &label);
        for (int k = 0; k < PIXELS; k++) {
            sum += pixels[k] / 255.0;
            squares += pixels[k] / 255.0 * pixels[k] / 255.0;
        }
    }
    scratch_path(path, "normed/last.safetensors");
    assert_int_equal(safetensors_open(path, &file), OK);
    memcpy(&mean, safetensors_find(file, "unit.bn.running_mean")->data, sizeof mean);
    memcpy(&variance, safetensors_find(file, "unit.bn.running_var")->data, sizeof variance);
    near("running_mean", (double)mean, sum / values);
    near("running_var", (double)variance, (squares - sum * sum / values) / (values - 1));
    assert_true(1 / values > 2e-5); /* the other divisor would show */
    safetensors_close(file);
}

/* ---- what is kept */

static bool has_checkpoint(const char *name, int step)
{
    char inside[64], path[PATH_BYTES];
    snprintf(inside, sizeof inside, "%s/ckpt/step-%010d", name, step);
    scratch_path(path, inside);
    return access(path, F_OK) == 0;
}

/* The checkpoint of the best weights stays, however many are saved after it. */
TEST(test_best_checkpoint_stays)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    job.test = test_data;
    job.epochs = 4;
    run_destroy(run_live(job, "best", NULL)); /* later weights are the same, so no better */
    near("best_step", state_number("best", "best_step"), 1);
    for (int step = 1; step <= 4; step++) assert_int_equal(has_checkpoint("best", step), step == 1 || step == 4);
}

/* The bytes of each list of the run that an fsync has made durable so far, and of the calls that rename a checkpoint to
 * step-N those behind which they did not reach the row of step N. */
static const char *const synced_names[] = {"metrics.jsonl", "results.csv", "samples.csv", "log.txt"};
enum { SYNCED = sizeof synced_names / sizeof *synced_names, WORDS = 40 };
static struct stat synced[SYNCED];
static int published;
static char behind[SYNCED][WORDS];

int fsync(int fd)
{
    struct stat info;
    char path[PATH_BYTES];
    for (int i = 0; i < SYNCED && fstat(fd, &info) == 0; i++) {
        struct stat named;
        snprintf(path, sizeof path, "%s/synced/%s", scratch, synced_names[i]);
        if (stat(path, &named) == 0 && named.st_ino == info.st_ino) synced[i] = info;
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    const char *name = strrchr(to, '/');
    if (name && strncmp(name, "/step-", 6) == 0 && strstr(to, "/synced/ckpt/")) {
        const int step = atoi(name + 6);
        char row[SYNCED][WORDS];
        snprintf(row[0], WORDS, "{\"step\":%d,", step);
        snprintf(row[1], WORDS, "\n%d,%d,", step, step); /* an epoch has one step */
        snprintf(row[2], WORDS, "%d,%d,0,", step, step - 1);
        snprintf(row[3], WORDS, "Epoch %d,", step);
        for (int i = 0; i < SYNCED; i++) {
            char path[PATH_BYTES];
            snprintf(path, sizeof path, "synced/%s", synced_names[i]);
            char *text = scratch_text(path);
            text[synced[i].st_size] = 0;
            if (!strstr(text, row[i])) strcpy(behind[i], row[i]);
            free(text);
        }
        published++;
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* fault: F4. When a checkpoint gets its name, the rows of its step are durable. */
TEST(test_records_precede_checkpoints)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    job.test = test_data;
    job.epochs = 3;
    job.data.log_samples = true;
    run_destroy(run_live(job, "synced", NULL));
    assert_int_equal(published, 3);
    for (int i = 0; i < SYNCED; i++)
        if (*behind[i]) fail_msg("%s: '%s' is not durable before its checkpoint", synced_names[i], behind[i]);
}

static int64_t bad_count; /* the first samples cannot be decoded */

static Status read_some(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    return index < bad_count ? FAIL(ERR_FORMAT, "sample %d is damaged", (int)index)
                             : source_read(train_data, index, bytes, label);
}

static int32_t label_some(const Source *source, int64_t index)
{
    return source_label(train_data, index);
}

static int64_t reads;

/* Allocations fail, for which somebody makes up; the crash some activities later has another cause. */
static Status read_and_crash(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    if (reads++ == TRAIN - 1) raise(SIGABRT);
    Status st = source_read(train_data, index, bytes, label);
    errno = ENOMEM;
    return st;
}

TEST(test_crash_without_lack_of_memory)
{
    int ending;
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    Source crashing = {.info = *source_info(train_data), .read = read_and_crash, .label = label_some};
    job.train = &crashing;
    job.local_batches = batches_equal(1, 1);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        _exit(run_try(job, "crash", NULL));
    }
    assert_int_equal(waitpid(child, &ending, 0), child);
    if (!WIFSIGNALED(ending) || WTERMSIG(ending) != SIGABRT) fail_msg("ended with %#x, not with SIGABRT", ending);
}

/* As many bad samples as the limit says may be skipped, and not one more. */
TEST(test_limit_of_bad_samples)
{
    enum { LIMIT = 3 };
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    Source some = {.info = *source_info(train_data), .read = read_some, .label = label_some};
    job.train = &some;
    job.data.bad = BAD_SKIP;
    job.data.bad_limit = LIMIT;
    bad_count = LIMIT;
    assert_int_equal(run_try(job, "at the limit", NULL), OK);
    bad_count = LIMIT + 1;
    assert_fails(run_try(job, "above the limit", NULL), ERR_FORMAT,
                 "4 samples could not be decoded so far, more than --bad-samples limit:3");
}

/* fault: F48. Lists of samples that cannot be written: of the damaged ones the log reports them once, and the run goes on; the
 * list of all ends it. */
TEST(test_lists_that_cannot_be_written)
{
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    Source some = {.info = *source_info(train_data), .read = read_some, .label = label_some};
    Source tests = {.info = *source_info(test_data), .read = read_some, .label = label_some};
    char path[PATH_BYTES];
    bad_count = 1;
    job.train = &some;
    job.test = &tests;
    job.data.bad = BAD_SKIP;
    job.data.bad_limit = TRAIN;
    job.epochs = 3;
    scratch_path(path, "lists");
    assert_int_equal(directory_create(path), OK);
    scratch_path(path, "lists/bad-samples.csv");
    assert_int_equal(symlink("nowhere", path), 0);
    if (run_try(job, "lists", NULL) != OK) fail_msg("%s", status_message());
    char *log = scratch_text("lists/log.txt"),
         *reported = strstr(log, "the list of bad samples of step 1 was not written");
    assert_non_null(reported);
    assert_null(strstr(reported + 1, "the list of bad samples"));
    free(log);
    scratch_path(path, "lists/samples.csv");
    assert_int_equal(symlink("nowhere", path), 0);
    job.data.log_samples = true;
    assert_fails(run_try(job, "lists", NULL), ERR_IO, "lists/samples.csv");
}

/* Steps that were skipped before a run was resumed count among those in a row. */
TEST(test_skipped_in_a_row)
{
    static const char faults[] = "nan:tower=0,step=1;nan:tower=0,step=4;nan:tower=0,step=5;nan:tower=0,step=6";
    if (hooks_load_text(faults) != OK) skip("a build without faults");
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 1);
    job.nan_policy = NAN_POLICY_SKIP;
    job.gate.skips_max = 2;
    job.epochs = 5;
    setenv("TOWERS_FAULT", faults, 1);
    Status first = run_try(job, "skips", NULL);
    double skipped = state_number("skips", "skipped"), in_row = state_number("skips", "skipped_in_row");
    job.epochs = 6;
    job.resume = true;
    Status resumed = run_try(job, "skips", NULL);
    unsetenv("TOWERS_FAULT");
    assert_int_equal(first, OK);
    near("skipped", skipped, 3);
    near("skipped_in_row", in_row, 2);
    assert_fails(resumed, ERR_NUMERIC, "step 6: 3 steps in a row were not finite");
}

/* Gradients of all towers that are finite, but have no finite sum: no tower is at fault. */
TEST(test_sum_alone)
{
    static const char faults[] = "huge:tower=0,step=1,where=grad;huge:tower=1,step=1,where=grad";
    if (hooks_load_text(faults) != OK) skip("a build without faults");
    Model model = model_of(linear);
    TrainJob job = job_of(&model, 2);
    setenv("TOWERS_FAULT", faults, 1);
    Status stopped = run_try(job, "sum", NULL);
    char first[512];
    snprintf(first, sizeof first, "%s", status_message());
    job.nan_policy = NAN_POLICY_SKIP;
    Status skipped = run_try(job, "sum skipped", NULL);
    unsetenv("TOWERS_FAULT");
    assert_int_equal(stopped, ERR_NUMERIC);
    assert_non_null(strstr(first, "step 1: the sum of the gradients over all towers is not finite, although each"));
    assert_fails(skipped, ERR_NUMERIC, "(only the sum of the gradients over all towers is not)");
}

static int start(void **state)
{
    if (scratch_make(state) != 0) return -1;
    weights_make();
    assert_int_equal(source_synthetic(TRAIN, CLASSES, SIDE, SIDE, 1, 1, &train_data), OK);
    assert_int_equal(source_synthetic(TEST, CLASSES, SIDE, SIDE, 1, 2, &test_data), OK);
    return 0;
}

static int end(void **state)
{
    source_close(train_data);
    source_close(test_data);
    return scratch_drop(state);
}

TESTS_WITH(start, end)
