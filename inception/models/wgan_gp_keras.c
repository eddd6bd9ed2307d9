/* The networks of Keras' example "WGAN-GP overriding Model.train_step": a critic of 4,305,409 parameters and a
 * generator of 910,660, for Fashion-MNIST. Pixels in [-1, 1]. w is --width, 64 by default. The critic pads images with
 * zeros to a side that is a multiple of 8 (28 to 32); the generator crops its images from that side.
 *
 *   critic: conv 5x5/2 w - 2 w, dropout 0.3 - 4 w, dropout 0.3 - 8 w, with bias and leaky ReLU 0.2; dropout 0.2, dense 1:
 *   32 -> 16 -> 8 -> 4 -> 2. No batch norm, because the penalty needs the gradient of each sample by itself.
 *   generator: dense 4 w, batch norm, leaky ReLU; then three times (upsample, conv 3x3, batch norm) of 2 w, w and channels,
 *   with leaky ReLU 0.2 between them and tanh at the end: 4 -> 8 -> 16 -> 32. Batch norm: epsilon 1e-3, averages 0.99. */
#include "inception/models/models.h"
#include "inception/models/wasserstein.h"

enum { LATENT = 128, MULTIPLE = 8 };
static const float leak = 0.2f, last_dropout = 0.2f;
static const Init glorot = {.kind = INIT_GLOROT_UNIFORM};

/* The side of the padded image, and the zeros before the image. */
static int32_t padded_side(const ModelOptions *options, int32_t *before)
{
    int32_t side = (options->side + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    *before = (side - options->side) / 2;
    return side;
}

/* Upsample, convolve, normalize. */
static Value enlarge(Graph *g, Value x, const char *name, int32_t out)
{
    static const Window same = {.kh = 3, .kw = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1};
    return batch_norm(g, conv_window(g, upsample(g, x, 2), name, out, same, glorot), name, false);
}

static Value generator(Graph *g, const ModelOptions *options, Value z)
{
    int32_t before, w = generator_width(options), side = padded_side(options, &before), m = side / MULTIPLE,
                    behind = side - options->side - before;
    Value x = dense_plain(g, z, "fc", 4 * w * m * m, glorot);
    x = leaky_relu(g, batch_norm(g, x, "fc", false), leak);
    x = unfold(g, x, "fc", (Shape){graph_shape(g, z).n, 4 * w, m, m});
    x = leaky_relu(g, enlarge(g, x, "up1", 2 * w), leak);
    x = leaky_relu(g, enlarge(g, x, "up2", w), leak);
    x = tanh_of(g, enlarge(g, x, "up3", options->channels));
    return pad(g, x, -before, -behind, -before, -behind);
}

static Value features(Graph *g, const ModelOptions *options, Value x)
{
    int32_t before, w = generator_width(options), side = padded_side(options, &before),
                    behind = side - options->side - before;
    float rate = options->dropout;
    x = pad(g, x, before, behind, before, behind);
    x = leaky_relu(g, halving_conv(g, x, "conv1", w, glorot), leak);
    x = dropout(g, leaky_relu(g, halving_conv(g, x, "conv2", 2 * w, glorot), leak), rate);
    x = dropout(g, leaky_relu(g, halving_conv(g, x, "conv3", 4 * w, glorot), leak), rate);
    x = leaky_relu(g, halving_conv(g, x, "conv4", 8 * w, glorot), leak);
    return dropout(g, x, rate > 0 ? last_dropout : 0);
}

static const Adversaries networks = {LATENT, 10, generator, features};

static const Phase phases[] = {
    {"critic", "critic.*", 3, true, wasserstein_critic},
    {"generator", "generator.*", 1, false, wasserstein_generator},
};

const Model model_wgan_gp_keras = {
    .name = "wgan_gp_keras",
    .title = "WGAN-GP of the Keras example",
    .paper = "keras.io, \"WGAN-GP overriding Model.train_step\"",
    .side = 28,
    .min_side = 8,
    .channels = 1,
    .adapts = true,
    .dropout = 0.3f,
    .mean = {0.5f, 0.5f, 0.5f},
    .std = {0.5f, 0.5f, 0.5f},
    .defaults = "opt: adam\nlr: 0.0002\nbeta1: 0.5\nbeta2: 0.9\nsched: constant\nwarmup-epochs: 0\nweight-decay: 0\n",
    .phases = phases,
    .phase_count = sizeof phases / sizeof *phases,
    .width = GENERATOR_WIDTH,
    .penalty_weight = 10,
    .latent = LATENT,
    .generate = wasserstein_generate,
    .networks = &networks,
};
