/* Layers, the vocabulary of model files. Each appends a few ops and names its parameters as torchvision does
 * (`<name>.conv.weight`, `<name>.bn.weight`, `<name>.bn.bias`, `<name>.bn.running_mean`, `<name>.bn.running_var`). */
#pragma once

#include "towers/graph/graph.h"

/* How a window meets the border. SAME: stride 1, padded by (k - 1) / 2 per axis. VALID: stride 1, no padding.
 * HALVE: stride 2, no padding. HALVE_SAME: stride 2, padded by (k - 1) / 2. HALVE_CEIL: stride 2, no padding, output
 * side rounded up (pooling). */
typedef enum Fit { SAME = 0, VALID, HALVE, HALVE_SAME, HALVE_CEIL } Fit;

/* TensorFlow's padding "SAME": output side = side of x / stride, rounded up, and the odd pixel of padding is below or right. */
Window window_same(Shape x, int32_t k, int32_t stride);

/* Properties of every following conv_bn_relu of a graph; a model sets them once, first. Zero means the default. */
typedef struct LayerStyle {
    float bn_epsilon; /* default 1e-3 */
    bool bn_no_gamma; /* beta only (the original trainer) */
    bool bn_biased;   /* the running variance is fed without n / (n - 1) (TensorFlow) */
    Init conv_init;   /* default HE_NORMAL */
    bool include_pad; /* average pools count padding in the divisor (torchvision yes, TensorFlow no) */
} LayerStyle;
void layer_style(Graph *g, LayerStyle style);

/* One convolution unit: convolution without bias, batch norm, ReLU. */
typedef struct ConvUnit {
    const char *name;
    int32_t out; /* channels */
    int32_t kh, kw;
    Fit fit;
    Init init; /* of the weights; INIT_ZERO: the style's */
} ConvUnit;
Value conv_bn_relu(Graph *g, Value x, ConvUnit unit);
/* Units one after another. */
Value conv_chain(Graph *g, Value x, const ConvUnit *units, int count);
#define CHAIN(g, x, ...)                                                                                               \
    conv_chain((g), (x), (const ConvUnit[]){__VA_ARGS__},                                                              \
               (int)(sizeof((const ConvUnit[]){__VA_ARGS__}) / sizeof(ConvUnit)))

/* Convolution with bias (and ReLU if asked), no batch norm. Parameters `<name>.weight`, `<name>.bias`. */
Value conv_bias(Graph *g, Value x, const char *name, int32_t out, int32_t k, Fit fit, bool relu, Init init);
/* A convolution with any window, with bias and without. Its transpose makes `out` channels of sides from which the window makes
 * those of x: parameter `<name>.weight` {channels of x, out, kh, kw}. */
Value conv_window_bias(Graph *g, Value x, const char *name, int32_t out, Window window, bool relu, Init init);
Value conv_window(Graph *g, Value x, const char *name, int32_t out, Window window, Init init);
/* Each channel by a window of its own: parameter `<name>.weight` {channels of x, 1, kh, kw}. */
Value depthwise(Graph *g, Value x, const char *name, Window window, Init init);
Value depthwise_bias(Graph *g, Value x, const char *name, Window window, Init init);
/* Each pixel by itself, fully connected: a 1x1 convolution. Parameters `<name>.weight`, in files {out, channels of x} as of a dense
 * layer, `<name>.bias`. */
Value pixel_dense(Graph *g, Value x, const char *name, int32_t out, Init init);
/* By `times` windows, which make as many channels side by side (TensorFlow's depth multiplier). */
Value depthwise_times(Graph *g, Value x, const char *name, int32_t times, Window window, Init init);
Value conv_transposed(Graph *g, Value x, const char *name, int32_t out, int32_t side, Window window, Init init);

/* Batch norm over n, h, w, and ReLU if asked. Parameters `<name>.bn.weight`, `<name>.bn.bias`; running statistics. */
Value batch_norm(Graph *g, Value x, const char *name, bool relu);
/* batch_norm with parameters `<name>.weight`, `<name>.bias`. */
Value batch_norm_named(Graph *g, Value x, const char *name, bool relu);
/* batch_norm whose vectors have names of their own; gamma NULL: none. */
typedef struct NormNames {
    const char *gamma, *beta, *mean, *var;
} NormNames;
Value batch_norm_by_names(Graph *g, Value x, const char *name, const NormNames *names, float epsilon, bool relu);

/* Layer norm over the channels of each pixel. Parameters `<name>.weight`, `<name>.bias`. */
Value layer_norm(Graph *g, Value x, const char *name, float epsilon);
/* A learned factor for each channel, all `start` at first. Parameter `<name>`, in files {channels of x, 1, 1}. */
Value layer_scale(Graph *g, Value x, const char *name, float start);

/* y = x + b, b per channel, and ReLU if asked. Parameter `<name>.bias`. */
Value bias(Graph *g, Value x, const char *name, bool relu);

/* Rows and columns of zeros around the image; negative: taken away. */
Value pad(Graph *g, Value x, int32_t top, int32_t bottom, int32_t left, int32_t right);
Value upsample(Graph *g, Value x, int32_t times); /* every pixel becomes times x times equal ones */

