/* Op kinds, their attributes, and OpCall: one op bound to memory, ready to run.
 *
 * ops.def is the table; this header gives each row its enum value and its attribute struct. */
#pragma once

#include "kernels/base/status.h"
#include "kernels/tensor.h"

enum { OP_MAX_IN = 8, OP_MAX_OUT = 3 };

typedef enum OpKind {
    OP_NONE = 0,
#define OP(KIND, ...) OP_##KIND,
#include "kernels/ops.def"
    OP_COUNT
} OpKind;

/* The window of a convolution or pooling. Output side = (side + all padding - span) / stride + 1, rounded down, or up if `ceil`
 * (PyTorch's ceil_mode: the last window may overhang, even one that is larger than the input, but must start inside the
 * input or its left padding). There are pad_h rows of padding above the input and pad_h + more_h below it, pad_w columns left of
 * it and pad_w + more_w right of it: as it stands, padding is symmetric. */
typedef struct Window {
    int32_t kh, kw;
    int32_t stride_h, stride_w;
    int32_t pad_h, pad_w;
    bool ceil;
    int32_t more_h, more_w;     /* may be negative */
    int32_t dilate_h, dilate_w; /* convolutions: pixels between two taps (oneDNN's count; PyTorch's dilation - 1) */
} Window;

/* The record of OP_IMAGE for each image, as int32 words; words without a name are 0. */
enum {
    IMAGE_OY = 0, /* corner of the crop */
    IMAGE_OX,
    IMAGE_FLIP,
    IMAGE_ERASE_Y, /* rectangle of y that becomes 0, after mirroring; none if IMAGE_ERASE_H is 0 */
    IMAGE_ERASE_X,
    IMAGE_ERASE_H,
    IMAGE_ERASE_W,
    IMAGE_PARTNER, /* 1 + the number of the image that is mixed in; 0: none */
    IMAGE_SHARE,   /* of the partner outside of the cut, in units of 1 / IMAGE_SHARE_ONE */
    IMAGE_CUT_Y,   /* rectangle of y that is the partner alone; none if IMAGE_CUT_H is 0 */
    IMAGE_CUT_X,
    IMAGE_CUT_H,
    IMAGE_CUT_W,
    IMAGE_RECORD = 16
};
enum { IMAGE_SHARE_ONE = 1 << 24 }; /* shares and 1 - share are exact in f32 */

/* A label of a loss whose sample is ignored: no loss, not counted as correct, no gradient. */
enum { LABEL_NONE = -1 };

typedef union OpAttr {
    struct {
        float mean[4], std[4]; /* of pixels in [0,1], per channel; a gray image is repeated over the channels of y */
    } image;
    struct {
        Window window;
        bool relu; /* OP_CONV only */
    } conv;
    struct {
        bool relu; /* OP_DENSE only */
    } dense;
    struct {
        float epsilon;
        bool relu; /* batch norms only */
    } norm;
    struct {
        Window window;
        bool include_pad; /* average: count padding in the divisor (cuDNN COUNT_INCLUDE_PADDING) */
        bool adaptive;    /* average: no window; output i of n averages the pixels that touch part i of n equal parts */
        float epsilon;    /* OP_MAX_POOL_NORM and its gradient: of the batch norm */
    } pool;
    struct {
        float alpha; /* slope for x < 0 */
    } leaky;
    struct {
        float keep;      /* probability, (0, 1] */
        uint32_t stream; /* distinguishes the random numbers of one op from another's */
    } dropout;           /* and OP_STOCHASTIC_DEPTH */
    struct {
        int32_t first; /* channel of x */
    } slice;
    struct {
        int32_t groups; /* rows of the matrix that the channels of x are */
    } shuffle;
    struct {
        int32_t top, bottom, left, right; /* rows and columns of zeros to add; negative: to take away */
    } pad;
    struct {
        bool relu;
    } add;
    struct {
        float scale, shift;
    } affine;
    struct {
        float exponent;
    } power;
    struct {
        bool normal; /* else uniform [0, 1) */
        uint32_t stream;
    } random;
    struct {
        float smoothing; /* target = onehot (1 - smoothing) + smoothing / classes; 0 if targets are given */
        /* OP_SIGMOID_LOSS: a sample may have several classes, or none. Correct: the samples with a probability above 0.5 for exactly
         * the classes with a target of 0.5 or more; those with such a target for the most probable class. Labels only tell which
         * samples count. */
        bool multi_label;
    } loss;
} OpAttr;

/* One op bound to memory. Filled by the plan; `state` and `workspace_bytes` by the kernel's prepare. */
typedef struct OpCall {
    OpKind kind;
    OpAttr attr;
    const char *name; /* borrowed: the layer, for messages ("Mixed_6a.branch3x3.conv") */
    int in_count, out_count;
    Tensor in[OP_MAX_IN];   /* data == NULL: optional operand absent */
    Tensor out[OP_MAX_OUT]; /* data == NULL: output nobody reads; the kernel skips it */
    size_t workspace_bytes; /* set by prepare: scratch the op needs while it runs */
    void *workspace;        /* set by the plan, shared between ops, aligned to 64 bytes */
    void *state;            /* owned by the kernel: made by prepare, freed by discard */
    uint32_t padded_in;     /* bit k: behind the channels of in[k] its rows are zeros, up to its pitch */
    uint32_t padded_out;    /* bit k: the kernel must make out[k] so */
    uint32_t kept_in;       /* bit k: in[k] holds the same values in every launch, unless `renewed` */
    bool renewed;           /* since the last launch; set and cleared by the plan */
    float product_share;    /* set by prepare if an algorithm saves multiplications: those made / op_macs; 0: all */
} OpCall;

/* Where the operands of an op kind may lie; every kernel of the kind takes them so. */
typedef struct OpStorage {
    uint32_t strided_in;  /* bit k: in[k] may be a slice (pitch > c) */
    uint32_t strided_out; /* bit k: out[k] may be a slice */
    uint32_t in_place;    /* bit k: out[0] may share the storage of in[k], when shapes, dtypes and pitches agree */
} OpStorage;

extern const OpStorage op_storage[OP_COUNT]; /* the column of ops.def */

const char *op_name(OpKind kind);
int op_max_inputs(OpKind kind);
int op_min_inputs(OpKind kind);
int op_outputs(OpKind kind);

/* What a window makes of x; a side is <= 0 if it does not fit. */
Shape window_out(const Window *window, Shape x, int32_t channels);

/* Pixels from the first tap to the last. */
static inline int32_t window_span(int32_t k, int32_t dilate)
{
    return (k - 1) * (dilate + 1) + 1;
}

enum { WINDOW_TEXT_BYTES = 128 };
/* Padding as people read it: "HxW", or "TOP:BOTTOMxLEFT:RIGHT" if opposite sides differ. */
const char *padding_text(const Window *window, char text[WINDOW_TEXT_BYTES]);
/* All but its sides, as names of tasks have it: "stride 2x2 pad 1x1", and what differs from that. */
const char *window_text(const Window *window, char text[WINDOW_TEXT_BYTES]);

bool window_is_point(const Window *window);  /* 1x1, stride 1, no padding */
bool window_is_padded(const Window *window); /* on any side */

/* Groups of a convolution of x by w: each makes its share of the channels of y from as many of x as w has. They follow from the
 * shapes, as in cuDNN; a depthwise convolution has weights of one channel, and as many groups as x has channels. */
static inline int32_t conv_groups(Shape x, Shape w)
{
    return x.c / w.c;
}

/* Multiply-adds of one call (0 for ops without any), for `info` and GFLOP/s. */
int64_t op_macs(const OpCall *call);
