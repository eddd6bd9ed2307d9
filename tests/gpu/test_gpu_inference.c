/* Evaluation and prediction on the fake GPU: a batch is copied while the previous one is computed, from and to pinned
 * memory, with the same results in any order of the streams. */

#include "kernels/cuda/cuda.h"
#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/replica/inference.h"

/* Pixels of a batch are more than a MiB, which go to the device on the copy stream; the last batch is smaller. */
enum { BATCH = 64, LAST = 16, CANVAS = 80, BATCHES = 5, SAMPLES = (BATCHES - 1) * BATCH + LAST, CLASSES = 4 };

typedef struct Subject {
    GpuRun run;
    Source *data;
    Replica *replica;
    Loader *loader;
    Inference *inference;
} Subject;

static void subject_open_of(Subject *s, const Backend *backend, Dtype compute, bool deterministic)
{
    *s = (Subject){0};
    gpu_run_open(&s->run, 1, 1);
    TrainJob *job = &s->run.job;
    job->program.compute = compute;
    job->device.deterministic = deterministic;
    job->program.canvas = CANVAS;
    assert_int_equal(source_synthetic(SAMPLES, CLASSES, CANVAS, CANVAS, 3, 1, &s->data), OK);
    ReplicaConfig config = {.backend = backend,
                            .device = job->device,
                            .program = job->program,
                            .local = 1,
                            .eval_n = (const int32_t[]){BATCH, LAST, 0},
                            .seed = 1};
    assert_int_equal(replica_create(&config, &s->replica), OK);
    LoaderConfig loader = {.source = s->data,
                           .local_batches = {.towers = 1, .batch = (const int32_t[]){BATCH}},
                           .local = 1,
                           .transform = job_transform(job, false),
                           .max_steps = BATCHES,
                           .depth = 2};
    if (loader_create(&loader, &s->loader) != OK) fail_msg("%s", status_message());
    assert_int_equal(inference_open(s->replica, s->loader, true, TTA_NONE, 0, &s->inference), OK);
}

static void subject_open(Subject *s, const Backend *backend)
{
    subject_open_of(s, backend, DTYPE_F32, true);
}

static void subject_close(Subject *s)
{
    inference_close(s->inference);
    loader_destroy(s->loader);
    replica_destroy(s->replica);
    source_close(s->data);
    gpu_run_close(&s->run);
}

/* The results of every batch. */
typedef struct Found {
    double loss[BATCHES];
    int64_t correct[BATCHES];
    int32_t label[SAMPLES];
    float prob[SAMPLES][CLASSES];
} Found;

static void begin(Subject *s)
{
    const Batch *batch;
    assert_int_equal(loader_next(s->loader, &batch), OK);
    if (inference_begin(s->inference, batch) != OK) fail_msg("%s", status_message());
}

static void end(Subject *s, Found *found)
{
    const Inferred *result;
    assert_int_equal(inference_end(s->inference, &result), OK);
    const Batch *batch = &result->batch;
    found->loss[batch->step] = result->loss;
    found->correct[batch->step] = result->correct[0];
    for (int i = 0; i < batch->n; i++) {
        int64_t at = batch->step * BATCH + i;
        assert_int_equal(batch->ids[i], at);
        found->label[at] = batch->labels[i];
        memcpy(found->prob[at], result->prob + i * result->pitch, sizeof found->prob[at]);
    }
}

static void infer(Subject *s, int ahead, Found *found)
{
    memset(found, 0, sizeof *found);
    for (int b = 0; b < BATCHES; b++) {
        begin(s);
        if (inference_pending(s->inference) > ahead) end(s, found);
    }
    while (inference_pending(s->inference)) end(s, found);
}

static Found first, again;

/* Memory that is used again too early shows in the results. */
TEST_WITH(test_same_results_ahead_or_not, fake_and_scratch_as_new, scratch_drop)
{
    for (int k = 0; k < 6; k++) {
        Subject s;
        fake_gpu_schedule(k < 2 ? GPU_LAZY : k < 4 ? GPU_EAGER : GPU_SHUFFLED, (uint32_t)k);
        subject_open(&s, &cuda_backend);
        assert_int_equal(inference_ahead(s.inference), 1);
        infer(&s, k & 1, k ? &again : &first);
        subject_close(&s);
        assert_int_equal(fake_gpu_alive(stderr), 0);
        if (k) assert_memory_equal(&first, &again, sizeof first);
    }
    for (int b = 1; b < BATCHES; b++) assert_true(first.loss[b] != first.loss[b - 1]);
}