Value max_pool(Graph *g, Value x, int32_t k, Fit fit);
Value max_pool_window(Graph *g, Value x, Window window);
Value avg_pool(Graph *g, Value x, int32_t k, Fit fit);
Value avg_pool_window(Graph *g, Value x, Window window, bool include_pad);
Value global_avg_pool(Graph *g, Value x); /* x itself if it is a single pixel already */
/* Average over side x side equal parts of the image, whatever its size: pixels that a part touches belong to it, so
 * parts overlap (or repeat pixels) where the sides do not divide (PyTorch's adaptive_avg_pool2d). */
Value adaptive_avg_pool(Graph *g, Value x, int32_t side);

Value concat(Graph *g, const Value *x, int count);
#define CONCAT(g, ...)                                                                                                 \
    concat((g), (const Value[]){__VA_ARGS__}, (int)(sizeof((const Value[]){__VA_ARGS__}) / sizeof(Value)))

Value slice(Graph *g, Value x, int32_t first, int32_t c); /* channels `first` .. `first` + c */

/* Channels as a matrix of `groups` rows, transposed. */
Value shuffle(Graph *g, Value x, int32_t groups);

/* Fully connected over all of c, h, w. Parameters `<name>.weight` {out, c, h, w}, `<name>.bias`. */
Value dense(Graph *g, Value x, const char *name, int32_t out, bool relu, Init init);
Value dense_plain(Graph *g, Value x, const char *name, int32_t out, Init init); /* without bias */

Value relu(Graph *g, Value x);
Value leaky_relu(Graph *g, Value x, float alpha);
Value add(Graph *g, Value a, Value b);
Value add_relu(Graph *g, Value a, Value b);
Value hard_sigmoid(Graph *g, Value x);
Value hard_swish(Graph *g, Value x);
Value gelu(Graph *g, Value x);      /* exact, by the error function */
Value gelu_tanh(Graph *g, Value x); /* its approximation by tanh, as TensorFlow and timm have it, too */
Value relu6(Graph *g, Value x);
Value silu(Graph *g, Value x);
Value tanh_of(Graph *g, Value x);
Value sigmoid(Graph *g, Value x);
Value affine(Graph *g, Value x, float scale, float shift);
Value mul(Graph *g, Value a, Value b);
Value sub(Graph *g, Value a, Value b); /* a - b */
Value power(Graph *g, Value x, float exponent);
Value reshape(Graph *g, Value x, Shape shape); /* packed NHWC order is kept */
/* The outputs of the dense layer `name` (and what follows it under this name) as a map. Files number them as PyTorch's view. */
Value unfold(Graph *g, Value x, const char *name, Shape shape);
Value sum_to(Graph *g, Value x, Shape shape);    /* over every axis on which `shape` has size 1 */
Value spread_to(Graph *g, Value x, Shape shape); /* along every axis on which x has size 1 */
Value total(Graph *g, Value x);                  /* of all elements: {1, 1, 1, 1} */

/* Random values of the "counter" input, a stream of their own: standard normal, or uniform in [0, 1). */
Value random_normal(Graph *g, Value counter, Shape shape);
Value random_uniform(Graph *g, Value counter, Shape shape);

/* Keep each element with probability 1 - rate, scaled by 1 / (1 - rate). The identity when not training or rate == 0.
 * Reads the graph's "counter" input and creates it if it does not exist. */
Value dropout(Graph *g, Value x, float rate);
/* `dropout` of whole samples, for the branch of a residual block (Huang et al. 2016, arXiv:1603.09382; torchvision's
 * StochasticDepth with mode "row", timm's DropPath). */
Value stochastic_depth(Graph *g, Value x, float rate);

/* Pixels (u8 {n, c, h, w}, packed NHWC) to normalized activations of the graph's compute dtype, side x side, `channels`
 * channels (a gray image is repeated). `augment` (i32 {n, IMAGE_RECORD, 1, 1}, see OP_IMAGE) or Value 0 for the center
 * crop. */
Value image(Graph *g, Value pixels, Value augment, int32_t channels, int32_t side, const float mean[3],
            const float std[3]);
/* `image` for the first n images; pixels and augment may have one more, which records may mix in. */
Value images_mixed(Graph *g, int32_t n, Value pixels, Value augment, int32_t channels, int32_t side,
                   const float mean[3], const float std[3]);

/* Summed softmax cross-entropy: f32 scalar. *prob and *correct (may be NULL) receive the op's other outputs. */
Value softmax_loss(Graph *g, Value logits, Value labels, float smoothing, Value *prob, Value *correct);
/* softmax_loss with targets, f32 {n, classes, 1, 1}, any numbers >= 0; labels give only the correct
 * predictions. */
Value softmax_target_loss(Graph *g, Value logits, Value labels, Value targets, Value *correct);
/* Sigmoid cross-entropy: targets from 0 to 1; weights of the classes, f32 {1, classes, 1, 1}, or Value 0. `multi_label`: as in
 * op.h, a sample may have any number of classes. */
Value sigmoid_loss(Graph *g, Value logits, Value labels, Value targets, Value weights, bool multi_label, Value *prob,
                   Value *correct);
