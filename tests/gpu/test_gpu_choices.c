/* Kernels are chosen once for a run: devices whose engines differ in time, order, number and bits compute the same steps
 * on any number of ranks, also after a resume with other devices. A device that cannot take the choices says so. */

#include "kernels/cuda/cuda.h"
#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/guard/capsule.h"
#include "towers/replica/norm_sync.h"
#include "towers/supervisor/train.h"

#include <cudnn.h>

enum { TOWERS = 8, STEPS = 4, HALF = 2 };

static const Model *trained;

/* A run in the folder `name` of scratch, of towers with batches of 2 and of 3: a rank may have one kind, or both. */
static Status status_of_run(const char *name, int ranks, int steps, uint32_t seed, Dtype compute)
{
    GpuRun run;
    Layout *layout;
    TrainResult result = {0};
    int32_t batch[TOWERS];
    char path[PATH_BYTES], ckpt[PATH_BYTES];
    gpu_run_open(&run, TOWERS, ranks);
    TrainJob *job = &run.job;
    scratch_path(path, name);
    assert_int_equal(path_join(ckpt, path, "ckpt"), OK);
    assert_int_equal(directory_create(ckpt), OK);
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch, 1), 0);
    fake_gpu_devices(ranks);
    fake_gpu_adversary(seed);
    job->run_dir = path;
    trained = job->program.model;
    job->gpu_count = ranks;
    for (int i = 0; i < ranks; i++) job->gpu[i] = i;
    for (int t = 0; t < TOWERS; t++) batch[t] = 2 + (t >= TOWERS / 2);
    job->local_batches.batch = batch;
    job->device.deterministic = false;
    job->program.compute = compute;
    job->program.norm_into_pool = true;
    job->comm.ordered = true;
    job->max_steps = steps;
    job->checkpoint.keep = STEPS;
    job->quiet = true;
    assert_int_equal(program_layout(&job->program, 1, &layout), OK);
    GpuWorld *world = fake_gpu_world_create(ranks, job_comm_room(job, layout) * sizeof(float));
    layout_destroy(layout);
    assert_non_null(world);
    Status st = train_run(job, &result);
    if (st == OK) assert_int_equal(result.step, steps);
    fake_gpu_world_destroy(world);
    gpu_run_close(&run);
    return st;
}

static void run_on(const char *name, int ranks, int steps, uint32_t seed, Dtype compute)
{
    if (status_of_run(name, ranks, steps, seed, compute) != OK)
        fail_msg("%s on %d ranks: %s", name, ranks, status_message());
}

static char *text_of(const char *name, const char *file)
{
    char both[256];
    snprintf(both, sizeof both, "%s/%s", name, file);
    return scratch_text(both);
}

static FileSum weights_of(const char *name)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    FileSum sum;
    scratch_path(folder, name);
    assert_int_equal(path_join(path, folder, "last.safetensors"), OK);
    assert_int_equal(file_sum(path, &sum), OK);
    return sum;
}

static bool same_weights(const char *one, const char *other)
{
    FileSum a = weights_of(one), b = weights_of(other);
    return a.bytes == b.bytes && a.high == b.high && a.low == b.low;
}

static bool log_says(const char *name, const char *words)
{
    char *log = text_of(name, "log.txt");
    bool says = strstr(log, words) != NULL;
    free(log);
    return says;
}

static void cache_forget(void)
{
    char path[PATH_BYTES];
    scratch_path(path, "towers");
    assert_int_equal(tree_remove(path), OK);
}

static const char *const complaints[] = {"kernels are chosen anew", "were chosen anew", "chooses its own kernels",
                                         "chose others"};

static void assert_silent(const char *name)
{
    for (size_t i = 0; i < sizeof complaints / sizeof *complaints; i++)
        if (log_says(name, complaints[i])) fail_msg("%s: %s", name, complaints[i]);
}

/* The folder of a run to come, with the kernels of another run. */
static void plans_copy(const char *from, const char *to)
{
    char path[PATH_BYTES], file[256], *plans = text_of(from, "plans.txt");
    scratch_path(path, to);
    assert_int_equal(directory_create(path), OK);
    snprintf(file, sizeof file, "%s/plans.txt", to);
    scratch_put(file, plans);
    free(plans);
}

