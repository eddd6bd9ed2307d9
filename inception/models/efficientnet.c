/* EfficientNet-B0. Tan & Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", arXiv:1905.11946, Table 1;
 * its block is that of MnasNet (arXiv:1807.11626, Figure 7): expand, filter each channel, squeeze, project. As torchvision builds
 * it: names, batch norms (eps 1e-5), initial values, and stochastic depth that grows from 0 by equal parts with every block. */
#include "inception/models/efficientnet.h"
#include "inception/models/models.h"

// clang-format off
const EfficientStage efficient_stages[EFFICIENT_STAGES] = {
    {1, 3, 1,  16, 1},
    {6, 3, 2,  24, 2},
    {6, 5, 2,  40, 2},
    {6, 3, 2,  80, 3},
    {6, 5, 1, 112, 3},
    {6, 5, 2, 192, 4},
    {6, 3, 1, 320, 1}};
// clang-format on

static const Init he = {INIT_HE_NORMAL};

/* "NAME.0" and "NAME.1": a convolution (depthwise if out is 0) and its batch norm, with a SiLU or without. */
static Value unit(Graph *g, Value x, const char *name, int32_t out, int32_t k, int32_t stride, bool activates)
{
    char conv[16], norm[16];
    Window window = {.kh = k, .kw = k, .stride_h = stride, .stride_w = stride, .pad_h = k / 2, .pad_w = k / 2};
    snprintf(conv, sizeof conv, "%s.0", name);
    snprintf(norm, sizeof norm, "%s.1", name);
    x = out ? conv_window(g, x, conv, out, window, he) : depthwise(g, x, conv, window, he);
    x = batch_norm_named(g, x, norm, false);
    return activates ? silu(g, x) : x;
}

/* Squeeze and excitation (Hu et al. 2017): a factor for each channel, from the averages of all of them. */
static Value squeeze(Graph *g, Value x, const char *name, int32_t squeezed)
{
    char first[16], second[16];
    int32_t channels = graph_shape(g, x).c;
    snprintf(first, sizeof first, "%s.fc1", name);
    snprintf(second, sizeof second, "%s.fc2", name);
    Value s = global_avg_pool(g, x);
    s = silu(g, conv_bias(g, s, first, squeezed, 1, SAME, false, he));
    s = sigmoid(g, conv_bias(g, s, second, channels, 1, SAME, false, he));
    return mul(g, x, s);
}

/* Added to x where the shape stays, in training unless the sample drops it. */
static Value block(Graph *g, Value x, const EfficientStage *stage, int32_t stride, float drop)
{
    static const char *const names[] = {"block.0", "block.1", "block.2", "block.3"};
    int32_t in = graph_shape(g, x).c, next = 0;
    Value y = x;
    if (stage->expansion > 1) y = unit(g, y, names[next++], stage->expansion * in, 1, 1, true);
    y = unit(g, y, names[next++], 0, stage->k, stride, true);
    y = squeeze(g, y, names[next++], in / 4);
    y = unit(g, y, names[next++], stage->out, 1, 1, false);
    return stride == 1 && stage->out == in ? add(g, x, stochastic_depth(g, y, drop)) : y;
}

static void build_b0(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    int before = 0;
    layer_style(g, (LayerStyle){.bn_epsilon = 1e-5f});
    graph_canonical(g, 224);
    Value x = image;
    graph_expect(g, x, 3, 224);
    graph_scope(g, "features");
    x = unit(g, x, "0", 32, 3, 2, true);
    graph_expect(g, x, 32, 112);
    for (int s = 0; s < EFFICIENT_STAGES; s++) {
        const EfficientStage *stage = &efficient_stages[s];
        for (int k = 0; k < stage->repeats; k++, before++) {
            char name[32];
            snprintf(name, sizeof name, "features.%d.%d", s + 1, k);
            graph_scope(g, name);
            x = block(g, x, stage, k ? 1 : stage->stride, efficient_drop(options->drop_path, before));
        }
    }
    graph_expect(g, x, 320, 7);
    graph_scope(g, "features");
    x = unit(g, x, "8", 1280, 1, 1, true);
    graph_expect(g, x, 1280, 7);
    graph_scope(g, "classifier");
    x = dropout(g, global_avg_pool(g, x), options->dropout);
    Init classifier = {INIT_UNIFORM, 1 / sqrtf((float)options->classes)};
    heads->logits = dense(g, x, "1", options->classes, false, classifier);
}

const Model model_efficientnet_b0 = {
    .name = "efficientnet_b0",
    .title = "EfficientNet-B0",
    .paper = "Tan & Le, \"EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks\", arXiv:1905.11946",
    .side = 224,
    .min_side = 8,
    .channels = 3,
    .classes = 1000,
    .dropout = 0.2f,
    .drop_path = 0.2f,
    .mean = {0.485f, 0.456f, 0.406f},
    .std = {0.229f, 0.224f, 0.225f},
    .defaults = "winograd: true\n",
    .build = build_b0,
};
