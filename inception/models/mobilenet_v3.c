/* MobileNetV3, large and small. Howard et al., "Searching for MobileNetV3", arXiv:1905.02244, Tables 1 and 2, Figure 4. As torchvision
 * builds them: the squeeze of a block has a quarter of its expanded channels, in multiples of 8, and no batch norm; names,
 * batch norms (eps 1e-3, averages with 0.99 of the old value) and initial values are torchvision's, too. */
#include "inception/models/models.h"

/* A row of the tables. */
typedef struct Bneck {
    int32_t k, expanded, out;
    bool squeezes, swishes; /* SE; HS, else RE */
    int32_t stride;
} Bneck;

enum { ROWS_MAX = 15 };

typedef struct Architecture {
    Bneck row[ROWS_MAX]; /* ended by k == 0 */
    int32_t last;        /* channels of the classifier's inner layer */
} Architecture;

// clang-format off
static const Architecture large = {{
    {3,  16,  16, false, false, 1},
    {3,  64,  24, false, false, 2}, {3,  72,  24, false, false, 1},
    {5,  72,  40, true,  false, 2}, {5, 120,  40, true,  false, 1}, {5, 120,  40, true,  false, 1},
    {3, 240,  80, false, true,  2}, {3, 200,  80, false, true,  1}, {3, 184,  80, false, true,  1}, {3, 184, 80, false, true, 1},
    {3, 480, 112, true,  true,  1}, {3, 672, 112, true,  true,  1},
    {5, 672, 160, true,  true,  2}, {5, 960, 160, true,  true,  1}, {5, 960, 160, true,  true,  1}}, 1280};

static const Architecture small = {{
    {3,  16,  16, true,  false, 2},
    {3,  72,  24, false, false, 2}, {3,  88,  24, false, false, 1},
    {5,  96,  40, true,  true,  2}, {5, 240,  40, true,  true,  1}, {5, 240,  40, true,  true,  1},
    {5, 120,  48, true,  true,  1}, {5, 144,  48, true,  true,  1},
    {5, 288,  96, true,  true,  2}, {5, 576,  96, true,  true,  1}, {5, 576,  96, true,  true,  1}}, 1024};
// clang-format on

static const Init he = {INIT_HE_NORMAL};

/* The nearest multiple of 8, at least 8 and nine tenths (torchvision's _make_divisible). */
static int32_t nearest_8(int32_t channels)
{
    int32_t near = (channels + 4) / 8 * 8;
    if (near < 8) near = 8;
    return 10 * near < 9 * channels ? near + 8 : near;
}

static Window padded(int32_t k, int32_t stride)
{
    return (Window){.kh = k, .kw = k, .stride_h = stride, .stride_w = stride, .pad_h = k / 2, .pad_w = k / 2};
}

/* "NAME.0" and "NAME.1": a convolution (depthwise if out is 0) and its batch norm, with a ReLU, a hard swish or neither. */
typedef enum Activation { LINEAR, RECTIFIED, SWISHED } Activation;

static Value unit(Graph *g, Value x, const char *name, int32_t out, Window window, Activation activation)
{
    char conv[16], norm[16];
    snprintf(conv, sizeof conv, "%s.0", name);
    snprintf(norm, sizeof norm, "%s.1", name);
    x = out ? conv_window(g, x, conv, out, window, he) : depthwise(g, x, conv, window, he);
    x = batch_norm_named(g, x, norm, activation == RECTIFIED);
    return activation == SWISHED ? hard_swish(g, x) : x;
}

/* Squeeze and excitation (Hu et al. 2017): a factor for each channel, from the averages of all of them. */
static Value squeeze(Graph *g, Value x, const char *name)
{
    char first[16], second[16];
    int32_t channels = graph_shape(g, x).c;
    snprintf(first, sizeof first, "%s.fc1", name);
    snprintf(second, sizeof second, "%s.fc2", name);
    Value s = global_avg_pool(g, x);
    s = conv_bias(g, s, first, nearest_8(channels / 4), 1, SAME, true, he);
    s = hard_sigmoid(g, conv_bias(g, s, second, channels, 1, SAME, false, he));
    return mul(g, x, s);
}

/* Figure 4: expand, filter each channel, squeeze, project; added to x where the shape stays. */
static Value bneck(Graph *g, Value x, const Bneck *row)
{
    static const char *const names[] = {"block.0", "block.1", "block.2", "block.3"};
    int32_t in = graph_shape(g, x).c, next = 0;
    Activation activation = row->swishes ? SWISHED : RECTIFIED;
    Value y = x;
    if (row->expanded != in) y = unit(g, y, names[next++], row->expanded, padded(1, 1), activation);
    y = unit(g, y, names[next++], 0, padded(row->k, row->stride), activation);
    if (row->squeezes) y = squeeze(g, y, names[next++]);
    y = unit(g, y, names[next++], row->out, padded(1, 1), LINEAR);
    return row->stride == 1 && row->out == in ? add(g, x, y) : y;
}

static void scope(Graph *g, int number)
{
    char name[16];
    snprintf(name, sizeof name, "features.%d", number);
    graph_scope(g, name);
}

static void mobilenet(Graph *g, const ModelOptions *options, Value image, ModelHeads *heads, const Architecture *a)
{
    const Init classifier = {INIT_NORMAL, 0.01f};
    int number = 0;
    layer_style(g, (LayerStyle){.bn_epsilon = 1e-3f});
    graph_canonical(g, 224);
    Value x = image;
    graph_expect(g, x, 3, 224);
    graph_scope(g, "features");
    x = unit(g, x, "0", 16, padded(3, 2), SWISHED);
    graph_expect(g, x, 16, 112);
    for (const Bneck *row = a->row; number < ROWS_MAX && row->k; row++) {
        scope(g, ++number);
        x = bneck(g, x, row);
    }
    int32_t out = graph_shape(g, x).c;
    graph_expect(g, x, out, 7);
    scope(g, ++number);
    {
        Value conv = conv_window(g, x, "0", 6 * out, padded(1, 1), he);
        x = hard_swish(g, batch_norm_named(g, conv, "1", false));
    }
    graph_scope(g, "classifier");
    x = hard_swish(g, dense(g, global_avg_pool(g, x), "0", a->last, false, classifier));
    heads->logits = dense(g, dropout(g, x, options->dropout), "3", options->classes, false, classifier);
}

static void build_large(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    mobilenet(g, options, image, heads, &large);
}

static void build_small(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    mobilenet(g, options, image, heads, &small);
}

#define MOBILENET(NAME, TITLE, BUILD)                                                                                  \
    {                                                                                                                  \
        .name = NAME, .title = TITLE, .paper = "Howard et al., \"Searching for MobileNetV3\", arXiv:1905.02244",       \
        .side = 224, .min_side = 8, .channels = 3, .classes = 1000, .dropout = 0.2f, .mean = {0.485f, 0.456f, 0.406f}, \
        .std = {0.229f, 0.224f, 0.225f}, .defaults = "bn-decay: 0.99\nwinograd: true\n", .build = BUILD,               \
    }

const Model model_mobilenet_v3_large = MOBILENET("mobilenet_v3_large", "MobileNetV3, large", build_large);
const Model model_mobilenet_v3_small = MOBILENET("mobilenet_v3_small", "MobileNetV3, small", build_small);
