/* ConvNeXt-T. Liu et al., "A ConvNet for the 2020s", arXiv:2201.03545, Figure 4 and Table 9. As torchvision builds it: names, layer
 * norms (eps 1e-6), initial values, layer scale (Touvron et al. 2021, arXiv:2103.17239), and stochastic depth that grows from 0
 * by equal parts with every block. */
#include "inception/models/models.h"

typedef struct ConvNextStage {
    int32_t channels;
    int blocks;
} ConvNextStage;

enum { STAGES = 4, BLOCKS = 18 /* of all stages */ };

// clang-format off
static const ConvNextStage stages[STAGES] = {
    { 96, 3},
    {192, 3},
    {384, 9},
    {768, 3}};
// clang-format on

static const float epsilon = 1e-6f, first_scale = 1e-6f;
static const Init init = {INIT_NORMAL, 0.02f}; /* torchvision cuts it at 2, a hundred deviations */

/* A convolution whose windows do not overlap. */
static Value patches(Graph *g, Value x, const char *name, int32_t out, int32_t side)
{
    Window window = {.kh = side, .kw = side, .stride_h = side, .stride_w = side};
    return conv_window_bias(g, x, name, out, window, false, init);
}

/* Filter each channel, then expand and project every pixel; in training unless the sample drops it. */
static Value block(Graph *g, Value x, float drop)
{
    int32_t c = graph_shape(g, x).c;
    Window window = {.kh = 7, .kw = 7, .stride_h = 1, .stride_w = 1, .pad_h = 3, .pad_w = 3};
    Value y = depthwise_bias(g, x, "block.0", window, init);
    y = layer_norm(g, y, "block.2", epsilon);
    y = gelu(g, pixel_dense(g, y, "block.3", 4 * c, init));
    y = pixel_dense(g, y, "block.5", c, init);
    y = layer_scale(g, y, "layer_scale", first_scale);
    return add(g, x, stochastic_depth(g, y, drop));
}

/* "features.STAGE", or a block of it. */
static void scope(Graph *g, int stage, const int *number)
{
    char name[32];
    if (number)
        snprintf(name, sizeof name, "features.%d.%d", stage, *number);
    else
        snprintf(name, sizeof name, "features.%d", stage);
    graph_scope(g, name);
}

static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    int before = 0;
    graph_canonical(g, 224);
    Value x = image;
    graph_expect(g, x, 3, 224);
    for (int s = 0; s < STAGES; s++) {
        scope(g, 2 * s, NULL);
        if (s == 0)
            x = layer_norm(g, patches(g, x, "0", stages[s].channels, 4), "1", epsilon);
        else
            x = patches(g, layer_norm(g, x, "0", epsilon), "1", stages[s].channels, 2);
        graph_expect(g, x, stages[s].channels, 56 >> s);
        for (int k = 0; k < stages[s].blocks; k++, before++) {
            scope(g, 2 * s + 1, &k);
            x = block(g, x, options->drop_path * (float)before / (BLOCKS - 1));
        }
    }
    graph_scope(g, "classifier");
    x = layer_norm(g, global_avg_pool(g, x), "0", epsilon);
    heads->logits = dense(g, dropout(g, x, options->dropout), "2", options->classes, false, init);
}

const Model model_convnext_tiny = {
    .name = "convnext_tiny",
    .title = "ConvNeXt-T",
    .paper = "Liu et al., \"A ConvNet for the 2020s\", arXiv:2201.03545",
    .side = 224,
    .min_side = 32,
    .channels = 3,
    .classes = 1000,
    .drop_path = 0.1f,
    .mean = {0.485f, 0.456f, 0.406f},
    .std = {0.229f, 0.224f, 0.225f},
    .build = build,
};
