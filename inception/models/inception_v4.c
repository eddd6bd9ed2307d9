/* Inception v4. Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning",
 * arXiv:1602.07261, Figures 3 to 9. Names follow timm's checkpoint, which numbers the stages. conv = convolution without
 * bias, batch norm (eps 1e-3), ReLU. Average pools do not count padding in the divisor. The numbers beside each stage
 * are its output channels and side for images of 299x299. */
#include "inception/models/models.h"

// clang-format off

/* ---- Figure 3: the stem, which forks three times */

static Value fork_3a(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = max_pool(g, x, 3, HALVE);
    Value b1 = CHAIN(g, x, {"conv", 96, 3, 3, HALVE});
    return CONCAT(g, b0, b1);
}

static Value fork_4a(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch0.0", 64, 1, 1}, {"branch0.1", 96, 3, 3, VALID});
    Value b1 = CHAIN(g, x, {"branch1.0", 64, 1, 1}, {"branch1.1", 64, 1, 7},
                           {"branch1.2", 64, 7, 1}, {"branch1.3", 96, 3, 3, VALID});
    return CONCAT(g, b0, b1);
}

static Value fork_5a(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"conv", 192, 3, 3, HALVE});
    Value b1 = max_pool(g, x, 3, HALVE);
    return CONCAT(g, b0, b1);
}

/* ---- the blocks */

/* Figure 4, 35x35 */
static Value block_a(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch0",   96, 1, 1});
    Value b1 = CHAIN(g, x, {"branch1.0", 64, 1, 1}, {"branch1.1", 96, 3, 3});
    Value b2 = CHAIN(g, x, {"branch2.0", 64, 1, 1}, {"branch2.1", 96, 3, 3}, {"branch2.2", 96, 3, 3});
    Value b3 = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch3.1", 96, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* Figure 5, 17x17 */
static Value block_b(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch0",   384, 1, 1});
    Value b1 = CHAIN(g, x, {"branch1.0", 192, 1, 1}, {"branch1.1", 224, 1, 7}, {"branch1.2", 256, 7, 1});
    Value b2 = CHAIN(g, x, {"branch2.0", 192, 1, 1}, {"branch2.1", 192, 7, 1}, {"branch2.2", 224, 1, 7},
                           {"branch2.3", 224, 7, 1}, {"branch2.4", 256, 1, 7});
    Value b3 = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch3.1", 128, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* Figure 8, 17 -> 8 */
static Value reduction_b(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch0.0", 192, 1, 1}, {"branch0.1", 192, 3, 3, HALVE});
    Value b1 = CHAIN(g, x, {"branch1.0", 256, 1, 1}, {"branch1.1", 256, 1, 7},
                           {"branch1.2", 320, 7, 1}, {"branch1.3", 320, 3, 3, HALVE});
    Value b2 = max_pool(g, x, 3, HALVE);
    return CONCAT(g, b0, b1, b2);
}

/* Figure 6, 8x8: two branches fork at their end */
static Value block_c(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0     = CHAIN(g, x, {"branch0", 256, 1, 1});
    Value fork   = CHAIN(g, x, {"branch1_0", 384, 1, 1});
    Value wide   = CHAIN(g, fork, {"branch1_1a", 256, 1, 3});
    Value high   = CHAIN(g, fork, {"branch1_1b", 256, 3, 1});
    Value fork2  = CHAIN(g, x, {"branch2_0", 384, 1, 1}, {"branch2_1", 448, 3, 1}, {"branch2_2", 512, 1, 3});
    Value wide2  = CHAIN(g, fork2, {"branch2_3a", 256, 1, 3});
    Value high2  = CHAIN(g, fork2, {"branch2_3b", 256, 3, 1});
    Value b3     = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch3.1", 256, 1, 1});
    return CONCAT(g, b0, wide, high, wide2, high2, b3);
}

/* Figure 9 */
static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    static const char *const a[] = {"features.6", "features.7", "features.8", "features.9"};
    static const char *const b[] = {"features.11", "features.12", "features.13", "features.14",
                                    "features.15", "features.16", "features.17"};
    static const char *const c[] = {"features.19", "features.20", "features.21"};
    static const Init fc_init = {INIT_TRUNCATED_NORMAL, 0.01f};
    graph_canonical(g, 299);
    Value x = image;                                               graph_expect(g, x,    3, 299);
    x = CHAIN(g, x, {"features.0", 32, 3, 3, HALVE});              graph_expect(g, x,   32, 149);
    x = CHAIN(g, x, {"features.1", 32, 3, 3, VALID});              graph_expect(g, x,   32, 147);
    x = CHAIN(g, x, {"features.2", 64, 3, 3, SAME});               graph_expect(g, x,   64, 147);
    x = fork_3a(g, x, "features.3");                               graph_expect(g, x,  160,  73);
    x = fork_4a(g, x, "features.4");                               graph_expect(g, x,  192,  71);
    x = fork_5a(g, x, "features.5");                               graph_expect(g, x,  384,  35);
    for (int i = 0; i < 4; i++) x = block_a(g, x, a[i]);
                                                                   graph_expect(g, x,  384,  35);
    x = reduction_a(g, x, "features.10", 192, 224, 256, 384);      graph_expect(g, x, 1024,  17);
    for (int i = 0; i < 7; i++) x = block_b(g, x, b[i]);
                                                                   graph_expect(g, x, 1024,  17);
    x = reduction_b(g, x, "features.18");                          graph_expect(g, x, 1536,   8);
    for (int i = 0; i < 3; i++) x = block_c(g, x, c[i]);
                                                                   graph_expect(g, x, 1536,   8);
    graph_scope(g, "");
    x = dropout(g, global_avg_pool(g, x), options->dropout);       graph_expect(g, x, 1536,   1);
    heads->logits = dense(g, x, "last_linear", options->classes, false, fc_init);
}
// clang-format on

const Model model_inception_v4 = {
    .name = "inception_v4",
    .title = "Inception v4",
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
