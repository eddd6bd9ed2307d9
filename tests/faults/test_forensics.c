/* NaN and Inf in random layers of random towers at random steps: the search names exactly that place, nothing is
 * committed, no checkpoint with such values is written, and a replay of the capsule ends at the same op. */

#include <dirent.h>

#include "kernels/philox.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/files/files.h"
#include "towers/guard/capsule.h"
#include "towers/guard/trace.h"
#include "towers/replica/hooks.h"
#include "towers/store/manifest.h"
#include "towers/train/process.h"

enum { TOWERS = 3, BATCH = 4, STEPS = 6, TRIPLES = 30, SIDE = 12, CLASSES = 10 };

#ifdef TOWERS_FAULTS
enum { HAVE_FAULTS = 1 };
#else
enum { HAVE_FAULTS = 0 };
#endif

/* ---- a small network with every kind of layer */

static void build(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    static const Init he = {.kind = INIT_HE_NORMAL};
    graph_canonical(g, SIDE);
    x = conv_bn_relu(g, x, (ConvUnit){"stem", 4, 3, 3, SAME});
    x = max_pool(g, x, 2, HALVE);
    x = conv_bias(g, x, "conv2", 8, 3, SAME, true, he);
    x = avg_pool(g, x, 2, HALVE);
    x = dense(g, x, "fc1", 16, true, he);
    heads->logits = dense(g, x, "fc2", options->classes, false, he);
}

static const Model model = {.name = "small",
                            .title = "small",
                            .paper = "",
                            .side = SIDE,
                            .min_side = SIDE,
                            .channels = 1,
                            .classes = CLASSES,
                            .std = {1, 1, 1},
                            .build = build};

static const char *const layers[] = {"stem.conv", "stem.bn", "max_pool",     "conv2", "avg_pool",
                                     "fc1",       "fc2",     "softmax_loss", "image"};
enum { LAYERS = sizeof layers / sizeof *layers, WITH_GRADIENT = LAYERS - 1 };

/* ---- a run of one process, here */

typedef struct Run {
    TrainJob job;
    Source *data;
    Ledger *ledger;
    Status status;
    char dir[512], message[LEDGER_MESSAGE];
} Run;

static const Backend *cpu;
static char root[256];

static void run_make(Run *run, const char *name)
{
    *run = (Run){0};
    snprintf(run->dir, sizeof run->dir, "%s/%s", root, name);
    assert_int_equal(mkdir(run->dir, 0777), 0);
    assert_int_equal(source_synthetic(100, CLASSES, SIDE, SIDE, 1, 1, &run->data), OK);
    run->job = job_plain(cpu, &model, run->data, SIDE, TOWERS, BATCH);
    run->job.optimizer = (OptimizerHyper){.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f};
    run->job.schedule.lr = 0.001;
    run->job.max_steps = STEPS;
    run->job.gate.bn_decay = 0.9;
    run->job.run_dir = run->dir;
    run->job.checkpoint.keep = 100;
}

static void run_live(Run *run, const char *fault)
{
    JobMemory memory = job_memory(&run->job);
    run->ledger = memory.ledger;
    setenv("TOWERS_FAULT", fault, 1);
    run->status = tower_process_train(&run->job, 0, run->ledger, memory.shared);
    snprintf(run->message, sizeof run->message, "%s", status_message());
    comm_shared_destroy(memory.shared);
}

static void run_close(Run *run)
{
    ledger_destroy(run->ledger);
    source_close(run->data);
}

static void checkpoint_name(const Run *run, int64_t step, const char *file, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/ckpt/step-%010" PRId64 "/%s", run->dir, step, file);
}

static int64_t newest_checkpoint(const Run *run)
{
    char path[PATH_BYTES], *text;
    size_t count;
    snprintf(path, sizeof path, "%s/ckpt/latest", run->dir);
    if (access(path, F_OK) != 0) return -1;
    assert_int_equal(file_read(path, 64, &text, &count), OK);
    int64_t step = strtoll(text + strlen("step-"), NULL, 10);
    free(text);
    return step;
}

static void same_file(const Run *a, const Run *b, int64_t step, const char *file)
{
    char path[PATH_BYTES];
    FileSum x = {0}, y = {0};
    checkpoint_name(a, step, file, path);
    assert_int_equal(file_sum(path, &x), OK);
    checkpoint_name(b, step, file, path);
    assert_int_equal(file_sum(path, &y), OK);
    if (memcmp(&x, &y, sizeof x)) fail_msg("step %" PRId64 ": %s differs", step, file);
}

