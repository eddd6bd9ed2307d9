/* Features of classifiers and images of generators. The network behind FID (inception_v3, variant fid2015) gives the
 * features that PyTorch computes with the same random weights (golden_fid2015.h), to 1e-4. */
#include <zlib.h>

#include "inception/models/models.h"
#include "inception/quality/features.h"
#include "inception/quality/generator.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/golden_fid2015.h"
#include "towers/store/weights.h"

static Device device;

static int open_device(void **state)
{
    const Backend *backend;
    DeviceConfig config = {DEVICE_USUAL, .threads = 2};
    if (backend_find("cpu", &backend, NULL, 0) != OK) return 0;
    return backend->open(&config, &device) == OK ? 0 : 1;
}

static int close_device(void **state)
{
    if (device.backend) device.backend->close(&device);
    return 0;
}

static void needs_device(void)
{
    if (!device.backend) skip("this build has no CPU backend");
}

/* ---- made-up weights */

static void made_up(float *to, int64_t count, const char *name, double scale, float shift)
{
    uint32_t sum = (uint32_t)crc32(0, (const Bytef *)name, (uInt)strlen(name));
    for (int64_t i = 0; i < count; i++) {
        float u = (float)((uint32_t)((uint64_t)(i + 1) * 2654435761u + sum) >> 8) / 16777216.0f;
        to[i] = (u - shift) * (float)scale;
    }
}

static bool ends_in(const char *name, const char *end)
{
    size_t a = strlen(name), b = strlen(end);
    return a >= b && !strcmp(name + a - b, end);
}

static void tensor_add(WeightList *list, const ValueInfo *info)
{
    Shape s = info->shape;
    int64_t dims[] = {s.n, s.c, s.h, s.w}, count = shape_count(s), fan = (int64_t)s.c * s.h * s.w;
    bool conv = strstr(info->name, "conv") && ends_in(info->name, ".weight"), dense = !conv && s.n > 1;
    list->tensor = realloc(list->tensor, (size_t)(list->count + 1) * sizeof *list->tensor);
    StTensor *t = &list->tensor[list->count++];
    float *values = malloc((size_t)count * sizeof *values);
    *t = (StTensor){.name = strdup(info->name), .dtype = ST_F32, .rank = conv ? 4 : dense ? 2 : 1, .data = values};
    t->bytes = (size_t)count * sizeof *values;
    if (conv) memcpy(t->dims, dims, sizeof dims);
    if (dense) memcpy(t->dims, (int64_t[]){s.n, fan}, 2 * sizeof *dims);
    if (!conv && !dense) t->dims[0] = count;
    if (conv || dense)
        made_up(values, count, t->name, sqrt(24.0 / (double)fan), 0.5f);
    else if (ends_in(t->name, "bias") || ends_in(t->name, "running_mean"))
        made_up(values, count, t->name, 0.25, 0.5f);
    else
        made_up(values, count, t->name, 0.5, -1.5f);
}

/* A file with values for every parameter and state of a graph. */
static void weights_write(const Graph *g, const char *path)
{
    WeightList list = {0};
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role == ROLE_PARAM || info->role == ROLE_RUNNING) tensor_add(&list, info);
    }
    assert_int_equal(safetensors_write(path, list.tensor, list.count, NULL, 0, NULL), OK);
    weight_list_clear(&list);
}

static void classifier_write(const Model *model, const ModelOptions *options, const char *path)
{
    Graph *g;
    GraphOptions evaluation = {.compute = DTYPE_F32};
    ModelHeads heads = {0};
    assert_int_equal(graph_create(&evaluation, &g), OK);
    Value image = graph_input(g, "image", (Shape){1, options->channels, options->side, options->side}, DTYPE_F32);
    model->build(g, options, model->networks, image, &heads);
    assert_int_equal(graph_finish(g), OK);
    weights_write(g, path);
    graph_destroy(g);
}

static void images_fill(Images *p)
{
    for (size_t i = 0; i < (size_t)p->count * image_bytes(p); i++)
        p->at[i] = (uint8_t)((i * 73 + i * i * 5 + i / 7) % 256);
}

/* ---- the tests */

