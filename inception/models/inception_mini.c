/* Inception mini: the ideas of Inception v3 (Szegedy et al., arXiv:1512.00567) at 28x28, for machines without a GPU. A
 * stem that halves the size once, a 14x14 block after Figure 5 (5x5 as two 3x3), a reduction after Figure 10, two 7x7
 * blocks, global pooling. conv = convolution without bias, batch norm, ReLU. Every branch is a statement of its own,
 * because C does not define the order in which arguments are evaluated. */
#include "inception/models/models.h"

typedef struct MiniWidths {
    int one, three_in, three, double_in, dbl, pool; /* channels of the four branches */
} MiniWidths;

/* 1x1 | 1x1 - 3x3 | 1x1 - 3x3 - 3x3 | average pool - 1x1 */
static Value block(Graph *g, Value x, const char *name, MiniWidths w)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch1x1", w.one, 1, 1});
    Value b1 = CHAIN(g, x, {"branch3x3_1", w.three_in, 1, 1}, {"branch3x3_2", w.three, 3, 3});
    Value b2 = CHAIN(g, x, {"branch3x3dbl_1", w.double_in, 1, 1}, {"branch3x3dbl_2", w.dbl, 3, 3},
                     {"branch3x3dbl_3", w.dbl, 3, 3});
    Value b3 = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch_pool", w.pool, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* 14 -> 7: 1x1 - 3x3/2 | 1x1 - 3x3 - 3x3/2 | max pool/2 */
static Value reduction(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch3x3_1", 32, 1, 1}, {"branch3x3_2", 48, 3, 3, HALVE_SAME});
    Value b1 = CHAIN(g, x, {"branch3x3dbl_1", 16, 1, 1}, {"branch3x3dbl_2", 24, 3, 3},
                     {"branch3x3dbl_3", 32, 3, 3, HALVE_SAME});
    Value b2 = max_pool(g, x, 3, HALVE_SAME);
    return CONCAT(g, b0, b1, b2);
}

// clang-format off
static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    layer_style(g, (LayerStyle){.include_pad = true});
    graph_canonical(g, 28);
    Value x = image;
    x = conv_bn_relu(g, x, (ConvUnit){"Conv2d_1a_3x3", 16, 3, 3, SAME});          graph_expect(g, x,  16, 28);
    x = conv_bn_relu(g, x, (ConvUnit){"Conv2d_2a_3x3", 32, 3, 3, HALVE_SAME});    graph_expect(g, x,  32, 14);
    x = block(g, x, "Mixed_3a", (MiniWidths){32, 24, 32, 16, 16, 16});                graph_expect(g, x,  96, 14);
    x = reduction(g, x, "Mixed_4a");                                              graph_expect(g, x, 176,  7);
    x = block(g, x, "Mixed_5a", (MiniWidths){64, 48, 64, 24, 48, 32});                graph_expect(g, x, 208,  7);
    x = block(g, x, "Mixed_5b", (MiniWidths){64, 48, 64, 24, 48, 32});                graph_expect(g, x, 208,  7);
    graph_scope(g, "");
    x = dropout(g, global_avg_pool(g, x), options->dropout);                      graph_expect(g, x, 208,  1);
    heads->logits = dense(g, x, "fc", options->classes, false, (Init){INIT_TRUNCATED_NORMAL, 0.05f});
}
// clang-format on

const Model model_inception_mini = {
    .name = "inception_mini",
    .title = "Inception mini",
    .paper = "our own, after Szegedy et al., \"Rethinking the Inception Architecture for Computer Vision\", "
             "arXiv:1512.00567",
    .side = 28,
    .min_side = 8,
    .channels = 1,
    .adapts = true,
    .classes = 10,
    .dropout = 0.2f,
    .mean = {0.2860f, 0.2860f, 0.2860f},
    .std = {0.3530f, 0.3530f, 0.3530f},
    .defaults = "epochs: 2\nopt: nesterov\nlr: 0.3\nweight-decay: 0.001\nsmoothing: 0.1\ndropout: 0\nsched: rise-fall\n"
                "winograd: true\n",
    .build = build,
};
