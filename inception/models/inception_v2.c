/* Inception v2, or BN-Inception. Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
 * Covariate Shift", arXiv:1502.03167, section 4.2 and Figure 5. As TF-slim builds it (nets/inception_v2.py): padding is
 * TensorFlow's "SAME", the first convolution is separable, with 8 outputs for each color, batch norm (eps 1e-3, averages with
 * 0.9997 of the old value) has no gamma, average pools do not count padding in the divisor. Initial values are slim's, too. Names
 * are slim's scopes: InceptionV2/Mixed_3b/Branch_1/Conv2d_0b_3x3/weights is Mixed_3b.Branch_1.Conv2d_0b_3x3.conv.weight. The
 * numbers beside each stage are its output channels and side for images of 224x224. */
#include "inception/models/models.h"

static const Init stem_init = {INIT_TRUNCATED_NORMAL, 1}, reduced = {INIT_TRUNCATED_NORMAL, 0.09f},
                  pooled = {INIT_TRUNCATED_NORMAL, 0.1f}, scaled = {INIT_ZERO};

/* A convolution; its parts have its name in front. Default of `init`: slim's variance_scaling_initializer, of which the deviation
 * is sqrt(2 / fan in) after it is cut at two of its own. */
static Value unit(Graph *g, Value x, const char *name, int32_t out, int32_t k, int32_t stride, Init init)
{
    char conv[48];
    Shape in = graph_shape(g, x);
    snprintf(conv, sizeof conv, "%s.conv", name);
    if (init.kind == INIT_ZERO) init = (Init){INIT_TRUNCATED_NORMAL, sqrtf(1.3f * 2 / (float)(k * k * in.c))};
    return batch_norm(g, conv_window(g, x, conv, out, window_same(in, k, stride), init), name, true);
}

/* "Branch_1": 1x1 to `narrow` channels, then 3x3; "Branch_2": one more 3x3. The last of a branch that halves the image is a "1a". */
static Value branch(Graph *g, Value x, int number, int32_t narrow, int32_t out, int threes, bool halves)
{
    char name[40];
    snprintf(name, sizeof name, "Branch_%d.Conv2d_0a_1x1", number);
    x = unit(g, x, name, narrow, 1, 1, reduced);
    for (int i = 0; i < threes; i++) {
        bool last = halves && i + 1 == threes;
        snprintf(name, sizeof name, "Branch_%d.Conv2d_%s_3x3", number, last ? "1a" : i ? "0c" : "0b");
        x = unit(g, x, name, out, 3, last ? 2 : 1, scaled);
    }
    return x;
}

/* Figure 5: 1x1; 1x1 - 3x3; 1x1 - 3x3 - 3x3; pool - 1x1 */
static Value mixed(Graph *g, Value x, const char *name, int32_t one, int32_t narrow, int32_t three, int32_t narrow2,
                   int32_t three2, int32_t pool, bool max)
{
    graph_scope(g, name);
    Shape s = graph_shape(g, x);
    Value b0 = unit(g, x, "Branch_0.Conv2d_0a_1x1", one, 1, 1, scaled);
    Value b1 = branch(g, x, 1, narrow, three, 1, false);
    Value b2 = branch(g, x, 2, narrow2, three2, 2, false);
    Value b3 = max ? max_pool_window(g, x, window_same(s, 3, 1)) : avg_pool_window(g, x, window_same(s, 3, 1), false);
    b3 = unit(g, b3, "Branch_3.Conv2d_0b_1x1", pool, 1, 1, pooled);
    return CONCAT(g, b0, b1, b2, b3);
}

/* The same without the first branch, and each of stride 2; the maxima stay as they are. */
static Value halving(Graph *g, Value x, const char *name, int32_t narrow, int32_t three, int32_t narrow2,
                     int32_t three2)
{
    graph_scope(g, name);
    Value b0 = branch(g, x, 0, narrow, three, 1, true);
    Value b1 = branch(g, x, 1, narrow2, three2, 2, true);
    Value b2 = max_pool_window(g, x, window_same(graph_shape(g, x), 3, 2));
    return CONCAT(g, b0, b1, b2);
}

