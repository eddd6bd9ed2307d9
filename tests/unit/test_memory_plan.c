/* The memory plan, compared with what a replica allocates on its device: every class counts, for any towers, precision
 * and averages; only a few small values are not included. And what libraries and uploads take beside a replica. */

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
        .train_n = (const int32_t[]){N, 0},
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

TEST(test_plan_is_what_is_taken)
{
    assert_int_equal(check(1, DTYPE_F32, true, false, false), 0);
    assert_int_equal(check(1, DTYPE_BF16, false, false, false), 0);
    assert_true(check(1, DTYPE_BF16, true, true, false) > 0);
    assert_true(check(3, DTYPE_F16, true, false, true) > 0);
    assert_int_equal(check(2, DTYPE_F32, false, true, true), 0);
}

/* ---- what is not the replica's own: buffers of uploads, and of NCCL */

static size_t thrice(size_t bytes)
{
    return 3 * bytes;
}

TEST(test_uploads)
{
    Layout layout = {0};
    MemoryPlan plan;
    fake = fake_create(0, 0, 0);
    assert_non_null(fake);
    ReplicaConfig config = {.backend = &fake->backend,
                            .local = 1,
                            .program = {.canvas = 28, .data_channels = 3},
                            .optimizer = {.kind = OPTIMIZER_ADAM},
                            .train_n = (const int32_t[]){5, N, 0},
                            .eval_n = (const int32_t[]){2, 0}};
    memory_plan_start(&plan, &config, &layout);
    assert_int_equal(plan.bytes[MEMORY_UPLOADS], 0);
    fake->backend.upload_bytes = thrice;
    memory_plan_start(&plan, &config, &layout);
    assert_int_equal(plan.bytes[MEMORY_UPLOADS], 3 * 5 * 28 * 28 * 3);
    config.program.mixes = true; /* the batch before it is needed, too */
    memory_plan_start(&plan, &config, &layout);
    assert_int_equal(plan.bytes[MEMORY_UPLOADS], 3 * 6 * 28 * 28 * 3);
    config.eval_n = (const int32_t[]){9, 0};
    memory_plan_start(&plan, &config, &layout);
    assert_int_equal(plan.bytes[MEMORY_UPLOADS], 3 * 9 * 28 * 28 * 3);
    fake_destroy(fake);
}

static DeviceLinks links_now;

static void links_given(DeviceLinks *links)
{
    *links = links_now;
}

static size_t library_mib(int ranks, int groups, int ctas, bool ordered, bool deterministic)
{
    const Backend backend = {.name = "cuda", .nccl = true, .links = links_given};
    const CommConfig config = {.place = {.ranks = ranks, .nodes = groups}, .ctas = ctas, .ordered = ordered};
    return comm_library_bytes(&backend, &config, deterministic) >> 20;
}

/* On H100s a connection takes 10 and 2 MiB. */
TEST(test_nccl)
{
    const Backend cpu = {.name = "cpu", .on_host = true};
    unsetenv("NCCL_BUFFSIZE");
    assert_int_equal(comm_library_bytes(&cpu, &(CommConfig){.place = {.ranks = 8}}, false), 0);
    links_now = (DeviceLinks){.nvlink = true, .multicast = true};
    assert_int_equal(library_mib(1, 0, 0, false, false), 0);
    assert_int_equal(library_mib(8, 0, 0, false, false), 24 * 3 * 12 + 8 * 32);
    assert_int_equal(library_mib(8, 4, 0, false, false), 24 * 3 * 12 + 2 * 32);
    assert_int_equal(library_mib(8, 0, 4, false, false), 4 * 3 * 12 + 8 * 8);
    /* messages: 32 channels to each of the others, and 8 to each of the same host where there are several */
    assert_int_equal(library_mib(8, 0, 0, true, false), (24 + 32 * 7) * 12);
    assert_int_equal(library_mib(8, 8, 0, true, false), (24 + 32 * 7) * 12);
    assert_int_equal(library_mib(32, 4, 0, true, false), (24 + 8 * 7) * 12);
    assert_int_equal(library_mib(8, 0, 6, true, false), (6 + 8 * 7) * 12);
    assert_int_equal(library_mib(1, 0, 0, true, false), 0);
    assert_int_equal(library_mib(8, 0, 0, false, true), 24 * 12);
    assert_int_equal(library_mib(100, 0, 0, false, false), 24 * 3 * 12 + 32 * 32);
    links_now.multicast = false;
    assert_int_equal(library_mib(8, 0, 0, false, false), 24 * 3 * 12);
    links_now.nvlink = false;
    assert_int_equal(library_mib(8, 0, 0, false, false), 2 * 3 * 12);
    setenv("NCCL_BUFFSIZE", "16777216", 1);
    assert_int_equal(library_mib(8, 0, 0, false, false), 2 * 3 * 24);
    unsetenv("NCCL_BUFFSIZE");
}

/* inception_v3 has 27,161,264 weights. Sums in tower order once took a buffer of them for each tower; now seven eighths of one
 * for what a GPU of eight receives, and one for what it gathers. */
TEST(test_ordered_sums)
{
    enum { WEIGHTS = 27161264 };
    const Backend backend = {.name = "cuda", .nccl = true};
    CommConfig config = {.place = {.ranks = 8, .local_towers = 1},
                         .towers = 8,
                         .ordered = true,
                         .gradients = WEIGHTS,
                         .max_count = WEIGHTS + 176};
    const size_t all = WEIGHTS * sizeof(float), little = 5 << 20;
    size_t taken = comm_bytes(&backend, &config);
    assert_true(taken > all / 8 * 15 && taken < all / 8 * 15 + little);
    config.place.ranks = 64;
    config.towers = 64;
    taken = comm_bytes(&backend, &config);
    assert_true(taken > all / 64 * 127 && taken < all / 64 * 127 + little);
    config.place = (Placement){.ranks = 1, .local_towers = 64}; /* they are added in place */
    taken = comm_bytes(&backend, &config);
    assert_true(taken > all && taken < all + little);
}
