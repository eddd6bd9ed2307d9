/* Batch normalization: training, its gradient, and with given averages; each with and without gamma and ReLU. Layer
 * normalization and its gradient. */
#include "tests/support/cases.h"

#define MEAN(c)                                                                                                        \
    {                                                                                                                  \
        {1, c, 1, 1}, TYPE_F32, FILL_MEAN                                                                              \
    }
#define VAR(c)                                                                                                         \
    {                                                                                                                  \
        {1, c, 1, 1}, TYPE_F32, FILL_VAR                                                                               \
    }
#define NORM(relu_)                                                                                                    \
    {                                                                                                                  \
        .norm = { 1e-3f, relu_ }                                                                                       \
    }

#define HALF_ROWS(label, relu_, n, c, h, w)                                                                            \
    {label, OP_BATCHNORM, NORM(relu_), {ACT(n, c, h, w), VECTOR(c)}, {ACT(n, c, h, w), VECTOR(c), VECTOR(c)}},         \
        {label ", gamma",                                                                                              \
         OP_BATCHNORM,                                                                                                 \
         NORM(relu_),                                                                                                  \
         {ACT(n, c, h, w), VECTOR(c), SPREAD(c)},                                                                      \
         {ACT(n, c, h, w), VECTOR(c), VECTOR(c)}},                                                                     \
        {label,                                                                                                        \
         OP_BATCHNORM_DX,                                                                                              \
         NORM(relu_),                                                                                                  \
         {ACT(n, c, h, w), ACT(n, c, h, w), VECTOR(c), MEAN(c), VAR(c)},                                               \
         {ACT(n, c, h, w), VECTOR(c)}},                                                                                \
        {label ", gamma",                                                                                              \
         OP_BATCHNORM_DX,                                                                                              \
         NORM(relu_),                                                                                                  \
         {ACT(n, c, h, w), ACT(n, c, h, w), VECTOR(c), MEAN(c), VAR(c), SPREAD(c)},                                    \
         {ACT(n, c, h, w), VECTOR(c), VECTOR(c)}},                                                                     \
        {label,                                                                                                        \
         OP_BATCHNORM_APPLY,                                                                                           \
         NORM(relu_),                                                                                                  \
         {ACT(n, c, h, w), VECTOR(c), VECTOR(c), SPREAD(c)},                                                           \
         {ACT(n, c, h, w)}},                                                                                           \
    {                                                                                                                  \
        label ", gamma", OP_BATCHNORM_APPLY, NORM(relu_),                                                              \
            {ACT(n, c, h, w), VECTOR(c), VECTOR(c), SPREAD(c), SPREAD(c)},                                             \
        {                                                                                                              \
            ACT(n, c, h, w)                                                                                            \
        }                                                                                                              \
    }

#define ROWS(label, ...) HALF_ROWS(label, false, __VA_ARGS__), HALF_ROWS(label ", relu", true, __VA_ARGS__)

#define FOLD(label, n, c, h, w)                                                                                        \
    {label,                                                                                                            \
     OP_NORM_FOLD,                                                                                                     \
     NORM(false),                                                                                                      \
     {WEIGHT(n, c, h, w), VECTOR(n), VECTOR(n), SPREAD(n)},                                                            \
     {WEIGHT(n, c, h, w), VECTOR(n)}},                                                                                 \
    {                                                                                                                  \
        label ", gamma", OP_NORM_FOLD, NORM(false), {WEIGHT(n, c, h, w), VECTOR(n), VECTOR(n), SPREAD(n), SPREAD(n)},  \
        {                                                                                                              \
            WEIGHT(n, c, h, w), VECTOR(n)                                                                              \
        }                                                                                                              \
    }

#define LAYER_ROWS(label, n, c, h, w)                                                                                  \
    {label, OP_LAYERNORM, NORM(false), {ACT(n, c, h, w), VECTOR(c), SPREAD(c)}, {ACT(n, c, h, w)}},                    \
    {                                                                                                                  \
        label, OP_LAYERNORM_DX, NORM(false), {ACT(n, c, h, w), ACT(n, c, h, w), SPREAD(c)},                            \
        {                                                                                                              \
            ACT(n, c, h, w), VECTOR(c), VECTOR(c)                                                                      \
        }                                                                                                              \
    }

static const Case rows[] = {
    // clang-format off
    ROWS("image",         4, 16, 5, 6),
    ROWS("vector",        8, 24, 1, 1),
    ROWS("one channel",   3, 1, 7, 7),
    ROWS("odd channels",  2, 37, 9, 8),
    ROWS("many pixels",   4, 8, 35, 35),
    LAYER_ROWS("image",        4, 16, 5, 6),
    LAYER_ROWS("vector",       8, 24, 1, 1),
    LAYER_ROWS("odd channels", 2, 37, 9, 8),
    LAYER_ROWS("many channels", 2, 768, 3, 3),
    LAYER_ROWS("many pixels",  4, 8, 35, 35),
    FOLD("weights",       48, 32, 3, 3),
    FOLD("odd weights",   7, 5, 1, 3),
    // clang-format on
};

CASE_TABLE(norm, rows);
