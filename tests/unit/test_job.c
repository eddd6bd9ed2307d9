/* The same flags describe the same device, whichever command reads them: `info`, `bench --profile`, `replay` and
 * `train` open the same device. In a job of several programs each process has its own place in shared memory. Weights of
 * classes follow their formulas. */

#include "inception/job/job.h"
#include "kernels/base/progress.h"
#include "nccl_sync/comm_ops.h"
#include "tests/support/unit.h"
#include "towers/data/sources/reader.h"
#include "towers/train/process.h"

enum { ARGUMENTS = 8 };

static DeviceConfig device_of(const char *verb, char *const *flags)
{
    char *argv[ARGUMENTS + 6] = {"towers", (char *)verb, "fashion_cnn", "--device", "cpu"};
    int argc = 5;
    for (int i = 0; flags[i]; i++) argv[argc++] = flags[i];
    Options o;
    JobFiles files = {0};
    if (options_parse(argc, argv, NULL, &o) != OK) fail_msg("%s: %s", verb, status_message());
    bool whole = strcmp(verb, "info") != 0;
    if ((whole ? job_open(&o, 256, &files) : job_model(&o, &files)) != OK) fail_msg("%s: %s", verb, status_message());
    DeviceConfig device = job_device(&files.job, 0);
    job_close(&files);
    options_close(&o);
    device.threads = 0; /* info plans without a team */
    return device;
}

