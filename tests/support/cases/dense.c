/* Dense layers and the sums for their biases' gradients. */
#include "tests/support/cases.h"

#define BIAS_OF(n, c, h, w) VECTOR(n)

#define ROWS(label, X, W, Y)                                                                                           \
    {label, OP_DENSE, {.dense = {false}}, {ACT X, WEIGHT W}, {ACT Y}},                                                 \
        {label ", bias", OP_DENSE, {.dense = {false}}, {ACT X, WEIGHT W, BIAS_OF W}, {ACT Y}},                         \
        {label ", relu", OP_DENSE, {.dense = {true}}, {ACT X, WEIGHT W}, {ACT Y}},                                     \
        {label ", bias, relu", OP_DENSE, {.dense = {true}}, {ACT X, WEIGHT W, BIAS_OF W}, {ACT Y}},                    \
        {label, OP_DENSE_DX, {{{0}}}, {ACT Y, WEIGHT W}, {ACT X}},                                                     \
    {                                                                                                                  \
        label, OP_DENSE_DW, {{{0}}}, {ACT X, ACT Y},                                                                   \
        {                                                                                                              \
            PLAIN W                                                                                                    \
        }                                                                                                              \
    }

#define SUM_ROWS(label, n, c, h, w)                                                                                    \
    {label, OP_CHANNEL_SUM, {{{0}}}, {ACT(n, c, h, w)}, {VECTOR(c)}},                                                  \
    {                                                                                                                  \
        label, OP_CHANNEL_SPREAD, {{{0}}}, {VECTOR(c)},                                                                \
        {                                                                                                              \
            ACT(n, c, h, w)                                                                                            \
        }                                                                                                              \
    }

static const Case rows[] = {
    // clang-format off
    ROWS("vector",            (4, 32, 1, 1),  (10, 32, 1, 1),   (4, 10, 1, 1)),
    ROWS("over an image",     (3, 6, 4, 5),   (16, 6, 4, 5),    (3, 16, 1, 1)),
    ROWS("one sample",        (1, 20, 1, 1),  (7, 20, 1, 1),    (1, 7, 1, 1)),
    ROWS("one output",        (5, 33, 1, 1),  (1, 33, 1, 1),    (5, 1, 1, 1)),
    ROWS("wide",              (8, 256, 1, 1), (1001, 256, 1, 1), (8, 1001, 1, 1)),
    SUM_ROWS("image",         4, 16, 5, 3),
    SUM_ROWS("vector",        6, 10, 1, 1),
    SUM_ROWS("one channel",   3, 1, 7, 7),
    SUM_ROWS("odd channels",  2, 37, 9, 9),
    // clang-format on
};

CASE_TABLE(dense, rows);
