/* ResNet-18, 34, 50 and 101. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385, Table 1 and
 * Figure 5. As torchvision builds them ("v1.5"): the bottleneck halves the image in its 3x3 convolution, not in the first
 * 1x1. Names, batch norm (eps 1e-5) and initial values of the convolutions are torchvision's too; timm uses the same
 * names. The numbers beside each stage are its output channels and side for images of 224x224. */
#include "inception/models/models.h"

/* Convolution without bias, padded to keep the size or to halve it; batch norm, and ReLU if asked. */
static Value unit(Graph *g, Value x, const char *conv, const char *norm, int32_t out, int32_t k, int32_t stride,
                  bool with_relu)
{
    Window window = {.kh = k, .kw = k, .stride_h = stride, .stride_w = stride, .pad_h = k / 2, .pad_w = k / 2};
    x = conv_window(g, x, conv, out, window, (Init){INIT_HE_NORMAL});
    return batch_norm_named(g, x, norm, with_relu);
}

/* x itself, or, where channels or size change, its projection (option B of section 3.3). */
static Value shortcut(Graph *g, Value x, int32_t out, int32_t stride)
{
    if (stride == 1 && graph_shape(g, x).c == out) return x;
    return unit(g, x, "downsample.0", "downsample.1", out, 1, stride, false);
}

/* Figure 5, left: 3x3 - 3x3 */
static Value basic(Graph *g, Value x, int32_t width, int32_t stride)
{
    Value y = unit(g, x, "conv1", "bn1", width, 3, stride, true);
    y = unit(g, y, "conv2", "bn2", width, 3, 1, false);
    return add_relu(g, y, shortcut(g, x, width, stride));
}

/* Figure 5, right: 1x1 - 3x3 - 1x1, four times as wide at the end */
static Value bottleneck(Graph *g, Value x, int32_t width, int32_t stride)
{
    Value y = unit(g, x, "conv1", "bn1", width, 1, 1, true);
    y = unit(g, y, "conv2", "bn2", width, 3, stride, true);
    y = unit(g, y, "conv3", "bn3", 4 * width, 1, 1, false);
    return add_relu(g, y, shortcut(g, x, 4 * width, stride));
}

typedef Value (*Block)(Graph *g, Value x, int32_t width, int32_t stride);

/* `count` blocks, "layer2.0", "layer2.1", ...; the first halves the image, except in layer1. */
static Value layer(Graph *g, Value x, int number, Block block, int count)
{
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d.%d", number, i);
        graph_scope(g, name);
        x = block(g, x, 32 << number, i == 0 && number > 1 ? 2 : 1);
    }
    return x;
}

/* wide: channels of a block's result per channel of its 3x3 convolution */
static void resnet(Graph *g, const ModelOptions *options, Value image, ModelHeads *heads, Block block, int wide,
                   const int count[4])
{
    layer_style(g, (LayerStyle){.bn_epsilon = 1e-5f});
    graph_canonical(g, 224);
    // clang-format off
    Value x = image;                                      graph_expect(g, x,    3, 224);
    x = unit(g, x, "conv1", "bn1", 64, 7, 2, true);       graph_expect(g, x,   64, 112);
    x = max_pool(g, x, 3, HALVE_SAME);                    graph_expect(g, x,   64,  56);
    x = layer(g, x, 1, block, count[0]);                  graph_expect(g, x,   64 * wide, 56);
    x = layer(g, x, 2, block, count[1]);                  graph_expect(g, x,  128 * wide, 28);
    x = layer(g, x, 3, block, count[2]);                  graph_expect(g, x,  256 * wide, 14);
    x = layer(g, x, 4, block, count[3]);                  graph_expect(g, x,  512 * wide,  7);
    graph_scope(g, "");
    x = dropout(g, global_avg_pool(g, x), options->dropout);
    // clang-format on
    float bound = wide == 1 ? 0.04419417f : 0.02209709f; /* 1 / sqrt(inputs), PyTorch's default */
    heads->logits = dense(g, x, "fc", options->classes, false, (Init){INIT_UNIFORM, bound});
}

static void build_18(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    resnet(g, options, image, heads, basic, 1, (const int[]){2, 2, 2, 2});
}

static void build_34(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    resnet(g, options, image, heads, basic, 1, (const int[]){3, 4, 6, 3});
}

static void build_50(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    resnet(g, options, image, heads, bottleneck, 4, (const int[]){3, 4, 6, 3});
}

static void build_101(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    resnet(g, options, image, heads, bottleneck, 4, (const int[]){3, 4, 23, 3});
}

#define RESNET(NAME, TITLE, BUILD)                                                                                     \
    {                                                                                                                  \
        .name = NAME, .title = TITLE,                                                                                  \
        .paper = "He et al., \"Deep Residual Learning for Image Recognition\", arXiv:1512.03385", .side = 224,         \
        .min_side = 8, .channels = 3, .classes = 1000, .mean = {0.485f, 0.456f, 0.406f},                               \
        .std = {0.229f, 0.224f, 0.225f}, .defaults = "winograd: true\n", .build = BUILD,                               \
    }

const Model model_resnet18 = RESNET("resnet18", "ResNet-18", build_18);
const Model model_resnet34 = RESNET("resnet34", "ResNet-34", build_34);
const Model model_resnet50 = RESNET("resnet50", "ResNet-50", build_50);
const Model model_resnet101 = RESNET("resnet101", "ResNet-101", build_101);
