/* The phases of a Wasserstein GAN with gradient penalty (Gulrajani et al., "Improved Training of Wasserstein GANs",
 * arXiv:1704.00028), for any generator G and critic D:
 *
 *   critic:    sum D(G(z)) - sum D(x) + lambda sum (|dD/dx_hat| - 1)^2,   x_hat = x + alpha (G(z) - x)
 *   generator: - sum D(G(z))
 *
 * The sums are over the samples of a tower; z is normal, alpha uniform in [0, 1), one number per sample. The norm is
 * over all pixels of a sample; 1e-12 is added under its root, so that the gradient of the root exists at 0.
 *
 * D may be made of convolutions, dense layers, leaky ReLU, ReLU, dropout, average pooling and padding. It is piecewise
 * linear, so the penalty and its gradient take four ordinary passes: forward and data gradients at x_hat, then forward
 * and weight gradients of the tangent. */
#pragma once

#include "towers/graph/model.h"

typedef struct Adversaries {
    int32_t latent;       /* numbers in z */
    float penalty_weight; /* lambda, unless the options have one */
    /* Images {n, channels, side, side} of z {n, latent, 1, 1}; parameters in the scope of the caller. */
    Value (*generator)(Graph *g, const ModelOptions *options, Value z);
    /* The last layer of D is dense, from these features to the score. */
    Value (*features)(Graph *g, const ModelOptions *options, Value images);
    bool one_batch; /* D draws nothing at random (no dropout), so real and generated images may be one batch */
} Adversaries;

/* Functions of a Model whose `networks` are Adversaries. Parameters "critic.*" and "generator.*". Terms of the critic:
 * critic_real, critic_fake (D of real and of generated images), penalty, slope (|dD/dx_hat|) and slope_spread. */
void wasserstein_critic(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                        PhaseOutputs *outputs);
void wasserstein_generator(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                           PhaseOutputs *outputs);
void wasserstein_generate(Graph *g, const ModelOptions *options, const void *networks, Value z, Value *images);

enum { GENERATOR_WIDTH = 64 };
int32_t generator_width(const ModelOptions *options); /* --width, or the usual one */

/* Convolution and its transpose with TensorFlow's "same" padding, 5x5, stride 2, with bias: an image of any side becomes
 * one of half the side, rounded up, and back one of `side`. Weights start uniform as in the paper's code: variance 4 /
 * (inputs + outputs of a filter). */
Value halving_conv(Graph *g, Value x, const char *name, int32_t out, Init init);
Value doubling_conv(Graph *g, Value x, const char *name, int32_t out, int32_t side, bool relu);
