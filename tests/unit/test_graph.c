/* The op list: shape rules and their messages, names, the sticky error, and gradients compared as text.
 * test_gradients.c checks the values of gradients. */
#include "tests/support/graph_text.h"
#include "tests/support/unit.h"

#define OPERANDS(...) (const Value[]){__VA_ARGS__}, (int)(sizeof((const Value[]){__VA_ARGS__}) / sizeof(Value))

static const Value none = {0};
static const Init uniform = {.kind = INIT_UNIFORM, .a = 1};

static OpAttr window_attr(int32_t k, int32_t stride, int32_t pad)
{
    return (OpAttr){
        .conv.window = {.kh = k, .kw = k, .stride_h = stride, .stride_w = stride, .pad_h = pad, .pad_w = pad}};
}

/* ---- shapes: each row one op over f32 inputs and what it makes, or says */

typedef struct ShapeCase {
    const char *name;
    OpKind kind;
    Shape in[6];
    Dtype dtype[6];
    OpAttr attr;
    Shape asked; /* n == 0: none */
    Shape out;   /* n == 0: a failure */
    const char *message;
} ShapeCase;

#define K3S2                                                                                                           \
    {                                                                                                                  \
        .conv.window = { 3, 3, 2, 2, 0, 0 }                                                                            \
    }
#define K3P1                                                                                                           \
    {                                                                                                                  \
        .conv.window = { 3, 3, 1, 1, 1, 1 }                                                                            \
    }
#define K2S2                                                                                                           \
    {                                                                                                                  \
        .pool.window = { 2, 2, 2, 2, 0, 0 }                                                                            \
    }
#define NORM_K2S2                                                                                                      \
    {                                                                                                                  \
        .pool = {.window = {2, 2, 2, 2, 0, 0}, .epsilon = 1e-3f }                                                      \
    }
#define EPS                                                                                                            \
    {                                                                                                                  \
        .norm = {.epsilon = 1e-3f }                                                                                    \
    }

