/* The networks of Gulrajani et al., "Improved Training of Wasserstein GANs" (arXiv:1704.00028), for MNIST, as in the
 * authors' gan_mnist.py. Pixels in [0, 1]. w is --width, 64 by default; m is an eighth of the image's side, rounded
 * up.
 *
 *   critic: conv 5x5/2 w - 2 w - 4 w, with bias and leaky ReLU 0.2, dense 1: 28 -> 14 -> 7 -> 4.
 *   generator: dense 4 w m m, ReLU, transposed conv 5x5/2 2 w, ReLU - w, ReLU - channels, sigmoid: 4 -> 7 -> 14 -> 28. */
#include "inception/models/models.h"
#include "inception/models/wasserstein.h"

enum { LATENT = 128 };
static const float leak = 0.2f;
static const Init glorot = {.kind = INIT_GLOROT_UNIFORM}, paper = {.kind = INIT_ZERO};

static int32_t half(int32_t side)
{
    return (side + 1) / 2;
}

static Value generator(Graph *g, const ModelOptions *options, Value z)
{
    int32_t w = generator_width(options), side = options->side, m = half(half(half(side)));
    Value x = dense(g, z, "fc", 4 * w * m * m, true, glorot);
    x = unfold(g, x, "fc", (Shape){graph_shape(g, z).n, 4 * w, m, m});
    x = doubling_conv(g, x, "deconv1", 2 * w, half(half(side)), true);
    x = doubling_conv(g, x, "deconv2", w, half(side), true);
    return sigmoid(g, doubling_conv(g, x, "deconv3", options->channels, side, false));
}

static Value features(Graph *g, const ModelOptions *options, Value x)
{
    int32_t w = generator_width(options);
    x = leaky_relu(g, halving_conv(g, x, "conv1", w, paper), leak);
    x = leaky_relu(g, halving_conv(g, x, "conv2", 2 * w, paper), leak);
    return leaky_relu(g, halving_conv(g, x, "conv3", 4 * w, paper), leak);
}

static const Adversaries networks = {LATENT, 10, generator, features, .one_batch = true};

static const Phase phases[] = {
    {"critic", "critic.*", 5, true, wasserstein_critic},
    {"generator", "generator.*", 1, false, wasserstein_generator},
};

const Model model_wgan_gp = {
    .name = "wgan_gp",
    .title = "WGAN-GP for small images",
    .paper = "Gulrajani et al., \"Improved Training of Wasserstein GANs\" (arXiv:1704.00028)",
    .side = 28,
    .min_side = 8,
    .channels = 1,
    .adapts = true,
    .mean = {0, 0, 0},
    .std = {1, 1, 1},
    .defaults = "opt: adam\nlr: 0.0001\nbeta1: 0.5\nbeta2: 0.9\nsched: constant\nwarmup-epochs: 0\nweight-decay: 0\n",
    .phases = phases,
    .phase_count = sizeof phases / sizeof *phases,
    .width = GENERATOR_WIDTH,
    .penalty_weight = 10,
    .latent = LATENT,
    .generate = wasserstein_generate,
    .networks = &networks,
};
