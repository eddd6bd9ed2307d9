/* Operations on 8-bit images after resizing, as defined by Pillow and torchvision for 8-bit images: the parts of
 * ColorJitter, RandAugment (arXiv:1909.13719) and TrivialAugmentWide (arXiv:2103.10158). Each has one parameter m. */
#pragma once

#include "kernels/base/status.h"
#include "towers/data/images/pixels.h"

typedef enum AugmentKind {
    AUGMENT_IDENTITY = 0,
    AUGMENT_SHEAR_X,      /* source x = x + m y; black outside of the source */
    AUGMENT_SHEAR_Y,      /* source y = y + m x */
    AUGMENT_TRANSLATE_X,  /* to the right by m pixels, truncated */
    AUGMENT_TRANSLATE_Y,  /* downwards */
    AUGMENT_ROTATE,       /* counter-clockwise around the center by m degrees, nearest neighbor */
    AUGMENT_BRIGHTNESS,   /* black + m (x - black) */
    AUGMENT_COLOR,        /* gray + m (x - gray): saturation */
    AUGMENT_CONTRAST,     /* mean + m (x - mean), mean of the gray image */
    AUGMENT_SHARPNESS,    /* smooth + m (x - smooth), smooth: 3x3 (1 1 1; 1 5 1; 1 1 1) / 13 */
    AUGMENT_POSTERIZE,    /* the upper m bits */
    AUGMENT_SOLARIZE,     /* 255 - x where x >= m */
    AUGMENT_AUTOCONTRAST, /* each channel stretched to 0 .. 255 */
    AUGMENT_EQUALIZE,     /* each channel's histogram made flat */
    AUGMENT_HUE,          /* hue + m, in turns of the circle */
    AUGMENT_KINDS
} AugmentKind;

typedef struct AugmentOp {
    AugmentKind kind;
    float amount;
} AugmentOp;

/* In place, on h x w x c with c 1 or 3 (color operations leave gray images unchanged); `scratch` belongs to the
 * thread. */
NODISCARD Status augment_apply(AugmentOp op, Pixels *image, Pixels *scratch);
void augment_mirror(Pixels *image);