/* 7x7 on each color, then 1x1 over what they make. slim's settings of batch norm are for plain convolutions: this one has a bias. */
static Value separable(Graph *g, Value x, const char *name, int32_t out)
{
    enum { TIMES = 8 };
    static const Window point = {.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1};
    char filters[40], mixes[40];
    snprintf(filters, sizeof filters, "%s.depthwise", name);
    snprintf(mixes, sizeof mixes, "%s.pointwise", name);
    x = depthwise_times(g, x, filters, TIMES, window_same(graph_shape(g, x), 7, 2), stem_init);
    return conv_window_bias(g, x, mixes, out, point, true, stem_init);
}

// clang-format off
static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    layer_style(g, (LayerStyle){.bn_epsilon = 1e-3f, .bn_no_gamma = true});
    graph_canonical(g, 224);
    Value x = image;                                                        graph_expect(g, x,    3, 224);
    x = separable(g, x, "Conv2d_1a_7x7", 64);                               graph_expect(g, x,   64, 112);
    x = max_pool_window(g, x, window_same(graph_shape(g, x), 3, 2));        graph_expect(g, x,   64,  56);
    x = unit(g, x, "Conv2d_2b_1x1",  64, 1, 1, pooled);                     graph_expect(g, x,   64,  56);
    x = unit(g, x, "Conv2d_2c_3x3", 192, 3, 1, scaled);                     graph_expect(g, x,  192,  56);
    x = max_pool_window(g, x, window_same(graph_shape(g, x), 3, 2));        graph_expect(g, x,  192,  28);
    x = mixed(g, x, "Mixed_3b",  64,  64,  64,  64,  96,  32, false);       graph_expect(g, x,  256,  28);
    x = mixed(g, x, "Mixed_3c",  64,  64,  96,  64,  96,  64, false);       graph_expect(g, x,  320,  28);
    x = halving(g, x, "Mixed_4a",     128, 160,  64,  96);                  graph_expect(g, x,  576,  14);
    x = mixed(g, x, "Mixed_4b", 224,  64,  96,  96, 128, 128, false);       graph_expect(g, x,  576,  14);
    x = mixed(g, x, "Mixed_4c", 192,  96, 128,  96, 128, 128, false);       graph_expect(g, x,  576,  14);
    x = mixed(g, x, "Mixed_4d", 160, 128, 160, 128, 160,  96, false);       graph_expect(g, x,  576,  14);
    x = mixed(g, x, "Mixed_4e",  96, 128, 192, 160, 192,  96, false);       graph_expect(g, x,  576,  14);
    x = halving(g, x, "Mixed_5a",     128, 192, 192, 256);                  graph_expect(g, x, 1024,   7);
    x = mixed(g, x, "Mixed_5b", 352, 192, 320, 160, 224, 128, false);       graph_expect(g, x, 1024,   7);
    x = mixed(g, x, "Mixed_5c", 352, 192, 320, 192, 224, 128, true);        graph_expect(g, x, 1024,   7);
    graph_scope(g, "Logits");
    x = dropout(g, global_avg_pool(g, x), options->dropout);                graph_expect(g, x, 1024,   1);
    heads->logits = dense(g, x, "Conv2d_1c_1x1", options->classes, false,
                          (Init){INIT_TRUNCATED_NORMAL, 0.05038911f}); /* sqrt(1.3 * 2 / 1024) */
}
// clang-format on

const Model model_inception_v2 = {
    .name = "inception_v2",
    .title = "Inception v2",
    .paper =
        "Ioffe and Szegedy, \"Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate "
        "Shift\", arXiv:1502.03167",
    .side = 224,
    .min_side = 8,
    .channels = 3,
    .classes = 1000,
    .dropout = 0.2f,
    .mean = {0.5f, 0.5f, 0.5f},
    .std = {0.5f, 0.5f, 0.5f},
    .defaults = "bn-decay: 0.9997\nwinograd: true\n",
    .build = build,
};
