/* Convolutions. One line of the list makes seven rows: forward with and without bias and ReLU, and both gradients.
 *
 * A sum with acc may be rounded twice, and its first part may be larger than the sum. */
#include "tests/support/cases.h"

#define BIAS_OF(n, c, h, w) VECTOR(n)
#define CONV_ATTR(relu_, ...)                                                                                          \
    {                                                                                                                  \
        .conv = { {__VA_ARGS__}, relu_ }                                                                               \
    }

/* R: see Case.roundings; what Winograd's algorithm needs in bf16. X, W, Y: shapes; then the window: kh, kw, strides,
 * pads, and if they differ: false, how much more there is behind, dilations - 1. */
#define ROWS(label, X, W, Y, ...) ROUNDED_ROWS(1, label, X, W, Y, __VA_ARGS__)
#define ROUNDED_ROWS(R, label, X, W, Y, ...)                                                                           \
    {label, OP_CONV, CONV_ATTR(false, __VA_ARGS__), {ACT X, WEIGHT W}, {ACT Y}, .roundings = R},                       \
        {label ", bias", OP_CONV, CONV_ATTR(false, __VA_ARGS__), {ACT X, WEIGHT W, BIAS_OF W}, {ACT Y}},               \
        {label ", relu", OP_CONV, CONV_ATTR(true, __VA_ARGS__), {ACT X, WEIGHT W}, {ACT Y}},                           \
        {label ", bias, relu", OP_CONV, CONV_ATTR(true, __VA_ARGS__), {ACT X, WEIGHT W, BIAS_OF W}, {ACT Y}},          \
        {label, OP_CONV_DX, CONV_ATTR(false, __VA_ARGS__), {ACT Y, WEIGHT W}, {ACT X}, .roundings = R},                \
        {label ", acc", OP_CONV_DX,        CONV_ATTR(false, __VA_ARGS__), {ACT Y, WEIGHT W, ACT X},                    \
         {ACT X},       .roundings = 3 * R},                                                                           \
    {                                                                                                                  \
        label, OP_CONV_DW, CONV_ATTR(false, __VA_ARGS__), {ACT X, ACT Y}, {PLAIN W}, .sums_rounded = (R) > 1           \
    }

