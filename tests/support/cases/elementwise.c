/* Sums, products, powers; sums and spreads over axes; random numbers. */
#include "tests/support/cases.h"

#define ADD_ROWS(label, ...)                                                                                           \
    {label, OP_ADD, {.add = {false}}, {__VA_ARGS__}, {ACT(2, 12, 5, 3)}},                                              \
    {                                                                                                                  \
        label ", relu", OP_ADD, {.add = {true}}, {__VA_ARGS__},                                                        \
        {                                                                                                              \
            ACT(2, 12, 5, 3)                                                                                           \
        }                                                                                                              \
    }
#define ONE ACT(2, 12, 5, 3)

#define POWER_ROW(label, exponent_)                                                                                    \
    {                                                                                                                  \
        label, OP_POWER, {.power = {exponent_}}, {FILLED(FILL_POSITIVE, 2, 7, 5, 3)},                                  \
        {                                                                                                              \
            ACT(2, 7, 5, 3)                                                                                            \
        }                                                                                                              \
    }

/* Both ways between a shape and its folded form. */
#define FOLD_ROWS(label, LARGE, SMALL)                                                                                 \
    {label, OP_SUM_TO, {{{0}}}, {ACT LARGE}, {ACT SMALL}},                                                             \
    {                                                                                                                  \
        label, OP_SPREAD_TO, {{{0}}}, {ACT SMALL},                                                                     \
        {                                                                                                              \
            ACT LARGE                                                                                                  \
        }                                                                                                              \
    }

#define RANDOM_ROWS(label, ...)                                                                                        \
    {label ", uniform", OP_RANDOM, {.random = {false, 3}}, {COUNTER}, {ACT(__VA_ARGS__)}},                             \
    {                                                                                                                  \
        label ", normal", OP_RANDOM, {.random = {true, 4}}, {COUNTER},                                                 \
        {                                                                                                              \
            ACT(__VA_ARGS__)                                                                                           \
        }                                                                                                              \
    }

static const Case rows[] = {
    // clang-format off
    ADD_ROWS("one", ONE),
    ADD_ROWS("two", ONE, ONE),
    ADD_ROWS("three", ONE, ONE, ONE),
    ADD_ROWS("eight", ONE, ONE, ONE, ONE, ONE, ONE, ONE, ONE),
    {"odd", OP_ADD, {.add = {false}}, {ACT(1, 7, 3, 1), ACT(1, 7, 3, 1)}, {ACT(1, 7, 3, 1)}},
    {"image", OP_MUL, {{{0}}}, {ACT(2, 12, 5, 3), ACT(2, 12, 5, 3)}, {ACT(2, 12, 5, 3)}},
    {"channels of samples", OP_MUL, {{{0}}}, {ACT(3, 12, 5, 4), ACT(3, 12, 1, 1)}, {ACT(3, 12, 5, 4)}},
    {"channels", OP_MUL, {{{0}}}, {ACT(3, 24, 5, 4), VECTOR(24)}, {ACT(3, 24, 5, 4)}},
    {"channels of one pixel", OP_MUL, {{{0}}}, {ACT(1, 24, 1, 1), VECTOR(24)}, {ACT(1, 24, 1, 1)}},
    {"odd channels", OP_MUL, {{{0}}}, {ACT(3, 7, 5, 3), VECTOR(7)}, {ACT(3, 7, 5, 3)}},
    {"many channels", OP_MUL, {{{0}}}, {ACT(2, 1030, 3, 3), ACT(2, 1030, 1, 1)}, {ACT(2, 1030, 3, 3)}},
    {"scalar", OP_MUL, {{{0}}}, {ACT(1, 1, 1, 1), ACT(1, 1, 1, 1)}, {ACT(1, 1, 1, 1)}},
    {"many", OP_MUL, {{{0}}}, {ACT(4, 40, 20, 20), ACT(4, 40, 20, 20)}, {ACT(4, 40, 20, 20)}},
    {"scale and shift", OP_AFFINE, {.affine = {-2.5f, 0.75f}}, {ACT(2, 12, 5, 3)}, {ACT(2, 12, 5, 3)}},
    {"identity", OP_AFFINE, {.affine = {1, 0}}, {ACT(1, 7, 3, 1)}, {ACT(1, 7, 3, 1)}},
    POWER_ROW("square", 2),
    POWER_ROW("root", 0.5f),
    POWER_ROW("inverse root", -0.5f),
    POWER_ROW("inverse", -1),
    POWER_ROW("cube", 3),
    POWER_ROW("one", 1),
    POWER_ROW("none", 0),
    {"square of any sign", OP_POWER, {.power = {2}}, {ACT(2, 7, 5, 3)}, {ACT(2, 7, 5, 3)}},

    FOLD_ROWS("scalar",         (3, 8, 5, 4),   (1, 1, 1, 1)),
    FOLD_ROWS("per sample",     (3, 8, 5, 4),   (3, 1, 1, 1)),
    FOLD_ROWS("per channel",    (3, 8, 5, 4),   (1, 8, 1, 1)),
    FOLD_ROWS("over pixels",    (3, 8, 5, 4),   (3, 8, 1, 1)),
    FOLD_ROWS("over channels",  (3, 8, 5, 4),   (3, 1, 5, 4)),
    FOLD_ROWS("over samples",   (3, 8, 5, 4),   (1, 8, 5, 4)),
    FOLD_ROWS("over rows",      (3, 7, 5, 4),   (3, 7, 1, 4)),
    FOLD_ROWS("over columns",   (3, 7, 5, 4),   (3, 7, 5, 1)),
    FOLD_ROWS("mixed",          (3, 7, 5, 4),   (1, 7, 5, 1)),
    FOLD_ROWS("nothing",        (3, 7, 5, 4),   (3, 7, 5, 4)),
    FOLD_ROWS("many to scalar", (8, 32, 14, 14), (1, 1, 1, 1)),
    FOLD_ROWS("many to sample", (8, 32, 14, 14), (8, 1, 1, 1)),

    RANDOM_ROWS("image", 2, 12, 5, 3),
    RANDOM_ROWS("odd", 3, 7, 1, 1),
    RANDOM_ROWS("cut groups", 4, 30, 1, 1),
    RANDOM_ROWS("one", 1, 1, 1, 1),
    // clang-format on
};

CASE_TABLE(elementwise, rows);