TEST_WITH(as_pytorch, scratch_make, scratch_drop)
{
    needs_device();
    char path[PATH_BYTES];
    Images images;
    FeatureNet net;
    float found[2048], worst = 0;
    FeatureConfig config = {.model = &model_inception_v3,
                            .options = {.classes = 1008, .side = 299, .channels = 3, .variant = "fid2015"},
                            .weights = path,
                            .device = &device,
                            .batch = 1};
    scratch_path(path, "fid2015.safetensors");
    classifier_write(config.model, &config.options, path);
    assert_int_equal(features_open(&config, &net), OK);
    assert_int_equal(net.d, 2048);
    assert_int_equal(images_create(1, GOLDEN_SIDE, 3, &images), OK);
    images_fill(&images);
    if (features_compute(&net, &images, found, NULL) != OK) fail_msg("%s", status_message());
    for (int i = 0; i < GOLDEN_SHOWN; i++)
        worst = fmaxf(worst, fabsf(found[i * (2048 / GOLDEN_SHOWN)] - golden_fid2015[i]));
    print_message("  largest difference from PyTorch: %.1e\n", (double)worst);
    assert_true(worst < 1e-4f);
    images_free(&images);
    features_close(&net);
}

/* The dense layer's input, in any batch size, of images that fit and of others; predictions; refusals. */
TEST_WITH(of_a_classifier, scratch_make, scratch_drop)
{
    needs_device();
    char path[PATH_BYTES];
    Images gray, color, small;
    FeatureNet net, whole;
    float ten[10 * 64], seven[10 * 64];
    int64_t histogram[10] = {0}, all = 0;
    FeatureConfig config = {.model = &model_fashion_cnn,
                            .options = {.classes = 10, .side = 28, .channels = 1, .variant = ""},
                            .weights = path,
                            .device = &device,
                            .batch = 4};
    scratch_path(path, "fashion.safetensors");
    classifier_write(config.model, &config.options, path);
    assert_int_equal(features_open(&config, &net), OK);
    config.batch = 0;
    assert_int_equal(features_open(&config, &whole), OK);
    assert_string_equal(net.digest, whole.digest);
    assert_int_equal(net.d, 64);
    assert_int_equal(images_create(10, 28, 1, &gray), OK);
    images_fill(&gray);
    assert_int_equal(features_compute(&net, &gray, ten, histogram), OK);
    assert_int_equal(features_compute(&whole, &gray, seven, NULL), OK);
    for (int i = 0; i < 10 * 64; i++) assert_true(fabsf(ten[i] - seven[i]) <= 1e-5f * (1 + fabsf(ten[i])));
    for (int c = 0; c < 10; c++) all += histogram[c];
    assert_int_equal(all, 10);
    assert_int_equal(images_create(1, 14, 1, &small), OK);
    memset(small.at, 200, 14 * 14); /* a plain image stays one whatever its size */
    memset(gray.at, 200, 28 * 28);
    assert_int_equal(features_compute(&net, &small, ten, NULL), OK);
    gray.count = 1;
    assert_int_equal(features_compute(&net, &gray, seven, NULL), OK);
    for (int i = 0; i < 64; i++) assert_true(fabsf(ten[i] - seven[i]) <= 1e-5f * (1 + fabsf(ten[i])));
    assert_int_equal(images_create(1, 28, 3, &color), OK);
    assert_fails(features_compute(&net, &color, ten, NULL), ERR_ARG, "1 channel, but these have 3");
    images_free(&gray);
    images_free(&color);
    images_free(&small);
    features_close(&net);
    features_close(&whole);
    config.options.classes = 7;
    assert_fails(features_open(&config, &net), ERR_CHECKPOINT, "does not hold the weights of fashion_cnn");
}

/* A generator of one dense layer, whose images can be computed by hand. */
enum { LATENT = 3 };
static void tiny_generate(Graph *g, const ModelOptions *options, const void *networks, Value z, Value *images)
{
    Shape shape = {graph_shape(g, z).n, options->channels, options->side, options->side};
    Value x = dense(g, z, "generator.fc", 4, false, (Init){.kind = INIT_GLOROT_UNIFORM});
    *images = graph_op(g, OP_RESHAPE, "images", &x, 1, NULL, &shape);
}
static const Model tiny = {.name = "tiny", .std = {2}, .mean = {0.5f}, .latent = LATENT, .generate = tiny_generate};

