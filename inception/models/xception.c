/* Xception. Chollet, "Xception: Deep Learning with Depthwise Separable Convolutions", arXiv:1610.02357, Figure 5. As timm's
 * legacy_xception has it, whose weights are Keras' under its names: windows are padded alike on opposite sides, where Keras pads
 * the max pool of block2 below and right alone; batch norm has eps 1e-5, Keras' 1e-3. Initial values are timm's, too. The
 * numbers beside each stage are its output channels and side for images of 299x299. */
#include "inception/models/models.h"

static const Init he = {INIT_HE_NORMAL};

static Window window_of(int32_t k, int32_t stride, int32_t pad)
{
    return (Window){.kh = k, .kw = k, .stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad};
}

/* Convolution without bias, batch norm, and ReLU if asked. */
static Value unit(Graph *g, Value x, const char *conv, const char *norm, int32_t out, Window window, bool relu)
{
    return batch_norm_named(g, conv_window(g, x, conv, out, window, he), norm, relu);
}

/* Each channel by a window of its own, then all of them by 1x1, with nothing in between. */
static Value separable(Graph *g, Value x, const char *name, const char *norm, int32_t out, bool relu)
{
    char filters[24], mixes[24];
    snprintf(filters, sizeof filters, "%s.conv1", name);
    snprintf(mixes, sizeof mixes, "%s.pointwise", name);
    x = depthwise(g, x, filters, window_of(3, 1, 1), he);
    return unit(g, x, mixes, norm, out, window_of(1, 1, 0), relu);
}

/* What a block adds to its input, or to the projection of that. "rep" numbers ReLUs, convolutions and norms alike; `bare`: x is
 * behind a ReLU already. */
static Value residual(Graph *g, Value x, const int32_t *out, int count, bool bare)
{
    int number = 0;
    if (!bare) x = relu(g, x), number++;
    for (int i = 0; i < count; i++, number += 3) {
        char name[16], norm[16];
        snprintf(name, sizeof name, "rep.%d", number);
        snprintf(norm, sizeof norm, "rep.%d", number + 1);
        x = separable(g, x, name, norm, out[i], i + 1 < count);
    }
    return x;
}

static void scope(Graph *g, int number)
{
    char name[16];
    snprintf(name, sizeof name, "block%d", number);
    graph_scope(g, name);
}

/* Entry and exit flow: halves the image. */
static Value halving(Graph *g, Value x, int number, int32_t first, int32_t second)
{
    scope(g, number);
    Value y = residual(g, x, (const int32_t[]){first, second}, 2, number == 1);
    y = max_pool(g, y, 3, HALVE_SAME);
    return add(g, y, unit(g, x, "skip", "skipbn", second, window_of(1, 2, 0), false));
}

/* Middle flow. */
static Value middle(Graph *g, Value x, int number)
{
    scope(g, number);
    return add(g, residual(g, x, (const int32_t[]){728, 728, 728}, 3, false), x);
}

// clang-format off
static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    layer_style(g, (LayerStyle){.bn_epsilon = 1e-5f});
    graph_canonical(g, 299);
    Value x = image;                                                   graph_expect(g, x,    3, 299);
    x = unit(g, x, "conv1", "bn1", 32, window_of(3, 2, 0), true);      graph_expect(g, x,   32, 149);
    x = unit(g, x, "conv2", "bn2", 64, window_of(3, 1, 0), true);      graph_expect(g, x,   64, 147);
    x = halving(g, x, 1, 128, 128);                                    graph_expect(g, x,  128,  74);
    x = halving(g, x, 2, 256, 256);                                    graph_expect(g, x,  256,  37);
    x = halving(g, x, 3, 728, 728);                                    graph_expect(g, x,  728,  19);
    for (int number = 4; number <= 11; number++) x = middle(g, x, number);
                                                                       graph_expect(g, x,  728,  19);
    x = halving(g, x, 12, 728, 1024);                                  graph_expect(g, x, 1024,  10);
    graph_scope(g, "");
    x = separable(g, x, "conv3", "bn3", 1536, true);                   graph_expect(g, x, 1536,  10);
    x = separable(g, x, "conv4", "bn4", 2048, true);                   graph_expect(g, x, 2048,  10);
    x = dropout(g, global_avg_pool(g, x), options->dropout);           graph_expect(g, x, 2048,   1);
    heads->logits = dense(g, x, "fc", options->classes, false, (Init){INIT_UNIFORM, 0.02209709f}); /* 1 / sqrt(inputs) */
}
// clang-format on

const Model model_xception = {
    .name = "xception",
    .title = "Xception",
    .paper = "Chollet, \"Xception: Deep Learning with Depthwise Separable Convolutions\", arXiv:1610.02357",
    .side = 299,
    .min_side = 7,
    .channels = 3,
    .classes = 1000,
    .dropout = 0,
    .mean = {0.5f, 0.5f, 0.5f},
    .std = {0.5f, 0.5f, 0.5f},
    .defaults = "winograd: true\n",
    .build = build,
};
