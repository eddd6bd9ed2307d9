/* The network of TensorFlow's "Custom training with tf.distribute.Strategy" tutorial: 121,930 parameters at 10 classes.
 * conv 3x3x32 valid, ReLU, max pool 2 - conv 3x3x64 valid, ReLU, max pool 2 - flatten - dense 64, ReLU - dense classes.
 * Keras' defaults: Glorot uniform weights, zero biases. Pixels in [0, 1]. */
#include "inception/models/models.h"

// clang-format off
static void build(Graph *g, const ModelOptions *options, const void *networks, Value image, ModelHeads *heads)
{
    (void)networks;
    static const Init glorot = {.kind = INIT_GLOROT_UNIFORM};
    graph_canonical(g, 28);
    Value x = image;
    x = conv_bias(g, x, "conv1", 32, 3, VALID, true, glorot);    graph_expect(g, x, 32, 26);
    x = max_pool(g, x, 2, HALVE);                                graph_expect(g, x, 32, 13);
    x = conv_bias(g, x, "conv2", 64, 3, VALID, true, glorot);    graph_expect(g, x, 64, 11);
    x = max_pool(g, x, 2, HALVE);                                graph_expect(g, x, 64, 5);
    x = dense(g, x, "fc1", 64, true, glorot);                    graph_expect(g, x, 64, 1);
    heads->logits = dense(g, dropout(g, x, options->dropout), "fc2", options->classes, false, glorot);
}
// clang-format on

const Model model_fashion_cnn = {
    .name = "fashion_cnn",
    .title = "CNN of the tf.distribute tutorial",
    .paper = "TensorFlow tutorials, \"Custom training with tf.distribute.Strategy\"",
    .side = 28,
    .min_side = 10,
    .channels = 1,
    .adapts = true,
    .classes = 10,
    .dropout = 0,
    .mean = {0, 0, 0},
    .std = {1, 1, 1},
    .build = build,
};
