/* Activations, dropout and stochastic depth. */
#include "tests/support/cases.h"

#define ROWS(label, ...)                                                                                               \
    {label, OP_RELU, {{{0}}}, {ACT(__VA_ARGS__)}, {ACT(__VA_ARGS__)}},                                                 \
        {label, OP_RELU_DX, {{{0}}}, {ACT(__VA_ARGS__), FILLED(FILL_SIGN, __VA_ARGS__)}, {ACT(__VA_ARGS__)}},          \
        {label, OP_LEAKY_RELU, {.leaky = {0.2f}}, {ACT(__VA_ARGS__)}, {ACT(__VA_ARGS__)}},                             \
        {label, OP_LEAKY_RELU_DX, {.leaky = {0.2f}}, {ACT(__VA_ARGS__), ACT(__VA_ARGS__)}, {ACT(__VA_ARGS__)}},        \
        {label,                                                                                                        \
         OP_LEAKY_RELU_DX,                                                                                             \
         {.leaky = {0.2f}},                                                                                            \
         {ACT(__VA_ARGS__), FILLED(FILL_SIGN, __VA_ARGS__)},                                                           \
         {ACT(__VA_ARGS__)}},                                                                                          \
        {label ", half", OP_DROPOUT, {.dropout = {0.5f, 1}}, {ACT(__VA_ARGS__), COUNTER}, {ACT(__VA_ARGS__)}},         \
        {label ", 0.8", OP_DROPOUT, {.dropout = {0.8f, 7}}, {ACT(__VA_ARGS__), COUNTER}, {ACT(__VA_ARGS__)}},          \
        {label, OP_STOCHASTIC_DEPTH, {.dropout = {0.6f, 3}}, {ACT(__VA_ARGS__), COUNTER}, {ACT(__VA_ARGS__)}},         \
    {                                                                                                                  \
        label ", keep all", OP_DROPOUT, {.dropout = {1.0f, 2}}, {ACT(__VA_ARGS__), COUNTER},                           \
        {                                                                                                              \
            ACT(__VA_ARGS__)                                                                                           \
        }                                                                                                              \
    }

#define UNARY_ROW(kind, label, ...) {label, kind, {{{0}}}, {ACT(__VA_ARGS__)}, {ACT(__VA_ARGS__)}},
#define UNARY_DX_ROW(kind, label, ...) {label, kind, {{{0}}}, {ACT(__VA_ARGS__), ACT(__VA_ARGS__)}, {ACT(__VA_ARGS__)}},
#define UNARY_ROW_FAR(kind, label, ...) {label, kind, {{{0}}}, {FILLED(FILL_FAR, __VA_ARGS__)}, {ACT(__VA_ARGS__)}},
#define UNARY_DX_ROW_FAR(kind, label, ...)                                                                             \
    {label, kind, {{{0}}}, {ACT(__VA_ARGS__), FILLED(FILL_FAR, __VA_ARGS__)}, {ACT(__VA_ARGS__)}},
#define SIZES(ROW, kind)                                                                                               \
    ROW(kind, "image", 2, 16, 5, 6)                                                                                    \
    ROW(kind, "vector", 5, 30, 1, 1)                                                                                   \
    ROW(kind, "one element", 1, 1, 1, 1)                                                                               \
    ROW(kind, "odd sizes", 3, 7, 3, 5)                                                                                 \
    ROW(kind, "many", 4, 40, 20, 20)                                                                                   \
    ROW##_FAR(kind, "far from 0", 4, 40, 5, 5)

static const Case rows[] = {
    // clang-format off
    ROWS("image",         2, 16, 5, 6),
    ROWS("vector",        5, 30, 1, 1),
    ROWS("cut groups",    4, 30, 1, 1), /* vectors begin within a group of four random words */
    ROWS("one element",   1, 1, 1, 1),
    ROWS("tiny samples",  24, 1, 1, 3), /* vectors hold elements of several */
    ROWS("odd sizes",     3, 7, 3, 5),
    ROWS("many",          4, 40, 20, 20),
#define UNARY(KIND, name, formula) SIZES(UNARY_ROW, OP_##KIND)
#define UNARY_GRAD(KIND, name, formula, slope) UNARY(KIND, name, formula) SIZES(UNARY_DX_ROW, OP_##KIND##_DX)
#include "kernels/ops.def"
    // clang-format on
};

CASE_TABLE(activation, rows);
