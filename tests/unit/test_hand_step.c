/* One training step that can be computed by hand, from pixels to the new weights, for every division of three samples among
 * the towers.
 *
 *   images of one pixel:  A is 1 with label 0, B is 0 with label 1, C is 1 with label 1
 *   network:              h = relu(u x + a), logits = (v1, v2) h + (b1, b2), with u = 2, v = (ln(3) / 2, 0), a, b = 0
 *
 *        h   logits     softmax p     loss       p - y = dlogits    dh = v1 dlogits1    x
 *   A    2   (ln 3, 0)  (3/4, 1/4)    ln(4/3)    (-1/4,  1/4)       -1/4 ln(3)/2        1
 *   B    0   (0, 0)     (1/2, 1/2)    ln 2       ( 1/2, -1/2)        (relu: none)       0
 *   C    2   (ln 3, 0)  (3/4, 1/4)    ln 4       ( 3/4, -3/4)        3/4 ln(3)/2        1
 *
 * Gradients of the mean over the three:  db1 = (-1/4 + 1/2 + 3/4) / 3 = 1/3,  dv1 = 2 (-1/4 + 3/4) / 3 = 1/3,  db2 and
 * dv2 the opposite,  du = da = (-1/4 + 3/4) ln(3)/2 / 3 = ln(3)/12. SGD with rate 0.3 subtracts 0.3 of them. */

#include "tests/support/scratch.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/data/loading/shuffle.h"
#include "towers/graph/layers.h"
#include "towers/record/run_read.h"
#include "towers/train/process.h"

enum { A = 0, B, C, SAMPLES };

static void build(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    Init zero = {.kind = INIT_ZERO};
    graph_canonical(g, 1);
    x = dense(g, x, "hidden", 1, true, zero);
    heads->logits = dense(g, x, "head", options->classes, false, zero);
}

static const Model model = {.name = "by_hand",
                            .title = "",
                            .paper = "",
                            .side = 1,
                            .min_side = 1,
                            .channels = 1,
                            .classes = 2,
                            .std = {1, 1, 1},
                            .build = build};

/* ---- what goes in */

static void file_make(const char *name, const void *bytes, size_t count)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    assert_int_equal(file_replace(path, bytes, count), OK);
}

static void samples_make(void)
{
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES, 0, 0, 0, 1, 0, 0, 0, 1, 255, 0, 255},
                               labels[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES, 0, 1, 1};
    file_make("train-images-idx3-ubyte", images, sizeof images);
    file_make("train-labels-idx1-ubyte", labels, sizeof labels);
}

static void weights_make(void)
{
    char path[PATH_BYTES];
    const float u = 2, v[2] = {(float)(log(3) / 2), 0}, zeros[2] = {0};
    const StTensor tensors[] = {
        {.name = "hidden.weight", .dtype = ST_F32, .rank = 2, .dims = {1, 1}, .data = &u, .bytes = sizeof u},
        {.name = "hidden.bias", .dtype = ST_F32, .rank = 1, .dims = {1}, .data = zeros, .bytes = sizeof u},
        {.name = "head.weight", .dtype = ST_F32, .rank = 2, .dims = {2, 1}, .data = v, .bytes = sizeof v},
        {.name = "head.bias", .dtype = ST_F32, .rank = 1, .dims = {2}, .data = zeros, .bytes = sizeof zeros},
    };
    scratch_path(path, "start.safetensors");
    assert_int_equal(safetensors_replace(path, tensors, 4, NULL, 0), OK);
}

/* ---- the step */

static TrainJob job_of(const Source *data, const Backend *cpu, const int32_t *batch, int towers)
{
    TrainJob job = job_plain(cpu, &model, data, 1, towers, 0);
    job.program.options.classes = 2;
    job.schedule.lr = 0.3;
    job.local_batches = batches_of(towers, batch);
    return job;
}

static void one_step(TrainJob job, const char *run_dir)
{
    char start[PATH_BYTES];
    scratch_path(start, "start.safetensors");
    job.initial_weights = start;
    job.run_dir = run_dir;
    JobMemory memory = job_memory(&job);
    if (tower_process_train(&job, 0, memory.ledger, memory.shared) != OK) fail_msg("%s", status_message());
    job_memory_free(&memory);
}

/* ---- what comes out */

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-6)) fail_msg("%.9g, on paper %.9g", got, wanted);
}

static void weight_check(const SafeTensors *file, const char *name, const double *wanted, int count)
{
    const StTensor *tensor = safetensors_find(file, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->bytes, (size_t)count * sizeof(float));
    for (int i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)tensor->data + (size_t)i * sizeof value, sizeof value);
        near(value, wanted[i]);
    }
}

static void weights_check(const char *run_dir)
{
    char path[PATH_BYTES];
    SafeTensors *file;
    const double rate = 0.3, u = 2 - rate * log(3) / 12, v[] = {log(3) / 2 - rate / 3, rate / 3},
                 b[] = {-rate / 3, rate / 3}, a = -rate * log(3) / 12;
    assert_int_equal(path_join(path, run_dir, "last.safetensors"), OK);
    assert_int_equal(safetensors_open(path, &file), OK);
    weight_check(file, "hidden.weight", &u, 1);
    weight_check(file, "hidden.bias", &a, 1);
    weight_check(file, "head.weight", v, 2);
    weight_check(file, "head.bias", b, 2);
    safetensors_close(file);
}

/* Which samples a tower has is the shuffle's affair; their mean loss is the tower's. */
static void losses_check(const char *run_dir, const int32_t *batch, int towers)
{
    static const double third = 1.0 / 3;
    const double loss[SAMPLES] = {[A] = log(4 * third), [B] = log(2), [C] = log(4)}, du = log(3) / 12;
    int32_t order[SAMPLES];
    Run *run;
    if (run_read(run_dir, 0, &run) != OK) fail_msg("%s", status_message());
    const RunStep *step = &run->step[0];
    assert_int_equal(run->steps, 1);
    epoch_order(0, 0, SAMPLES, order);
    for (int t = 0, next = 0; t < towers; t++) {
        double sum = 0;
        for (int i = 0; i < batch[t]; i++) sum += loss[order[next++]];
        assert_int_equal(step->tower_count[t], batch[t]);
        if (batch[t]) near(step->tower_loss[t], sum / batch[t]);
    }
    near(step->mean_loss, log(32 * third) / 3);
    near(step->grad_norm, sqrt(4 * third * third + 2 * du * du));
    near(step->top1, third); /* A; at B both classes are as likely */
    run_destroy(run);
}

TEST(test_step_by_hand)
{
    static const int32_t local_batches[][SAMPLES] = {{3}, {2, 1}, {1, 2}, {1, 1, 1}, {0, 3}, {1, 0, 2}};
    static const int towers[] = {1, 2, 2, 3, 2, 3};
    const Backend *cpu = NULL;
    Source *data;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    samples_make();
    weights_make();
    if (source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &data) != OK) fail_msg("%s", status_message());
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++) {
        char run_dir[PATH_BYTES], name[16];
        snprintf(name, sizeof name, "run%zu", i);
        scratch_path(run_dir, name);
        assert_int_equal(directory_create(run_dir), OK);
        one_step(job_of(data, cpu, local_batches[i], towers[i]), run_dir);
        weights_check(run_dir);
        losses_check(run_dir, local_batches[i], towers[i]);
    }
    source_close(data);
}

TESTS_WITH(scratch_make, scratch_drop)
