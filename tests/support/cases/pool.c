/* Pooling. One line of a list makes the forward row and its gradients, with and without the optional operands.
 *
 * Windows that extend beyond the input because sizes are rounded up (ceil) are averaged here only without padding in
 * the divisor: with it, libraries disagree on how the part outside counts. */
#include "tests/support/cases.h"

#define POOL(pad_, ...)                                                                                                \
    {                                                                                                                  \
        .pool = { {__VA_ARGS__}, pad_ }                                                                                \
    }
#define BELOW_RELU(...) FILLED(FILL_SIGN, __VA_ARGS__)

/* X, Y: shapes; then the window: kh, kw, strides, pads, ceil. */
#define MAX_ROWS(label, X, Y, ...)                                                                                     \
    {label, OP_MAX_POOL, POOL(false, __VA_ARGS__), {ACT X}, {ACT Y, ARGMAX Y}},                                        \
        {label ", ties", OP_MAX_POOL, POOL(false, __VA_ARGS__), {BELOW_RELU X}, {ACT Y, ARGMAX Y}},                    \
        {label, OP_MAX_POOL_DX, POOL(false, __VA_ARGS__), {ACT Y, ARGMAX Y}, {ACT X}},                                 \
        {label ", acc", OP_MAX_POOL_DX, POOL(false, __VA_ARGS__), {ACT Y, ARGMAX Y, ACT X}, {ACT X}},                  \
        {label ", relu", OP_MAX_POOL_DX, POOL(false, __VA_ARGS__), {ACT Y, ARGMAX Y, ABSENT, BELOW_RELU Y}, {ACT X}},  \
    {                                                                                                                  \
        label ", acc, relu", OP_MAX_POOL_DX, POOL(false, __VA_ARGS__), {ACT Y, ARGMAX Y, ACT X, BELOW_RELU Y},         \
        {                                                                                                              \
            ACT X                                                                                                      \
        }                                                                                                              \
    }

#define AVG_ROWS(label, pad_, X, Y, ...)                                                                               \
    {label, OP_AVG_POOL, POOL(pad_, __VA_ARGS__), {ACT X}, {ACT Y}},                                                   \
        {label, OP_AVG_POOL_DX, POOL(pad_, __VA_ARGS__), {ACT Y}, {ACT X}},                                            \
    {                                                                                                                  \
        label ", acc", OP_AVG_POOL_DX, POOL(pad_, __VA_ARGS__), {ACT Y, ACT X},                                        \
        {                                                                                                              \
            ACT X                                                                                                      \
        }                                                                                                              \
    }

#define ADAPTIVE_ROWS(label, X, Y)                                                                                     \
    {"adaptive, " label, OP_AVG_POOL, {.pool.adaptive = true}, {ACT X}, {ACT Y}},                                      \
        {"adaptive, " label, OP_AVG_POOL_DX, {.pool.adaptive = true}, {ACT Y}, {ACT X}},                               \
    {                                                                                                                  \
        "adaptive, " label ", acc", OP_AVG_POOL_DX, {.pool.adaptive = true}, {ACT Y, ACT X},                           \
        {                                                                                                              \
            ACT X                                                                                                      \
        }                                                                                                              \
    }

#define NORM_POOL(...)                                                                                                 \
    {                                                                                                                  \
        .pool = {.window = {__VA_ARGS__}, .epsilon = 1e-3f }                                                           \
    }
#define LEVELS(...) FILLED(FILL_LEVELS, __VA_ARGS__)

/* C: channels. The gradient is rounded once more, where the separate ops would store it. */
#define NORM_ROWS(label, C, X, Y, ...)                                                                                 \
    {label, OP_MAX_POOL_NORM, NORM_POOL(__VA_ARGS__), {LEVELS X, VECTOR(C), VECTOR(C), SPREAD(C)}, {ACT Y, ARGMAX Y}}, \
        {label ", gamma",                                                                                              \
         OP_MAX_POOL_NORM,                                                                                             \
         NORM_POOL(__VA_ARGS__),                                                                                       \
         {LEVELS X, VECTOR(C), VECTOR(C), SPREAD(C), SPREAD(C)},                                                       \
         {ACT Y, ARGMAX Y}},                                                                                           \
        {label,                                                                                                        \
         OP_MAX_POOL_NORM_DX,                                                                                          \
         NORM_POOL(__VA_ARGS__),                                                                                       \
         {ACT Y, ARGMAX Y, ACT X, VECTOR(C), VECTOR(C), SPREAD(C)},                                                    \
         {ACT X, VECTOR(C)},                                                                                           \
         2,                                                                                                            \
         true},                                                                                                        \
    {                                                                                                                  \
        label ", gamma", OP_MAX_POOL_NORM_DX, NORM_POOL(__VA_ARGS__),                                                  \
            {ACT Y, ARGMAX Y, ACT X, VECTOR(C), VECTOR(C), SPREAD(C), SPREAD(C)}, {ACT X, VECTOR(C), VECTOR(C)}, 2,    \
            true                                                                                                       \
    }