/* state.json, but for the time that the epoch has taken. */
static void same_state(const Run *a, const Run *b, int64_t step)
{
    char path[PATH_BYTES];
    json_t *x, *y;
    checkpoint_name(a, step, "state.json", path);
    assert_non_null(x = json_load_file(path, 0, NULL));
    checkpoint_name(b, step, "state.json", path);
    assert_non_null(y = json_load_file(path, 0, NULL));
    assert_int_equal(json_object_del(x, "epoch_seconds"), 0);
    assert_int_equal(json_object_del(y, "epoch_seconds"), 0);
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

/* ---- the reference: every step of a run that nothing happens to */

static Run plain;

static int start(void **state)
{
    const char *place = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/towers-forensics.XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(root)) return -1;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) return 0;
    run_make(&plain, "plain");
    plain.job.checkpoint.steps = 1;
    run_live(&plain, "");
    return plain.status == OK ? 0 : -1;
}

static void needs(bool faults)
{
    if (!cpu) skip("this build has no CPU backend");
    if (faults && !HAVE_FAULTS) skip("a build without faults");
}

static int end(void **state)
{
    if (cpu) run_close(&plain);
    return tree_remove(root) == OK ? 0 : -1;
}

/* ---- 30 triples */

typedef struct Triple {
    int tower, layer;
    int64_t step, index;
    bool inf, backward;
    char fault[256];
} Triple;

static uint32_t draw(int triple, int number, uint32_t below)
{
    return philox(7, (uint32_t)triple, (uint32_t)number, 0, 0).v[0] % below;
}

/* One element where it cannot get lost in a maximum or a mask, all elsewhere. */
static Triple triple_of(int i)
{
    Triple t = {.tower = (int)draw(i, 0, TOWERS),
                .step = 1 + draw(i, 1, STEPS),
                .inf = draw(i, 3, 2),
                .backward = draw(i, 4, 2),
                .index = -1};
    t.layer = (int)draw(i, 2, t.backward ? WITH_GRADIENT : LAYERS);
    const char *layer = layers[t.layer];
    bool single = !t.backward && (!strcmp(layer, "stem.conv") || !strcmp(layer, "fc2") || !strcmp(layer, "conv2"));
    if (single) t.index = draw(i, 5, BATCH * CLASSES);
    int used = snprintf(t.fault, sizeof t.fault, "%s:tower=%d,step=%" PRId64 ",layer=%s,activity=%s",
                        t.inf ? "inf" : "nan", t.tower, t.step, layer, t.backward ? "backward" : "forward");
    if (single) snprintf(t.fault + used, sizeof t.fault - (size_t)used, ",index=%" PRId64, t.index);
    return t;
}

static void check_finding(const Triple *t, const Finding *found)
{
    bool loss = !t->backward && !strcmp(layers[t->layer], "softmax_loss");
    assert_int_equal(found->place, t->backward ? FOUND_BACKWARD : loss ? FOUND_LOSS : FOUND_FORWARD);
    assert_int_equal(found->tower, t->tower);
    assert_int_equal(found->step, t->step);
    assert_string_equal(found->layer, layers[t->layer]);
    assert_int_equal(found->index, t->index < 0 ? 0 : t->index);
    assert_true(t->inf ? isinf(found->value) : isnan(found->value));
}

static void check_replay(const Triple *t, const Run *run)
{
    char path[PATH_BYTES];
    Capsule *capsule;
    Replica *replica;
    Finding found;
    snprintf(path, sizeof path, "%s/nan-step-%" PRId64 "-tower-%d", run->dir, t->step, t->tower);
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    assert_string_equal(capsule->fault, t->fault);
    capsule->program.model = &model;
    DeviceConfig device = {DEVICE_USUAL, .threads = 1};
    assert_int_equal(capsule_replica(capsule, cpu, &device, &replica), OK);
    assert_int_equal(hooks_load_text(capsule->fault), OK);
    assert_int_equal(capsule_run(capsule, replica, NULL, NULL, &found), OK);
    check_finding(t, &found);
    assert_int_equal(found.op, run->ledger->search.found.op);
    assert_string_equal(found.tensor, run->ledger->search.found.tensor);
    assert_int_equal(hooks_load_text(""), OK); /* nothing in the data is wrong */
    assert_int_equal(capsule_run(capsule, replica, NULL, NULL, &found), OK);
    assert_int_equal(found.place, FOUND_NOTHING);
    replica_destroy(replica);
    capsule_close(capsule);
}

