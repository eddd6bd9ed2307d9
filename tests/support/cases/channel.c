/* Concatenation, slices, shuffles and reshapes of channels; borders. */
#include "tests/support/cases.h"

#define RESHAPE_ROW(label, X, Y)                                                                                       \
    {                                                                                                                  \
        label, OP_RESHAPE, {{{0}}}, {ACT X},                                                                           \
        {                                                                                                              \
            ACT Y                                                                                                      \
        }                                                                                                              \
    }
#define SLICE_ROW(label, first_, X, Y)                                                                                 \
    {                                                                                                                  \
        label, OP_SLICE, {.slice = {first_}}, {ACT X},                                                                 \
        {                                                                                                              \
            ACT Y                                                                                                      \
        }                                                                                                              \
    }

#define PAD_ROW(label, top_, bottom_, left_, right_, X, Y)                                                             \
    {                                                                                                                  \
        label, OP_PAD, {.pad = {top_, bottom_, left_, right_}}, {ACT X},                                               \
        {                                                                                                              \
            ACT Y                                                                                                      \
        }                                                                                                              \
    }

#define SHUFFLE_ROW(label, groups_, X)                                                                                 \
    {                                                                                                                  \
        label, OP_SHUFFLE, {.shuffle = {groups_}}, {ACT X},                                                            \
        {                                                                                                              \
            ACT X                                                                                                      \
        }                                                                                                              \
    }

static const Case rows[] = {
    {"one", OP_CONCAT, {{{0}}}, {ACT(2, 5, 3, 3)}, {ACT(2, 5, 3, 3)}},
    {"two", OP_CONCAT, {{{0}}}, {ACT(2, 8, 3, 4), ACT(2, 16, 3, 4)}, {ACT(2, 24, 3, 4)}},
    {"odd", OP_CONCAT, {{{0}}}, {ACT(2, 3, 5, 5), ACT(2, 1, 5, 5), ACT(2, 7, 5, 5)}, {ACT(2, 11, 5, 5)}},
    {"eight",
     OP_CONCAT,
     {{{0}}},
     {ACT(1, 1, 2, 2), ACT(1, 2, 2, 2), ACT(1, 3, 2, 2), ACT(1, 4, 2, 2), ACT(1, 5, 2, 2), ACT(1, 6, 2, 2),
      ACT(1, 7, 2, 2), ACT(1, 8, 2, 2)},
     {ACT(1, 36, 2, 2)}},
    {"vectors", OP_CONCAT, {{{0}}}, {ACT(6, 10, 1, 1), ACT(6, 20, 1, 1)}, {ACT(6, 30, 1, 1)}},
    SLICE_ROW("first", 0, (2, 9, 4, 3), (2, 4, 4, 3)),
    SLICE_ROW("middle", 3, (2, 9, 4, 3), (2, 4, 4, 3)),
    SLICE_ROW("last", 8, (2, 9, 4, 3), (2, 1, 4, 3)),
    SLICE_ROW("all", 0, (2, 9, 4, 3), (2, 9, 4, 3)),
    SHUFFLE_ROW("two groups", 2, (2, 48, 5, 3)),
    SHUFFLE_ROW("three groups", 3, (3, 15, 2, 2)),
    SHUFFLE_ROW("one group", 1, (2, 5, 2, 2)),
    RESHAPE_ROW("flatten", (3, 4, 2, 5), (3, 40, 1, 1)),
    RESHAPE_ROW("unflatten", (3, 48, 1, 1), (3, 3, 4, 4)),
    RESHAPE_ROW("same", (2, 3, 4, 5), (2, 3, 4, 5)),
    PAD_ROW("image", 2, 2, 2, 2, (2, 1, 28, 28), (2, 1, 32, 32)),
    PAD_ROW("four sides", 1, 2, 3, 4, (2, 5, 4, 3), (2, 5, 7, 10)),
    PAD_ROW("one side", 0, 1, 0, 1, (3, 16, 14, 14), (3, 16, 15, 15)),
    PAD_ROW("crop", -2, -2, -2, -2, (2, 3, 32, 32), (2, 3, 28, 28)),
    PAD_ROW("crop one side", 0, -1, 0, -1, (3, 8, 8, 8), (3, 8, 7, 7)),
    PAD_ROW("pad and crop", 2, -1, -2, 3, (2, 7, 5, 4), (2, 7, 6, 5)),
    PAD_ROW("moved out", 6, -5, 9, -7, (2, 4, 5, 4), (2, 4, 6, 6)),
    PAD_ROW("moved out above", -6, 5, -9, 9, (2, 2, 5, 4), (2, 2, 4, 4)),
    PAD_ROW("nothing", 0, 0, 0, 0, (2, 3, 4, 5), (2, 3, 4, 5)),
};

CASE_TABLE(channel, rows);
