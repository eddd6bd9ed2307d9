/* Activations and dropout. */
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
        {label, OP_TANH, {{{0}}}, {ACT(__VA_ARGS__)}, {ACT(__VA_ARGS__)}},                                             \
        {label ", half", OP_DROPOUT, {.dropout = {0.5f, 1}}, {ACT(__VA_ARGS__), COUNTER}, {ACT(__VA_ARGS__)}},         \
        {label ", 0.8", OP_DROPOUT, {.dropout = {0.8f, 7}}, {ACT(__VA_ARGS__), COUNTER}, {ACT(__VA_ARGS__)}},          \
    {                                                                                                                  \
        label ", keep all", OP_DROPOUT, {.dropout = {1.0f, 2}}, {ACT(__VA_ARGS__), COUNTER},                           \
        {                                                                                                              \
            ACT(__VA_ARGS__)                                                                                           \
        }                                                                                                              \
    }

static const Case rows[] = {
    // clang-format off
    ROWS("image",         2, 16, 5, 6),
    ROWS("vector",        5, 30, 1, 1),
    ROWS("one element",   1, 1, 1, 1),
    ROWS("odd sizes",     3, 7, 3, 5),
    ROWS("many",          4, 40, 20, 20),
    // clang-format on
};

CASE_TABLE(activation, rows);