TEST(test_random_triples)
{
    needs(true);
    for (int i = 0; i < TRIPLES; i++) {
        Run run;
        Triple t = triple_of(i);
        char name[32], wanted[64];
        snprintf(name, sizeof name, "triple%d", i);
        run_make(&run, name);
        run_live(&run, t.fault);
        if (run.status != ERR_NUMERIC) fail_msg("%s: status %d: %s", t.fault, run.status, run.message);
        check_finding(&t, &run.ledger->search.found);
        snprintf(wanted, sizeof wanted, "tower %d, step %" PRId64 ": ", t.tower, t.step);
        assert_memory_equal(run.message, wanted, strlen(wanted));
        snprintf(wanted, sizeof wanted, "layer %s (", layers[t.layer]);
        assert_non_null(strstr(run.message, wanted));
        assert_int_equal(newest_checkpoint(&run), t.step - 1);
        if (t.step > 1) same_file(&run, &plain, t.step - 1, "model.safetensors");
        if (t.step > 1) same_file(&run, &plain, t.step - 1, "train.safetensors");
        check_replay(&t, &run);
        run_close(&run);
    }
}

/* ---- capsules of format 1: tests/faults/capsule-1 was written by the program at commit 8a48119, for this network
 * with crops and mirrors, whose numbers below are those of its own replay. */

typedef struct Outputs {
    double image, logits_least, logits_most, loss;
} Outputs;

static void output_keep(void *context, const TraceRow *row)
{
    Outputs *outputs = context;
    if (!strcmp(row->tensor, "image")) outputs->image = row->scan.mean;
    if (!strcmp(row->tensor, "fc2")) outputs->logits_least = row->scan.min, outputs->logits_most = row->scan.max;
    if (!strcmp(row->tensor, "loss")) outputs->loss = row->scan.mean;
}

TEST(test_capsule_of_format_1)
{
    needs(false);
    static const int32_t crops[BATCH][3] = {{0, 4, 1}, {2, 1, 0}, {3, 1, 0}, {3, 2, 1}}; /* y, x, mirrored */
    Capsule *capsule;
    Replica *replica;
    Finding found;
    Outputs outputs = {0};
    DeviceConfig device = {DEVICE_USUAL, .threads = 1};
    if (capsule_open(TOWERS_SOURCE_DIR "/tests/faults/capsule-1", &capsule) != OK) fail_msg("%s", status_message());
    assert_int_equal(capsule->step, 2);
    assert_int_equal(capsule->tower, 1);
    assert_string_equal(capsule->found.tensor, "fc2");
    for (int i = 0; i < BATCH; i++) {
        const int32_t *record = capsule->augment + (size_t)i * IMAGE_RECORD;
        assert_true(record[IMAGE_OY] == crops[i][0] && record[IMAGE_OX] == crops[i][1]);
        assert_int_equal(record[IMAGE_FLIP], crops[i][2]);
        assert_int_equal(record[IMAGE_ERASE_H], 0);
    }
    capsule->program.model = &model;
    assert_int_equal(hooks_load_text(""), OK);
    assert_int_equal(capsule_replica(capsule, cpu, &device, &replica), OK);
    assert_int_equal(capsule_run(capsule, replica, output_keep, &outputs, &found), OK);
    assert_int_equal(found.place, FOUND_NOTHING);
    assert_true(fabs(outputs.image - 0.430882364) < 1e-7);
    assert_true(fabs(outputs.logits_least + 4.45523787) < 1e-4 && fabs(outputs.logits_most - 3.58692193) < 1e-4);
    assert_true(fabs(outputs.loss - 17.2473927) < 1e-4);
    if (HAVE_FAULTS) { /* the fault that made it, in the words of then */
        assert_int_equal(hooks_load_text(capsule->fault), OK);
        assert_int_equal(capsule_run(capsule, replica, NULL, NULL, &found), OK);
        assert_true(found.place == FOUND_FORWARD && found.op == capsule->found.op && found.index == 13);
        assert_int_equal(hooks_load_text(""), OK);
    }
    replica_destroy(replica);
    capsule_close(capsule);
}

/* ---- samples */

