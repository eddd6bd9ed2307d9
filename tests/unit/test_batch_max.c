/* The largest batch that fits, with a device that reports how much memory it has: the batch found fits, the next one
 * does not, and never more samples are tried than there are. */

#include "inception/models/models.h"
#include "tests/support/fake_backend.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/guard/batch_max.h"

static FakeBackend *fake;

static int set_up(void **state)
{
    fake = fake_create(~0u, ~0u, 0);
    if (!fake) return -1;
    fake_reports_memory(fake);
    return 0;
}

static int tear_down(void **state)
{
    fake_destroy(fake);
    return 0;
}

static ReplicaConfig config_of(void)
{
    return (ReplicaConfig){
        .backend = &fake->backend,
        .program = {.model = &model_fashion_cnn,
                    .options = {.classes = 10, .side = 28, .channels = 1, .variant = ""},
                    .data_channels = 1,
                    .canvas = 28},
        .local = 1,
        .optimizer = {.kind = OPTIMIZER_ADAM},
    };
}

static BatchFit fit_in(size_t bytes, int sharers, int32_t most)
{
    BatchFit fit;
    ReplicaConfig config = config_of();
    fake->free_bytes = bytes;
    if (batch_fit(&config, sharers, most, &fit) != OK) fail_msg("%s", status_message());
    return fit;
}

enum { MIB = 1 << 20, MANY = 1 << 16 };

TEST_WITH(test_it_fits_and_the_next_does_not, set_up, tear_down)
{
    for (size_t memory = 8; memory <= 512; memory *= 4) {
        BatchFit fit = fit_in(memory * MIB, 1, MANY);
        size_t room = memory * MIB / 32 * 31;
        assert_true(fit.n >= 8 && fit.n % 8 == 0);
        assert_true(fit.bytes <= room);
        assert_true((double)fit.bytes * (fit.n + 16) / fit.n > (double)room); /* all grows with the batch, or less */
        assert_int_equal(fit.free_bytes, memory * MIB);
    }
}

TEST_WITH(test_limits, set_up, tear_down)
{
    assert_int_equal(fit_in((size_t)512 * MIB, 1, 100).n, 100);
    assert_int_equal(fit_in((size_t)512 * MIB, 1, 3).n, 3);
    assert_int_equal(fit_in((size_t)512 * MIB, 1, 1).n, 1);
    assert_int_equal(fit_in(MIB, 1, MANY).n, 0); /* the weights alone take more */
    int32_t alone = fit_in((size_t)256 * MIB, 1, MANY).n, shared = fit_in((size_t)256 * MIB, 2, MANY).n;
    assert_true(shared < alone * 0.51 && shared > alone * 0.4);
}

/* A device that runs out of memory at half of what it said. */
static size_t given;

static Status alloc_some(Device *device, size_t bytes, void **made)
{
    given += bytes;
    if (given > fake->free_bytes / 2) return FAIL(ERR_MEMORY, "wanted %zu bytes", bytes);
    *made = calloc(1, bytes);
    return *made ? OK : FAIL(ERR_MEMORY, "host");
}

static void release_some(Device *device, void *memory)
{
    free(memory);
}

TEST_WITH(test_what_a_refusal_says, set_up, tear_down)
{
    TrainJob job = {.backend = &fake->backend, .processes = 1};
    ReplicaConfig config = config_of();
    Replica *replica = NULL;
    fake->backend.alloc = alloc_some;
    fake->backend.release = release_some;
    fake->free_bytes = (size_t)32 * MIB;
    given = 0;
    config.train_n = (const int32_t[]){4096, 0};
    assert_int_equal(replica_create(&config, &replica), ERR_MEMORY);
    assert_int_equal(batch_explain(&job, &config), ERR_MEMORY);
    static const char remedy[] = "try --batch-size ";
    const char *message = status_message(), *fits = strstr(message, remedy);
    assert_non_null(strstr(message, "a batch of 4096 needs"));
    assert_non_null(fits);
    assert_int_equal(atoi(fits + strlen(remedy)), fit_in((size_t)32 * MIB, 1, 4096).n);
}

/* Nothing that is tried fits: the message names the last of eight attempts. */
TEST_WITH(test_what_was_tried, set_up, tear_down)
{
    Source *data;
    BatchFit fit;
    char wanted[64];
    assert_int_equal(source_synthetic(64, 10, 28, 28, 1, 1, &data), OK);
    TrainJob job = job_plain(&fake->backend, &model_fashion_cnn, data, 28, 1, 1);
    int32_t n = fit_in((size_t)512 * MIB, 1, 4096).n;
    fake->backend.alloc = alloc_some;
    fake->backend.release = release_some;
    given = fake->free_bytes;
    assert_int_equal(batch_max_find(&job, 4096, &fit), ERR_MEMORY);
    for (int tries = 1; tries < 8; tries++) n = (int32_t)(n * 0.9) / 8 * 8;
    snprintf(wanted, sizeof wanted, "a batch of %d does not fit either", n);
    assert_non_null(strstr(status_message(), wanted));
    source_close(data);
}
