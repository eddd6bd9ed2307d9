/* Steps whose results arrive late. The CPU's backend is made to answer as a GPU does: downloads reach the host only
 * when the host has asked often enough. Weights and losses must be those of a device that answers at once, bit for
 * bit. A step that is not finite must change nothing and be named, although two more were begun. In f16, a step whose
 * gradients overflow is skipped and the scale halved. */

#include "inception/models/models.h"
#include "tests/support/fake_backend.h"
#include "tests/support/scratch.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/guard/capsule.h"

enum { STEPS = 12, PENDING = 16, POLLS_UNTIL_THERE = 3 };

/* ---- a late device */

typedef struct Late {
    void *host, *value; /* value: owned */
    size_t bytes;
} Late;

static const Backend *cpu;
static Backend late_backend;
static Late pending[PENDING];
static int pending_count, polls, marked, under_way_most;
static int applied, poisoned_step;
static uint64_t weights_after[2 * STEPS];
static double loss_of[STEPS + 1];
static int64_t reported;
static size_t param_count;

static void deliver(void)
{
    for (int i = 0; i < pending_count; i++) {
        memcpy(pending[i].host, pending[i].value, pending[i].bytes);
        free(pending[i].value);
    }
    pending_count = 0;
}

static Status late_download(Device *device, void *host, const void *from, size_t bytes)
{
    if (pending_count == PENDING) return FAIL(ERR_INTERNAL, "%d downloads that nobody asked for", PENDING);
    void *value = malloc(bytes ? bytes : 1);
    if (!value) return FAIL(ERR_MEMORY, "%zu bytes", bytes);
    memcpy(value, from, bytes);
    memset(host, 0xff, bytes); /* whoever reads it too early gets NaN */
    pending[pending_count++] = (Late){host, value, bytes};
    return OK;
}

static Status late_finish(Device *device, StreamKind stream)
{
    deliver();
    return cpu->finish(device, stream);
}

static Status late_mark(Device *device, int number)
{
    polls = 0;
    marked++;
    if (marked - (int)reported > under_way_most) under_way_most = marked - (int)reported;
    return OK;
}

/* Everything before a mark is there when it is reached; here, also what came after. */
static Status late_reached(Device *device, int number, bool *reached)
{
    *reached = ++polls > POLLS_UNTIL_THERE;
    if (*reached) deliver();
    return OK;
}

static Status late_open(const DeviceConfig *config, Device *device)
{
    TRY(cpu->open(config, device));
    device->backend = &late_backend;
    return OK;
}

static uint64_t bits_of(const float *x, size_t count)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a, by words */
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

static Status seen_update(Device *device, const OptimizerUpdate *update)
{
    const OptimizerSegment *last = &update->segments[update->segment_count - 1];
    TRY(cpu->optimizer_apply(device, update));
    param_count = last->first + last->count;
    if (applied < 2 * STEPS) weights_after[applied] = bits_of(update->param, param_count);
    applied++;
    return OK;
}

static Status seen_square_sum(Device *device, const float *x, size_t count, double *sum)
{
    TRY(cpu->square_sum(device, x, count, sum));
    if (applied + 1 == poisoned_step) *sum = NAN;
    return OK;
}

static void seen_step(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    assert_int_equal(step, reported + 1);
    reported = step;
    if (step <= STEPS) loss_of[step] = loss;
}

static void run_open(TowerRun *run, bool late, int towers)
{
    late_backend = *cpu;
    late_backend.open = late_open;
    late_backend.optimizer_apply = seen_update;
    late_backend.square_sum = seen_square_sum;
    if (late) {
        late_backend.download = late_download;
        late_backend.finish = late_finish;
        late_backend.mark = late_mark;
        late_backend.reached = late_reached;
    }
    applied = poisoned_step = marked = under_way_most = 0;
    reported = 0;
    memset(weights_after, 0, sizeof weights_after);
    memset(loss_of, 0, sizeof loss_of);
    tower_run_open(run, &late_backend, &model_fashion_cnn, towers);
    run->job.on_step = seen_step;
    run->job.gate.clip_norm = 0.5;
    run->job.gate.ema_decay = 0.99;
}

static bool no_cpu(void)
{
    return backend_find("cpu", &cpu, NULL, 0) != OK;
}

/* ---- tests */

TEST(test_late_results_change_nothing)
{
    if (no_cpu()) skip("this build has no CPU backend");
    for (int towers = 1; towers <= 2; towers++) {
        uint64_t weights[STEPS];
        double losses[STEPS + 1];
        TowerRun run;
        run_open(&run, false, towers);
        tower_run_live(&run);
        if (run.status != OK) fail_msg("%s", status_message());
        assert_int_equal(reported, STEPS);
        memcpy(weights, weights_after, sizeof weights);
        memcpy(losses, loss_of, sizeof losses);
        tower_run_close(&run);

        run_open(&run, true, towers);
        tower_run_live(&run);
        if (run.status != OK) fail_msg("%s", status_message());
        assert_int_equal(reported, STEPS);
        assert_int_equal(under_way_most, GATE_AHEAD + 1);
        assert_memory_equal(weights, weights_after, sizeof weights);
        assert_memory_equal(losses, loss_of, sizeof losses);
        assert_int_not_equal(weights[0], weights[STEPS - 1]);
        tower_run_close(&run);
    }
}

