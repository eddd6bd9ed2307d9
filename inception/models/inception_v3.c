/* Inception v3. Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", arXiv:1512.00567, Table 1
 * and Figures 5, 6, 7 and 10. Names follow torchvision's checkpoint. conv = convolution without bias, batch norm (eps
 * 1e-3), ReLU. The numbers beside each stage are its output channels and side for images of 299x299.
 *
 * The variant tf2016 is the network of the trainer published with the paper: batch norm without gamma, average pools
 * that do not count padding in the divisor, one more class (the background). Initial values are that trainer's in both.
 *
 * The variant fid2015 is the network from whose features FID is usually computed (pt_inception-2015-12-05, Inception of
 * December 2015 in PyTorch: pytorch-fid, inception.py): 1,008 outputs, no auxiliary head, average pools that do not
 * count padding in the divisor, and a max pool in the last block. */
#include "inception/models/models.h"

static const Init conv_init = {INIT_TRUNCATED_NORMAL, 0.1f}, fc_init = {INIT_TRUNCATED_NORMAL, 0.01f};
static const Init aux_conv_init = {INIT_TRUNCATED_NORMAL, 0.01f}, aux_fc_init = {INIT_TRUNCATED_NORMAL, 0.001f};

// clang-format off

/* Figure 5, 35x35: 5x5 beside 3x3 - 3x3 */
static Value block_a(Graph *g, Value x, const char *name, int pool)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch1x1",      64, 1, 1});
    Value b1 = CHAIN(g, x, {"branch5x5_1",    48, 1, 1}, {"branch5x5_2",    64, 5, 5});
    Value b2 = CHAIN(g, x, {"branch3x3dbl_1", 64, 1, 1}, {"branch3x3dbl_2", 96, 3, 3},
                           {"branch3x3dbl_3", 96, 3, 3});
    Value b3 = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch_pool", pool, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* Figure 10, 35 -> 17 */
static Value block_b(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch3x3",     384, 3, 3, HALVE});
    Value b1 = CHAIN(g, x, {"branch3x3dbl_1", 64, 1, 1}, {"branch3x3dbl_2", 96, 3, 3},
                           {"branch3x3dbl_3", 96, 3, 3, HALVE});
    Value b2 = max_pool(g, x, 3, HALVE);
    return CONCAT(g, b0, b1, b2);
}

/* Figure 6, 17x17: 7x7 as 1x7 - 7x1 */
static Value block_c(Graph *g, Value x, const char *name, int width)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch1x1",        192, 1, 1});
    Value b1 = CHAIN(g, x, {"branch7x7_1",    width, 1, 1}, {"branch7x7_2",    width, 1, 7},
                           {"branch7x7_3",      192, 7, 1});
    Value b2 = CHAIN(g, x, {"branch7x7dbl_1", width, 1, 1}, {"branch7x7dbl_2", width, 7, 1},
                           {"branch7x7dbl_3", width, 1, 7}, {"branch7x7dbl_4", width, 7, 1},
                           {"branch7x7dbl_5",   192, 1, 7});
    Value b3 = CHAIN(g, avg_pool(g, x, 3, SAME), {"branch_pool", 192, 1, 1});
    return CONCAT(g, b0, b1, b2, b3);
}

/* 17 -> 8, after Figure 10 */
static Value block_d(Graph *g, Value x, const char *name)
{
    graph_scope(g, name);
    Value b0 = CHAIN(g, x, {"branch3x3_1",   192, 1, 1}, {"branch3x3_2",   320, 3, 3, HALVE});
    Value b1 = CHAIN(g, x, {"branch7x7x3_1", 192, 1, 1}, {"branch7x7x3_2", 192, 1, 7},
                           {"branch7x7x3_3", 192, 7, 1}, {"branch7x7x3_4", 192, 3, 3, HALVE});
    Value b2 = max_pool(g, x, 3, HALVE);
    return CONCAT(g, b0, b1, b2);
}

/* Figure 7, 8x8: the last 3x3 of two branches forks into 1x3 and 3x1 */
static Value block_e(Graph *g, Value x, const char *name, bool max)
{
    graph_scope(g, name);
    Value b0     = CHAIN(g, x, {"branch1x1", 320, 1, 1});
    Value fork   = CHAIN(g, x, {"branch3x3_1", 384, 1, 1});
    Value wide   = CHAIN(g, fork, {"branch3x3_2a", 384, 1, 3});
    Value high   = CHAIN(g, fork, {"branch3x3_2b", 384, 3, 1});
    Value fork2  = CHAIN(g, x, {"branch3x3dbl_1", 448, 1, 1}, {"branch3x3dbl_2", 384, 3, 3});
    Value wide2  = CHAIN(g, fork2, {"branch3x3dbl_3a", 384, 1, 3});
    Value high2  = CHAIN(g, fork2, {"branch3x3dbl_3b", 384, 3, 1});
    Value pooled = max ? max_pool(g, x, 3, SAME) : avg_pool(g, x, 3, SAME);
    Value b3     = CHAIN(g, pooled, {"branch_pool", 192, 1, 1});
    return CONCAT(g, b0, wide, high, wide2, high2, b3);
}