TEST_WITH(test_nothing_waits, fake_and_scratch_as_new, scratch_drop)
{
    Subject s;
    subject_open(&s, &cuda_backend);
    begin(&s); /* libraries have loaded what they need */
    end(&s, &again);
    fake_gpu_counts_clear();
    begin(&s);
    int64_t kernels = fake_gpu_count("kernel");
    assert_true(kernels > 0);
    begin(&s); /* while the one before is under way: nobody has asked for it */
    assert_int_equal(fake_gpu_count("cudaEventQuery"), 0);
    assert_int_equal(fake_gpu_count("kernel"), 2 * kernels);
    end(&s, &again);
    end(&s, &again);
    assert_int_equal(fake_gpu_count("implicit synchronization"), 0);
    assert_int_equal(fake_gpu_count("cudaStreamSynchronize"), 0);
    assert_int_equal(fake_gpu_count("cudaDeviceSynchronize"), 0);
    begin(&s); /* one that nobody takes: its memory is not freed under the copies */
    subject_close(&s);
    assert_int_equal(fake_gpu_alive(stderr), 0);
}

TEST_WITH(test_cpu_is_never_ahead, fake_and_scratch_as_new, scratch_drop)
{
    Subject s;
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    subject_open(&s, cpu);
    assert_int_equal(inference_ahead(s.inference), 0);
    infer(&s, 0, &again);
    subject_close(&s);
    fake_gpu_schedule(GPU_LAZY, 1);
    subject_open(&s, &cuda_backend);
    infer(&s, 1, &first);
    subject_close(&s);
    for (int i = 0; i < SAMPLES; i++) {
        assert_int_equal(first.label[i], again.label[i]);
        for (int c = 0; c < CLASSES; c++) assert_float_equal(first.prob[i][c], again.prob[i][c], 1e-3f);
    }
    for (int b = 0; b < BATCHES; b++) assert_true(fabs(first.loss[b] - again.loss[b]) < 1e-5 * again.loss[b]);
}

/* ---- batch norms in bf16 */

/* Norms that are not those of a new network. */
static void norms_vary(Replica *r)
{
    float values[64], *param = r->arena[ARENA_PARAM];
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < (kind ? r->layout->running_count : r->layout->param_count); i++) {
            const LayoutEntry *entry = kind ? &r->layout->running[i] : &r->layout->params[i];
            if (entry->rank != 1 || !strstr(entry->name, ".bn.")) continue;
            bool around_one = strstr(entry->name, "weight") || strstr(entry->name, "var");
            assert_in_range(entry->count, 1, 64);
            for (size_t k = 0; k < entry->count; k++)
                values[k] = (float)around_one + 0.4f * (float)sin((double)(k + 7 * (size_t)i + 1));
            float *to = (kind ? r->eval_running : param) + entry->first;
            assert_int_equal(cuda_backend.upload(&r->device, to, values, entry->count * sizeof *values), OK);
            assert_int_equal(cuda_backend.finish(&r->device, STREAM_COMPUTE), OK);
        }
    replica_weights_changed(r);
}

/* Convolutions whose plans add the bias and apply the ReLU. */
static int ending(const Subject *s, int *convolutions)
{
    Plan *plan = s->replica->eval[0].plan;
    int found = *convolutions = 0;
    for (int i = 0; i < plan_op_count(plan); i++) {
        const OpCall *call = plan_call(plan, i);
        KernelChoice choice = {0};
        if (call->kind != OP_CONV) continue;
        cuda_backend.kernels[OP_CONV]->explain(&s->replica->device, call, &choice);
        found += strncmp(choice.name, "ends ", 5) == 0;
        ++*convolutions;
    }
    return found;
}

/* Of all probabilities: a single one may be near a tie. */
static double mean_difference(const Found *a, const Found *b)
{
    double sum = 0;
    for (int i = 0; i < SAMPLES; i++)
        for (int c = 0; c < CLASSES; c++) sum += fabs((double)a->prob[i][c] - (double)b->prob[i][c]);
    return sum / (SAMPLES * CLASSES);
}

/* Norms fold into plans that end with bias and ReLU, timed or not, or into plans with a pass behind them; the results are those of
 * f32 to the rounding of bf16. */