static const Case rows[] = {
    // clang-format off
    MAX_ROWS("3x3 stride 2",            (2, 16, 9, 9),  (2, 16, 4, 4),  3, 3, 2, 2, 0, 0, false),
    MAX_ROWS("3x3 stride 2 ceil",       (2, 16, 8, 8),  (2, 16, 4, 4),  3, 3, 2, 2, 0, 0, true),
    MAX_ROWS("3x3 of 2x2, ceil",        (2, 16, 2, 2),  (2, 16, 1, 1),  3, 3, 2, 2, 0, 0, true),
    MAX_ROWS("3x3 stride 1 pad 1",      (2, 8, 7, 7),   (2, 8, 7, 7),   3, 3, 1, 1, 1, 1, false),
    MAX_ROWS("3x3 stride 2 pad 1 ceil", (2, 8, 8, 8),   (2, 8, 5, 5),   3, 3, 2, 2, 1, 1, true),
    MAX_ROWS("3x3 stride 2, pads unequal", (2, 16, 7, 12), (2, 16, 4, 5), 3, 3, 2, 2, 1, 0, false),
    MAX_ROWS("3x3 stride 2, odd channels, pad 1", (1, 5, 6, 9), (1, 5, 3, 5), 3, 3, 2, 2, 1, 1, false),
    MAX_ROWS("3x3 stride 1",            (2, 8, 5, 6),   (2, 8, 3, 4),   3, 3, 1, 1, 0, 0, false),
    MAX_ROWS("2x2 stride 2 pad 1",      (2, 8, 6, 7),   (2, 8, 4, 4),   2, 2, 2, 2, 1, 1, false),
    MAX_ROWS("2x2 stride 2",            (2, 8, 8, 8),   (2, 8, 4, 4),   2, 2, 2, 2, 0, 0, false),
    MAX_ROWS("2x2 stride 2, rest",      (2, 5, 7, 9),   (2, 5, 3, 4),   2, 2, 2, 2, 0, 0, false),
    MAX_ROWS("2x2 stride 2 ceil, rest", (2, 8, 7, 7),   (2, 8, 4, 4),   2, 2, 2, 2, 0, 0, true),
    MAX_ROWS("1x1 stride 2",            (2, 4, 7, 7),   (2, 4, 4, 4),   1, 1, 2, 2, 0, 0, false),
    MAX_ROWS("3x2, sides unequal",      (1, 7, 9, 6),   (1, 7, 5, 5),   3, 2, 2, 1, 1, 0, false),
    MAX_ROWS("odd channels",            (3, 33, 9, 9),  (3, 33, 4, 4),  3, 3, 2, 2, 0, 0, false),
    MAX_ROWS("one channel",             (2, 1, 6, 6),   (2, 1, 3, 3),   2, 2, 2, 2, 0, 0, false),

    MAX_ROWS("1x129 stride 128",        (1, 3, 2, 257), (1, 3, 2, 2),   1, 129, 1, 128, 0, 0, false),
    MAX_ROWS("129x1 stride 128",        (1, 3, 257, 2), (1, 3, 2, 2),   129, 1, 128, 1, 0, 0, false),

    MAX_ROWS("3x3 stride 2, more behind", (2, 16, 8, 10), (2, 16, 4, 5), 3, 3, 2, 2, 0, 0, false, 1, 1),
    MAX_ROWS("2x2 stride 2, more behind", (2, 16, 7, 9), (2, 16, 4, 5), 2, 2, 2, 2, 0, 0, false, 1, 1),
    MAX_ROWS("3x3 stride 1, more before", (2, 8, 5, 6), (2, 8, 5, 6),   3, 3, 1, 1, 2, 2, false, -2, -2),

    NORM_ROWS("norm, 3x3 stride 2, more behind", 16, (2, 16, 8, 8), (2, 16, 4, 4), 3, 3, 2, 2, 0, 0, false, 1, 1),
    NORM_ROWS("norm, 3x3 stride 2",        16, (2, 16, 9, 9), (2, 16, 4, 4), 3, 3, 2, 2, 0, 0, false),
    NORM_ROWS("norm, 3x3 stride 2, ceil",  16, (2, 16, 8, 8), (2, 16, 4, 4), 3, 3, 2, 2, 0, 0, true),
    NORM_ROWS("norm, 3x3 stride 2, pad 1", 8,  (2, 8, 11, 7), (2, 8, 6, 4),  3, 3, 2, 2, 1, 1, false),
    NORM_ROWS("norm, 3x3 stride 2, odd channels", 5, (2, 5, 7, 10), (2, 5, 3, 5), 3, 3, 2, 2, 0, 1, false),
    NORM_ROWS("norm, 3x3 stride 2, pads unequal", 24, (1, 24, 5, 13), (1, 24, 3, 6), 3, 3, 2, 2, 1, 0, false),
    NORM_ROWS("norm, 3x3 of 2x2, ceil",    16, (2, 16, 2, 2), (2, 16, 1, 1), 3, 3, 2, 2, 0, 0, true),
    NORM_ROWS("norm, 3x3 of 1x3, pad 1",   8,  (3, 8, 1, 3),  (3, 8, 1, 2),  3, 3, 2, 2, 1, 1, false),
    NORM_ROWS("norm, 2x2 pad 1",           8,  (2, 8, 6, 7),  (2, 8, 4, 4),  2, 2, 2, 2, 1, 1, false),
    NORM_ROWS("norm, 2x2, rest",           5,  (2, 5, 7, 9),  (2, 5, 3, 4),  2, 2, 2, 2, 0, 0, false),
    NORM_ROWS("norm, odd channels",        37, (2, 37, 9, 6), (2, 37, 9, 5), 3, 2, 1, 1, 1, 0, false),

    AVG_ROWS("3x3 same, padding counts",  true,  (2, 16, 7, 7), (2, 16, 7, 7), 3, 3, 1, 1, 1, 1, false),
    AVG_ROWS("3x3 stride 2, more behind, padding counts", true, (2, 16, 8, 8), (2, 16, 4, 4), 3, 3, 2, 2, 0, 0, false, 1, 1),
    AVG_ROWS("3x3 stride 2, more behind", false, (2, 16, 8, 8), (2, 16, 4, 4), 3, 3, 2, 2, 0, 0, false, 1, 1),
    AVG_ROWS("3x3, more before, padding counts", true, (2, 8, 7, 9), (2, 8, 7, 9), 3, 3, 1, 1, 2, 2, false, -2, -2),
    AVG_ROWS("3x3, more before",          false, (2, 8, 7, 9), (2, 8, 7, 9), 3, 3, 1, 1, 2, 2, false, -2, -2),
    AVG_ROWS("3x3 same, padding not",     false, (2, 16, 7, 7), (2, 16, 7, 7), 3, 3, 1, 1, 1, 1, false),
    AVG_ROWS("3x3 stride 1, pads unequal", false, (2, 8, 6, 11), (2, 8, 6, 9), 3, 3, 1, 1, 1, 0, false),
    AVG_ROWS("3x3 stride 1, no padding",  false, (2, 8, 10, 7), (2, 8, 8, 5), 3, 3, 1, 1, 0, 0, false),
    AVG_ROWS("3x3 same, one row",         true,  (1, 8, 1, 4),  (1, 8, 1, 4), 3, 3, 1, 1, 1, 1, false),
    AVG_ROWS("whole image",               true,  (3, 20, 8, 8), (3, 20, 1, 1), 8, 8, 1, 1, 0, 0, false),
    AVG_ROWS("5x5 stride 3",              true,  (2, 8, 17, 17), (2, 8, 5, 5), 5, 5, 3, 3, 0, 0, false),
    AVG_ROWS("2x2 stride 2, rest",        false, (2, 5, 7, 9),  (2, 5, 3, 4),  2, 2, 2, 2, 0, 0, false),
    AVG_ROWS("3x3 stride 2 ceil",         false, (2, 8, 8, 8),  (2, 8, 4, 4),  3, 3, 2, 2, 0, 0, true),
    AVG_ROWS("sides unequal",             true,  (1, 7, 9, 6),  (1, 7, 5, 5),  3, 2, 2, 1, 1, 0, false),
    AVG_ROWS("odd channels",              true,  (2, 33, 5, 5), (2, 33, 5, 5), 3, 3, 1, 1, 1, 1, false),

    ADAPTIVE_ROWS("14 to 4",    (2, 33, 14, 14), (2, 33, 4, 4)),
    ADAPTIVE_ROWS("7x9 to 4x4", (2, 8, 7, 9),    (2, 8, 4, 4)),
    ADAPTIVE_ROWS("1x2 to 4x4", (2, 8, 1, 2),    (2, 8, 4, 4)),
    // clang-format on
};

CASE_TABLE(pool, rows);
