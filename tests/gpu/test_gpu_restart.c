/* A GPU is lost in the middle of a run (--max-restarts): its process ends with an error, the supervisor finds that the
 * device cannot be opened any more, and the run continues on the other one, with the bits of an undisturbed run. If there
 * is no other, the run ends. */
#include <sys/mman.h>

#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/files/json.h"
#include "towers/replica/hooks.h"
#include "towers/replica/norm_sync.h"
#include "towers/supervisor/restart.h"
#include "towers/supervisor/train.h"

enum { GPUS = 2, TOWERS = 3, STEPS = 6, LOST_AT = 3, SAVED_EVERY = 2, HANGS_MS = 16000 };

/* In memory that all processes share. */
static struct Seen {
    _Atomic unsigned gone;   /* devices, a bit each */
    _Atomic bool lost;       /* the failure has happened */
    _Atomic int64_t lost_ns; /* when */
    _Atomic bool saved;      /* rank 0 has come to the end of its slow save */
    int victim;              /* the device that is lost */
    bool saves_slowly;
    char mark[PATH_BYTES]; /* the checkpoint that must be there when the device is lost */
    size_t memory;         /* of the second GPU; 0: enough */
    bool meet;             /* after the loss, no GPU opens before all are being opened */
    _Atomic unsigned met;  /* those that are, a bit each */
    const Backend *backend;
} * seen;

static bool victim_lose(void)
{
    if (atomic_exchange(&seen->lost, true)) return false;
    atomic_store(&seen->lost_ns, clock_ns());
    atomic_store(&seen->gone, 1u << seen->victim);
    return true;
}

enum { SAVING_MS = 12000, PIECE_MS = 50 };

/* While rank 0 saves slowly, the other device is lost. */
static void save_slowly(int tower, int64_t step, Activity activity)
{
    if (tower > 0 || step != SAVED_EVERY || activity != ACTIVITY_SAVE || !victim_lose()) return;
    for (int done = 0; done < SAVING_MS; done += PIECE_MS) {
        progress_made("a file");
        usleep(PIECE_MS * 1000);
    }
    atomic_store(&seen->saved, true);
}

static Status slow_saves_begin(void)
{
    static RunHooks hooks;
    TRY(hooks_load_text("delay:step=1000"));
    hooks = *run_hooks;
    hooks.activity = save_slowly;
    run_hooks = &hooks;
    return OK;
}

/* Runs in rank 0's process: a device is lost, for the process that uses it and for those to come. */
static Status lose_device(void *context, Observation *observation)
{
    if (seen->saves_slowly) TRY(slow_saves_begin());
    if (observation->step != LOST_AT || atomic_load(&seen->lost)) return OK;
    for (int ms = 0; ms < 60000 && access(seen->mark, F_OK) != 0; ms++) {
        progress_made("a checkpoint");
        usleep(1000);
    }
    (void)victim_lose();
    return OK;
}

static void abort_hangs(void)
{
    for (;;) pause();
}

/* Only the second GPU has too little memory: another program uses it, too. */
static Status open_beside_others(const DeviceConfig *config, Device *device)
{
    if (config->ordinal == 1) fake_gpu_memory(seen->memory);
    return seen->backend->open(config, device);
}

enum { MEETING_MS = 30000 };

/* Opens a GPU once the other one is being opened, too: a try of one after another would wait in vain, and find that none works. */
static Status open_together(const DeviceConfig *config, Device *device)
{
    if (!atomic_load(&seen->lost)) return seen->backend->open(config, device);
    atomic_fetch_or(&seen->met, 1u << config->ordinal);
    for (int ms = 0; atomic_load(&seen->met) != (1u << GPUS) - 1; ms++) {
        if (ms == MEETING_MS) return FAIL(ERR_DEVICE, "GPU %d was opened alone", config->ordinal);
        usleep(1000);
    }
    return seen->backend->open(config, device);
}

/* A run in the folder `name` of scratch. victim: the device that it loses, -1: none. leave_ms: the other process hangs when
 * it leaves, and ends so long after it was killed; 0: it leaves by itself. */