/* The auxiliary head of section 4, on the last 17x17 stage. */
static Value aux_head(Graph *g, Value x, int classes)
{
    graph_scope(g, "AuxLogits");
    x = avg_pool_window(g, x, (Window){.kh = 5, .kw = 5, .stride_h = 3, .stride_w = 3}, false);
                                                                   graph_expect(g, x,  768,   5);
    x = CHAIN(g, x, {"conv0", 128, 1, 1});                         graph_expect(g, x,  128,   5);
    x = CHAIN(g, x, {"conv1", 768, 5, 5, VALID, aux_conv_init});   graph_expect(g, x,  768,   1);
    return dense(g, global_avg_pool(g, x), "fc", classes, false, aux_fc_init);
}

static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    bool tf2016 = !strcmp(options->variant, "tf2016"), fid2015 = !strcmp(options->variant, "fid2015");
    bool pads = !tf2016 && !fid2015;
    layer_style(g, (LayerStyle){.bn_no_gamma = tf2016, .bn_biased = tf2016, .include_pad = pads, .conv_init = conv_init});
    graph_canonical(g, 299);
    Value x = image;                                               graph_expect(g, x,    3, 299);
    x = CHAIN(g, x, {"Conv2d_1a_3x3",  32, 3, 3, HALVE});          graph_expect(g, x,   32, 149);
    x = CHAIN(g, x, {"Conv2d_2a_3x3",  32, 3, 3, VALID});          graph_expect(g, x,   32, 147);
    x = CHAIN(g, x, {"Conv2d_2b_3x3",  64, 3, 3, SAME});           graph_expect(g, x,   64, 147);
    x = max_pool(g, x, 3, HALVE);                                  graph_expect(g, x,   64,  73);
    x = CHAIN(g, x, {"Conv2d_3b_1x1",  80, 1, 1});                 graph_expect(g, x,   80,  73);
    x = CHAIN(g, x, {"Conv2d_4a_3x3", 192, 3, 3, VALID});          graph_expect(g, x,  192,  71);
    x = max_pool(g, x, 3, HALVE);                                  graph_expect(g, x,  192,  35);
    x = block_a(g, x, "Mixed_5b",  32);                            graph_expect(g, x,  256,  35);
    x = block_a(g, x, "Mixed_5c",  64);                            graph_expect(g, x,  288,  35);
    x = block_a(g, x, "Mixed_5d",  64);                            graph_expect(g, x,  288,  35);
    x = block_b(g, x, "Mixed_6a");                                 graph_expect(g, x,  768,  17);
    x = block_c(g, x, "Mixed_6b", 128);                            graph_expect(g, x,  768,  17);
    x = block_c(g, x, "Mixed_6c", 160);                            graph_expect(g, x,  768,  17);
    x = block_c(g, x, "Mixed_6d", 160);                            graph_expect(g, x,  768,  17);
    x = block_c(g, x, "Mixed_6e", 192);                            graph_expect(g, x,  768,  17);
    if (options->aux && !fid2015) heads->aux[heads->aux_count++] = aux_head(g, x, options->classes);
    x = block_d(g, x, "Mixed_7a");                                 graph_expect(g, x, 1280,   8);
    x = block_e(g, x, "Mixed_7b", false);                          graph_expect(g, x, 2048,   8);
    x = block_e(g, x, "Mixed_7c", fid2015);                        graph_expect(g, x, 2048,   8);
    graph_scope(g, "");
    x = dropout(g, global_avg_pool(g, x), options->dropout);       graph_expect(g, x, 2048,   1);
    heads->logits = dense(g, x, "fc", options->classes, false, fc_init);
}
// clang-format on

const Model model_inception_v3 = {
    .name = "inception_v3",
    .title = "Inception v3",
    .paper = "Szegedy et al., \"Rethinking the Inception Architecture for Computer Vision\", arXiv:1512.00567",
    .side = 299,
    .min_side = 75,
    .aux_min_side = 299,
    .channels = 3,
    .classes = 1000,
    .dropout = 0.5f,
    .aux_weight = 0.4f,
    .mean = {0.5f, 0.5f, 0.5f},
    .std = {0.5f, 0.5f, 0.5f},
    .defaults = "winograd: true\n",
    .variants = {{.name = "tf2016", .classes = 1001, .dropout = 0.2f},
                 {.name = "fid2015", .classes = 1008, .dropout = 0.5f}},
    .build = build,
};
