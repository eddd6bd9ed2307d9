/* Features of images: what the last layer of a classifier reads, together with the class that it predicts. Distances
 * between features (kid.h, frechet.h) depend on the classifier, so it is named by a digest of its weights: values are
 * only comparable with equal weights. */
#pragma once

#include "inception/quality/images.h"
#include "inception/quality/network.h"
#include "towers/graph/model.h"

typedef struct FeatureConfig {
    const Model *model;   /* borrowed */
    ModelOptions options; /* of the classifier: classes, side, channels, variant */
    const char *weights;  /* a file of weights (weights_open) */
    Device *device;       /* borrowed */
    int32_t batch;        /* images at a time; 0: chosen by their size */
} FeatureConfig;

typedef struct FeatureNet {
    FeatureConfig config; /* its `weights` are not used after features_open */
    int32_t n, d;         /* images in a batch; numbers that describe an image */
    char digest[33];      /* XXH3-128 of names and values of the weights */
    Network network;
    Value image, features, logits;
    float *input, *output, *scores; /* owned: one batch of each */
} FeatureNet;

NODISCARD Status features_open(const FeatureConfig *config, FeatureNet *net);
void features_close(FeatureNet *net); /* a zeroed one is fine */

/* features[count][d] of all images, and with `histogram` (may be NULL) the predictions of each class are added to it.
 * Images of another size are resized bilinearly between pixel centers, without antialiasing (as pytorch-fid does); gray
 * ones are repeated for a classifier of color images. Errors: ERR_ARG for color images and a classifier of gray ones,
 * ERR_NUMERIC. */
NODISCARD Status features_compute(FeatureNet *net, const Images *images, float *features, int64_t *histogram);