TEST(test_samples_are_named)
{
    needs(true);
    Run run;
    char wanted[64];
    run_make(&run, "samples");
    run_live(&run, "nan:tower=1,step=3,layer=fc2,index=27"); /* 10 logits a sample: the third */
    assert_int_equal(run.status, ERR_NUMERIC);
    const Finding *found = &run.ledger->search.found;
    assert_int_equal(found->samples, 1);
    LoaderConfig config = {.source = run.data,
                           .local_batches = run.job.local_batches,
                           .first_tower = 1,
                           .local = 1,
                           .shuffle = true,
                           .transform = {.side = SIDE},
                           .start_step = 2,
                           .max_steps = 3,
                           .depth = 2};
    Loader *loader;
    const Batch *batch;
    assert_int_equal(loader_create(&config, &loader), OK);
    assert_int_equal(loader_next(loader, &batch), OK);
    assert_int_equal(found->sample, batch->ids[2]);
    snprintf(wanted, sizeof wanted, "samples of the tower: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " (4 in all",
             batch->ids[0], batch->ids[1], batch->ids[2], batch->ids[3]);
    if (!strstr(run.message, wanted)) fail_msg("no '%s' in: %s", wanted, run.message);
    loader_destroy(loader);
    run_close(&run);
}

/* ---- the second of two batches of a step */

TEST(test_batches_of_a_step)
{
    needs(true);
    Run run;
    run_make(&run, "accumulate");
    run.job.accumulate = 2;
    run.job.max_steps = 3;
    run_live(&run, "inf:tower=2,step=2,layer=conv2,activity=backward");
    assert_int_equal(run.status, ERR_NUMERIC);
    assert_int_equal(run.ledger->search.found.place, FOUND_BACKWARD);
    assert_string_equal(run.ledger->search.found.layer, "conv2");
    assert_int_equal(newest_checkpoint(&run), 1);
    run_close(&run);
}

/* ---- state */

/* A rate that no float holds: the update spoils the weights though every gradient is finite. */
TEST(test_spoilt_weights_are_not_saved)
{
    needs(false);
    Run run;
    run_make(&run, "spoilt");
    run.job.schedule.lr = 1e300;
    run.job.checkpoint.steps = 1;
    run_live(&run, "");
    assert_int_equal(run.status, ERR_NUMERIC);
    assert_int_equal(run.ledger->search.found.place, FOUND_WEIGHT);
    assert_int_equal(newest_checkpoint(&run), -1);
    assert_int_equal(atomic_load(&run.ledger->run.notes), 1);
    assert_non_null(strstr(run.ledger->run.note[0], "not saved as a checkpoint\n  weights, tensor "));
    assert_non_null(strstr(run.message, "first in weights, tensor "));
    run_close(&run);
}

TEST(test_run_does_not_end_well_with_spoilt_weights)
{
    needs(false);
    Run run;
    char path[PATH_BYTES];
    run_make(&run, "spoilt-at-the-end");
    run.job.schedule.lr = 1e300;
    run.job.max_steps = 1;
    run_live(&run, "");
    assert_int_equal(run.status, ERR_NUMERIC);
    assert_non_null(
        strstr(run.message, "the state at the end of the run, after step 1, is not finite\n  weights, tensor "));
    assert_int_equal(newest_checkpoint(&run), -1);
    snprintf(path, sizeof path, "%s/last.safetensors", run.dir);
    assert_int_not_equal(access(path, F_OK), 0);
    run_close(&run);
}

static void spoil(Replica *r, float *arena, size_t at)
{
    float bad = INFINITY;
    assert_int_equal(r->device.backend->upload(&r->device, arena + at, &bad, sizeof bad), OK);
}

static void check_state(Replica *r, FindingPlace place, int tower, const char *tensor, int64_t index)
{
    Finding found;
    assert_int_equal(trace_state(r, 4, -1, &found), OK);
    assert_int_equal(found.place, place);
    assert_string_equal(found.tensor, tensor);
    assert_int_equal(found.tower, tower);
    assert_int_equal(found.index, index);
}

/* Averages, statistics of every tower, and slots are looked at as well as weights. */
TEST(test_all_state_is_looked_at)
{
    needs(false);
    Replica *r;
    Finding found;
    ReplicaConfig config = {.backend = cpu,
                            .device = {DEVICE_USUAL, .threads = 1},
                            .program = plain.job.program,
                            .local = 2,
                            .train_n = (const int32_t[]){BATCH, 0},
                            .optimizer = plain.job.optimizer,
                            .ema = true};
    config.program.training = true;
    assert_int_equal(replica_create(&config, &r), OK);
    assert_int_equal(trace_state(r, 4, -1, &found), OK);
    assert_int_equal(found.place, FOUND_NOTHING);
    size_t weight = layout_param(r->layout, "conv2.weight")->first + 5;
    spoil(r, r->optimizer_state[1], weight);
    check_state(r, FOUND_OPTIMIZER_STATE, -1, "optimizer slot 1 of conv2.weight", 5);
    spoil(r, r->running[1], layout_running(r->layout, "stem.bn.running_var")->first + 2);
    check_state(r, FOUND_STATISTIC, 5, "stem.bn.running_var", 2);
    assert_int_equal(trace_state(r, 4, 0, &found), OK); /* of tower 4 alone: its statistics are fine */
    assert_int_equal(found.place, FOUND_OPTIMIZER_STATE);
    spoil(r, r->ema, weight);
    check_state(r, FOUND_AVERAGE, -1, "average of conv2.weight", 5);
    spoil(r, r->arena[ARENA_PARAM], weight);
    check_state(r, FOUND_WEIGHT, -1, "conv2.weight", 5);
    replica_destroy(r);
}

/* ---- back to a checkpoint */

/* Without the step to blame, and otherwise the same run as one that skips that step. */
static void rolled_back(const char *name, const char *fault, int64_t left_out)
{
    Run run, skipped;
    char skip_fault[64], skip_name[32];
    run_make(&run, name);
    run.job.nan_policy = NAN_POLICY_ROLLBACK;
    run.job.gate.skips_max = 1;
    run.job.checkpoint.steps = 3;
    run_live(&run, fault);
    if (run.status != OK) fail_msg("%s", run.message);
    snprintf(skip_name, sizeof skip_name, "%s-skip", name);
    snprintf(skip_fault, sizeof skip_fault, "nan:tower=1,step=%" PRId64, left_out);
    run_make(&skipped, skip_name);
    skipped.job.nan_policy = NAN_POLICY_SKIP;
    skipped.job.gate.skips_max = 1;
    skipped.job.checkpoint.steps = 3;
    run_live(&skipped, skip_fault);
    assert_int_equal(skipped.status, OK);
    same_file(&run, &skipped, STEPS, "model.safetensors");
    same_file(&run, &skipped, STEPS, "train.safetensors");
    assert_int_equal(atomic_load(&run.ledger->run.notes), 1);
    assert_non_null(strstr(run.ledger->run.note[0], "back to the checkpoint of step 3 (1 of 1)"));
    run_close(&run);
    run_close(&skipped);
}

TEST(test_rollback_leaves_the_bad_step_out)
{
    needs(true);
    rolled_back("rollback", "nan:tower=1,step=5,layer=conv2", 5);
}

/* Each metrics row once, the refused step marked. */
TEST(test_rollback_leaves_whole_records)
{
    needs(true);
    char path[PATH_BYTES], *text, row[64];
    size_t count;
    snprintf(path, sizeof path, "%s/rollback/metrics.jsonl", root);
    assert_int_equal(file_read(path, 1 << 20, &text, &count), OK);
    const char *at = text;
    for (int step = 1; step <= STEPS; step++) {
        snprintf(row, sizeof row, "{\"step\":%d,", step);
        assert_memory_equal(at, row, strlen(row));
        const char *end_of_row = strchr(at, '\n');
        assert_int_equal(memmem(at, (size_t)(end_of_row - at), "\"skipped\":true", 14) != NULL, step == 5);
        at = end_of_row + 1;
    }
    assert_int_equal(*at, 0);
    free(text);
}

/* Step 5 is refused, but the update of step 4 spoilt the weights. */
TEST(test_rollback_blames_the_update_that_spoilt_the_weights)
{
    needs(true);
    rolled_back("rollback-weights", "inf:tower=0,step=4,where=weights", 4);
}

TEST(test_rollback_has_a_limit)
{
    needs(true);
    Run run;
    run_make(&run, "rollback-limit");
    run.job.nan_policy = NAN_POLICY_ROLLBACK;
    run.job.gate.skips_max = 2;
    run_live(&run, "nan:tower=0,step=2;nan:tower=1,step=4;inf:tower=2,step=5");
    assert_int_equal(run.status, ERR_NUMERIC);
    assert_non_null(strstr(run.message, "step 5 is not finite, after 2 rollbacks to a checkpoint"));
    run_close(&run);
    run_make(&run, "rollback-in-limit");
    run.job.nan_policy = NAN_POLICY_ROLLBACK;
    run.job.gate.skips_max = 3;
    run_live(&run, "nan:tower=0,step=2;nan:tower=1,step=4;inf:tower=2,step=5");
    if (run.status != OK) fail_msg("%s", run.message);
    run_close(&run);
}

/* A run that is stopped after a rollback and resumed is the run that was not stopped. */
TEST(test_rollback_survives_a_resume)
{
    needs(true);
    Run run, whole;
    static const char fault[] = "nan:tower=1,step=2,layer=fc1";
    run_make(&whole, "rollback-whole");
    whole.job.nan_policy = NAN_POLICY_ROLLBACK;
    whole.job.gate.skips_max = 1;
    run_live(&whole, fault);
    assert_int_equal(whole.status, OK);
    run_make(&run, "rollback-resumed");
    run.job.nan_policy = NAN_POLICY_ROLLBACK;
    run.job.gate.skips_max = 1;
    run.job.max_steps = 3;
    run_live(&run, fault);
    assert_int_equal(run.status, OK);
    ledger_destroy(run.ledger);
    run.job.max_steps = STEPS;
    run.job.resume = true;
    run_live(&run, "nan:tower=1,step=5,layer=fc1"); /* its one rollback is used up */
    assert_int_equal(run.status, ERR_NUMERIC);
    ledger_destroy(run.ledger);
    run_live(&run, "");
    if (run.status != OK) fail_msg("%s", run.message);
    same_file(&run, &whole, STEPS, "model.safetensors");
    same_file(&run, &whole, STEPS, "train.safetensors");
    run_close(&run);
    run_close(&whole);
}

/* ---- the step that ends a run is no part of it */

/* Steps 3 and 4 are refused, the second one ends a run that may leave out one. Who goes on with a limit of two may leave
 * out both: the run is the one that had that limit from the start, counters and averages included. */
TEST(test_resume_after_the_limit)
{
    needs(true);
    Run run, whole;
    static const char fault[] = "nan:tower=1,step=3,where=grad;nan:tower=1,step=4,where=grad";
    run_make(&whole, "limit-whole");
    whole.job.nan_policy = NAN_POLICY_SKIP;
    whole.job.gate.skips_max = 2;
    run_live(&whole, fault);
    if (whole.status != OK) fail_msg("%s", whole.message);
    run_make(&run, "limit-resumed");
    run.job.nan_policy = NAN_POLICY_SKIP;
    run.job.gate.skips_max = 1;
    run_live(&run, fault);
    assert_int_equal(run.status, ERR_NUMERIC);
    assert_int_equal(newest_checkpoint(&run), 3);
    ledger_destroy(run.ledger);
    run.job.gate.skips_max = 2;
    run.job.resume = true;
    run_live(&run, fault);
    if (run.status != OK) fail_msg("%s", run.message);
    same_file(&run, &whole, STEPS, "model.safetensors");
    same_file(&run, &whole, STEPS, "train.safetensors");
    same_state(&run, &whole, STEPS);
    run_close(&run);
    run_close(&whole);
}

/* ---- state that a fault spoils */

static void spoilt_by(const char *name, const char *where, const char *tensor)
{
    Run run;
    char fault[64];
    snprintf(fault, sizeof fault, "nan:tower=2,step=3,where=%s", where);
    run_make(&run, name);
    run.job.checkpoint.steps = 1;
    run.job.max_steps = 3;
    run_live(&run, fault);
    assert_int_equal(run.status, ERR_NUMERIC);
    if (!strstr(run.message, tensor)) fail_msg("no '%s' in: %s", tensor, run.message);
    assert_int_equal(newest_checkpoint(&run), 2);
    run_close(&run);
}

TEST(test_no_state_is_saved_spoilt)
{
    needs(true);
    spoilt_by("bad-weights", "weights", "weights, tensor ");
    spoilt_by("bad-statistics", "statistics", "batch-norm statistics, tensor stem.bn.running_");
    spoilt_by("bad-slot", "slot", "optimizer slot, tensor optimizer slot 0 of ");
}

/* ---- capsules that are damaged */

TEST(test_damaged_capsule_is_refused)
{
    needs(true);
    Run run;
    Capsule *capsule;
    char path[PATH_BYTES];
    run_make(&run, "damaged");
    run_live(&run, "nan:tower=0,step=2,layer=fc1");
    snprintf(path, sizeof path, "%s/nan-step-2-tower-0/batch.safetensors", run.dir);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc(0x55, file);
    assert_int_equal(fclose(file), 0);
    *strrchr(path, '/') = 0;
    assert_fails(capsule_open(path, &capsule), ERR_CHECKPOINT, "batch.safetensors");
    assert_int_equal(capsule_open(run.dir, &capsule), ERR_CHECKPOINT);
    run_close(&run);
}

/* A manifest that fits what lies there now: whoever writes a capsule can write that, too. */
static void manifest_again(const char *capsule)
{
    static const char *const names[] = {"batch.safetensors", "model.safetensors", "train.safetensors", "state.json"};
    Manifest *manifest;
    char path[PATH_BYTES], *text;
    size_t count;
    assert_int_equal(manifest_create(2, &manifest), OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        FileSum sum;
        snprintf(path, sizeof path, "%s/%s", capsule, names[i]);
        assert_int_equal(file_sum(path, &sum), OK);
        assert_int_equal(manifest_add(manifest, names[i], &sum, NULL, 0), OK);
    }
    assert_int_equal(manifest_format(manifest, &text, &count), OK);
    snprintf(path, sizeof path, "%s/MANIFEST", capsule);
    assert_int_equal(file_replace(path, text, count), OK);
    manifest_destroy(manifest);
    free(text);
}

/* The first `was` in state.json becomes `is`. */
static void state_change(const char *capsule, const char *was, const char *is)
{
    char path[PATH_BYTES], *text, *changed;
    size_t count;
    snprintf(path, sizeof path, "%s/state.json", capsule);
    assert_int_equal(file_read(path, 1 << 20, &text, &count), OK);
    char *at = strstr(text, was);
    if (!at) fail_msg("no '%s' in %s", was, text);
    *at = 0;
    assert_true(asprintf(&changed, "%s%s%s", text, is, at + strlen(was)) > 0);
    assert_int_equal(file_replace(path, changed, strlen(changed)), OK);
    manifest_again(capsule);
    free(text);
    free(changed);
}

static void refused_as(const char *capsule, const char *why)
{
    Capsule *opened;
    assert_int_equal(capsule_open(capsule, &opened), ERR_CHECKPOINT);
    if (!strstr(status_message(), why)) fail_msg("no '%s' in: %s", why, status_message());
}

/* Kernels index with labels and crops, and allocate by the sizes. */
TEST(test_hostile_capsule_is_refused)
{
    needs(true);
    static const char *const changes[][3] = {
        {"\"n\": 4", "\"n\": 5", "not of the type and shape"},
        {"\"n\": 5", "\"n\": -4", "'n' is missing or has an invalid value"},
        {"\"n\": -4", "\"n\": 4", NULL},
        {"\"weights_after_step\": 1", "\"weights_after_step\": 0",
         "'weights_after_step' is missing or has an invalid value"},
        {"\"weights_after_step\": 0", "\"weights_after_step\": 1", NULL},
        {"\"canvas\": 12", "\"canvas\": 11", "'canvas' is missing or has an invalid value"},
        {"\"canvas\": 11", "\"canvas\": 12", NULL},
        {"\"classes\": 10", "\"classes\": 1", "number of classes, 1"},
        {"\"classes\": 1", "\"classes\": 10", NULL},
        {"\"compute\": \"f32\"", "\"compute\": \"u8\"", "'compute' is missing or has an invalid value"},
        {"\"compute\": \"u8\"", "\"compute\": \"f32\"", NULL},
        {"towers capsule 2", "towers capsule 3", "found 'towers capsule 3'"},
        {"towers capsule 3", "towers capsule 2", NULL},
        {"towers capsule 2", "towers capsule 1", "not of the type and shape"},
        {"\"mixes\": false", "\"mixes\": true", "'mixes' is missing or has an invalid value"},
        {"\"mixes\": true", "\"mixes\": false", "not of the type and shape"},
        {"towers capsule 1", "towers capsule 2", NULL},
        {"\"tower\": 0", "\"tower\": 3", "'tower' is missing or has an invalid value"},
    };
    Run run;
    Capsule *capsule;
    char path[600];
    run_make(&run, "hostile");
    run_live(&run, "nan:tower=0,step=2,layer=fc1");
    snprintf(path, sizeof path, "%s/nan-step-2-tower-0", run.dir);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        state_change(path, changes[i][0], changes[i][1]);
        if (changes[i][2]) {
            refused_as(path, changes[i][2]);
            continue;
        }
        if (capsule_open(path, &capsule) != OK) fail_msg("%s: %s", changes[i][0], status_message());
        capsule_close(capsule);
    }
    run_close(&run);
}