// clang-format off
static const ShapeCase shape_cases[] = {
    {"conv", OP_CONV, {{2, 3, 9, 7}, {4, 3, 3, 3}}, {0}, K3S2, {0}, {2, 4, 4, 3}},
    {"conv with bias", OP_CONV, {{2, 3, 9, 7}, {4, 3, 3, 3}, {1, 4, 1, 1}}, {0}, K3P1, {0}, {2, 4, 9, 7}},
    {"window too large", OP_CONV, {{64, 768, 1, 1}, {384, 768, 3, 3}}, {0}, K3S2, {0}, {0},
     "x: window 3x3 stride 2 does not fit input 1x1 (64x768x1x1)"},
    {"channels differ", OP_CONV, {{2, 3, 9, 9}, {4, 5, 3, 3}}, {0}, K3S2, {0}, {0}, "x: input channels of the weights: expected 3, found 5"},
    {"groups", OP_CONV, {{2, 8, 9, 9}, {6, 2, 3, 3}}, {0}, K3S2, {0}, {0}, "x: 6 output channels cannot be divided among 4 groups"},
    {"window is not the weights'", OP_CONV, {{2, 3, 9, 9}, {4, 3, 5, 3}}, {0}, K3S2, {0}, {0}, "x: height of the window: expected 3, found 5"},
    {"bias too short", OP_CONV, {{2, 3, 9, 9}, {4, 3, 3, 3}, {1, 3, 1, 1}}, {0}, K3S2, {0}, {0}, "x: shape of the bias: expected 1x4x1x1, found 1x3x1x1"},
    {"no stride", OP_CONV, {{2, 3, 9, 9}, {4, 3, 1, 1}}, {0}, {.conv.window = {1, 1, 0, 1, 0, 0}}, {0}, {0},
     "x: window 1x1, stride 0x1, padding 0x0: sizes, strides and dilations are 1 to 32767, padding 0 to 32767"},
    {"padding taken away", OP_CONV, {{2, 3, 9, 9}, {4, 3, 1, 1}}, {0}, {.conv.window = {1, 1, 1, 1, 1, 0, false, -2, 0}}, {0}, {0},
     "x: window 1x1, stride 1x1, padding 1:-1x0:0: sizes, strides and dilations are 1 to 32767, padding 0 to 32767"},
    {"negative dilation", OP_CONV, {{2, 3, 9, 9}, {4, 3, 3, 3}}, {0}, {.conv.window = {3, 3, 1, 1, 0, 0, false, 0, 0, 0, -1}}, {0}, {0},
     "x: window 3x3, stride 1x1, padding 0x0 dilation 1x0: sizes, strides and dilations are 1 to 32767, padding 0 to 32767"},
    {"uneven padding", OP_CONV, {{2, 3, 8, 9}, {4, 3, 3, 3}}, {0}, {.conv.window = {3, 3, 2, 2, 0, 1, false, 1, -1}}, {0}, {2, 4, 4, 4}},
    {"dilation", OP_CONV, {{2, 3, 9, 9}, {4, 3, 3, 3}}, {0}, {.conv.window = {3, 3, 1, 1, 0, 0, false, 0, 0, 1, 2}}, {0}, {2, 4, 5, 3}},
    {"dilated too far", OP_CONV, {{2, 3, 9, 9}, {4, 3, 3, 3}}, {0}, {.conv.window = {3, 3, 1, 1, 0, 0, false, 0, 1, 0, 5}}, {0}, {0},
     "x: window 3x3 stride 1 padding 0:0x0:1 dilation 1x6 does not fit input 9x9 (2x3x9x9)"},
    {"rounding up", OP_CONV, {{2, 3, 9, 9}, {4, 3, 1, 1}}, {0}, {.conv.window = {1, 1, 1, 1, 0, 0, true}}, {0}, {0},
     "x: a convolution does not support rounding up (ceil_mode) of its output size"},
    {"bf16 weights", OP_CONV, {{2, 3, 9, 9}, {4, 3, 3, 3}}, {0, DTYPE_BF16}, K3S2, {0}, {0}, "x: dtype of the weights: expected f32, found bf16"},
    {"conv_dx", OP_CONV_DX, {{2, 4, 4, 3}, {4, 3, 3, 3}}, {0}, K3S2, {2, 3, 10, 8}, {2, 3, 10, 8}},
    {"conv_dx of other dy", OP_CONV_DX, {{2, 4, 4, 3}, {4, 3, 3, 3}}, {0}, K3S2, {2, 3, 11, 8}, {0}, "x: a convolution of 2x3x11x8 makes 2x4x5x3, not 2x4x4x3"},
    {"conv_dx, nothing asked", OP_CONV_DX, {{2, 4, 4, 3}, {4, 3, 3, 3}}, {0}, K3S2, {0}, {0}, "x: conv_dx needs the shape of its output"},
    {"conv_dw", OP_CONV_DW, {{2, 3, 9, 7}, {2, 4, 4, 3}}, {0}, K3S2, {4, 3, 3, 3}, {4, 3, 3, 3}},
    {"dense", OP_DENSE, {{5, 3, 2, 2}, {10, 3, 2, 2}, {1, 10, 1, 1}}, {0}, {{{0}}}, {0}, {5, 10, 1, 1}},
    {"dense of another side", OP_DENSE, {{5, 3, 2, 2}, {10, 3, 1, 1}}, {0}, {{{0}}}, {0}, {0}, "x: input height of the weights: expected 2, found 1"},
    {"dense_dx", OP_DENSE_DX, {{5, 10, 1, 1}, {10, 3, 2, 2}}, {0}, {{{0}}}, {5, 3, 2, 2}, {5, 3, 2, 2}},
    {"dense_dw", OP_DENSE_DW, {{5, 3, 2, 2}, {5, 10, 1, 1}}, {0}, {{{0}}}, {10, 3, 2, 2}, {10, 3, 2, 2}},
    {"dense_dw of fewer samples", OP_DENSE_DW, {{5, 3, 2, 2}, {4, 10, 1, 1}}, {0}, {{{0}}}, {10, 3, 2, 2}, {0}, "x: a dense layer of 5x3x2x2 makes 5x10x1x1, not 4x10x1x1"},
    {"channel_sum", OP_CHANNEL_SUM, {{5, 3, 2, 2}}, {0}, {{{0}}}, {0}, {1, 3, 1, 1}},
    {"channel_spread", OP_CHANNEL_SPREAD, {{1, 3, 1, 1}}, {0}, {{{0}}}, {5, 3, 2, 2}, {5, 3, 2, 2}},
    {"channel_spread of others", OP_CHANNEL_SPREAD, {{1, 3, 1, 1}}, {0}, {{{0}}}, {5, 4, 2, 2}, {0}, "x: one number per channel: expected 1x4x1x1, found 1x3x1x1"},
    {"batchnorm", OP_BATCHNORM, {{5, 3, 2, 2}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, EPS, {0}, {5, 3, 2, 2}},
    {"batchnorm, short gamma", OP_BATCHNORM, {{5, 3, 2, 2}, {1, 3, 1, 1}, {1, 2, 1, 1}}, {0}, EPS, {0}, {0}, "x: one number per channel: expected 1x3x1x1, found 1x2x1x1"},
    {"batchnorm without epsilon", OP_BATCHNORM, {{5, 3, 2, 2}, {1, 3, 1, 1}}, {0}, {{{0}}}, {0}, {0}, "x: expected an epsilon above 0, found 0"},
    {"batchnorm_apply, no variance", OP_BATCHNORM_APPLY, {{5, 3, 2, 2}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, EPS, {0}, {0}, "x: operand 3 of batchnorm_apply is missing"},
    {"relu of labels", OP_RELU, {{5, 3, 2, 2}}, {DTYPE_I32}, {{{0}}}, {0}, {0}, "x: relu computes on floats, not on i32"},
    {"relu_dx", OP_RELU_DX, {{5, 3, 2, 2}, {5, 3, 2, 2}}, {0}, {{{0}}}, {0}, {5, 3, 2, 2}},
    {"add of two shapes", OP_ADD, {{5, 3, 2, 2}, {5, 3, 2, 1}}, {0}, {{{0}}}, {0}, {0}, "x: operands of one shape: expected 5x3x2x2, found 5x3x2x1"},
    {"layernorm", OP_LAYERNORM, {{5, 3, 2, 2}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, EPS, {0}, {5, 3, 2, 2}},
    {"layernorm, long beta", OP_LAYERNORM, {{5, 3, 2, 2}, {1, 5, 1, 1}, {1, 3, 1, 1}}, {0}, EPS, {0}, {0}, "x: one number per channel: expected 1x3x1x1, found 1x5x1x1"},
    {"layernorm without epsilon", OP_LAYERNORM, {{5, 3, 2, 2}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, {{{0}}}, {0}, {0}, "x: expected an epsilon above 0, found 0"},
    {"layernorm, no gamma", OP_LAYERNORM, {{5, 3, 2, 2}, {1, 3, 1, 1}}, {0}, EPS, {0}, {0}, "x: operand 2 of layernorm is missing"},
    {"mul by factors", OP_MUL, {{5, 3, 2, 2}, {5, 3, 1, 1}}, {0}, {{{0}}}, {0}, {5, 3, 2, 2}},
    {"mul by factors of others", OP_MUL, {{5, 3, 2, 2}, {4, 3, 1, 1}}, {0}, {{{0}}}, {0}, {0}, "x: operands of one shape: expected 5x3x2x2, found 4x3x1x1"},
    {"mul of two dtypes", OP_MUL, {{5, 3, 2, 2}, {5, 3, 2, 2}}, {0, DTYPE_BF16}, {{{0}}}, {0}, {0}, "x: operands of one dtype: expected f32, found bf16"},
    {"dropout", OP_DROPOUT, {{5, 3, 2, 2}, {1, 4, 1, 1}}, {0, DTYPE_I32}, {.dropout = {.keep = 0.5f}}, {0}, {5, 3, 2, 2}},
    {"dropout of all", OP_DROPOUT, {{5, 3, 2, 2}, {1, 4, 1, 1}}, {0, DTYPE_I32}, {.dropout = {.keep = 0}}, {0}, {0}, "x: dropout: expected a probability to keep in (0, 1], found 0"},
    {"depth", OP_STOCHASTIC_DEPTH, {{5, 3, 2, 2}, {1, 4, 1, 1}}, {0, DTYPE_I32}, {.dropout = {.keep = 0.5f}}, {0}, {5, 3, 2, 2}},
    {"depth of none", OP_STOCHASTIC_DEPTH, {{5, 3, 2, 2}, {1, 4, 1, 1}}, {0, DTYPE_I32}, {.dropout = {.keep = 0}}, {0}, {0}, "x: stochastic depth: expected a probability to keep in (0, 1], found 0"},
    {"dropout, f32 counter", OP_DROPOUT, {{5, 3, 2, 2}, {1, 4, 1, 1}}, {0}, {.dropout = {.keep = 1}}, {0}, {0}, "x: dtype of the counter: expected i32, found f32"},
    {"max_pool", OP_MAX_POOL, {{2, 3, 8, 7}}, {0}, K2S2, {0}, {2, 3, 4, 3}},
    {"max_pool rounding up", OP_MAX_POOL, {{2, 3, 8, 7}}, {0}, {.pool.window = {2, 2, 2, 2, 0, 0, true}}, {0}, {2, 3, 4, 4}},
    {"max_pool of padding", OP_MAX_POOL, {{2, 3, 8, 7}}, {0}, {.pool.window = {2, 2, 2, 2, 2, 0}}, {0}, {0}, "x: padding 2x0 leaves windows 2x2 without any input"},
    {"max_pool of padding behind", OP_MAX_POOL, {{2, 3, 8, 7}}, {0}, {.pool.window = {2, 2, 2, 2, 0, 1, false, 1, 2}}, {0}, {0}, "x: padding 1x3 leaves windows 2x2 without any input"},
    {"dilated pool", OP_AVG_POOL, {{2, 3, 8, 7}}, {0}, {.pool.window = {2, 2, 2, 2, 0, 0, false, 0, 0, 1, 0}}, {0}, {0}, "x: a pooling does not support dilation"},
    {"max_pool, large window", OP_MAX_POOL, {{2, 3, 40, 40}}, {0}, {.pool.window = {17, 17, 1, 1, 0, 0}}, {0}, {0}, "x: window 17x17 has 289 elements; the argmax of a maximum pooling holds at most 256"},
    {"max_pool_dx", OP_MAX_POOL_DX, {{2, 3, 4, 3}, {2, 3, 4, 3}, {2, 3, 8, 7}}, {0, DTYPE_U8}, K2S2, {2, 3, 8, 7}, {2, 3, 8, 7}},
    {"max_pool_dx, f32 argmax", OP_MAX_POOL_DX, {{2, 3, 4, 3}, {2, 3, 4, 3}}, {0}, K2S2, {2, 3, 8, 7}, {0}, "x: dtype of argmax: expected u8, found f32"},
    {"max_pool_norm", OP_MAX_POOL_NORM, {{2, 3, 8, 7}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, NORM_K2S2, {0}, {2, 3, 4, 3}},
    {"max_pool_norm, short mean", OP_MAX_POOL_NORM, {{2, 3, 8, 7}, {1, 3, 1, 1}, {1, 2, 1, 1}, {1, 3, 1, 1}}, {0}, NORM_K2S2, {0}, {0}, "x: one number per channel: expected 1x3x1x1, found 1x2x1x1"},
    {"max_pool_norm without epsilon", OP_MAX_POOL_NORM, {{2, 3, 8, 7}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, K2S2, {0}, {0}, "x: expected an epsilon above 0, found 0"},
    {"max_pool_norm_dx", OP_MAX_POOL_NORM_DX, {{2, 3, 4, 3}, {2, 3, 4, 3}, {2, 3, 8, 7}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0, DTYPE_U8}, NORM_K2S2, {0}, {2, 3, 8, 7}},
    {"max_pool_norm_dx of other dy", OP_MAX_POOL_NORM_DX, {{2, 3, 4, 4}, {2, 3, 4, 4}, {2, 3, 8, 7}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0, DTYPE_U8}, NORM_K2S2, {0}, {0}, "x: shape of dy: expected 2x3x4x3, found 2x3x4x4"},
    {"max_pool_norm_dx, f32 argmax", OP_MAX_POOL_NORM_DX, {{2, 3, 4, 3}, {2, 3, 4, 3}, {2, 3, 8, 7}, {1, 3, 1, 1}, {1, 3, 1, 1}, {1, 3, 1, 1}}, {0}, NORM_K2S2, {0}, {0}, "x: dtype of argmax: expected u8, found f32"},
    {"avg_pool", OP_AVG_POOL, {{2, 3, 8, 7}}, {0}, K2S2, {0}, {2, 3, 4, 3}},
    {"avg_pool, adaptive", OP_AVG_POOL, {{2, 3, 8, 7}}, {0}, {.pool.adaptive = true}, {2, 3, 4, 4}, {2, 3, 4, 4}},
    {"avg_pool, other channels", OP_AVG_POOL, {{2, 3, 8, 7}}, {0}, {.pool.adaptive = true}, {2, 4, 4, 4}, {0}, "x: average pooling cannot change the number of samples or channels: 2x3x8x7 to 2x4x4x4"},
    {"avg_pool_dx, adaptive", OP_AVG_POOL_DX, {{2, 3, 4, 4}}, {0}, {.pool.adaptive = true}, {2, 3, 8, 7}, {2, 3, 8, 7}},
    {"avg_pool_dx, other n", OP_AVG_POOL_DX, {{2, 3, 4, 4}}, {0}, {.pool.adaptive = true}, {1, 3, 8, 7}, {0}, "x: average pooling cannot change the number of samples or channels: 1x3x8x7 to 2x3x4x4"},
    {"avg_pool_dx", OP_AVG_POOL_DX, {{2, 3, 4, 3}}, {0}, K2S2, {2, 3, 8, 7}, {2, 3, 8, 7}},
    {"avg_pool_dx, other acc", OP_AVG_POOL_DX, {{2, 3, 4, 3}, {2, 3, 8, 6}}, {0}, K2S2, {2, 3, 8, 7}, {0}, "x: shape of acc: expected 2x3x8x7, found 2x3x8x6"},
    {"concat", OP_CONCAT, {{2, 3, 4, 3}, {2, 5, 4, 3}}, {0}, {{{0}}}, {0}, {2, 8, 4, 3}},
    {"concat of two sides", OP_CONCAT, {{2, 3, 4, 3}, {2, 5, 3, 3}}, {0}, {{{0}}}, {0}, {0}, "x: n, h and w of the first operand: expected 2x5x4x3, found 2x5x3x3"},
    {"slice", OP_SLICE, {{2, 8, 4, 3}}, {0}, {.slice.first = 3}, {2, 5, 4, 3}, {2, 5, 4, 3}},
    {"slice beyond the end", OP_SLICE, {{2, 8, 4, 3}}, {0}, {.slice.first = 4}, {2, 5, 4, 3}, {0}, "x: channels 4 to 9 exceed the operand's 8 (2x8x4x3)"},
    {"slice before the start", OP_SLICE, {{2, 8, 4, 3}}, {0}, {.slice.first = -1}, {2, 5, 4, 3}, {0}, "x: channels -1 to 4 exceed the operand's 8 (2x8x4x3)"},
    {"reshape", OP_RESHAPE, {{2, 8, 4, 3}}, {0}, {{{0}}}, {2, 96, 1, 1}, {2, 96, 1, 1}},
    {"reshape to more", OP_RESHAPE, {{2, 8, 4, 3}}, {0}, {{{0}}}, {2, 97, 1, 1}, {0}, "x: 2x8x4x3 has 192 elements, 2x97x1x1 has 194"},
    {"no shape", OP_RESHAPE, {{2, 8, 4, 3}}, {0}, {{{0}}}, {2, -96, 1, 1}, {0}, "x: 2x-96x1x1 is not a shape"},
    {"pad", OP_PAD, {{2, 8, 4, 3}}, {0}, {.pad = {1, 2, -2, 1}}, {0}, {2, 8, 7, 2}},
    {"pad to nothing", OP_PAD, {{2, 8, 4, 3}}, {0}, {.pad = {1, 2, -2, -1}}, {0}, {0}, "x: 2x8x4x3 cannot be padded to a height of 7 and a width of 0"},
    {"pad without end", OP_PAD, {{2, 8, 4, 3}}, {0}, {.pad = {INT32_MAX, INT32_MAX, 0, 0}}, {0}, {0}, "x: 2x8x4x3 cannot be padded to a height of 4294967298 and a width of 3"},
    {"sum_to", OP_SUM_TO, {{2, 8, 4, 3}}, {0}, {{{0}}}, {2, 1, 1, 3}, {2, 1, 1, 3}},
    {"sum_to of others", OP_SUM_TO, {{2, 8, 4, 3}}, {0}, {{{0}}}, {2, 1, 1, 2}, {0}, "x: 2x8x4x3 cannot be reduced to 2x1x1x2: expected each size to be equal or 1"},
    {"spread_to", OP_SPREAD_TO, {{2, 1, 1, 3}}, {0}, {{{0}}}, {2, 8, 4, 3}, {2, 8, 4, 3}},
    {"spread_to of others", OP_SPREAD_TO, {{2, 1, 1, 3}}, {0}, {{{0}}}, {3, 8, 4, 3}, {0}, "x: 2x1x1x3 cannot be broadcast to 3x8x4x3: expected each size to be 1 or equal"},
    {"image", OP_IMAGE, {{2, 1, 30, 32}, {2, 16, 1, 1}}, {DTYPE_U8, DTYPE_I32}, {{{0}}}, {2, 3, 28, 28}, {2, 3, 28, 28}},
    {"image mixed in", OP_IMAGE, {{3, 1, 30, 32}, {3, 16, 1, 1}}, {DTYPE_U8, DTYPE_I32}, {{{0}}}, {2, 3, 28, 28}, {2, 3, 28, 28}},
    {"two images mixed in", OP_IMAGE, {{4, 1, 30, 32}, {4, 16, 1, 1}}, {DTYPE_U8, DTYPE_I32}, {{{0}}}, {2, 3, 28, 28}, {0}, "x: images: expected 4, found 2"},
    {"image of small pixels", OP_IMAGE, {{2, 1, 30, 32}}, {DTYPE_U8}, {{{0}}}, {2, 3, 31, 28}, {0}, "x: cannot crop 31x28 from pixels of 30x32 (2x1x30x32)"},
    {"random", OP_RANDOM, {{1, 4, 1, 1}}, {DTYPE_I32}, {{{0}}}, {7, 100, 1, 1}, {7, 100, 1, 1}},
    {"softmax_loss", OP_SOFTMAX_LOSS, {{7, 10, 1, 1}, {7, 1, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {1, 1, 1, 1}},
    {"softmax_loss of fewer labels", OP_SOFTMAX_LOSS, {{7, 10, 1, 1}, {6, 1, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {0}, "x: one label per sample: expected 7x1x1x1, found 6x1x1x1"},
    {"softmax_loss of a map", OP_SOFTMAX_LOSS, {{7, 10, 2, 1}, {7, 1, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {0}, "x: expected logits of shape Nx(classes)x1x1, found 7x10x2x1"},
    {"softmax_loss of targets", OP_SOFTMAX_LOSS, {{7, 10, 1, 1}, {7, 1, 1, 1}, {7, 10, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {1, 1, 1, 1}},
    {"softmax_loss of fewer targets", OP_SOFTMAX_LOSS, {{7, 10, 1, 1}, {7, 1, 1, 1}, {7, 9, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {0}, "x: shape of the targets: expected 7x10x1x1, found 7x9x1x1"},
    {"softmax_loss of smoothed targets", OP_SOFTMAX_LOSS, {{7, 10, 1, 1}, {7, 1, 1, 1}, {7, 10, 1, 1}}, {0, DTYPE_I32}, {.loss = {0.5f}}, {0}, {0}, "x: targets contain the smoothing: expected 0, found 0.5"},
    {"sigmoid_loss", OP_SIGMOID_LOSS, {{7, 10, 1, 1}, {7, 1, 1, 1}, {7, 10, 1, 1}, {1, 10, 1, 1}}, {0, DTYPE_I32}, {.loss = {0, true}}, {0}, {1, 1, 1, 1}},
    {"sigmoid_loss of fewer weights", OP_SIGMOID_LOSS, {{7, 10, 1, 1}, {7, 1, 1, 1}, {7, 10, 1, 1}, {1, 9, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {0}, "x: one weight per class: expected 1x10x1x1, found 1x9x1x1"},
    {"softmax_loss_dx", OP_SOFTMAX_LOSS_DX, {{7, 10, 1, 1}, {7, 1, 1, 1}, {1, 1, 1, 1}}, {0, DTYPE_I32}, {{{0}}}, {0}, {7, 10, 1, 1}},
};
// clang-format on

static void run_shape_case(const ShapeCase *row)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value in[6] = {{0}};
    int count = 0;
    for (; count < 6 && row->in[count].n; count++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", count);
        in[count] = graph_input(g, name, row->in[count], row->dtype[count]);
    }
    Value y = graph_op(g, row->kind, "x", in, count, &row->attr, row->asked.n ? &row->asked : NULL);
    if (row->message) {
        assert_int_equal(y.id, 0);
        assert_true(graph_finish(g) != OK);
        assert_string_equal(status_message(), row->message);
    } else {
        assert_sound(g);
        if (!shape_equal(graph_shape(g, y), row->out))
            fail_msg("%s: have %s", row->name, shape_text(graph_shape(g, y)));
    }
    graph_destroy(g);
}

TEST(shapes_follow_and_failures_are_reported)
{
    for (size_t i = 0; i < sizeof shape_cases / sizeof *shape_cases; i++) run_shape_case(&shape_cases[i]);
}

/* A window that cannot fit names its layer with its block. */
TEST(failures_name_block_and_layer)
{
    Graph *g = new_graph(true, DTYPE_F32);
    graph_scope(g, "Mixed_6a");
    CHAIN(g, new_input(g, "x", 64, 768, 1, 1), {"branch3x3", 384, 3, 3, HALVE});
    assert_failure(g, ERR_SHAPE, "Mixed_6a.branch3x3.conv: window 3x3 stride 2 does not fit input 1x1 (64x768x1x1)");
    graph_destroy(g);
}

TEST(errors_stick)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 4, 4), bad = add(g, x, new_input(g, "other", 2, 3, 4, 5));
    int ops = graph_op_count(g), values = graph_value_count(g);
    assert_int_equal(bad.id, 0);
    Value y = dense(g, max_pool(g, relu(g, bad), 2, HALVE), "fc", 10, false, uniform), grad = x;
    graph_grad(g, y, x, &x, 1, &grad);
    graph_train(g, y, x, NULL);
    graph_result(g, y, "loss");
    graph_expect(g, y, 1, 1);
    assert_int_equal(grad.id, 0);
    assert_int_equal(graph_op_count(g), ops);
    assert_int_equal(graph_value_count(g), values);
    assert_failure(g, ERR_SHAPE, "add: operands of one shape: expected 2x3x4x4, found 2x3x4x5");
    graph_destroy(g);
}

TEST(names_are_unique_and_found)
{
    Graph *g = new_graph(true, DTYPE_F32);
    graph_scope(g, "block");
    Value x = new_input(g, "x", 2, 3, 4, 4);
    Value w = graph_param(g, "w", (Shape){1, 3, 1, 1}, uniform, true);
    graph_scope(g, "");
    Value y = relu(g, x);
    graph_result(g, y, "answer");
    assert_int_equal(graph_find(g, "x").id, x.id);
    assert_int_equal(graph_find(g, "block.w").id, w.id);
    assert_int_equal(graph_find(g, "answer").id, y.id);
    assert_int_equal(graph_find(g, "w").id, 0);
    graph_param(g, "block.w", (Shape){1, 3, 1, 1}, uniform, true);
    assert_failure(g, ERR_ARG, "block.w: this name is already used in the graph");
    graph_destroy(g);
}

TEST(bad_leaves_are_refused)
{
    Graph *g = new_graph(true, DTYPE_F32);
    new_input(g, "x", 1 << 20, 1 << 20, 2, 1);
    assert_failure(g, ERR_SHAPE,
                   "x: 1048576x1048576x2x1 is not a shape: every size is at least 1, and no value has more "
                   "than 1099511627776 elements");
    graph_destroy(g);
    GraphOptions options = {.compute = DTYPE_U8};
    assert_int_equal(graph_create(&options, &g), ERR_ARG);
}

TEST(expectations_hold_for_the_canonical_side)
{
    const int32_t sides[][2] = {{9, 9}, {9, 8}, {8, 9}};
    for (int row = 0; row < 3; row++) {
        Graph *g = new_graph(true, DTYPE_F32);
        graph_canonical(g, 9);
        Value x = new_input(g, "x", 2, 3, sides[row][0], sides[row][1]);
        graph_expect(g, max_pool(g, x, 3, HALVE), 3, 5);
        if (row)
            assert_sound(g);
        else
            assert_failure(g, ERR_SHAPE, "max_pool: expected 3 channels of 5x5, found 3 of 4x4 (2x3x4x4)");
        graph_destroy(g);
    }
}

/* ---- modes and dtypes */

static Value small_net(Graph *g, Value x)
{
    x = CHAIN(g, x, {"a", 4, 3, 3}, {"b", 5, 1, 1});
    x = dropout(g, global_avg_pool(g, x), 0.25f);
    return dense(g, x, "fc", 10, false, uniform);
}

/* Training and evaluation must agree on names, shapes and order of what is stored. */
TEST(both_modes_store_the_same)
{
    Graph *graphs[2];
    for (int training = 0; training < 2; training++) {
        graphs[training] = new_graph(training, DTYPE_F32);
        small_net(graphs[training], new_input(graphs[training], "x", 2, 3, 8, 8));
        assert_sound(graphs[training]);
    }
    int32_t a = 1, b = 1, stored = 0;
    for (;; a++, b++) {
        const ValueInfo *left, *right;
        while (left = graph_value(graphs[0], (Value){a}),
               *left->name && left->role != ROLE_PARAM && left->role != ROLE_RUNNING)
            a++;
        while (right = graph_value(graphs[1], (Value){b}),
               *right->name && right->role != ROLE_PARAM && right->role != ROLE_RUNNING)
            b++;
        assert_string_equal(left->name, right->name);
        assert_true(shape_equal(left->shape, right->shape) && left->role == right->role);
        if (!*left->name) break;
        stored++;
    }
    assert_int_equal(stored, 2 * 5 + 2);
    graph_destroy(graphs[0]);
    graph_destroy(graphs[1]);
}

TEST(batch_norm_feeds_its_states)
{
    Graph *g = new_graph(true, DTYPE_BF16);
    Value x = graph_input(g, "x", (Shape){2, 3, 4, 4}, DTYPE_BF16);
    Value y = conv_bn_relu(g, x, (ConvUnit){"a", 4, 3, 3, SAME});
    const ValueInfo *mean = graph_value(g, graph_output(g, y, 1)), *var = graph_value(g, graph_output(g, y, 2));
    assert_int_equal(graph_value(g, y)->dtype, DTYPE_BF16);
    assert_int_equal(mean->role, ROLE_BATCH_STATISTIC);
    assert_int_equal(mean->dtype, DTYPE_F32);
    assert_true(mean->values == 32 && !mean->unbiased && var->values == 32 && var->unbiased);
    assert_int_equal(mean->of.id, graph_find(g, "a.bn.running_mean").id);
    assert_int_equal(var->of.id, graph_find(g, "a.bn.running_var").id);
    assert_true(graph_value(g, mean->of)->init.a == 0 && graph_value(g, var->of)->init.a == 1);
    assert_false(graph_value(g, graph_find(g, "a.bn.weight"))->decay);
    assert_true(graph_value(g, graph_find(g, "a.conv.weight"))->decay);
    graph_destroy(g);
}

TEST(gradients_keep_the_dtypes)
{
    Graph *g = new_graph(true, DTYPE_BF16);
    const float half[3] = {0.5f, 0.5f, 0.5f};
    Value pixels = graph_input(g, "pixels", (Shape){2, 3, 9, 9}, DTYPE_U8);
    Value labels = graph_input(g, "labels", (Shape){2, 1, 1, 1}, DTYPE_I32);
    Value logits = small_net(g, image(g, pixels, none, 3, 8, half, half));
    Value loss = softmax_loss(g, logits, labels, 0, NULL, NULL);
    assert_int_equal(graph_value(g, logits)->dtype, DTYPE_BF16);
    graph_train(g, loss, graph_input(g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32), NULL);
    assert_sound(g);
    for (int i = 0; i < graph_op_count(g); i++) {
        const Op *op = graph_op_at(g, i);
        const ValueInfo *y = graph_value(g, op->out[0]);
        bool numbers = op->kind == OP_CONV_DW || op->kind == OP_DENSE_DW || op->kind == OP_CHANNEL_SUM ||
                       op->kind == OP_SOFTMAX_LOSS;
        assert_int_equal(y->dtype, numbers ? DTYPE_F32 : DTYPE_BF16);
    }
    graph_destroy(g);
}

/* ---- gradients as text */

TEST(dense_net)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 1, 1), labels = graph_input(g, "labels", (Shape){2, 1, 1, 1}, DTYPE_I32);
    x = dense(g, dense(g, x, "a", 4, true, uniform), "b", 5, false, uniform);
    Value loss = softmax_loss(g, x, labels, 0, NULL, NULL);
    graph_result(g, loss, "loss");
    graph_train(g, loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    assert_sound(g);
    assert_ops(g, 2,
               "%2 = softmax_loss(%1, labels) smoothing 0 -> 1x1x1x1 f32 (softmax_loss) [loss]\n"
               "%3 = softmax_loss_dx(%2.1, labels, dloss) smoothing 0 -> 2x5x1x1 f32 (softmax_loss.dx)\n"
               "%4 = channel_sum(%3) -> 1x5x1x1 f32 (b.db) [grad of b.bias]\n"
               "%5 = dense_dw(%0, %3) -> 5x4x1x1 f32 (b.dw) [grad of b.weight]\n"
               "%6 = dense_dx(%3, b.weight) -> 2x4x1x1 f32 (b.dx)\n"
               "%7 = relu_dx(%6, %0) -> 2x4x1x1 f32 (a.relu)\n"
               "%8 = channel_sum(%7) -> 1x4x1x1 f32 (a.db) [grad of a.bias]\n"
               "%9 = dense_dw(x, %7) -> 4x3x1x1 f32 (a.dw) [grad of a.weight]\n");
    graph_destroy(g);
}

TEST(relu_mask_moves_behind_the_pooling)
{
    for (int shared = 0; shared < 2; shared++) {
        Graph *g = new_graph(true, DTYPE_F32);
        Value x = new_input(g, "x", 2, 3, 8, 8), dy = new_input(g, "dy", 2, 3, 4, 4), dx;
        Value masked = relu(g, x), y = max_pool(g, masked, 2, HALVE);
        if (shared) y = add(g, y, max_pool(g, masked, 2, HALVE));
        graph_grad(g, y, dy, &x, 1, &dx);
        assert_sound(g);
        assert_ops(g, shared ? 4 : 2,
                   shared ? "%4 = max_pool_dx(dy, %2.1) 2x2/2 -> 2x3x8x8 f32 (max_pool.dx)\n"
                            "%5 = max_pool_dx(dy, %1.1, %4) 2x2/2 -> 2x3x8x8 f32 (max_pool.dx)\n"
                            "%6 = relu_dx(%5, %0) -> 2x3x8x8 f32 (relu.relu)\n"
                          : "%2 = max_pool_dx(dy, %1.1, -, %1) 2x2/2 -> 2x3x8x8 f32 (max_pool.dx)\n");
        graph_destroy(g);
    }
}

/* The gradient of the ReLU itself was asked for: it must not come masked. */
TEST(asked_relu_keeps_its_mask)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 8, 8), dy = new_input(g, "dy", 2, 3, 4, 4), wrt[2], grads[2];
    wrt[0] = x;
    wrt[1] = relu(g, x);
    graph_grad(g, max_pool(g, wrt[1], 2, HALVE), dy, wrt, 2, grads);
    assert_ops(g, 2,
               "%2 = max_pool_dx(dy, %1.1) 2x2/2 -> 2x3x8x8 f32 (max_pool.dx)\n"
               "%3 = relu_dx(%2, %0) -> 2x3x8x8 f32 (relu.relu)\n");
    graph_destroy(g);
}

/* Branches of one input: 1x1 convolutions and poolings add in their own pass, a 3x3 needs an ADD. */
TEST(fan_in_chains_through_acc)
{
    Graph *g = new_graph(true, DTYPE_F32);
    OpAttr point = window_attr(1, 1, 0), same = window_attr(3, 1, 1);
    Value x = new_input(g, "x", 2, 3, 8, 8), dy = new_input(g, "dy", 2, 11, 8, 8), dx;
    Value w0 = graph_param(g, "w0", (Shape){4, 3, 1, 1}, uniform, true),
          w1 = graph_param(g, "w1", (Shape){4, 3, 3, 3}, uniform, true);
    Value a = graph_op(g, OP_CONV, "c0", OPERANDS(x, w0), &point, NULL);
    Value b = graph_op(g, OP_CONV, "c1", OPERANDS(x, w1), &same, NULL);
    Value y = CONCAT(g, a, b, avg_pool(g, x, 3, SAME));
    graph_grad(g, y, dy, &x, 1, &dx);
    assert_sound(g);
    assert_ops(g, 4,
               "%4 = slice(dy) from 0 -> 2x4x8x8 f32 (concat.dx)\n"
               "%5 = slice(dy) from 4 -> 2x4x8x8 f32 (concat.dx)\n"
               "%6 = slice(dy) from 8 -> 2x3x8x8 f32 (concat.dx)\n"
               "%7 = avg_pool_dx(%6) 3x3+1 -> 2x3x8x8 f32 (avg_pool.dx)\n"
               "%8 = conv_dx(%5, w1) 3x3+1 -> 2x3x8x8 f32 (c1.dx)\n"
               "%9 = conv_dx(%4, w0, %8) 1x1 -> 2x3x8x8 f32 (c0.dx)\n"
               "%10 = add(%7, %9) -> 2x3x8x8 f32 (x.sum)\n");
    assert_int_equal(graph_value(g, dx)->op, 10);
    graph_destroy(g);
}

TEST(more_contributions_than_add_takes)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 1, 1, 1, 1), y = affine(g, x, 2, 0), dx;
    for (int i = 0; i < 9; i++) y = add(g, y, affine(g, x, 3, 0));
    graph_grad(g, y, new_input(g, "dy", 1, 1, 1, 1), &x, 1, &dx);
    assert_sound(g);
    assert_int_equal(graph_value(g, dx)->op, graph_op_count(g) - 1);
    assert_int_equal(graph_op_at(g, graph_op_count(g) - 1)->in_count, 3);
    assert_int_equal(graph_op_at(g, graph_op_count(g) - 2)->kind, OP_ADD);
    assert_int_equal(graph_op_at(g, graph_op_count(g) - 2)->in_count, 8);
    graph_destroy(g);
}

static Value cut(Graph *g, Value x, int32_t first, int32_t channels)
{
    OpAttr attr = {.slice.first = first};
    Shape s = graph_shape(g, x);
    s.c = channels;
    return graph_op(g, OP_SLICE, NULL, &x, 1, &attr, &s);
}

TEST(slices_join_when_they_cover)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 1, 1), dx;
    Value b = cut(g, x, 3, 5), a = cut(g, x, 0, 3), again = cut(g, x, 0, 3);
    Value y = CONCAT(g, a, b, again);
    graph_grad(g, y, new_input(g, "dy", 2, 11, 1, 1), &x, 1, &dx);
    assert_sound(g);
    assert_ops(g, 7, "%7 = add(%6, %4) -> 2x3x1x1 f32 (x.joined)\n%8 = concat(%7, %5) -> 2x8x1x1 f32 (x.joined)\n");
    graph_destroy(g);
}

/* Channels that nothing reads have the gradient 0. */
TEST(slices_that_leave_holes)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 1, 1), dx;
    Value y = CONCAT(g, cut(g, x, 1, 2), cut(g, x, 4, 3));
    graph_grad(g, y, new_input(g, "dy", 2, 5, 1, 1), &x, 1, &dx);
    assert_sound(g);
    assert_ops(g, 5,
               "%5 = slice(x) from 0 -> 2x1x1x1 f32 (x.joined)\n"
               "%6 = pad(%5) top -1 bottom 1 left 0 right 0 -> 2x1x1x1 f32 (x.joined)\n"
               "%7 = slice(x) from 3 -> 2x1x1x1 f32 (x.joined)\n"
               "%8 = pad(%7) top -1 bottom 1 left 0 right 0 -> 2x1x1x1 f32 (x.joined)\n"
               "%9 = slice(x) from 7 -> 2x1x1x1 f32 (x.joined)\n"
               "%10 = pad(%9) top -1 bottom 1 left 0 right 0 -> 2x1x1x1 f32 (x.joined)\n"
               "%11 = concat(%6, %3, %8, %4, %10) -> 2x8x1x1 f32 (x.joined)\n");
    graph_destroy(g);
}

/* What begins in the middle of another one is a sum of its own. */
TEST(slices_that_overlap)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 1, 1), dx;
    Value y = CONCAT(g, cut(g, x, 0, 3), cut(g, x, 2, 6));
    graph_grad(g, y, new_input(g, "dy", 2, 9, 1, 1), &x, 1, &dx);
    assert_sound(g);
    assert_ops(g, 5,
               "%5 = slice(x) from 3 -> 2x5x1x1 f32 (x.joined)\n"
               "%6 = pad(%5) top -1 bottom 1 left 0 right 0 -> 2x5x1x1 f32 (x.joined)\n"
               "%7 = concat(%3, %6) -> 2x8x1x1 f32 (x.joined)\n"
               "%8 = slice(x) from 0 -> 2x2x1x1 f32 (x.joined)\n"
               "%9 = pad(%8) top -1 bottom 1 left 0 right 0 -> 2x2x1x1 f32 (x.joined)\n"
               "%10 = concat(%9, %4) -> 2x8x1x1 f32 (x.joined)\n"
               "%11 = add(%7, %10) -> 2x8x1x1 f32 (x.sum)\n");
    graph_destroy(g);
}

/* A parameter's gradient is f32, also where one sample of one pixel has the shape of its factors. */
TEST(factors_of_one_pixel)
{
    Graph *g = new_graph(true, DTYPE_BF16);
    Value x = graph_input(g, "x", (Shape){1, 4, 1, 1}, DTYPE_BF16), dscale;
    Value y = layer_scale(g, x, "scale", 1), scale = graph_find(g, "scale");
    graph_grad(g, y, graph_input(g, "dy", (Shape){1, 4, 1, 1}, DTYPE_BF16), &scale, 1, &dscale);
    assert_sound(g);
    assert_ops(g, 1,
               "%1 = mul(dy, x) -> 1x4x1x1 bf16 (scale.product)\n"
               "%2 = channel_sum(%1) -> 1x4x1x1 f32 (scale.db)\n");
    graph_destroy(g);
}

TEST(no_dx_that_nobody_asks_for)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 8, 8), other = new_input(g, "other", 1, 1, 1, 1);
    Value y = conv_bias(g, x, "c", 4, 3, SAME, false, uniform), w = graph_find(g, "c.weight"),
          wrt[3] = {w, other, none}, grads[3];
    graph_grad(g, y, new_input(g, "dy", 2, 4, 8, 8), wrt, 3, grads);
    assert_ops(g, 1, "%1 = conv_dw(x, dy) 3x3+1 -> 4x3x3x3 f32 (c.dw)\n");
    assert_int_equal(graph_value(g, grads[0])->op, 1);
    assert_int_equal(grads[1].id, 0);
    assert_int_equal(grads[2].id, 0);
    graph_destroy(g);
}

/* Convolution is closed: the second derivative of the gradient's square is made of the same three kinds. */
TEST(convolution_differentiates_twice)
{
    Graph *g = new_graph(true, DTYPE_F32);
    OpAttr same = window_attr(3, 1, 1);
    Shape scalar = {1, 1, 1, 1};
    Value x = new_input(g, "x", 2, 3, 8, 8), w = graph_param(g, "w", (Shape){4, 3, 3, 3}, uniform, true), dx, dw;
    Value y = leaky_relu(g, graph_op(g, OP_CONV, "c", OPERANDS(x, w), &same, NULL), 0.5f);
    graph_grad(g, y, new_input(g, "dy", 2, 4, 8, 8), &x, 1, &dx);
    Value square = mul(g, dx, dx), penalty = graph_op(g, OP_SUM_TO, NULL, &square, 1, NULL, &scalar);
    graph_grad(g, penalty, new_input(g, "dloss", 1, 1, 1, 1), &w, 1, &dw);
    assert_sound(g);
    assert_ops(g, 6,
               "%6 = spread_to(dloss) -> 2x3x8x8 f32 (sum_to.dx)\n"
               "%7 = mul(%6, %3) -> 2x3x8x8 f32 (mul.da)\n"
               "%8 = mul(%6, %3) -> 2x3x8x8 f32 (mul.db)\n"
               "%9 = add(%7, %8) -> 2x3x8x8 f32 (c.dx.sum)\n"
               "%10 = conv_dw(%9, %2) 3x3+1 -> 4x3x3x3 f32 (c.dx.dw)\n");
    graph_destroy(g);
}

/* Behind two layers the second derivative passes through the mask of the leaky ReLU, but not into it. */
TEST(second_derivative_passes_a_mask)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Shape scalar = {1, 1, 1, 1};
    Value x = new_input(g, "x", 2, 3, 1, 1), dx, dw[2];
    Value w[2] = {graph_param(g, "w0", (Shape){4, 3, 1, 1}, uniform, true),
                  graph_param(g, "w1", (Shape){1, 4, 1, 1}, uniform, true)};
    Value h = leaky_relu(g, graph_op(g, OP_DENSE, "a", OPERANDS(x, w[0]), NULL, NULL), 0.5f);
    Value y = graph_op(g, OP_DENSE, "b", OPERANDS(h, w[1]), NULL, NULL);
    graph_grad(g, y, new_input(g, "dy", 2, 1, 1, 1), &x, 1, &dx);
    Value sum = graph_op(g, OP_SUM_TO, NULL, &dx, 1, NULL, &scalar);
    graph_grad(g, sum, new_input(g, "dloss", 1, 1, 1, 1), w, 2, dw);
    assert_sound(g);
    assert_ops(g, 3,
               "%3 = dense_dx(dy, w1) -> 2x4x1x1 f32 (b.dx)\n"
               "%4 = leaky_relu_dx(%3, %1) alpha 0.5 -> 2x4x1x1 f32 (leaky_relu.dx)\n"
               "%5 = dense_dx(%4, w0) -> 2x3x1x1 f32 (a.dx)\n"
               "%6 = sum_to(%5) -> 1x1x1x1 f32 (sum_to)\n"
               "%7 = spread_to(dloss) -> 2x3x1x1 f32 (sum_to.dx)\n"
               "%8 = dense_dw(%7, %4) -> 4x3x1x1 f32 (a.dx.dw)\n"
               "%9 = dense(%7, w0) -> 2x4x1x1 f32 (a.dx.dy)\n"
               "%10 = leaky_relu_dx(%9, %1) alpha 0.5 -> 2x4x1x1 f32 (leaky_relu.dx.dy)\n"
               "%11 = dense_dw(%10, dy) -> 1x4x1x1 f32 (b.dx.dw)\n");
    graph_destroy(g);
}

TEST(kinds_without_a_rule_say_so)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 8, 8), dx, again;
    Value y = CHAIN(g, x, {"a", 4, 3, 3});
    graph_grad(g, y, new_input(g, "dy", 2, 4, 8, 8), &x, 1, &dx);
    graph_grad(g, dx, x, &x, 1, &again);
    assert_failure(g, ERR_UNSUPPORTED, "a.bn.dx: batchnorm_dx has no gradient rule");
    graph_destroy(g);
}

