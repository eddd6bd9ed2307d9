/* A GPU is lost in the middle of a run (--max-restarts): its process ends with an error, the supervisor finds that the
 * device cannot be opened any more, and the run continues on the other one, with the bits of an undisturbed run. If there
 * is no other, the run ends. */
#include <sys/mman.h>

#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/restart.h"
#include "towers/train/train.h"

enum { GPUS = 2, TOWERS = 3, STEPS = 6, LOST_AT = 3, SAVED_EVERY = 2 };

/* In memory that all processes share. */
static struct Seen {
    _Atomic unsigned gone; /* devices, a bit each */
    _Atomic bool lost;     /* the failure has happened */
    int victim;            /* the device that is lost */
} * seen;

/* Runs in rank 0's process: a device is lost, for the process that uses it and for those to come. */
static Status lose_device(void *context, Observation *observation)
{
    if (observation->step != LOST_AT || atomic_exchange(&seen->lost, true)) return OK;
    atomic_store(&seen->gone, 1u << seen->victim);
    return OK;
}

/* A run in the folder `name` of scratch. victim: the device that it loses, -1: none. */
static Status run_live(const char *name, int gpus, int victim, int64_t max_restarts, TrainResult *result)
{
    GpuRun run;
    Layout *layout;
    char path[PATH_BYTES], ckpt[PATH_BYTES];
    fake_gpu_reset();
    fake_gpu_devices(GPUS);
    fake_gpu_gone(&seen->gone);
    atomic_store(&seen->gone, 0);
    atomic_store(&seen->lost, victim < 0);
    seen->victim = victim;
    scratch_path(path, name);
    assert_int_equal(path_join(ckpt, path, "ckpt"), OK);
    assert_int_equal(directory_create(ckpt), OK);
    gpu_run_open(&run, TOWERS, gpus);
    TrainJob *job = &run.job;
    job->run_dir = path;
    job->settings = gpus > 1 ? "device: cuda\nprocesses: 2\ntowers: 3\n" : "processes: 1\n";
    job->setting_defaults = "";
    job->gpu_count = gpus;
    for (int i = 0; i < gpus; i++) job->gpu[i] = i;
    job->comm.ordered = true;
    job->max_steps = STEPS;
    job->checkpoint.steps = SAVED_EVERY;
    job->checkpoint.keep = STEPS;
    job->max_restarts = max_restarts;
    job->observe = lose_device;
    job->observe_cycles = 1;
    job->quiet = true;
    assert_int_equal(program_layout(&job->program, 1, &layout), OK);
    GpuWorld *world = fake_gpu_world_create(gpus, job_comm_room(job, layout) * sizeof(float));
    layout_destroy(layout);
    assert_non_null(world);
    *result = (TrainResult){0};
    Status st = train_run(job, result);
    fake_gpu_world_destroy(world);
    gpu_run_close(&run);
    return st;
}

static char *run_text(const char *name, const char *file, size_t *bytes)
{
    char folder[PATH_BYTES], path[PATH_BYTES], *text;
    scratch_path(folder, name);
    assert_int_equal(path_join(path, folder, file), OK);
    if (file_read(path, 1 << 24, &text, bytes) != OK) fail_msg("%s", status_message());
    return text;
}

/* fault: F42 */
TEST(test_the_others_go_on)
{
    TrainResult result;
    size_t bytes, same_bytes;
    if (run_live("whole", GPUS, -1, 1, &result) != OK) fail_msg("%s", status_message());
    assert_int_equal(result.restarts, 0);
    char *weights = run_text("whole", "last.safetensors", &bytes);
    for (int victim = 0; victim < GPUS; victim++) { /* that of rank 0, and another */
        char name[16];
        snprintf(name, sizeof name, "lost-%d", victim);
        if (run_live(name, GPUS, victim, 1, &result) != OK) fail_msg("%s", status_message());
        assert_int_equal(result.restarts, 1);
        assert_int_equal(result.first_step, SAVED_EVERY);
        assert_int_equal(result.step, STEPS);
        char *restarts = run_text(name, RESTARTS_FILE, &same_bytes);
        assert_non_null(strstr(restarts, "\"restart\":1,"));
        assert_non_null(strstr(restarts, "\"processes\":1,"));
        assert_null(strstr(restarts, "\"restart\":2"));
        free(restarts);
        char *same = run_text(name, "last.safetensors", &same_bytes);
        assert_int_equal(bytes, same_bytes);
        assert_memory_equal(weights, same, bytes);
        free(same);
        /* a later --resume finds the number of processes that there is now */
        char *before = run_text(name, "ckpt/step-0000000002/state.json", &same_bytes),
             *after = run_text(name, "ckpt/step-0000000006/state.json", &same_bytes);
        assert_non_null(strstr(before, "device: cuda\\nprocesses: 2\\ntowers: 3\\n"));
        assert_non_null(strstr(after, "device: cuda\\nprocesses: 1\\ntowers: 3\\n"));
        free(before);
        free(after);
    }
    free(weights);
}

/* NCCL's abort may hang, and the driver needs seconds to end a killed process: the run waits, and goes on. */
TEST(test_a_slow_end)
{
    TrainResult result;
    assert_int_equal(run_live("alone", 1, 0, 3, &result), ERR_DEVICE);
    assert_non_null(strstr(status_message(), "not started again: no GPU works any more"));
    assert_int_equal(result.restarts, 0);
}

TEST(test_not_asked_for)
{
    TrainResult result;
    assert_int_equal(run_live("once", GPUS, 0, 0, &result), ERR_DEVICE);
    assert_int_equal(result.restarts, 0);
}

static int set_up(void **state)
{
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED ? -1 : scratch_make(state);
}

TESTS_WITH(set_up, scratch_drop)