TEST(test_late_refusal)
{
    if (no_cpu()) skip("this build has no CPU backend");
    TowerRun run;
    run_open(&run, true, 2);
    poisoned_step = 4;
    tower_run_live(&run);
    assert_int_equal(run.status, ERR_NUMERIC);
    if (!strstr(status_message(), "step 4: the gradient is not finite")) fail_msg("%s", status_message());
    assert_int_equal(reported, 3);
    assert_int_equal(applied, 4 + GATE_AHEAD);
    for (int i = 3; i < applied; i++) assert_true(weights_after[i] == weights_after[2]);
    tower_run_close(&run);
}

TEST(test_late_skip)
{
    if (no_cpu()) skip("this build has no CPU backend");
    uint64_t weights[STEPS];
    for (int late = 0; late < 2; late++) {
        TowerRun run;
        run_open(&run, late, 2);
        run.job.nan_policy = NAN_POLICY_SKIP;
        poisoned_step = 4;
        tower_run_live(&run);
        if (run.status != OK) fail_msg("%s", status_message());
        assert_int_equal(reported, STEPS);
        assert_true(weights_after[3] == weights_after[2] && weights_after[4] != weights_after[3]);
        if (late) assert_int_equal(under_way_most, GATE_AHEAD + 1); /* a policy is no reason to wait */
        if (late) assert_memory_equal(weights, weights_after, sizeof weights);
        memcpy(weights, weights_after, sizeof weights);
        tower_run_close(&run);
    }
}

static void check_capsule(int nan_limit, Status ends, int64_t weights)
{
    TowerRun run;
    Capsule *capsule;
    Replica *replica;
    char path[PATH_BYTES];
    run_open(&run, true, 2);
    run.job.nan_policy = NAN_POLICY_SKIP;
    run.job.gate.skips_max = nan_limit;
    run.job.run_dir = scratch;
    poisoned_step = 4;
    tower_run_live(&run);
    assert_int_equal(run.status, ends);
    scratch_path(path, "nan-step-4-tower-0");
    if (capsule_open(path, &capsule) != OK) fail_msg("%s", status_message());
    assert_int_equal(capsule->weights_after, weights);
    capsule->program.model = &model_fashion_cnn;
    assert_int_equal(capsule_replica(capsule, cpu, &(DeviceConfig){DEVICE_USUAL, .threads = 1}, &replica), OK);
    assert_true(bits_of(replica->arena[ARENA_PARAM], param_count) == weights_after[weights - 1]);
    replica_destroy(replica);
    capsule_close(capsule);
    tower_run_close(&run);
}

/* The host hears of step 4 when two more are under way. They move the weights that the capsule gets, unless the limit
 * has closed the gate. */
TEST_WITH(test_capsule_says_whose_weights_it_has, scratch_make, scratch_drop)
{
    if (no_cpu()) skip("this build has no CPU backend");
    check_capsule(1, OK, 4 + GATE_AHEAD);
    check_capsule(0, ERR_NUMERIC, 3);
}

/* ---- f16, on a device that computes nothing */

static FakeBackend *fake;
static int fake_applied;
static float unscale[STEPS];
static bool committed[STEPS];

static Status fake_square_sum(Device *device, const float *x, size_t count, double *sum)
{
    *sum = fake_applied + 1 == poisoned_step ? INFINITY : 1;
    return OK;
}

static Status fake_update(Device *device, const OptimizerUpdate *update)
{
    if (fake_applied < STEPS) {
        unscale[fake_applied] = update->scalars->grad_scale;
        committed[fake_applied] = update->scalars->commit != 0;
    }
    fake_applied++;
    return OK;
}

static void fake_run(TowerRun *run, double loss_scale)
{
    fake = fake_create(~0u, ~0u, 0);
    assert_non_null(fake);
    fake->backend.square_sum = fake_square_sum;
    fake->backend.optimizer_apply = fake_update;
    fake_applied = 0;
    tower_run_open(run, &fake->backend, &model_fashion_cnn, 2);
    run->job.program.compute = DTYPE_F16;
    run->job.loss_scale = loss_scale;
    poisoned_step = 3;
    tower_run_live(run);
}

static void fake_end(TowerRun *run)
{
    tower_run_close(run);
    fake_destroy(fake);
}

static int losses_scaled(void)
{
    int count = 0;
    for (int i = 0; i < fake->event_count && i < FAKE_MAX_EVENTS; i++)
        count += fake->event[i].kind == FAKE_LAUNCH && !strcmp(fake->event[i].name, "loss scale");
    return count;
}

TEST(test_overflow_halves_the_scale)
{
    TowerRun run;
    fake_run(&run, 0);
    if (run.status != OK) fail_msg("%s", status_message()); /* an overflow does not end the run */
    assert_int_equal(fake_applied, STEPS);
    for (int i = 0; i < STEPS; i++) {
        assert_true(unscale[i] == (i < 3 ? 1 / 65536.0f : 1 / 32768.0f));
        assert_int_equal(committed[i], i != 2);
    }
    assert_int_equal(losses_scaled(), 2 * STEPS);
    fake_end(&run);
}

TEST(test_fixed_scale_stays)
{
    TowerRun run;
    fake_run(&run, 8);
    assert_fails(run.status, ERR_NUMERIC, "step 3: the gradient is not finite");
    for (int i = 0; i < 2; i++) assert_true(unscale[i] == 0.125f && committed[i]);
    assert_false(committed[2]);
    fake_end(&run);
}