static Status run_live(const char *name, int gpus, int victim, int64_t max_restarts, int leave_ms, TrainResult *result)
{
    GpuRun run;
    Layout *layout;
    char path[PATH_BYTES], ckpt[PATH_BYTES];
    fake_gpu_reset();
    fake_gpu_devices(GPUS);
    fake_gpu_gone(&seen->gone);
    fake_gpu_ends_after(leave_ms);
    if (leave_ms) fake_gpu_on_abort(abort_hangs);
    atomic_store(&seen->gone, 0);
    atomic_store(&seen->lost, victim < 0);
    seen->victim = victim;
    scratch_path(path, name);
    assert_int_equal(path_join(ckpt, path, "ckpt"), OK);
    assert_int_equal(path_join(seen->mark, ckpt, "step-0000000002"), OK);
    assert_int_equal(directory_create(ckpt), OK);
    gpu_run_open(&run, TOWERS, gpus);
    TrainJob *job = &run.job;
    Backend beside_others = *job->backend;
    beside_others.open = open_beside_others;
    seen->backend = job->backend;
    if (seen->meet) beside_others.open = open_together;
    if (seen->memory || seen->meet) job->backend = &beside_others;
    job->run_dir = path;
    json_t *settings = json_pack("{s:s, s:s, s:s}", "device", "cuda", "processes", gpus > 1 ? "2" : "1", "towers", "3");
    job->settings = settings;
    job->gpu_count = gpus;
    for (int i = 0; i < gpus; i++) job->gpu[i] = i;
    job->comm.ordered = true;
    job->max_steps = STEPS;
    if (leave_ms) job->comm.timeout_ms = HANGS_MS; /* who hangs is killed */
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
    seen->memory = 0;
    fake_gpu_world_destroy(world);
    gpu_run_close(&run);
    json_decref(settings);
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
    if (run_live("whole", GPUS, -1, 1, 0, &result) != OK) fail_msg("%s", status_message());
    assert_int_equal(result.restarts, 0);
    char *weights = run_text("whole", "last.safetensors", &bytes);
    for (int victim = 0; victim < GPUS; victim++) { /* that of rank 0, and another */
        char name[16];
        snprintf(name, sizeof name, "lost-%d", victim);
        if (run_live(name, GPUS, victim, 1, 0, &result) != OK) fail_msg("%s", status_message());
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
        static const char settings_of_two[] =
            "\"device\": \"cuda\",\n    \"processes\": \"2\",\n    \"towers\": \"3\"\n",
                          settings_of_one[] =
                              "\"device\": \"cuda\",\n    \"processes\": \"1\",\n    \"towers\": \"3\"\n";
        char *before = run_text(name, "ckpt/step-0000000002/state.json", &same_bytes),
             *after = run_text(name, "ckpt/step-0000000006/state.json", &same_bytes);
        assert_non_null(strstr(before, settings_of_two));
        assert_non_null(strstr(after, settings_of_one));
        free(before);
        free(after);
    }
    free(weights);
}

/* Each GPU may take a minute until it is known to hang, so all are tried at once. */
TEST(test_devices_are_tried_together)
{
    TrainResult result;
    seen->meet = true;
    Status st = run_live("together", GPUS, 1, 1, 0, &result);
    seen->meet = false;
    if (st != OK) fail_msg("%s", status_message());
    assert_int_equal(result.restarts, 1);
    assert_int_equal(result.step, STEPS);
}

/* NCCL's abort may hang, and the driver needs seconds to end a killed process: the run waits, and goes on. */
TEST(test_a_slow_end)
{
    TrainResult result;
    if (run_live("slow", GPUS, 1, 1, 6000, &result) != OK) fail_msg("%s", status_message());
    assert_int_equal(result.restarts, 1);
    assert_int_equal(result.step, STEPS);
}

/* A run of two processes that both hang at their end, after the second's device is lost; milliseconds until it ended. */
static int64_t failure_hangs(const char *name)
{
    TrainResult result;
    Status st = run_live(name, GPUS, 1, 0, 1, &result);
    bool by_device = st == ERR_DEVICE || st == ERR_COMM; /* of NCCL, if its call is the first to meet the lost device */
    if (!by_device || !strstr(status_message(), "a failure of the fake")) fail_msg("%s", status_message());
    return (clock_ns() - atomic_load(&seen->lost_ns)) / 1000000;
}

/* A process that hangs after its failure is killed at half of --comm-timeout, and the run ends with that failure. */
/* fault: F58 */
TEST(test_a_failure_that_does_not_end)
{
    int64_t ms = failure_hangs("hangs");
    if (ms < HANGS_MS / 2 || ms >= HANGS_MS) fail_msg("it ended after %lld ms", (long long)ms);
}

/* Not if the other process is saving then. */
TEST(test_a_save_beside_a_failure)
{
    seen->saves_slowly = true;
    (void)failure_hangs("saves");
    seen->saves_slowly = false;
    assert_true(atomic_load(&seen->saved));
}

TEST(test_no_other_device)
{
    TrainResult result;
    assert_fails(run_live("alone", 1, 0, 3, 0, &result), ERR_DEVICE, "not started again: no GPU works any more");
    assert_int_equal(result.restarts, 0);
}

/* One process lacks memory: the run ends for that, with the batch that fits, although the other process, which waits for it,
 * ends first. */
TEST(test_memory_of_one_process)
{
    TrainResult result;
    seen->memory = (size_t)4200 << 10; /* enough for the first layers */
    assert_fails(run_live("starved", GPUS, -1, 0, 0, &result), ERR_MEMORY, "a batch of 2 needs");
}

TEST(test_not_asked_for)
{
    TrainResult result;
    assert_int_equal(run_live("once", GPUS, 0, 0, 0, &result), ERR_DEVICE);
    assert_int_equal(result.restarts, 0);
}

static int set_up(void **state)
{
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED ? -1 : scratch_make(state);
}

TESTS_WITH(set_up, scratch_drop)