/* Two parameters, one gradient value: each still gets a place of its own in the arena. */
TEST(every_parameter_has_its_own_gradient)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Shape scalar = {1, 1, 1, 1};
    Value a = graph_param(g, "a", scalar, uniform, true), b = graph_param(g, "b", scalar, uniform, true);
    graph_param(g, "unused", scalar, uniform, true);
    graph_train(g, add(g, a, b), new_input(g, "dloss", 1, 1, 1, 1), NULL);
    assert_sound(g);
    assert_ops(g, 1,
               "%1 = affine(dloss) scale 1 shift 0 -> 1x1x1x1 f32 (a.grad) [grad of a]\n"
               "%2 = affine(dloss) scale 1 shift 0 -> 1x1x1x1 f32 (b.grad) [grad of b]\n");
    graph_destroy(g);
}

TEST(dy_must_fit)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 8, 8), dx;
    graph_grad(g, relu(g, x), new_input(g, "dy", 1, 1, 1, 1), &x, 1, &dx);
    assert_failure(g, ERR_SHAPE, "relu: dy is f32 1x1x1x1, expected f32 2x3x8x8 as y");
    graph_destroy(g);
}

/* ---- layers */

TEST(layers_check_their_numbers)
{
    const float half[3] = {0.5f, 0.5f, 0.5f}, zero[3] = {0};
    Graph *g = new_graph(true, DTYPE_F32);
    dropout(g, new_input(g, "x", 2, 3, 8, 8), 1);
    assert_failure(g, ERR_ARG, "dropout: expected a rate of at least 0 and below 1, found 1");
    graph_destroy(g);
    g = new_graph(true, DTYPE_F32);
    image(g, graph_input(g, "pixels", (Shape){2, 3, 8, 8}, DTYPE_U8), none, 3, 8, half, zero);
    assert_failure(g, ERR_ARG,
                   "image: mean 0.5 and deviation 0 of channel 0: expected finite numbers, the deviation above 0");
    graph_destroy(g);
}

