/* 50 photographs as JPEGs of all kinds, from a tar to the network's input and the targets of its loss, on two towers: crop, EXIF, flip,
 * color jitter, erasing, mixup, CutMix, label smoothing and weights of classes. The numbers are torchvision's
 * (tests/golden/images.py); images are resized as by Pillow 9, so pixels are equal but for the rounding of f32. */

#include "kernels/backend.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/golden_images.h"
#include "towers/data/loading/loader.h"

enum { TOWERS = 2, LOCAL_BATCH = GOLDEN_IMAGES / TOWERS, PIXELS = GOLDEN_SIDE * GOLDEN_SIDE * 3 };

typedef __typeof__(golden_images[0]) Golden;

static Source *photographs;
static Device device;

static int set_up(void **state)
{
    const Backend *cpu;
    int code = scratch_and_cache_make(state);
    SourceConfig config = {.path = TOWERS_SOURCE_DIR "/tests/unit/golden_images.tar", .whole = true};
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(cpu->open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &device), OK);
    if (source_open(&config, SPLIT_TRAIN, &photographs) != OK) fail_msg("%s", status_message());
    assert_int_equal(source_info(photographs)->count, GOLDEN_IMAGES);
    return code;
}

static int tear_down(void **state)
{
    source_close(photographs);
    device.backend->close(&device);
    return scratch_drop(state);
}

static Transform transform_of(const Golden *g)
{
    Transform t = {.side = GOLDEN_SIDE, .exif = g->exif, .erase = g->erase};
    if (g->evaluation) {
        t.crop = CROP_CENTER;
        t.resize = GOLDEN_RESIZE;
        return t;
    }
    t.crop = CROP_RANDOM;
    t.area[0] = 0.08, t.area[1] = 1;
    t.ratio[0] = 3.0 / 4, t.ratio[1] = 4.0 / 3;
    t.flip = FLIP_RANDOM;
    if (g->jitter) t.brightness = t.contrast = t.saturation = 0.4, t.hue = 0.1;
    return t;
}

/* The network's input, [n][side][side][3]. */
static void input_make(const Batch *b, float *input)
{
    const OpKernel *kernel = device.backend->kernels[OP_IMAGE];
    int32_t images = b->n + (b->share > 0);
    OpCall call = {.kind = OP_IMAGE,
                   .name = "input",
                   .attr.image = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
                   .in_count = 2,
                   .out_count = 1,
                   .in = {{(void *)(uintptr_t)b->pixels, {images, 3, GOLDEN_SIDE, GOLDEN_SIDE}, DTYPE_U8, 3},
                          {(void *)(uintptr_t)b->augment, {images, IMAGE_RECORD, 1, 1}, DTYPE_I32, IMAGE_RECORD}},
                   .out = {{input, {b->n, 3, GOLDEN_SIDE, GOLDEN_SIDE}, DTYPE_F32, 3}}};
    assert_int_equal(kernel->prepare(&device, &call), OK);
    assert_int_equal(kernel->launch(&device, &call), OK);
    if (kernel->discard) kernel->discard(&device, &call);
}

static void expect_near(const Golden *g, int image, const char *what, double wanted, double found, double most)
{
    if (!(fabs(wanted - found) <= most))
        fail_msg("%s: image %d: %s: wanted %g, found %g", g->name, image, what, wanted, found);
}

static void image_check(const Golden *g, int image, const float *input, const float *targets, int32_t label)
{
    double sums[3] = {0};
    for (int i = 0; i < PIXELS; i++) sums[i % 3] += (double)input[i];
    for (int c = 0; c < 3; c++)
        expect_near(g, image, "sum of a channel", (double)g->image[image].sums[c], sums[c], 2e-3);
    for (int k = 0; k < GOLDEN_PLACES; k++)
        expect_near(g, image, "pixel", (double)g->image[image].pixels[k], (double)input[(image * 97 + k * 61) % PIXELS],
                    1e-5);
    for (int k = 0; k < GOLDEN_CLASSES; k++)
        expect_near(g, image, "target", (double)g->image[image].targets[k],
                    targets ? (double)targets[k] : (double)(label == k), 1e-5);
}

static void test_case(const Golden *g)
{
    int64_t counts[GOLDEN_CLASSES];
    float weight[GOLDEN_CLASSES], *input = malloc(LOCAL_BATCH * PIXELS * sizeof *input);
    source_classes_count(photographs, counts);
    for (int k = 0; k < GOLDEN_CLASSES; k++) weight[k] = (float)GOLDEN_IMAGES / (float)(GOLDEN_CLASSES * counts[k]);
    bool several = g->mixup > 0 || g->weighted;
    LoaderConfig config = {.source = photographs,
                           .local_batches = {.towers = TOWERS, .batch = (const int32_t[]){LOCAL_BATCH, LOCAL_BATCH}},
                           .local = TOWERS,
                           .seed = GOLDEN_SEED,
                           .transform = transform_of(g),
                           .mix = {g->mixup, g->cutmix},
                           .targets = {.classes = several ? GOLDEN_CLASSES : 0,
                                       .smoothing = g->smoothing,
                                       .weight = g->weighted ? weight : NULL},
                           .start_step = g->step,
                           .max_steps = g->step + 1,
                           .depth = TOWERS + 1};
    Loader *loader = NULL;
    const Batch *b;
    if (loader_create(&config, &loader) != OK) fail_msg("%s", status_message());
    loader_step(loader);
    for (int tower = 0; tower < TOWERS; tower++) {
        if (loader_batch(loader, &b) != OK) fail_msg("%s", status_message());
        assert_int_equal(b->n, LOCAL_BATCH);
        input_make(b, input);
        for (int i = 0; i < LOCAL_BATCH; i++)
            image_check(g, tower * LOCAL_BATCH + i, input + i * PIXELS,
                        b->targets ? b->targets + i * GOLDEN_CLASSES : NULL, b->labels[i]);
    }
    loader_destroy(loader);
    free(input);
}

TEST(test_images)
{
    for (size_t i = 0; i < sizeof golden_images / sizeof *golden_images; i++) test_case(&golden_images[i]);
}

TESTS_WITH(set_up, tear_down)
