/* Softmax and sigmoid cross-entropy. */
#include "tests/support/cases.h"

#define PROB(n, c)                                                                                                     \
    {                                                                                                                  \
        {n, c, 1, 1}, TYPE_F32, FILL_PROB                                                                              \
    }
#define HITS                                                                                                           \
    {                                                                                                                  \
        {1, 2, 1, 1}, TYPE_F32, FILL_UNIFORM                                                                           \
    }

#define ROWS(label, smoothing_, n, c)                                                                                  \
    {label, OP_SOFTMAX_LOSS, {.loss = {smoothing_}}, {ACT(n, c, 1, 1), LABELS(n)}, {SCALAR, PLAIN(n, c, 1, 1), HITS}}, \
    {                                                                                                                  \
        label, OP_SOFTMAX_LOSS_DX, {.loss = {smoothing_}}, {PROB(n, c), LABELS(n), SCALAR},                            \
        {                                                                                                              \
            ACT(n, c, 1, 1)                                                                                            \
        }                                                                                                              \
    }

#define TARGETS(n, c)                                                                                                  \
    {                                                                                                                  \
        {n, c, 1, 1}, TYPE_F32, FILL_POSITIVE                                                                          \
    }

/* Targets of any sum, as weights of classes make them. */
#define TARGET_ROWS(label, n, c)                                                                                       \
    {label,                                                                                                            \
     OP_SOFTMAX_LOSS,                                                                                                  \
     {.loss = {0}},                                                                                                    \
     {ACT(n, c, 1, 1), LABELS(n), TARGETS(n, c)},                                                                      \
     {SCALAR, PLAIN(n, c, 1, 1), HITS}},                                                                               \
    {                                                                                                                  \
        label, OP_SOFTMAX_LOSS_DX, {.loss = {0}}, {PROB(n, c), LABELS(n), SCALAR, TARGETS(n, c)},                      \
        {                                                                                                              \
            ACT(n, c, 1, 1)                                                                                            \
        }                                                                                                              \
    }

#define SHARES(n, c)                                                                                                   \
    {                                                                                                                  \
        {n, c, 1, 1}, TYPE_F32, FILL_SHARE                                                                             \
    }
#define FACTORS(c)                                                                                                     \
    {                                                                                                                  \
        {1, c, 1, 1}, TYPE_F32, FILL_POSITIVE                                                                          \
    }

/* `fill`: of the logits. */
#define SIGMOID_ROWS(label, fill, multi_label_, n, c, ...)                                                             \
    {label,                                                                                                            \
     OP_SIGMOID_LOSS,                                                                                                  \
     {.loss = {0, multi_label_}},                                                                                      \
     {FILLED(fill, n, c, 1, 1), LABELS(n), SHARES(n, c) __VA_ARGS__},                                                  \
     {SCALAR, PLAIN(n, c, 1, 1), HITS}},                                                                               \
    {                                                                                                                  \
        label, OP_SIGMOID_LOSS_DX, {.loss = {0, multi_label_}},                                                        \
            {{{n, c, 1, 1}, TYPE_F32, FILL_SHARE}, LABELS(n), SCALAR, SHARES(n, c) __VA_ARGS__},                       \
        {                                                                                                              \
            ACT(n, c, 1, 1)                                                                                            \
        }                                                                                                              \
    }

static const Case rows[] = {
    // clang-format off
    ROWS("plain", 0.0f, 6, 10),
    ROWS("smoothed", 0.1f, 6, 10),
    ROWS("one sample", 0.1f, 1, 7),
    ROWS("two classes", 0.0f, 9, 2),
    ROWS("1001 classes", 0.1f, 5, 1001),
    TARGET_ROWS("targets", 6, 10),
    TARGET_ROWS("targets of 1001 classes", 5, 1001),
    SIGMOID_ROWS("one class", FILL_UNIFORM, false, 6, 10, ),
    SIGMOID_ROWS("sure", FILL_FAR, false, 9, 12, ),
    SIGMOID_ROWS("one class, 1001 weights", FILL_UNIFORM, false, 5, 1001, , FACTORS(1001)),
    SIGMOID_ROWS("several", FILL_UNIFORM, true, 40, 3, ),
    SIGMOID_ROWS("several, undecided", FILL_SIGN, true, 40, 2, ),
    SIGMOID_ROWS("several, sure", FILL_FAR, true, 33, 2, , FACTORS(2)),
    SIGMOID_ROWS("several of 1001 weights", FILL_UNIFORM, true, 5, 1001, , FACTORS(1001)),
    // clang-format on
};

CASE_TABLE(loss, rows);