/* Capsules of the time when all f32 convolutions were direct do not say so. */
TEST(test_older_capsule_is_read)
{
    needs(true);
    Run run;
    Capsule *capsule;
    char path[600];
    run_make(&run, "older");
    run_live(&run, "nan:tower=0,step=2,layer=fc1");
    snprintf(path, sizeof path, "%s/nan-step-2-tower-0", run.dir);
    assert_int_equal(capsule_open(path, &capsule), OK);
    assert_true(capsule->device.winograd_f32 && capsule->device.winograd_bf16);
    capsule_close(capsule);
    state_change(path, "\"winograd_f32\"", "\"unknown\"");
    state_change(path, "\"winograd_bf16\": true", "\"direct_bf16\": false");
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    assert_false(capsule->device.winograd_f32);
    assert_true(capsule->device.winograd_bf16);
    capsule_close(capsule);
    run_close(&run);
}

/* Older capsules do not say where their batch was in the step; their masks of dropout were those of the tower. */
TEST(test_capsule_without_place_of_its_batch)
{
    needs(true);
    Run run;
    Capsule *capsule;
    char path[600];
    run_make(&run, "placed");
    run_live(&run, "nan:tower=1,step=2,layer=fc1");
    snprintf(path, sizeof path, "%s/nan-step-2-tower-1", run.dir);
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    assert_true(capsule->key.step == 1 && capsule->key.first == BATCH);
    capsule_close(capsule);
    state_change(path, "\"first_sample\"", "\"unknown\"");
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    capsule_close(capsule);
    state_change(path, "\"dropout\": 0.0", "\"dropout\": 0.5");
    refused_as(path, "drew the masks of dropout for each tower");
    state_change(path, "\"tower\": 1", "\"tower\": 0");
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    capsule_close(capsule);
    run_close(&run);
}