/* 10x9 by windows of 3 with stride 2: rows lack one, columns two. By 1 with stride 2 none. */
TEST(windows_of_tensorflow)
{
    const Init init = {INIT_HE_NORMAL};
    Graph *g = new_graph(false, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 10, 9);
    x = conv_window(g, x, "a", 4, window_same(graph_shape(g, x), 3, 2), init);
    x = max_pool_window(g, x, window_same(graph_shape(g, x), 2, 2));
    x = conv_window(g, x, "b", 4, window_same(graph_shape(g, x), 4, 1), init);
    conv_window(g, x, "c", 4, window_same(graph_shape(g, x), 1, 2), init);
    conv_window(g, x, "d", 4, (Window){3, 3, 1, 1, 2, 2, false, 0, 0, 1, 1}, init);
    assert_sound(g);
    assert_ops(g, 0,
               "%0 = conv(x, a.weight) 3x3/2+0:1x1:1 -> 2x4x5x5 f32 (a)\n"
               "%1 = max_pool(%0) 2x2/2+0:1x0:1 -> 2x4x3x3 f32 (max_pool)\n"
               "%2 = conv(%1, b.weight) 4x4+1:2x1:2 -> 2x4x3x3 f32 (b)\n"
               "%3 = conv(%2, c.weight) 1x1/2 -> 2x4x2x2 f32 (c)\n"
               "%4 = conv(%2, d.weight) 3x3+2 dilation 2x2 -> 2x4x3x3 f32 (d)\n");
    graph_destroy(g);
}