TEST_WITH(of_a_generator, scratch_make, scratch_drop)
{
    needs_device();
    char path[PATH_BYTES];
    Graph *g;
    GraphOptions evaluation = {.compute = DTYPE_F32};
    ModelOptions options = {.side = 2, .channels = 1};
    SafeTensors *file;
    Generator generator;
    Images made, later;
    Value images;
    float z[7 * LATENT];
    int clipped = 0;
    scratch_path(path, "tiny.safetensors");
    assert_int_equal(graph_create(&evaluation, &g), OK);
    tiny_generate(g, &options, NULL, graph_input(g, "z", (Shape){1, LATENT, 1, 1}, DTYPE_F32), &images);
    weights_write(g, path);
    graph_destroy(g);
    assert_int_equal(safetensors_open(path, &file), OK);
    NetworkWeights weights = {.file = file, .path = path};
    assert_int_equal(generator_open(&tiny, &options, &weights, &device, 3, &generator), OK);
    assert_int_equal(generator_images(&generator, 11, 0, 7, &made), OK);
    assert_int_equal(generator_images(&generator, 11, 4, 3, &later), OK);
    assert_memory_equal(made.at + 4 * 4, later.at, 3 * 4);
    noise_fill(11, 0, 7, LATENT, z);
    const float *w = safetensors_find(file, "generator.fc.weight")->data,
                *b = safetensors_find(file, "generator.fc.bias")->data;
    for (int i = 0; i < 7 * 4; i++) {
        float x = b[i % 4];
        for (int k = 0; k < LATENT; k++) x += w[i % 4 * LATENT + k] * z[i / 4 * LATENT + k];
        float level = 255 * (2 * x + 0.5f);
        clipped += level < 0 || level > 255;
        level = fmaxf(0, fminf(255, level));
        if (fabsf(level - made.at[i]) > 0.51f) fail_msg("pixel %d is %d, not %g", i, made.at[i], (double)level);
    }
    assert_true(clipped > 0 && clipped < 28);
    images_free(&made);
    images_free(&later);
    generator_close(&generator);
    assert_fails(generator_open(&model_fashion_cnn, &options, &weights, &device, 3, &generator), ERR_ARG,
                 "fashion_cnn is a classifier and generates no images");
    safetensors_close(file);
}

TEST(noise)
{
    enum { COUNT = 2000, LENGTH = 5 };
    static float z[COUNT * LENGTH], other[LENGTH];
    double sum = 0, square = 0, neighbors = 0;
    noise_fill(3, 0, COUNT, LENGTH, z);
    for (int i = 0; i < COUNT * LENGTH; i++) {
        sum += (double)z[i];
        square += (double)z[i] * (double)z[i];
        if (i) neighbors += (double)z[i] * (double)z[i - 1];
    }
    assert_true(fabs(sum / (COUNT * LENGTH)) < 0.04);
    assert_true(fabs(square / (COUNT * LENGTH) - 1) < 0.06);
    assert_true(fabs(neighbors / (COUNT * LENGTH)) < 0.04);
    noise_fill(4, 0, 1, LENGTH, other);
    assert_memory_not_equal(other, z, sizeof other);
}

/* On the way from a to b: both ends, and the length of what lies between. */
TEST(walk)
{
    float a[] = {3, 0, 0}, b[] = {0, 0, 3}, z[5 * 3];
    noise_walk(a, b, 3, 5, z);
    for (int k = 0; k < 3; k++) assert_true(fabsf(z[k] - a[k]) < 1e-6f && fabsf(z[12 + k] - b[k]) < 1e-6f);
    for (int i = 0; i < 5; i++) {
        float length = sqrtf(z[3 * i] * z[3 * i] + z[3 * i + 1] * z[3 * i + 1] + z[3 * i + 2] * z[3 * i + 2]);
        assert_true(fabsf(length - 3) < 1e-5f);
        assert_true(fabsf(z[3 * i] - 3 * cosf(0.39269908f * (float)i)) < 1e-5f);
    }
    noise_walk(a, a, 3, 5, z); /* no arc */
    for (int i = 0; i < 15; i++) assert_true(fabsf(z[i] - a[i % 3]) < 1e-6f);
}

TESTS_WITH(open_device, close_device)