TEST(test_capsule_keeps_norm_into_pool)
{
    needs(true);
    Run run;
    Capsule *capsule;
    char path[600];
    run_make(&run, "joined");
    run.job.program.norm_into_pool = true;
    run_live(&run, "nan:tower=0,step=2,layer=fc1");
    snprintf(path, sizeof path, "%s/nan-step-2-tower-0", run.dir);
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    assert_true(capsule->program.norm_into_pool);
    capsule_close(capsule);
    run_close(&run);
}

/* A search that would keep the others waiting for too long gives up, and leaves it to the replay. */
TEST(test_search_has_a_deadline)
{
    needs(true);
    Run run;
    Replica *r;
    Loader *loader;
    Finding found;
    run_make(&run, "deadline");
    run_live(&run, "");
    ReplicaConfig config = {.backend = cpu,
                            .device = {DEVICE_USUAL, .threads = 1},
                            .program = run.job.program,
                            .local = 1,
                            .train_n = (const int32_t[]){BATCH, 0}};
    LoaderConfig from = {.source = run.data,
                         .local_batches = run.job.local_batches,
                         .local = 1,
                         .transform = {.side = SIDE},
                         .max_steps = 1,
                         .depth = 2};
    config.program.training = true;
    TraceJob job = {.local = 0, .step = 1, .scale = 1, .deadline_ns = clock_ns() - 1};
    assert_int_equal(replica_create(&config, &r), OK);
    assert_int_equal(loader_create(&from, &loader), OK);
    assert_int_equal(loader_next(loader, &job.batch), OK);
    job.replica = r;
    assert_int_equal(trace_run(&job, &found), ERR_COMM);
    job.deadline_ns = 0;
    assert_int_equal(trace_run(&job, &found), OK);
    assert_int_equal(found.place, FOUND_NOTHING);
    loader_destroy(loader);
    replica_destroy(r);
    run_close(&run);
}

TEST(test_unknown_layer_is_refused)
{
    needs(true);
    Run run;
    run_make(&run, "unknown");
    run_live(&run, "nan:tower=0,step=2,layer=conv7");
    assert_int_equal(run.status, ERR_ARG);
    assert_non_null(strstr(run.message, "no layer 'conv7' in the forward pass"));
    run_close(&run);
}

TESTS_WITH(start, end)
