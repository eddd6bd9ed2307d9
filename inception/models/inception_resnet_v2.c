/* Inception-ResNet-v2. Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections on
 * Learning", arXiv:1602.07261, Figures 15 to 19, with the stem and block counts of the network that its authors
 * published: the stem of Inception v3, then 10, 20 and 10 residual blocks. Names follow timm's checkpoint. conv =
 * convolution without bias, batch norm (eps 1e-3), ReLU. Average pools do not count padding in the divisor. The numbers
 * beside each stage are its output channels and side for images of 299x299. */
#include "inception/models/models.h"

// clang-format off

/* Figure 20: x + scale * (1x1 convolution with bias of the branches), then an optional ReLU. */
static Value residual(Graph *g, Value x, Value branches, float scale, bool with_relu)
{
    Value up = conv_bias(g, branches, "conv2d", graph_shape(g, x).c, 1, SAME, false, (Init){INIT_GLOROT_UNIFORM});
    if (scale != 1) up = affine(g, up, scale, 0);
    return with_relu ? add_relu(g, up, x) : add(g, up, x);
}

/* After Figure 5 of Inception v3, 35x35 */
static Value mixed_5b(Graph *g, Value x)
{
    graph_scope(g, "mixed_5b");
    Value b0 = CHAIN(g, x, {"branch0",   96, 1, 1});
    Value b1 = CHAIN(g, x, {"branch1.0", 48, 1, 1}, {"branch1.1", 64, 5, 5});
    Value b2 = CHAIN(g, x, {"branch2.0", 64, 1, 1}, {"branch2.1", 96, 3, 3}, {"branch2.2", 96, 3, 3});
    Value b3 = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch3.1", 64, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* Figure 16, 35x35 */
static Value block_35(Graph *g, Value x)
{
    Value b0 = CHAIN(g, x, {"branch0",   32, 1, 1});
    Value b1 = CHAIN(g, x, {"branch1.0", 32, 1, 1}, {"branch1.1", 32, 3, 3});
    Value b2 = CHAIN(g, x, {"branch2.0", 32, 1, 1}, {"branch2.1", 48, 3, 3}, {"branch2.2", 64, 3, 3});
    return residual(g, x, CONCAT(g, b0, b1, b2), 0.17f, true);
}

/* Figure 17, 17x17 */
static Value block_17(Graph *g, Value x)
{
    Value b0 = CHAIN(g, x, {"branch0",   192, 1, 1});
    Value b1 = CHAIN(g, x, {"branch1.0", 128, 1, 1}, {"branch1.1", 160, 1, 7}, {"branch1.2", 192, 7, 1});
    return residual(g, x, CONCAT(g, b0, b1), 0.10f, true);
}

/* Figure 18, 17 -> 8 */
static Value mixed_7a(Graph *g, Value x)
{
    graph_scope(g, "mixed_7a");
    Value b0 = CHAIN(g, x, {"branch0.0", 256, 1, 1}, {"branch0.1", 384, 3, 3, HALVE});
    Value b1 = CHAIN(g, x, {"branch1.0", 256, 1, 1}, {"branch1.1", 288, 3, 3, HALVE});
    Value b2 = CHAIN(g, x, {"branch2.0", 256, 1, 1}, {"branch2.1", 288, 3, 3}, {"branch2.2", 320, 3, 3, HALVE});
    Value b3 = max_pool(g, x, 3, HALVE);
    return CONCAT(g, b0, b1, b2, b3);
}

/* Figure 19, 8x8 */
static Value block_8(Graph *g, Value x, float scale, bool with_relu)
{
    Value b0 = CHAIN(g, x, {"branch0",   192, 1, 1});
    Value b1 = CHAIN(g, x, {"branch1.0", 192, 1, 1}, {"branch1.1", 224, 1, 3}, {"branch1.2", 256, 3, 1});
    return residual(g, x, CONCAT(g, b0, b1), scale, with_relu);
}

/* The scope "<group>.<index>" of a repeated block. */
static void repeat_scope(Graph *g, const char *group, int index)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%d", group, index);
    graph_scope(g, name);
}

/* Figure 15 */
static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    static const Init fc_init = {INIT_TRUNCATED_NORMAL, 0.01f};
    graph_canonical(g, 299);
    Value x = image;                                               graph_expect(g, x,    3, 299);
    x = CHAIN(g, x, {"conv2d_1a",  32, 3, 3, HALVE});              graph_expect(g, x,   32, 149);
    x = CHAIN(g, x, {"conv2d_2a",  32, 3, 3, VALID});              graph_expect(g, x,   32, 147);
    x = CHAIN(g, x, {"conv2d_2b",  64, 3, 3, SAME});               graph_expect(g, x,   64, 147);
    x = max_pool(g, x, 3, HALVE);                                  graph_expect(g, x,   64,  73);
    x = CHAIN(g, x, {"conv2d_3b",  80, 1, 1});                     graph_expect(g, x,   80,  73);
    x = CHAIN(g, x, {"conv2d_4a", 192, 3, 3, VALID});              graph_expect(g, x,  192,  71);
    x = max_pool(g, x, 3, HALVE);                                  graph_expect(g, x,  192,  35);
    x = mixed_5b(g, x);                                            graph_expect(g, x,  320,  35);
    for (int i = 0; i < 10; i++) {
        repeat_scope(g, "repeat", i);
        x = block_35(g, x);                                        graph_expect(g, x,  320,  35);
    }
    x = reduction_a(g, x, "mixed_6a", 256, 256, 384, 384);         graph_expect(g, x, 1088,  17);
    for (int i = 0; i < 20; i++) {
        repeat_scope(g, "repeat_1", i);
        x = block_17(g, x);                                        graph_expect(g, x, 1088,  17);
    }
    x = mixed_7a(g, x);                                            graph_expect(g, x, 2080,   8);
    for (int i = 0; i < 9; i++) {
        repeat_scope(g, "repeat_2", i);
        x = block_8(g, x, 0.20f, true);                            graph_expect(g, x, 2080,   8);
    }
    graph_scope(g, "block8");
    x = block_8(g, x, 1, false);                                   graph_expect(g, x, 2080,   8);
    graph_scope(g, "");
    x = CHAIN(g, x, {"conv2d_7b", 1536, 1, 1});                    graph_expect(g, x, 1536,   8);
    x = dropout(g, global_avg_pool(g, x), options->dropout);       graph_expect(g, x, 1536,   1);
    heads->logits = dense(g, x, "classif", options->classes, false, fc_init);
}
// clang-format on

const Model model_inception_resnet_v2 = {
    .name = "inception_resnet_v2",
    .title = "Inception-ResNet-v2",
    .paper = "Szegedy et al., \"Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning\", "
             "arXiv:1602.07261",
    .side = 299,
    .min_side = 75,
    .channels = 3,
    .classes = 1000,
    .dropout = 0.2f,
    .mean = {0.5f, 0.5f, 0.5f},
    .std = {0.5f, 0.5f, 0.5f},
    .defaults = "winograd: true\n",
    .build = build,
};
