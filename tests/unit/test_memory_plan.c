/* The memory plan, compared with what a replica allocates on its device: every class counts, for any towers, precision
 * and averages; only a few small values are not included. */

#include "inception/models/models.h"
#include "tests/support/fake_backend.h"
#include "tests/support/unit.h"
#include "towers/replica/memory_plan.h"

enum { N = 4, SMALL = 512 /* bytes of all that is no class: scalars, sums */ };

static FakeBackend *fake;

static Status open_fake(const DeviceConfig *config, Device *device)
{
    fake_open(fake, device);
    return OK;
}

static Status copy_nothing(Device *device, const float *param, size_t count, void *half, Dtype dtype)
{
    return OK;
}

static size_t allocated(void)
{
    size_t bytes = 0;
    for (int i = 0; i < fake->event_count; i++)
        if (fake->event[i].kind == FAKE_ALLOC) bytes += fake->event[i].bytes;
    return bytes;
}

/* Returns the bytes of the 16-bit copy. */
static size_t check(int local, Dtype compute, bool keeps_half, bool ema, bool accumulate)
{
    const ModelOptions options = {.classes = 10, .side = 28, .channels = 1, .variant = ""};
    ReplicaConfig config = {
        .local = local,
        .program =
            {.model = &model_inception_mini, .options = options, .data_channels = 1, .canvas = 28, .compute = compute},
        .train_n = {N},
        .optimizer = {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f},
        .ema = ema,
        .accumulate = accumulate,
    };
    Replica *replica = NULL;
    MemoryPlan plan;
    fake = fake_create(~0u, ~0u, 0);
    assert_non_null(fake);
    fake->backend.open = open_fake;
    if (keeps_half) fake->backend.weights_copy = copy_nothing;
    config.backend = &fake->backend;
    if (replica_create(&config, &replica) != OK) fail_msg("%s", status_message());
    assert_true(fake->event_count < FAKE_MAX_EVENTS);
    memory_plan_start(&plan, &config, replica->layout);
    memory_plan_add(&plan, replica->train[0].plan);
    size_t total = memory_plan_total(&plan), taken = allocated();
    if (taken < total || taken - total > SMALL)
        fail_msg("%d towers, %s: planned %zu bytes, taken %zu", local, dtype_name(compute), total, taken);
    assert_true(plan.bytes[MEMORY_STATISTICS] > 0);
    replica_destroy(replica);
    fake_destroy(fake);
    return plan.bytes[MEMORY_HALF];
}

static void test_plan_is_what_is_taken(void **state)
{
    assert_int_equal(check(1, DTYPE_F32, true, false, false), 0);
    assert_int_equal(check(1, DTYPE_BF16, false, false, false), 0);
    assert_true(check(1, DTYPE_BF16, true, true, false) > 0);
    assert_true(check(3, DTYPE_F16, true, false, true) > 0);
    assert_int_equal(check(2, DTYPE_F32, false, true, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan_is_what_is_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
