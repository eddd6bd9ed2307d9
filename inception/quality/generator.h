/* Generator: images from the generator of a trained model. The noise of image number i depends on (seed, i) alone, so
 * a grid shows the same points of the latent space at every stage of a run, with any number of towers. */
#pragma once

#include "inception/quality/images.h"
#include "inception/quality/network.h"
#include "towers/graph/model.h"

typedef struct Generator {
    const Model *model; /* borrowed */
    ModelOptions options;
    int32_t n; /* images in a batch */
    Network network;
    Value z, images;
    float *input, *output; /* owned: one batch of each */
} Generator;

/* The graph of a model's generator in an evaluation, from the input "z" {n, latent, 1, 1} to the result "images". Errors:
 * ERR_ARG for a model without a generator. */
NODISCARD Status generator_graph(const Model *model, const ModelOptions *options, int32_t n, Graph **made);

/* `options` of the model as it was trained. `device` is borrowed. Errors: ERR_ARG for a model without a generator, those
 * of network_open. */
NODISCARD Status generator_open(const Model *model, const ModelOptions *options, const NetworkWeights *weights,
                                Device *device, int32_t batch, Generator *generator);
void generator_close(Generator *generator); /* a zeroed one is fine */

/* Independent standard normal numbers z[count][latent] of the images first, first + 1, ... */
void noise_fill(uint64_t seed, int64_t first, int64_t count, int32_t latent, float *z);
/* Spherical interpolation (Shoemake 1985; White, "Sampling Generative Networks", arXiv:1609.04468): `count` points from a
 * to b, both included, along the arc between them. A straight line would pass through vectors shorter than almost every
 * vector of normal numbers. */
void noise_walk(const float *a, const float *b, int32_t latent, int32_t count, float *z);

/* Images of z[images->count][latent]: normalization is undone, values beyond black and white are clipped, and the
 * rest is rounded to 8 bits. `images` has the generator's side and channels. */
NODISCARD Status generator_run(Generator *generator, const float *z, Images *images);
/* Images number first, first + 1, ... of a seed; `images` is created. */
NODISCARD Status generator_images(Generator *generator, uint64_t seed, int64_t first, int64_t count, Images *images);
