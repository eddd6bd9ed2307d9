/* Mixing of images, and the targets of samples.
 *
 * Mixup (Zhang et al. 2018, arXiv 1710.09412) and CutMix (Yun et al. 2019, arXiv 1905.04899) as in torchvision's
 * reference scripts: the partner of a sample is the one before it in the global batch (of the first one: the last),
 * lambda ~ Beta(alpha, alpha) is drawn once for each global batch, and a target is lambda label + (1 - lambda) partner's
 * label. CutMix replaces a rectangle of (1 - lambda) of the area, around a uniform center and clipped to the image;
 * lambda becomes the share that is left. With both, one is chosen for each batch, with equal probability. All is a pure
 * function of the seed and the number of the global batch, so it does not depend on how the batch is divided. */
#pragma once

#include "kernels/op.h"
#include "towers/data/images/pixels.h"

typedef struct MixRule {
    double mixup, cutmix; /* alpha; 0: off */
} MixRule;

typedef struct Mix {
    int32_t share; /* of the partner's pixels outside of the cut: units of 1 / IMAGE_SHARE_ONE */
    Rect cut;      /* which is the partner alone; h = 0: none */
    double label;  /* share of the partner's label, 1 - lambda; 0: no mixing */
} Mix;

static inline bool mix_is_on(const MixRule *rule)
{
    return rule->mixup > 0 || rule->cutmix > 0;
}

/* What is done with a global batch of images of side x side. */
Mix mix_plan(const MixRule *rule, uint64_t seed, int64_t batch, int32_t side);
/* Adds a partner, image number `partner`, to a record. */
void mix_record(const Mix *mix, int32_t partner, int32_t record[IMAGE_RECORD]);

/* How labels become targets: target[k] = weight[k] ((1 - smoothing) share of k + smoothing / classes). */
typedef struct TargetRule {
    int classes; /* 0: no targets; labels alone */
    float smoothing;
    const float *weight; /* borrowed: [classes]; NULL: 1 each */
    bool multi_label;    /* samples have any number of classes: target_fill_multi_label */
} TargetRule;

/* The classes of a sample. */
typedef struct LabelSet {
    const int32_t *label;
    int32_t count;
} LabelSet;

/* The targets of a sample with shares 1 - share and share of two labels; LABEL_NONE: zeros. */
void target_fill(const TargetRule *rule, int32_t label, int32_t partner, double share, float *targets);
/* Targets of samples with any number of classes, each a decision of its own: (1 - smoothing) share +
 * smoothing / 2 (the binary label smoothing of Keras). */
void target_fill_multi_label(const TargetRule *rule, LabelSet own, LabelSet partner, double share, float *targets);
/* The weight of such a sample in the mean of losses: that of its classes; 0 for LABEL_NONE. */
double target_weight(const TargetRule *rule, int32_t label, int32_t partner, double share);
