/* Finding: the place where the first value that is not finite was found. Plain data without pointers, stored in the
 * ledger, so that every process of a run reports the same. */
#pragma once

#include "kernels/op.h"

typedef enum FindingPlace {
    FOUND_NOTHING = 0,
    FOUND_WEIGHT,          /* a weight, before the step */
    FOUND_AVERAGE,         /* the average of the weights (--ema-decay) */
    FOUND_STATISTIC,       /* a running average of batch norm */
    FOUND_OPTIMIZER_STATE, /* an optimizer state */
    FOUND_FORWARD,         /* the output of an op */
    FOUND_LOSS,            /* the same, from the first loss on */
    FOUND_BACKWARD,        /* the same, of a gradient's op */
    FOUND_GRADIENT,        /* the gradient of a parameter, although every op's output was finite */
    FOUND_SUM,             /* the sum of the gradients of all towers */
    FOUND_PLACES
} FindingPlace;

/* "weights", "forward", ...: the name in messages and capsules. */
const char *finding_place_name(FindingPlace place);

typedef struct Finding {
    FindingPlace place;
    int tower; /* -1: no particular tower */
    int64_t step;
    int op; /* number in the executed list; -1: not the output of an op */
    OpKind kind;
    char layer[128], tensor[192];
    Shape shape;
    Dtype dtype;
    int64_t index, count; /* the first element, in memory order (n, h, w, c); number of elements that are not finite */
    float value;          /* of that element */
    int samples;          /* samples of the batch that have such an element; 0: the tensor has no samples */
    int64_t sample;       /* number of the first of them in the data set */
} Finding;

/* A phrase without a full stop: "forward, op 3, layer conv2 (conv), tensor conv2 (8x64x11x11 f32): element 17 (n 0, c
 * 17, h 0, w 0) is nan". "" for FOUND_NOTHING. */
void finding_text(const Finding *found, char *text, size_t bytes);
