/* EfficientNet-Lite0: EfficientNet-B0 for processors without sigmoids, with ReLU6 for SiLU and without squeeze and excitation. Liu,
 * "Higher accuracy on vision models with EfficientNet-Lite", TensorFlow blog, 2020; tensorflow/tpu, efficientnet/lite. As timm's
 * tf_efficientnet_lite0: names, initial values, batch norms (eps 1e-3), and TensorFlow's padding, which at stride 2 has a row and
 * a column more behind an image than before it. */
#include "inception/models/efficientnet.h"
#include "inception/models/models.h"

static const Init he = {INIT_HE_NORMAL};

/* A convolution (depthwise if out is 0) and its batch norm, with a ReLU6 or without. */
static Value unit(Graph *g, Value x, const char *conv, const char *norm, int32_t out, int32_t k, int32_t stride,
                  bool activates)
{
    Window window = window_same(graph_shape(g, x), k, stride);
    x = out ? conv_window(g, x, conv, out, window, he)
            : depthwise(g, x, conv, window, (Init){INIT_NORMAL, sqrtf(2.0f) / (float)k});
    x = batch_norm_named(g, x, norm, false);
    return activates ? relu6(g, x) : x;
}

/* Added to x where the shape stays, in training unless the sample drops it. */
static Value block(Graph *g, Value x, const EfficientStage *stage, int32_t stride, float drop)
{
    int32_t in = graph_shape(g, x).c;
    Value y = x;
    if (stage->expansion > 1) {
        y = unit(g, y, "conv_pw", "bn1", stage->expansion * in, 1, 1, true);
        y = unit(g, y, "conv_dw", "bn2", 0, stage->k, stride, true);
        y = unit(g, y, "conv_pwl", "bn3", stage->out, 1, 1, false);
    } else {
        y = unit(g, y, "conv_dw", "bn1", 0, stage->k, stride, true);
        y = unit(g, y, "conv_pw", "bn2", stage->out, 1, 1, false);
    }
    return stride == 1 && stage->out == in ? add(g, x, stochastic_depth(g, y, drop)) : y;
}

static void build_lite0(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    int before = 0;
    layer_style(g, (LayerStyle){.bn_epsilon = 1e-3f});
    graph_canonical(g, 224);
    Value x = image;
    graph_expect(g, x, 3, 224);
    graph_scope(g, "");
    x = unit(g, x, "conv_stem", "bn1", 32, 3, 2, true);
    graph_expect(g, x, 32, 112);
    for (int s = 0; s < EFFICIENT_STAGES; s++) {
        const EfficientStage *stage = &efficient_stages[s];
        for (int k = 0; k < stage->repeats; k++, before++) {
            char name[32];
            snprintf(name, sizeof name, "blocks.%d.%d", s, k);
            graph_scope(g, name);
            x = block(g, x, stage, k ? 1 : stage->stride, efficient_drop(options->drop_path, before));
        }
    }
    graph_expect(g, x, 320, 7);
    graph_scope(g, "");
    x = unit(g, x, "conv_head", "bn2", 1280, 1, 1, true);
    graph_expect(g, x, 1280, 7);
    x = dropout(g, global_avg_pool(g, x), options->dropout);
    Init classifier = {INIT_UNIFORM, 1 / sqrtf((float)options->classes)};
    heads->logits = dense(g, x, "classifier", options->classes, false, classifier);
}

/* ---- the names of efficientnet-lite-pytorch, whose weights a Python package carries */

typedef struct Renamed {
    const char *theirs, *ours;
} Renamed;

static const Renamed outside[] = {{"_conv_stem.", "conv_stem."}, {"_bn0.", "bn1."},
                                  {"_conv_head.", "conv_head."}, {"_bn1.", "bn2."},
                                  {"_fc.", "classifier."},       {NULL, NULL}},
                     narrow[] = {{"_depthwise_conv.", "conv_dw."},
                                 {"_bn1.", "bn1."},
                                 {"_project_conv.", "conv_pw."},
                                 {"_bn2.", "bn2."},
                                 {NULL, NULL}},
                     wide[] = {{"_expand_conv.", "conv_pw."},
                               {"_bn0.", "bn1."},
                               {"_depthwise_conv.", "conv_dw."},
                               {"_bn1.", "bn2."},
                               {"_bn2.", "bn3."},
                               {"_project_conv.", "conv_pwl."},
                               {NULL, NULL}};

/* Numbers of blocks are counted through all stages there. What follows the number; NULL: there is no such block. */
static const char *block_find(const char *name, int *stage, int *index)
{
    char *rest;
    long number = strtol(name, &rest, 10);
    if (rest == name || *rest != '.' || number < 0) return NULL;
    for (*stage = 0; *stage < EFFICIENT_STAGES; ++*stage) {
        if (number < efficient_stages[*stage].repeats) {
            *index = (int)number;
            return rest + 1;
        }
        number -= efficient_stages[*stage].repeats;
    }
    return NULL;
}

static bool lite_renames(const char *name, char *to, size_t bytes)
{
    static const char blocks[] = "_blocks.";
    char scope[32] = "";
    const Renamed *row = outside;
    int stage, index;
    if (!strncmp(name, blocks, strlen(blocks))) {
        name = block_find(name + strlen(blocks), &stage, &index);
        if (!name) return false;
        snprintf(scope, sizeof scope, "blocks.%d.%d.", stage, index);
        row = efficient_stages[stage].expansion > 1 ? wide : narrow;
    }
    while (row->theirs && strncmp(name, row->theirs, strlen(row->theirs)) != 0) row++;
    if (!row->theirs) return false;
    snprintf(to, bytes, "%s%s%s", scope, row->ours, name + strlen(row->theirs));
    return true;
}

const Model model_efficientnet_lite0 = {
    .name = "efficientnet_lite0",
    .title = "EfficientNet-Lite0",
    .paper = "Tan & Le, arXiv:1905.11946; Liu, \"Higher accuracy on vision models with EfficientNet-Lite\", 2020",
    .side = 224,
    .min_side = 8,
    .channels = 3,
    .classes = 1000,
    .dropout = 0.2f,
    .drop_path = 0.2f,
    .mean = {127 / 255.0f, 127 / 255.0f, 127 / 255.0f},
    .std = {128 / 255.0f, 128 / 255.0f, 128 / 255.0f},
    .defaults = "bn-decay: 0.99\nwinograd: true\n",
    .build = build_lite0,
    .renames = lite_renames,
};