static const Case rows[] = {
    // clang-format off
    ROWS("1x1",                     (2, 16, 7, 7),   (8, 16, 1, 1),   (2, 8, 7, 7),    1, 1, 1, 1, 0, 0),
    ROWS("1x1 on one pixel",        (3, 24, 1, 1),   (10, 24, 1, 1),  (3, 10, 1, 1),   1, 1, 1, 1, 0, 0),
    ROWS("1x1 stride 2",            (2, 8, 9, 9),    (16, 8, 1, 1),   (2, 16, 5, 5),   1, 1, 2, 2, 0, 0),
    ROWS("3x3 same",                (2, 16, 9, 9),   (24, 16, 3, 3),  (2, 24, 9, 9),   3, 3, 1, 1, 1, 1),
    ROWS("3x3 valid",               (2, 8, 9, 9),    (16, 8, 3, 3),   (2, 16, 7, 7),   3, 3, 1, 1, 0, 0),
    ROWS("3x3 stride 2 on RGB",     (2, 3, 15, 15),  (32, 3, 3, 3),   (2, 32, 7, 7),   3, 3, 2, 2, 0, 0),
    ROWS("3x3 stride 2, rest",      (1, 4, 10, 10),  (8, 4, 3, 3),    (1, 8, 4, 4),    3, 3, 2, 2, 0, 0),
    ROWS("4x4 stride 2 pad 1",      (2, 8, 8, 8),    (16, 8, 4, 4),   (2, 16, 4, 4),   4, 4, 2, 2, 1, 1),
    ROWS("5x5 same",                (1, 48, 8, 8),   (32, 48, 5, 5),  (1, 32, 8, 8),   5, 5, 1, 1, 2, 2),
    ROWS("1x7",                     (2, 16, 9, 9),   (16, 16, 1, 7),  (2, 16, 9, 9),   1, 7, 1, 1, 0, 3),
    ROWS("7x1",                     (2, 16, 9, 9),   (16, 16, 7, 1),  (2, 16, 9, 9),   7, 1, 1, 1, 3, 0),
    ROWS("7x7 stride 2 pad 3",      (1, 3, 17, 17),  (16, 3, 7, 7),   (1, 16, 9, 9),   7, 7, 2, 2, 3, 3),
    ROWS("one channel",             (3, 1, 12, 12),  (5, 1, 5, 5),    (3, 5, 8, 8),    5, 5, 1, 1, 0, 0),
    ROWS("one output",              (2, 6, 5, 5),    (1, 6, 3, 3),    (2, 1, 5, 5),    3, 3, 1, 1, 1, 1),
    ROWS("odd channels",            (2, 7, 6, 6),    (13, 7, 3, 3),   (2, 13, 6, 6),   3, 3, 1, 1, 1, 1),
    ROWS("window is the input",     (2, 8, 5, 5),    (12, 8, 5, 5),   (2, 12, 1, 1),   5, 5, 1, 1, 0, 0),
    ROWS("all sizes unequal",       (2, 4, 11, 8),   (6, 4, 3, 2),    (2, 6, 5, 9),    3, 2, 2, 1, 0, 1),
    ROUNDED_ROWS(4, "many blocks",  (2, 32, 17, 17), (64, 32, 3, 3),  (2, 64, 17, 17), 3, 3, 1, 1, 1, 1),
    ROUNDED_ROWS(5, "rows of tiles",    (2, 32, 17, 17), (64, 32, 1, 7), (2, 64, 17, 17), 1, 7, 1, 1, 0, 3),
    ROUNDED_ROWS(5, "columns of tiles", (2, 32, 17, 17), (48, 32, 7, 1), (2, 48, 17, 17), 7, 1, 1, 1, 3, 0),
    ROWS("depthwise 3x3",           (2, 24, 9, 9),   (24, 1, 3, 3),   (2, 24, 9, 9),   3, 3, 1, 1, 1, 1),
    ROWS("depthwise 3x3 stride 2",  (2, 40, 9, 8),   (40, 1, 3, 3),   (2, 40, 5, 4),   3, 3, 2, 2, 1, 1),
    ROWS("depthwise 5x5",           (2, 32, 7, 9),   (32, 1, 5, 5),   (2, 32, 7, 9),   5, 5, 1, 1, 2, 2),
    ROWS("depthwise 5x5 stride 2",  (1, 72, 14, 14), (72, 1, 5, 5),   (1, 72, 7, 7),   5, 5, 2, 2, 2, 2),
    ROWS("depthwise 3x3, wide",     (1, 40, 4, 30),  (40, 1, 3, 3),   (1, 40, 4, 30),  3, 3, 1, 1, 1, 1),
    ROWS("depthwise 5x5 stride 2, wide", (1, 19, 6, 37), (19, 1, 5, 5), (1, 19, 3, 19), 5, 5, 2, 2, 2, 2),
    ROWS("depthwise 7x7 stride 2",  (1, 20, 9, 17),  (20, 1, 7, 7),   (1, 20, 5, 9),   7, 7, 2, 2, 3, 3),
    ROWS("depthwise 7x7",           (3, 20, 9, 9),   (20, 1, 7, 7),   (3, 20, 9, 9),   7, 7, 1, 1, 3, 3),
    ROWS("depthwise, more padding", (1, 17, 4, 6),   (17, 1, 3, 2),   (1, 17, 6, 6),   3, 2, 1, 2, 2, 3),
    ROWS("depthwise, window over the input", (2, 9, 2, 3), (9, 1, 5, 5), (2, 9, 2, 3), 5, 5, 1, 1, 2, 2),
    ROWS("depthwise 2x2 stride 3",  (2, 20, 8, 8),   (20, 1, 2, 2),   (2, 20, 3, 3),   2, 2, 3, 3, 0, 0),
    ROWS("depthwise 1x1 stride 2",  (2, 33, 5, 6),   (33, 1, 1, 1),   (2, 33, 3, 3),   1, 1, 2, 2, 0, 0),
    ROWS("depthwise, padding over the window", (1, 17, 3, 3), (17, 1, 1, 2), (1, 17, 7, 8), 1, 2, 1, 1, 2, 3),
    ROWS("depthwise 9x9",           (1, 16, 9, 9),   (16, 1, 9, 9),   (1, 16, 9, 9),   9, 9, 1, 1, 4, 4),
    ROWS("depthwise, two outputs each", (2, 8, 7, 7), (16, 1, 3, 3),  (2, 16, 7, 7),   3, 3, 1, 1, 1, 1),
    ROWS("groups of 8",             (2, 32, 6, 6),   (48, 8, 3, 3),   (2, 48, 6, 6),   3, 3, 1, 1, 1, 1),
    ROWS("groups of 4, stride 2",   (2, 16, 9, 9),   (16, 4, 3, 3),   (2, 16, 5, 5),   3, 3, 2, 2, 1, 1),
    ROWS("1x1 in groups",           (2, 24, 5, 5),   (36, 8, 1, 1),   (2, 36, 5, 5),   1, 1, 1, 1, 0, 0),
    ROWS("3x3 stride 2, more behind", (2, 16, 10, 8), (24, 16, 3, 3), (2, 24, 5, 4),   3, 3, 2, 2, 0, 0, false, 1, 1),
    ROWS("3x3, more before",        (2, 16, 9, 9),   (24, 16, 3, 3),  (2, 24, 9, 9),   3, 3, 1, 1, 2, 2, false, -2, -2),
    ROWS("3x3, much more behind",   (2, 32, 6, 7),   (32, 32, 3, 3),  (2, 32, 8, 10),  3, 3, 1, 1, 0, 1, false, 4, 3),
    ROWS("7x7 stride 2 on RGB, more behind", (8, 3, 18, 16), (16, 3, 7, 7), (8, 16, 9, 8), 7, 7, 2, 2, 2, 2, false, 1, 1),
    ROWS("5x5 stride 2, more before", (8, 32, 9, 10), (32, 32, 5, 5), (8, 32, 5, 5),   5, 5, 2, 2, 3, 2, false, -2, -1),
    ROWS("4x4 same",                (2, 8, 7, 7),    (16, 8, 4, 4),   (2, 16, 7, 7),   4, 4, 1, 1, 1, 1, false, 1, 1),
    ROWS("1x1, more on the right",  (2, 16, 5, 5),   (16, 16, 1, 1),  (2, 16, 5, 6),   1, 1, 1, 1, 0, 0, false, 0, 1),
    ROWS("window of the input, more behind", (2, 8, 5, 5), (12, 8, 5, 5), (2, 12, 2, 3), 5, 5, 1, 1, 0, 0, false, 1, 2),
    ROUNDED_ROWS(4, "many blocks, more behind", (2, 32, 17, 17), (64, 32, 3, 3), (2, 64, 17, 17), 3, 3, 1, 1, 0, 0, false, 2, 2),
    ROUNDED_ROWS(5, "rows of tiles, more behind", (2, 32, 17, 17), (64, 32, 1, 7), (2, 64, 17, 17), 1, 7, 1, 1, 0, 1, false, 0, 4),
    ROUNDED_ROWS(5, "columns of tiles, more behind", (2, 32, 17, 17), (48, 32, 7, 1), (2, 48, 17, 17), 7, 1, 1, 1, 2, 0, false, 2, 0),
    ROUNDED_ROWS(5, "rows of tiles, a row more", (2, 32, 17, 17), (64, 32, 1, 7), (2, 64, 18, 17), 1, 7, 1, 1, 0, 3, false, 1, 0),
    ROUNDED_ROWS(5, "columns of tiles, two more", (2, 32, 17, 17), (48, 32, 7, 1), (2, 48, 17, 19), 7, 1, 1, 1, 3, 0, false, 0, 2),
    ROWS("depthwise 3x3 stride 2, more behind", (2, 40, 10, 8), (40, 1, 3, 3), (2, 40, 5, 4), 3, 3, 2, 2, 0, 0, false, 1, 1),
    ROWS("depthwise 5x5 stride 2, more behind", (2, 24, 14, 14), (24, 1, 5, 5), (2, 24, 7, 7), 5, 5, 2, 2, 1, 1, false, 1, 1),
    ROWS("depthwise 7x7, more before", (2, 20, 9, 9), (20, 1, 7, 7),  (2, 20, 9, 9),   7, 7, 1, 1, 5, 4, false, -4, -2),
    ROWS("three in eight each, 7x7 stride 2", (2, 3, 12, 12), (24, 1, 7, 7), (2, 24, 6, 6), 7, 7, 2, 2, 2, 2, false, 1, 1),
    ROWS("3x3, dilated",            (2, 16, 9, 10),  (24, 16, 3, 3),  (2, 24, 9, 10),  3, 3, 1, 1, 2, 2, false, 0, 0, 1, 1),
    ROWS("3x3 stride 2, dilated",   (2, 8, 11, 12),  (16, 8, 3, 3),   (2, 16, 5, 3),   3, 3, 2, 2, 1, 0, false, 1, 0, 1, 2),
    ROWS("3x2, dilated unequally",  (1, 5, 8, 9),    (6, 5, 3, 2),    (1, 6, 8, 8),    3, 2, 1, 1, 2, 0, false, 0, 1, 1, 1),
    ROWS("RGB, dilated",            (8, 3, 12, 12),  (16, 3, 3, 3),   (8, 16, 8, 8),   3, 3, 1, 1, 0, 0, false, 0, 0, 1, 1),
    ROWS("depthwise 3x3, dilated",  (2, 24, 9, 9),   (24, 1, 3, 3),   (2, 24, 9, 9),   3, 3, 1, 1, 2, 2, false, 0, 0, 1, 1),
    ROWS("groups of 8, dilated",    (2, 32, 6, 6),   (48, 8, 3, 3),   (2, 48, 6, 6),   3, 3, 1, 1, 2, 2, false, 0, 0, 1, 1),
    ROWS("1x1, dilation without effect", (2, 16, 7, 7), (8, 16, 1, 1), (2, 8, 7, 7),   1, 1, 1, 1, 0, 0, false, 0, 0, 1, 1),
    // clang-format on
};

CASE_TABLE(conv, rows);
