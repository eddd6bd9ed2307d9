/* Computing features with a classifier, batch by batch. */
#include "inception/quality/features.h"

#include "towers/files/files.h"
#include "towers/store/pretrained.h"

/* ---- the weights' name */

static int by_name(const void *a, const void *b)
{
    const StTensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Independent of the order of the tensors in the file and of its metadata. */
static Status digest_compute(const SafeTensors *file, char digest[33])
{
    int count = safetensors_count(file), used = 0;
    const StTensor **sorted = calloc((size_t)count + 1, sizeof(void *));
    FileSum *sums = calloc(2 * (size_t)count + 1, sizeof *sums), all;
    if (sorted && sums) {
        for (int i = 0; i < count; i++) sorted[i] = safetensors_at(file, i);
        qsort(sorted, (size_t)count, sizeof(void *), by_name);
        for (int i = 0; i < count; i++) {
            if (ends_with(sorted[i]->name, ".num_batches_tracked")) continue; /* a counter */
            memory_sum(sorted[i]->name, strlen(sorted[i]->name), &sums[used++]);
            memory_sum(sorted[i]->data, sorted[i]->bytes, &sums[used++]);
        }
        memory_sum(sums, (size_t)used * sizeof *sums, &all);
        snprintf(digest, 33, "%016" PRIx64 "%016" PRIx64, all.high, all.low);
    }
    Status st = sorted && sums ? OK : FAIL(ERR_MEMORY, "no memory for the digest of %d tensors", count);
    free(sorted);
    free(sums);
    return st;
}

/* ---- the network */

static Status graph_make(FeatureNet *net, Graph **made)
{
    const FeatureConfig *config = &net->config;
    GraphOptions evaluation = {.training = false, .compute = DTYPE_F32};
    ModelOptions options = config->options;
    ModelHeads heads = {0};
    Graph *g;
    options.aux = false;
    TRY(graph_create(&evaluation, &g));
    net->image = graph_input(g, "image", (Shape){net->n, options.channels, options.side, options.side}, DTYPE_F32);
    config->model->build(g, &options, config->model->networks, net->image, &heads);
    int32_t writer = graph_failed(g) ? -1 : graph_value(g, heads.logits)->op;
    if (!graph_failed(g) && (writer < 0 || graph_op_at(g, writer)->kind != OP_DENSE))
        graph_fail(g, ERR_UNSUPPORTED, "the last layer of %s is not dense", config->model->name);
    if (!graph_failed(g)) {
        net->logits = heads.logits;
        net->features = graph_op_at(g, writer)->in[0];
        Shape shape = graph_shape(g, net->features);
        net->d = shape.c * shape.h * shape.w;
        graph_scope(g, "");
        graph_result(g, net->features, "features");
        graph_result(g, net->logits, "logits");
    }
    *made = g;
    return OK;
}

Status features_open(const FeatureConfig *config, FeatureNet *net)
{
    Status st = OK;
    SafeTensors *file = NULL;
    WeightPart part;
    Graph *graph = NULL;
    int64_t pixels = (int64_t)config->options.side * config->options.side;
    int64_t fit = INT64_C(256) * 1024 / pixels; /* about the activations of 256 images of 32 x 32 */
    *net = (FeatureNet){.config = *config,
                        .n = config->batch ? config->batch
                                           : (int32_t)(fit < 1     ? 1
                                                       : fit > 256 ? 256
                                                                   : fit)};
    if (!config->model->build)
        return FAIL(ERR_ARG, "%s is not a classifier: features need a classifier", config->model->name);
    const ProgramConfig program = {.model = config->model,
                                   .options = config->options,
                                   .data_channels = config->options.channels,
                                   .canvas = config->model->side};
    TRY_OUT(pretrained_open(&program, HEAD_READ, config->weights, &file, &part));
    TRY_OUT(digest_compute(file, net->digest));
    TRY_OUT(graph_make(net, &graph));
    NetworkWeights weights = {.file = file, .path = config->weights};
    TRY_OUT(network_open(graph, config->model->name, &weights, config->device, &net->network));
    size_t n = (size_t)net->n;
    net->input = calloc(n * (size_t)pixels * (size_t)config->options.channels, sizeof(float));
    net->output = calloc(n * (size_t)net->d, sizeof(float));
    net->scores = calloc(n * (size_t)config->options.classes, sizeof(float));
    if (!net->input || !net->output || !net->scores)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for features of %zu images", n));
out:
    safetensors_close(file);
    if (st != OK) features_close(net);
    return st;
}

void features_close(FeatureNet *net)
{
    network_close(&net->network);
    free(net->input);
    free(net->output);
    free(net->scores);
    *net = (FeatureNet){0};
}

/* ---- images */

/* The two source pixels of an output pixel, and the weight of the second one. */
typedef struct Tap {
    int32_t first, second;
    float weight;
} Tap;

/* Pixel centers at half numbers; output centers beyond the outermost source centers take those. */
static Tap tap_of(int32_t out, int32_t from, int32_t to)
{
    float at = ((float)out + 0.5f) * ((float)from / (float)to) - 0.5f;
    if (at < 0) at = 0;
    int32_t first = (int32_t)at < from - 1 ? (int32_t)at : from - 1;
    return (Tap){first, first + 1 < from ? first + 1 : first, at - (float)first};
}

static float pixel_at(const Images *p, const uint8_t *image, int32_t y, int32_t x, int32_t c)
{
    return (float)image[((size_t)y * (size_t)p->side + (size_t)x) * (size_t)p->c + (size_t)(c < p->c ? c : 0)];
}

static void image_put(const FeatureNet *net, const Images *p, int64_t i, float *to)
{
    const Model *model = net->config.model;
    const uint8_t *image = p->at + (size_t)i * image_bytes(p);
    int32_t side = net->config.options.side, channels = net->config.options.channels;
    for (int32_t y = 0; y < side; y++) {
        Tap v = tap_of(y, p->side, side);
        for (int32_t x = 0; x < side; x++) {
            Tap h = tap_of(x, p->side, side);
            for (int32_t c = 0; c < channels; c++) {
                float above = (1 - h.weight) * pixel_at(p, image, v.first, h.first, c) +
                              h.weight * pixel_at(p, image, v.first, h.second, c),
                      below = (1 - h.weight) * pixel_at(p, image, v.second, h.first, c) +
                              h.weight * pixel_at(p, image, v.second, h.second, c);
                float value = (1 - v.weight) * above + v.weight * below;
                *to++ = (value / 255 - model_mean(model, &net->config.options)[c]) /
                        model_std(model, &net->config.options)[c];
            }
        }
    }
}

static void predictions_count(const FeatureNet *net, int32_t n, int64_t *histogram)
{
    int classes = net->config.options.classes;
    for (int32_t i = 0; i < n; i++) {
        const float *score = net->scores + (size_t)i * (size_t)classes;
        int best = 0;
        for (int c = 1; c < classes; c++)
            if (score[c] > score[best]) best = c;
        histogram[best]++;
    }
}

Status features_compute(FeatureNet *net, const Images *images, float *features, int64_t *histogram)
{
    size_t d = (size_t)net->d;
    size_t image =
        (size_t)net->config.options.side * (size_t)net->config.options.side * (size_t)net->config.options.channels;
    if (images->c > net->config.options.channels)
        return FAIL(ERR_ARG, "%s reads images with %d channel, but these have %d", net->config.model->name,
                    net->config.options.channels, images->c);
    for (int64_t first = 0; first < images->count; first += net->n) {
        int32_t n = (int32_t)(images->count - first < net->n ? images->count - first : net->n);
        for (int32_t i = 0; i < n; i++) image_put(net, images, first + i, net->input + (size_t)i * image);
        TRY(network_run(&net->network, net->image, net->input));
        TRY(network_get(&net->network, net->features, net->output));
        memcpy(features + (size_t)first * d, net->output, (size_t)n * d * sizeof(float));
        for (size_t i = 0; i < (size_t)n * d; i++)
            if (!isfinite(net->output[i]))
                return FAIL(ERR_NUMERIC, "the features of %s are not finite", net->config.model->name);
        if (!histogram) continue;
        TRY(network_get(&net->network, net->logits, net->scores));
        predictions_count(net, n, histogram);
    }
    return OK;
}