/* Eight devices that disagree; one, through the cache; and half of the run on eight, the rest on four, without a cache. */
static void check_same_bits(Dtype compute)
{
    run_on("eight", 8, STEPS, 1, compute);
    run_on("one", 1, STEPS, 2, compute);
    assert_true(same_weights("eight", "one"));
    cache_forget();
    run_on("other", 1, STEPS, 3, compute);
    assert_false(same_weights("eight", "other")); /* the choice matters */
    cache_forget();
    plans_copy("eight", "resumed");
    run_on("resumed", 8, HALF, 4, compute);
    cache_forget();
    run_on("resumed", 4, STEPS, 5, compute);
    assert_true(same_weights("eight", "resumed"));
    assert_silent("eight");
    assert_silent("one");
    assert_silent("resumed");
}

TEST_WITH(test_same_bits_f32, fake_and_scratch_as_new, scratch_drop)
{
    check_same_bits(DTYPE_F32);
}

TEST_WITH(test_same_bits_f16, fake_and_scratch_as_new, scratch_drop)
{
    check_same_bits(DTYPE_F16);
}

/* A device that lacks most engines computes with others, and the log of the run says so. */
TEST_WITH(test_engine_is_missing, fake_and_scratch_as_new, scratch_drop)
{
    fake_gpu_engines_lost(1, 0x3f); /* of rank 1 */
    for (uint32_t seed = 1; seed < 4; seed++) {
        char name[16];
        snprintf(name, sizeof name, "run-%u", seed);
        cache_forget();
        run_on(name, 2, 1, seed, DTYPE_F16);
        if (log_says(name, "tower 4: its device could not take ")) return;
    }
    fail_msg("three runs did without the engines that are missing");
}

TEST_WITH(test_resume_with_another_library, fake_and_scratch_as_new, scratch_drop)
{
    run_on("run", 1, HALF, 1, DTYPE_F32);
    fake_gpu_cudnn_version(90800);
    run_on("run", 1, STEPS, 1, DTYPE_F32);
    assert_true(log_says("run", "this device is Fake GPU cuDNN 9.8.0"));
    assert_true(log_says("run", "kernels are chosen anew, so results may differ in their last bits"));
    char *plans = text_of("run", "plans.txt");
    assert_non_null(strstr(plans, "cuDNN 9.8.0"));
    free(plans);
}

TEST_WITH(test_resume_without_an_engine, fake_and_scratch_as_new, scratch_drop)
{
    run_on("run", 1, HALF, 1, DTYPE_F16);
    cache_forget();
    fake_gpu_engines_lost(0, 0x3f);
    run_on("run", 1, STEPS, 1, DTYPE_F16);
    assert_true(log_says("run", "kernels could not be taken from plans.txt and were chosen anew"));
}

/* Two engines that give different results, and one that cannot be made: the run takes what the heuristics name first, and its
 * log says so. */
TEST_WITH(test_nothing_is_confirmed, fake_and_scratch_as_new, scratch_drop)
{
    fake_gpu_engines(7); /* of which 4, 5 and 6 are without tensor cores */
    fake_gpu_engine_refused(6, CUDNN_STATUS_INTERNAL_ERROR);
    fake_gpu_engine(4, 10, true);
    run_on("run", 1, 1, 0, DTYPE_F32);
    assert_true(log_says("run", "convolutions run by the library's first plan"));
    assert_true(log_says("run", "candidates for kernels of convolutions were passed over"));
}

#ifdef TOWERS_FAULTS
/* A replay takes the kernels of the run, which it would not find: they are in no cache, and the engines differ. */
TEST_WITH(test_replay_takes_the_kernels, fake_and_scratch_as_new, scratch_drop)
{
    char path[PATH_BYTES], *plans;
    int chosen;
    Capsule *capsule;
    Replica *replica;
    const DeviceConfig device = {DEVICE_USUAL, .threads = 1};
    assert_int_equal(setenv("TOWERS_FAULT", "nan:tower=1,step=2,layer=a.conv,index=5", 1), 0);
    assert_int_equal(status_of_run("run", 1, STEPS, 1, DTYPE_F16), ERR_NUMERIC);
    unsetenv("TOWERS_FAULT");
    scratch_path(path, "run/nan-step-2-tower-1");
    for (uint32_t seed = 2; seed < 5; seed++) {
        cache_forget();
        fake_gpu_adversary(seed);
        if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
        capsule->program.model = trained;
        if (capsule_replica(capsule, &cuda_backend, &device, &replica) != OK) fail_msg("%s", status_message());
        assert_int_equal(cuda_backend.choices_text(&replica->device, &plans, &chosen), OK);
        assert_int_equal(chosen, 0);
        for (char *rest = plans, *line; (line = strsep(&rest, "\n"));)
            if (!strstr(capsule->choices, line)) fail_msg("the replay chose: %s", line);
        free(plans);
        replica_destroy(replica);
        capsule_close(capsule);
    }
}
#endif
