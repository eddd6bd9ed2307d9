/* GoogLeNet, the first Inception network. Szegedy et al., "Going Deeper with Convolutions", arXiv:1409.4842, Table 1
 * and Figures 2 and 3; with batch norm and torchvision's names and deviations: pools round up, the "5x5" branch is a
 * 3x3, and the auxiliary heads average to 4x4 at any image size. conv = convolution without bias, batch norm (eps
 * 1e-3), ReLU. The numbers beside each stage are its output channels and side for images of 224x224. */
#include "inception/models/models.h"

static const Init init = {INIT_TRUNCATED_NORMAL, 0.01f};
static const float aux_dropout = 0.7f;

/* A row of Table 1. */
typedef struct Widths {
    int one, three_in, three, five_in, five, pool;
} Widths;

// clang-format off

/* Figure 2b */
static Value block(Graph *g, Value x, const char *name, Widths w)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch1",   w.one,      1, 1});
    Value b1 = CHAIN(g, x, {"branch2.0", w.three_in, 1, 1}, {"branch2.1", w.three, 3, 3});
    Value b2 = CHAIN(g, x, {"branch3.0", w.five_in,  1, 1}, {"branch3.1", w.five,  3, 3});
    Value b3 = CHAIN(g, max_pool(g, x, 3, SAME), {"branch4.1", w.pool, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* The auxiliary heads of section 5. */
static Value aux_head(Graph *g, Value x, const char *name, const ModelOptions *options)
{
    graph_scope(g, name);
    x = adaptive_avg_pool(g, x, 4);
    x = CHAIN(g, x, {"conv", 128, 1, 1});                          graph_expect(g, x,  128,   4);
    x = dense(g, x, "fc1", 1024, true, init);
    x = dropout(g, x, options->dropout > 0 ? aux_dropout : 0);     graph_expect(g, x, 1024,   1);
    return dense(g, x, "fc2", options->classes, false, init);
}

static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    layer_style(g, (LayerStyle){.conv_init = init});
    graph_canonical(g, 224);
    Value x = image;                                               graph_expect(g, x,    3, 224);
    x = CHAIN(g, x, {"conv1", 64, 7, 7, HALVE_SAME});              graph_expect(g, x,   64, 112);
    x = max_pool(g, x, 3, HALVE_CEIL);                             graph_expect(g, x,   64,  56);
    x = CHAIN(g, x, {"conv2", 64, 1, 1}, {"conv3", 192, 3, 3});    graph_expect(g, x,  192,  56);
    x = max_pool(g, x, 3, HALVE_CEIL);                             graph_expect(g, x,  192,  28);
    /*                                   1x1  3x3 in 3x3 5x5 in 5x5 pool */
    x = block(g, x, "inception3a", (Widths){ 64,  96, 128, 16,  32,  32});  graph_expect(g, x,  256, 28);
    x = block(g, x, "inception3b", (Widths){128, 128, 192, 32,  96,  64});  graph_expect(g, x,  480, 28);
    x = max_pool(g, x, 3, HALVE_CEIL);                                      graph_expect(g, x,  480, 14);
    x = block(g, x, "inception4a", (Widths){192,  96, 208, 16,  48,  64});  graph_expect(g, x,  512, 14);
    if (options->aux) heads->aux[heads->aux_count++] = aux_head(g, x, "aux1", options);
    x = block(g, x, "inception4b", (Widths){160, 112, 224, 24,  64,  64});  graph_expect(g, x,  512, 14);
    x = block(g, x, "inception4c", (Widths){128, 128, 256, 24,  64,  64});  graph_expect(g, x,  512, 14);
    x = block(g, x, "inception4d", (Widths){112, 144, 288, 32,  64,  64});  graph_expect(g, x,  528, 14);
    if (options->aux) heads->aux[heads->aux_count++] = aux_head(g, x, "aux2", options);
    x = block(g, x, "inception4e", (Widths){256, 160, 320, 32, 128, 128});  graph_expect(g, x,  832, 14);
    x = max_pool(g, x, 2, HALVE_CEIL);                                      graph_expect(g, x,  832,  7);
    x = block(g, x, "inception5a", (Widths){256, 160, 320, 32, 128, 128});  graph_expect(g, x,  832,  7);
    x = block(g, x, "inception5b", (Widths){384, 192, 384, 48, 128, 128});  graph_expect(g, x, 1024,  7);
    graph_scope(g, "");
    x = dropout(g, global_avg_pool(g, x), options->dropout);                graph_expect(g, x, 1024,  1);
    heads->logits = dense(g, x, "fc", options->classes, false, init);
}
// clang-format on

const Model model_googlenet = {
    .name = "googlenet",
    .title = "GoogLeNet (Inception v1) with batch norm",
    .paper = "Szegedy et al., \"Going Deeper with Convolutions\", arXiv:1409.4842",
    .side = 224,
    .min_side = 15,
    .aux_min_side = 15,
    .channels = 3,
    .classes = 1000,
    .dropout = 0.2f,
    .aux_weight = 0.3f,
    .mean = {0.5f, 0.5f, 0.5f},
    .std = {0.5f, 0.5f, 0.5f},
    .defaults = "winograd: true\n",
    .build = build,
};