TEST(test_commands_open_the_same_device)
{
    static char *const cases[][ARGUMENTS] = {
        {NULL},
        {"--deterministic", NULL},
        {"--winograd", NULL},
        {"--no-winograd-f32", NULL},
        {"--no-winograd-bf16", NULL},
        {"--deterministic", "--winograd", "--no-winograd-f32", "--no-winograd-bf16", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        DeviceConfig train = device_of("train", cases[i]);
        DeviceConfig others[] = {device_of("bench", cases[i]), device_of("info", cases[i]),
                                 device_of("eval", cases[i])};
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            assert_memory_equal(&others[k], &train, sizeof train);
    }
}

/* No flag changes its polarity on the way. */
TEST(test_flags_reach_the_device)
{
    static char *const none[] = {NULL};
    static char *const all[] = {"--deterministic", "--winograd", "--no-winograd-f32", "--no-winograd-bf16", NULL};
    DeviceConfig usual = device_of("train", none), turned = device_of("train", all);
    assert_false(usual.deterministic || usual.winograd || usual.tf32);
    assert_true(usual.winograd_f32 && usual.winograd_bf16);
    assert_true(turned.deterministic && turned.winograd);
    assert_false(turned.winograd_f32 || turned.winograd_bf16);
}

/* Evaluation reads the test images in their order, by its own transform: a crop in the middle and no augmentation. */
TEST(test_loaders_transform_as_they_should)
{
    Source *sources[2] = {(Source *)&sources[0], (Source *)&sources[1]}; /* only compared */
    TrainJob job = {.train = sources[0], .test = sources[1], .processes = 2};
    job.program.options.side = 4;
    job.program.canvas = 8;
    job.data.train = (Transform){.crop = CROP_RANDOM, .flip = FLIP_RANDOM, .shift = true};
    job.data.eval = (Transform){.crop = CROP_FRACTION, .fraction = 0.875};
    for (int training = 0; training < 2; training++) {
        LoaderConfig config = job_loader(&job, training);
        assert_int_equal(config.transform.crop, training ? CROP_RANDOM : CROP_FRACTION);
        assert_int_equal(config.transform.flip, training ? FLIP_RANDOM : FLIP_NONE);
        assert_int_equal(config.transform.shift, training);
        assert_int_equal(config.transform.side, 4);
        assert_int_equal(config.transform.pad, 2);
        assert_ptr_equal(config.source, training ? job.train : job.test);
        assert_int_equal(config.shuffle, training);
    }
}

static void expect_sizes(const TrainJob *job, int rank, const int32_t *trains)
{
    static const int32_t evals[] = {3, 1, 0};
    Placement place = job_placement(job, rank);
    ReplicaConfig config;
    int32_t *sizes;
    assert_int_equal(process_config(job, &place, &config, &sizes), OK);
    for (int i = 0; i == 0 || trains[i - 1]; i++) assert_int_equal(config.train_n[i], trains[i]);
    assert_memory_equal(config.eval_n, evals, sizeof evals);
    free(sizes);
}

/* Each size once: of full batches and of the short one, which is cut into 2, 0, 2 and 2. A process without samples has one. */
TEST(test_batch_sizes_of_a_process)
{
    static const Model model = {.name = "none"};
    const Backend *cpu = NULL;
    Source train = {.info = {.count = 20}}, test = {.info = {.count = 7}};
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    TrainJob job = {.backend = cpu,
                    .program.model = &model,
                    .train = &train,
                    .test = &test,
                    .eval_batch = 3,
                    .accumulate = 1,
                    .local_batches = {.towers = 4, .batch = (const int32_t[]){5, 0, 4, 5}},
                    .processes = 2};
    expect_sizes(&job, 0, (int32_t[]){5, 2, 0});
    expect_sizes(&job, 1, (int32_t[]){4, 2, 5, 0});
    job.processes = 4;
    expect_sizes(&job, 1, (int32_t[]){1, 0});
}

/* A process of a second program shows progress, and fails, before it has a communicator. */
static Status open_fails(const DeviceConfig *config, Device *device)
{
    progress_made("opening");
    return FAIL(ERR_DEVICE, "no such device");
}

TEST(test_process_uses_its_number_in_the_group)
{
    enum { TOWERS = 6, GROUPS = 2, EACH = 3, RANK = 4 };
    const Backend *cpu = NULL;
    Ledger *ledger;
    CommShared *shared;
    Source *data;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(source_synthetic(12, 3, 2, 2, 1, 1, &data), OK);
    Backend failing = *cpu;
    failing.open = open_fails;
    TrainJob job = {.backend = &failing,
                    .train = data,
                    .local_batches = {.towers = TOWERS, .batch = (const int32_t[]){2, 2, 2, 2, 2, 2}},
                    .processes = TOWERS,
                    .nodes = GROUPS,
                    .node = RANK / EACH};
    assert_int_equal(ledger_create(TOWERS, TOWERS, &ledger), OK);
    assert_int_equal(comm_shared_create(EACH, EACH, 8, &shared), OK);
    assert_int_equal(tower_process_eval(&job, RANK, ledger, shared), ERR_DEVICE);
    assert_int_equal(atomic_load(&ledger->first_failed), RANK + 1);
    assert_int_equal(comm_shared_aborted(shared), RANK % EACH);
    assert_string_equal(comm_shared_progress(shared, RANK % EACH)->what, "opening");
    ledger_destroy(ledger);
    comm_shared_destroy(shared);
    source_close(data);
}

static int64_t first_ms_with(const char *option, const char *value)
{
    char *argv[] = {"towers", "train", "fashion_cnn", "--device", "cpu", (char *)option, (char *)value};
    Options o;
    JobFiles files = {0};
    assert_int_equal(options_parse(7, argv, NULL, &o), OK);
    assert_int_equal(job_open(&o, 256, &files), OK);
    int64_t first_ms = job_comm(&files.job, (Placement){0}).first_ms;
    job_close(&files);
    options_close(&o);
    return first_ms;
}

/* Who says how long a collective may take says so of the first one, too. */
TEST(test_first_sum_has_the_users_timeout)
{
    assert_int_equal(first_ms_with("--threads", "1"), FIRST_SUM_MS);
    assert_int_equal(first_ms_with("--comm-timeout", "600"), 0);
}

/* Messages say the timeout that the user has set; waits are longer, for the supervisor to be the first. */
TEST(test_timeout_is_the_users)
{
    TrainJob job = {.comm.timeout_ms = 4000};
    CommConfig config = job_comm(&job, (Placement){0});
    CommWait wait = {0};
    assert_int_equal(config.timeout_ms, 4000);
    comm_wait_look(&wait, &config, 0);
    assert_int_equal(wait.left_ms, 5000);
}

/* Twelve samples of three classes of four, one of which has two thirds of them. */
static int32_t label_uneven(const Source *source, int64_t index)
{
    return index < 8 ? 0 : index < 11 ? 1 : 3;
}

TEST(test_class_weights)
{
    enum { CLASSES = 4 };
    static const struct {
        char *given;
        LossKind loss;
        double wanted[CLASSES];
    } rows[] = {
        {"auto", LOSS_SOFTMAX, {12 / (3 * 8.0), 12 / (3 * 3.0), 0, 12 / (3 * 1.0)}}, /* N / (K n) */
        {"1", LOSS_SOFTMAX, {0.5, 4.0 / 3, 0, 4}},
        {"2", LOSS_SOFTMAX, {0.25, 16.0 / 9, 0, 16}},
        {"0.5", LOSS_SOFTMAX, {M_SQRT1_2, 2 / 1.7320508075688772, 0, 2}},
        {"0", LOSS_SOFTMAX, {1, 1, 0, 1}},
        {"auto", LOSS_BCE, {4 / 8.0, 9 / 3.0, 0, 11 / 1.0}}, /* (N - n) / n */
        {"0.5", LOSS_BCE, {M_SQRT1_2, 1.7320508075688772, 0, 3.3166247903553998}},
    };
    Source uneven = {.info = {.count = 12, .classes = CLASSES}, .label = label_uneven};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Options o = {.class_weights = rows[i].given};
        JobFiles files = {.train = &uneven};
        files.job.program.options.classes = CLASSES;
        files.job.program.loss = rows[i].loss;
        assert_int_equal(job_class_weights(&o, &files), OK);
        assert_ptr_equal(files.job.data.class_weight, files.class_weight);
        for (int k = 0; k < CLASSES; k++)
            if (fabs((double)files.class_weight[k] - rows[i].wanted[k]) > 1e-6 * rows[i].wanted[k])
                fail_msg("--class-weights %s: class %d has %g, expected %g", rows[i].given, k,
                         (double)files.class_weight[k], rows[i].wanted[k]);
        free(files.class_weight);
    }
}
