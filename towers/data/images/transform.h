/* Transforms between an image file and the network. In two steps: transform_plan draws all random numbers, as a pure
 * function of (seed, epoch, sample) and the image size; transform_apply decodes the pixels that the plan needs and
 * transforms them to a square of side + 2 pad pixels. Mirroring, erasing and normalization are done by OP_IMAGE from the
 * record.
 *
 * Formulas: torchvision's RandomResizedCrop, ColorJitter, RandAugment, TrivialAugmentWide, RandomErasing, Resize and
 * CenterCrop; the central crop, crops of objects and color distortion of TensorFlow's Inception trainer (distort.h). Order:
 * crop, mirror, distort, jitter, policy, erase. */
#pragma once

#include "kernels/base/status.h"
#include "kernels/op.h"
#include "towers/data/images/augment.h"
#include "towers/data/images/distort.h"
#include "towers/data/images/image.h"
#include "towers/data/images/resize.h"
#include "towers/data/images/resize_tf.h"

typedef enum CropKind {
    CROP_WHOLE = 0, /* the whole image, stretched to side x side */
    CROP_RANDOM,    /* random area and aspect ratio, stretched (RandomResizedCrop) */
    CROP_BOX,       /* likewise, with a part of an object's bounding box (sample_distorted_bounding_box) */
    CROP_CENTER,    /* shorter side resized to `resize`, then the central side x side (Resize, CenterCrop) */
    CROP_FRACTION   /* the central `fraction` of each side, stretched */
} CropKind;

typedef enum FlipMode {
    FLIP_NONE = 0,
    FLIP_RANDOM,   /* a random half of the images in each epoch */
    FLIP_ALTERNATE /* half of the images in even epochs, the other half in odd ones */
} FlipMode;

typedef enum AugmentPolicy { POLICY_NONE = 0, POLICY_RAND, POLICY_TRIVIAL } AugmentPolicy;

enum { POLICY_OPS_MAX = 8, JITTER_OPS = 4, MAGNITUDE_BINS = 31 };

typedef struct Transform {
    int32_t side, pad; /* pad: zero pixels on each side; the canvas is cropped at random with `shift`, else centrally */
    bool shift;
    CropKind crop;
    double area[2], ratio[2]; /* CROP_RANDOM, CROP_BOX: fractions of the area, aspect ratios w / h */
    double covered;           /* CROP_BOX: smallest part of an object's box, in (0, 1] */
    int32_t resize;           /* CROP_CENTER; at least side */
    double fraction;          /* CROP_FRACTION, in (0, 1] */
    ResizeFilter filter;
    FlipMode flip;
    bool distort;                                 /* colors, as TensorFlow's Inception trainer does */
    double brightness, contrast, saturation, hue; /* jitter; 0: none */
    AugmentPolicy policy;
    int policy_ops, policy_magnitude; /* POLICY_RAND: 2 and 9 by default; magnitude below MAGNITUDE_BINS */
    double erase;                     /* probability of erasing a rectangle */
    bool exif;                        /* turn images upright by their EXIF orientation */
    bool gray;                        /* of colors, their luma: one channel */
} Transform;

typedef struct SampleKey {
    uint64_t seed;
    int64_t epoch, id;
} SampleKey;

typedef struct SamplePlan {
    Resize resize; /* its input is `box` of the upright image */
    Rect box;
    int32_t shift_y, shift_x; /* corner of the crop in the canvas */
    bool flip, distort;
    ColorDistortion colors;
    int ops_count;
    AugmentOp ops[JITTER_OPS + POLICY_OPS_MAX];
    Rect erase; /* of the side x side pixels, after mirroring; h = 0: none */
} SamplePlan;

NODISCARD Status transform_check(const Transform *transform); /* ERR_ARG */
/* `boxes`: of the objects, for CROP_BOX; NULL: unknown. */
void transform_plan(const Transform *transform, SampleKey key, const ImageInfo *info, const Boxes *boxes,
                    SamplePlan *plan);

/* Scratch memory and clocks of a thread. */
typedef struct TransformWorker {
    ImageDecoder *decoder; /* owned, like all members */
    Resizer *resizer;
    ResizerTf *resizer_tf;
    Pixels decoded, upright, resized, scratch;
    float *values; /* pixels of TensorFlow's filters and colors */
    size_t values_room;
    int64_t decode_ns, resize_ns, augment_ns; /* sums since the start */
} TransformWorker;
NODISCARD Status transform_worker_init(TransformWorker *worker);
void transform_worker_free(TransformWorker *worker);
/* After each image: frees buffers of large ones and gives their share of the decoders' budget back. */
void transform_worker_rest(TransformWorker *worker);

/* Writes the canvas, [side + 2 pad][side + 2 pad][info->c, or 1 with `gray`], including its border, and the record
 * (kernels/op.h). Errors: as for image_decode; ERR_FORMAT for bounding boxes that CROP_BOX cannot use. */
NODISCARD Status transform_apply(const Transform *transform, TransformWorker *worker, const Bytes *bytes,
                                 const ImageInfo *info, const SamplePlan *plan, uint8_t *canvas,
                                 int32_t record[IMAGE_RECORD]);
