/* A GPU is lost in the middle of a run (--max-restarts): its process ends with an error, the supervisor finds that the
 * device cannot be opened any more, and the run continues on the other one, with the bits of an undisturbed run. If there
 * is no other, the run ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/restart.h"

enum { GPUS = 2, TOWERS = 3, STEPS = 6, LOST_AT = 3, SAVED_EVERY = 2 };

/* In memory that all processes share. */
static struct Seen {
    _Atomic unsigned gone; /* devices, a bit each */
    _Atomic bool lost;     /* the failure has happened */
} * seen;

/* Runs in rank 0's process: its device is lost, for this process and for those to come. */
static Status lose_device(void *context, Observation *observation)
{
    (void)context;
    if (observation->step != LOST_AT || atomic_exchange(&seen->lost, true)) return OK;
    atomic_store(&seen->gone, 1);
    fake_gpu_lose_device(fake_gpu_calls() + 1);
    return OK;
}

/* A run in the folder `name` of scratch. */
static Status run_live(const char *name, int gpus, bool loses, int64_t max_restarts, TrainResult *result)
{
    GpuRun run;
    Layout *layout;
    char path[PATH_BYTES], ckpt[PATH_BYTES];
    fake_gpu_reset();
    fake_gpu_devices(GPUS);
    fake_gpu_gone(&seen->gone);
    atomic_store(&seen->gone, 0);
    atomic_store(&seen->lost, !loses);
    scratch_path(path, name);
    assert_int_equal(path_join(ckpt, path, "ckpt"), OK);
    assert_int_equal(directory_create(ckpt), OK);
    gpu_run_open(&run, TOWERS, gpus);
    TrainJob *job = &run.job;
    job->run_dir = path;
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
static void test_the_others_go_on(void **state)
{
    (void)state;
    TrainResult result;
    size_t bytes, same_bytes;
    if (run_live("whole", GPUS, false, 1, &result) != OK) fail_msg("%s", status_message());
    assert_int_equal(result.restarts, 0);
    if (run_live("lost", GPUS, true, 1, &result) != OK) fail_msg("%s", status_message());
    assert_int_equal(result.restarts, 1);
    assert_int_equal(result.first_step, SAVED_EVERY);
    assert_int_equal(result.step, STEPS);
    char *restarts = run_text("lost", RESTARTS_FILE, &bytes);
    assert_non_null(strstr(restarts, "\"restart\":1,"));
    assert_non_null(strstr(restarts, "\"processes\":1,"));
    assert_null(strstr(restarts, "\"restart\":2"));
    free(restarts);
    char *weights = run_text("whole", "last.safetensors", &bytes),
         *same = run_text("lost", "last.safetensors", &same_bytes);
    assert_int_equal(bytes, same_bytes);
    assert_memory_equal(weights, same, bytes);
    free(weights);
    free(same);
}

static void test_no_other_device(void **state)
{
    (void)state;
    TrainResult result;
    assert_int_equal(run_live("alone", 1, true, 3, &result), ERR_DEVICE);
    assert_non_null(strstr(status_message(), "not started again: no GPU works any more"));
    assert_int_equal(result.restarts, 0);
}

static void test_not_asked_for(void **state)
{
    (void)state;
    TrainResult result;
    assert_int_equal(run_live("once", GPUS, true, 0, &result), ERR_DEVICE);
    assert_int_equal(result.restarts, 0);
}

int main(void)
{
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_others_go_on),
        cmocka_unit_test(test_no_other_device),
        cmocka_unit_test(test_not_asked_for),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