TEST(fits_and_styles)
{
    Graph *g = new_graph(false, DTYPE_F32);
    Value x = new_input(g, "x", 2, 3, 8, 8);
    layer_style(g, (LayerStyle){.bn_epsilon = 0.25f, .bn_no_gamma = true, .include_pad = true});
    x = CHAIN(g, x, {"a", 4, 1, 7, SAME}, {"b", 4, 3, 3, HALVE_SAME});
    x = max_pool(g, avg_pool(g, dropout(g, x, 0.5f), 3, SAME), 3, HALVE_CEIL);
    affine(g, add_relu(g, x, relu(g, x)), 2, 1);
    assert_sound(g);
    assert_ops(
        g, 0,
        "%0 = conv(x, a.conv.weight) 1x7+0x3 -> 2x4x8x8 f32 (a.conv)\n"
        "%1 = batchnorm_apply(%0, a.bn.bias, a.bn.running_mean, a.bn.running_var) eps 0.25 relu -> 2x4x8x8 f32 (a.bn)\n"
        "%2 = conv(%1, b.conv.weight) 3x3/2+1 -> 2x4x4x4 f32 (b.conv)\n"
        "%3 = batchnorm_apply(%2, b.bn.bias, b.bn.running_mean, b.bn.running_var) eps 0.25 relu -> 2x4x4x4 f32 (b.bn)\n"
        "%4 = avg_pool(%3) 3x3+1 include_pad -> 2x4x4x4 f32 (avg_pool)\n"
        "%5 = max_pool(%4) 3x3/2 ceil -> 2x4x2x2 f32 (max_pool)\n"
        "%6 = relu(%5) -> 2x4x2x2 f32 (relu)\n"
        "%7 = add(%5, %6) relu -> 2x4x2x2 f32 (add)\n"
        "%8 = affine(%7) scale 2 shift 1 -> 2x4x2x2 f32 (affine)\n");
    graph_destroy(g);
}
