/* The memory that `towers info` prints is what a tower uses: inception_v3 in training, compared with the growth of
 * this process's resident set from before the replica exists to after its first step. */
#include <unistd.h>

#include "inception/models/models.h"
#include "tests/support/towers_program.h"
#include "tests/support/unit.h"
#include "towers/replica/replica.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

enum { N = 8 };

static double resident_mib(void)
{
    size_t pages = 0;
    FILE *from = fopen("/proc/self/statm", "r");
    assert_non_null(from);
    assert_int_equal(fscanf(from, "%*u %zu", &pages), 1);
    fclose(from);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* The MiB at the end of a row of the table; -1 if there is none. */
static double row_mib(const char *text, const char *row)
{
    const char *at = strstr(text, row), *bytes = at ? strstr(at, " bytes ") : NULL;
    return bytes ? strtod(bytes + strlen(" bytes "), NULL) : -1;
}

static void info_read(const char *options, char *text, size_t room)
{
    char command[512];
    snprintf(command, sizeof command, "%s info inception_v3 --device cpu --opt adam -b %d %s", towers_program(), N,
             options);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    size_t count = fread(text, 1, room - 1, from);
    text[count] = 0;
    assert_int_equal(pclose(from), 0);
}

static void step_run(Replica *r, const ModelOptions *options)
{
    size_t image = (size_t)options->side * (size_t)options->side * (size_t)options->channels;
    uint8_t *pixels = calloc(N, image);
    int32_t labels[N] = {0}, augment[IMAGE_RECORD * N] = {0};
    Batch batch = {.n = N,
                   .canvas = options->side,
                   .c = options->channels,
                   .pixels = pixels,
                   .labels = labels,
                   .augment = augment};
    OptimizerScalars now = {.lr = 0.1f, .grad_scale = 1, .bn_decay = 0.9f, .step = 1, .commit = 1};
    bool fed = true;
    assert_non_null(pixels);
    for (size_t i = 0; i < N * image; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    assert_int_equal(replica_feed(r, &r->train[0], &batch, 0, &(RandomKey){0}, 1.0f / N), OK);
    assert_int_equal(plan_run(r->train[0].plan, 0, plan_op_count(r->train[0].plan)), OK);
    assert_int_equal(r->device.backend->upload(&r->device, r->scalars, &now, sizeof now), OK);
    assert_int_equal(replica_update(r, 0, &fed), OK);
    assert_int_equal(r->device.backend->finish(&r->device, STREAM_COMPUTE), OK);
    free(pixels);
}

/* Within 2 % of what info says for Adam, its two slots included. */
static void info_prints_what_a_tower_takes(void **state)
{
    static char text[1 << 16];
    const Model *model;
    Replica *replica;
    assert_int_equal(model_find("inception_v3", &model), OK);
    info_read("", text, sizeof text);
    double sum = row_mib(text, "sum over towers"); /* of a run; there is none here */
    double planned = row_mib(text, "total for one tower") - sum, before = resident_mib();
    ReplicaConfig config = {
        .device = {DEVICE_USUAL, .threads = 1},
        .program = {.model = model,
                    .options = {model->classes, model->side, model->channels, 0.5f, true, ""},
                    .data_channels = model->channels,
                    .canvas = model->side,
                    .aux_weight = model->aux_weight,
                    .fuse_siblings = true,
                    .pool_behind_conv = true},
        .local = 1,
        .train_n = (const int32_t[]){N, 0},
        .optimizer = {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f},
    };
    assert_int_equal(backend_find("cpu", &config.backend, NULL, 0), OK);
    assert_int_equal(replica_create(&config, &replica), OK);
    step_run(replica, &config.program.options);
    double taken = resident_mib() - before;
    print_message("info: %.1f MiB, resident: %.1f MiB\n", planned, taken);
    if (planned < 0.98 * taken || planned > 1.02 * taken)
        fail_msg("info says %.1f MiB, a tower takes %.1f", planned, taken);
    replica_destroy(replica);
}

static void recompute_has_a_price_and_a_gain(void **state)
{
    static char text[1 << 16];
    double with, without, gain, ms;
    int ops;
    info_read("--recompute", text, sizeof text);
    const char *row = strstr(text, "  recompute: ");
    assert_non_null(row);
    assert_int_equal(sscanf(row,
                            "  recompute: %lf MiB of activations instead of %lf, saves %lf MiB\n"
                            " %d ops run twice, costs %lf ms per step (measured here, 1 thread)\n",
                            &with, &without, &gain, &ops, &ms),
                     5);
    assert_true(gain > 0.3 * without && gain - (without - with) < 0.2 && ops > 90 && ms > 1 && ms < 1e4);
}

int main(void)
{
    if (SANITIZED) {
        print_message("SKIPPED: a sanitizer keeps memory of its own\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(info_prints_what_a_tower_takes),
        cmocka_unit_test(recompute_has_a_price_and_a_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