TEST_WITH(test_norms_fold_in_bf16, fake_and_scratch_as_new, scratch_drop)
{
    Subject s;
    int convolutions;
    subject_open(&s, &cuda_backend);
    norms_vary(s.replica);
    infer(&s, 0, &first);
    subject_close(&s);
    for (int k = 0; k < 4; k++) {
        bool lost = k & 1, timed = k & 2;
        fake_gpu_ends_lost(lost);
        subject_open_of(&s, &cuda_backend, DTYPE_BF16, !timed);
        assert_true(s.replica->eval[0].fold_end > 0);
        int found = ending(&s, &convolutions);
        assert_int_equal(convolutions, 3);
        if (lost)
            assert_int_equal(found, 0);
        else
            assert_true(found >= 1); /* others are products, or our own kernel, where these are as fast */
        norms_vary(s.replica);
        infer(&s, 1, &again);
        printf("  bias %s, %s: %g from f32\n", lost ? "by a pass" : "in the plan", timed ? "timed" : "the first",
               mean_difference(&first, &again));
        assert_true(mean_difference(&first, &again) < 0.01);
        subject_close(&s);
        assert_int_equal(fake_gpu_alive(stderr), 0);
    }
    fake_gpu_ends_lost(false);
    subject_open_of(&s, &cuda_backend, DTYPE_F16, true); /* scaled weights may leave its range */
    assert_int_equal(s.replica->eval[0].fold_end, 0);
    subject_close(&s);
}

TEST_WITH(test_nan_passes_the_end_of_a_plan, fake_and_scratch_as_new, scratch_drop)
{
    const float nan = NAN;
    Subject s;
    subject_open_of(&s, &cuda_backend, DTYPE_BF16, true);
    Replica *r = s.replica;
    float *param = r->arena[ARENA_PARAM];
    const LayoutEntry *shift = layout_param(r->layout, "stem.bn.bias");
    assert_non_null(shift);
    assert_int_equal(cuda_backend.upload(&r->device, param + shift->first, &nan, sizeof nan), OK);
    replica_weights_changed(r);
    begin(&s);
    end(&s, &again);
    for (int c = 0; c < CLASSES; c++) assert_true(isnan(again.prob[0][c]));
    subject_close(&s);
}

/* ---- in a training run */

/* The copies that hold the host back in a run that ends with an evaluation of so many blocks. */
static int64_t copies_that_wait(int blocks, char **confusion)
{
    GpuRun run;
    Source *test;
    char path[PATH_BYTES];
    size_t bytes;
    fake_gpu_counts_clear();
    gpu_run_open(&run, 1, 1);
    assert_int_equal(source_synthetic((int64_t)blocks * BATCH, CLASSES, CANVAS, CANVAS, 3, 2, &test), OK);
    run.job.test = test;
    run.job.eval_batch = BATCH;
    run.job.eval_interval = 1;
    run.job.program.canvas = CANVAS;
    run.job.run_dir = scratch;
    run.job.max_steps = 1;
    if (gpu_run_live(&run) != OK) fail_msg("%s", run.seen->rank[0].message);
    gpu_run_close(&run);
    source_close(test);
    assert_int_equal(path_join(path, scratch, "confusion.csv"), OK);
    assert_int_equal(file_read(path, 1 << 16, confusion, &bytes), OK);
    return fake_gpu_count("implicit synchronization");
}

TEST_WITH(test_evaluation_of_a_run, fake_and_scratch_as_new, scratch_drop)
{
    char *confusion[2];
    int64_t counted = 0, waits = copies_that_wait(2, &confusion[0]);
    assert_int_equal(copies_that_wait(5, &confusion[1]), waits);
    char *rest = confusion[1], *line = strsep(&rest, "\n"); /* the names of the classes, as in the first column */
    while (rest && (line = strsep(&rest, "\n")))
        for (char *at = strchr(line, ','); at; at = strchr(at + 1, ',')) counted += strtol(at + 1, NULL, 10);
    assert_int_equal(counted, 5 * BATCH);
    free(confusion[0]);
    free(confusion[1]);
}

/* ---- prediction: weights of a run */

TEST_WITH(test_weights_of_a_file, fake_and_scratch_as_new, scratch_drop)
{
    GpuRun run;
    Subject s;
    char path[PATH_BYTES];
    gpu_run_open(&run, 1, 1);
    run.job.run_dir = scratch;
    run.job.max_steps = 1;
    if (gpu_run_live(&run) != OK) fail_msg("%s", run.seen->rank[0].message);
    gpu_run_close(&run);
    assert_int_equal(path_join(path, scratch, "last.safetensors"), OK);
    fake_gpu_guard(true); /* whoever writes to the device's memory as if it were the host's dies */
    subject_open(&s, &cuda_backend);
    infer(&s, 1, &first);
    subject_close(&s);
    subject_open(&s, &cuda_backend);
    if (inference_weights(s.replica, &s.run.job.program, path, HEAD_READ) != OK) fail_msg("%s", status_message());
    infer(&s, 1, &again);
    subject_close(&s);
    fake_gpu_guard(false);
    assert_memory_not_equal(first.prob, again.prob, sizeof first.prob);
    for (int b = 0; b < BATCHES; b++) assert_true(again.loss[b] > 0 && again.loss[b] < 1e3);
}
