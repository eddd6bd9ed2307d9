/* A job that cannot fit is rejected by calculation: the sum is a lower bound of what a plan takes, the shares of all
 * processes are added, and the message says what to reduce. */

#include "inception/models/models.h"
#include "tests/support/fake_backend.h"
#include "tests/support/local_batches.h"
#include "tests/support/unit.h"
#include "towers/guard/batch_max.h"
#include "towers/guard/memory_check.h"

enum { SAMPLES = 100000, MIB = 1 << 20 };

static FakeBackend *fake;
static Source *train, *test;

static int set_up(void **state)
{
    fake = fake_create(~0u, ~0u, 0);
    if (!fake) return -1;
    fake_reports_memory(fake);
    fake->backend.memory_closed = true;
    fake->workspace_bytes = MIB;
    if (source_synthetic(SAMPLES, 10, 28, 28, 1, 1, &train) != OK) return -1;
    return source_synthetic(SAMPLES, 10, 28, 28, 1, 2, &test) == OK ? 0 : -1;
}

static int tear_down(void **state)
{
    source_close(train);
    source_close(test);
    fake_destroy(fake);
    return 0;
}

static TrainJob job_of(int towers, int32_t n)
{
    TrainJob job = {
        .backend = &fake->backend,
        .program = {.model = &model_fashion_cnn,
                    .options = {.classes = 10, .side = 28, .channels = 1, .variant = ""},
                    .data_channels = 1,
                    .canvas = 28},
        .train = train,
        .local_batches = batches_equal(towers, n),
        .processes = towers,
        .accumulate = 1,
        .optimizer = {.kind = OPTIMIZER_ADAM},
    };
    return job;
}

static Status checked(const TrainJob *job, size_t free_bytes)
{
    fake->free_bytes = free_bytes;
    return memory_check(job);
}

/* The least that passes, to a MiB. */
static size_t least_of(const TrainJob *job)
{
    size_t low = 0, high = (size_t)1 << 40;
    while (high - low > MIB) {
        size_t middle = low + (high - low) / 2;
        if (checked(job, middle) == OK)
            high = middle;
        else
            low = middle;
    }
    return high;
}

TEST_WITH(test_never_refuses_what_fits, set_up, tear_down)
{
    for (size_t memory = 32; memory <= 512; memory *= 4) {
        BatchFit fit;
        ReplicaConfig config = {.backend = &fake->backend,
                                .program = job_of(1, 1).program,
                                .local = 1,
                                .optimizer = {.kind = OPTIMIZER_ADAM}};
        fake->free_bytes = memory * MIB;
        assert_int_equal(batch_fit(&config, 1, SAMPLES, &fit), OK);
        TrainJob fits = job_of(1, fit.n), twice = job_of(1, 2 * fit.n);
        assert_int_equal(checked(&fits, memory * MIB), OK);
        assert_int_equal(checked(&twice, memory * MIB), ERR_MEMORY);
    }
}

TEST_WITH(test_all_processes_count, set_up, tear_down)
{
    TrainJob one = job_of(1, 256), four = job_of(4, 256), uneven = job_of(4, 256);
    size_t alone = least_of(&one), together = least_of(&four);
    uneven.local_batches = batches_of(4, (int32_t[]){256, 1, 1, 1});
    assert_true(together > 4 * alone - 8 * MIB && together < 4 * alone + 8 * MIB);
    assert_true(least_of(&uneven) < alone + (together - alone) / 2);
    assert_fails(checked(&four, alone), ERR_MEMORY, "4 processes");
    assert_non_null(strstr(status_message(), "--batch-size max"));
}

/* Every tower has a slot for its gradients, also one that shares its process with others; but in the process that holds
 * tower 0 they have one together. */
TEST_WITH(test_virtual_towers_have_slots, set_up, tear_down)
{
    TrainJob one = job_of(1, 1), forty = job_of(40, 1), two = job_of(2, 1), halves = job_of(40, 1);
    forty.processes = 1;
    halves.processes = 2;
    size_t slot = (size_t)121930 * sizeof(float), more = least_of(&halves) - least_of(&two);
    assert_true(least_of(&forty) - least_of(&one) < 4 * slot + 2 * MIB);
    assert_true(more > 19 * slot - 2 * MIB && more < 19 * slot + 4 * slot + 2 * MIB);
}

/* Less than a GiB is not "0.0 GiB". */
/* fault: F39 */
TEST_WITH(test_small_amounts_are_in_mib, set_up, tear_down)
{
    TrainJob job = job_of(1, 256);
    assert_fails(checked(&job, (size_t)12 * MIB), ERR_MEMORY, "but only 12 MiB of");
    assert_null(strstr(status_message(), "0.0 GiB"));
}

TEST_WITH(test_an_evaluation_that_is_too_large_is_reported, set_up, tear_down)
{
    TrainJob job = job_of(1, 4);
    job.test = test;
    job.eval_batch = 20000;
    assert_fails(checked(&job, (size_t)256 * MIB), ERR_MEMORY, "evaluation in batches of 20000");
    job.eval_batch = 4;
    assert_int_equal(checked(&job, (size_t)256 * MIB), OK);
}

TEST_WITH(test_who_must_not_be_asked_is_not, set_up, tear_down)
{
    TrainJob job = job_of(1, 50000);
    assert_int_equal(checked(&job, MIB), ERR_MEMORY);
    fake->backend.memory_closed = false;
    assert_int_equal(checked(&job, MIB), OK);
}
