/* Pixels to normalized activations. */
#include "tests/support/cases.h"

#define PIXELS(n, c, h, w)                                                                                             \
    {                                                                                                                  \
        {n, c, h, w}, TYPE_U8, FILL_PIXEL                                                                              \
    }
#define CROPS(n)                                                                                                       \
    {                                                                                                                  \
        {n, IMAGE_RECORD, 1, 1}, TYPE_I32, FILL_CROP                                                                   \
    }
#define NORMAL                                                                                                         \
    {                                                                                                                  \
        .image = { {0.485f, 0.456f, 0.406f, 0.5f}, {0.229f, 0.224f, 0.225f, 0.25f} }                                   \
    }

static const Case rows[] = {
    {"RGB, center", OP_IMAGE, NORMAL, {PIXELS(2, 3, 12, 14)}, {ACT(2, 3, 8, 8)}},
    {"RGB, whole", OP_IMAGE, NORMAL, {PIXELS(2, 3, 9, 9)}, {ACT(2, 3, 9, 9)}},
    {"RGB, odd border", OP_IMAGE, NORMAL, {PIXELS(2, 3, 9, 10)}, {ACT(2, 3, 6, 7)}},
    {"RGB, crops", OP_IMAGE, NORMAL, {PIXELS(5, 3, 12, 14), CROPS(5)}, {ACT(5, 3, 8, 9)}},
    {"gray", OP_IMAGE, NORMAL, {PIXELS(3, 1, 28, 28)}, {ACT(3, 1, 28, 28)}},
    {"RGB, mixed", OP_IMAGE, NORMAL, {PIXELS(8, 3, 12, 14), CROPS(8)}, {ACT(7, 3, 8, 9)}},
    {"gray to RGB, mixed", OP_IMAGE, NORMAL, {PIXELS(5, 1, 10, 10), CROPS(5)}, {ACT(4, 3, 8, 8)}},
    {"gray, crops", OP_IMAGE, NORMAL, {PIXELS(4, 1, 28, 28), CROPS(4)}, {ACT(4, 1, 24, 24)}},
    {"gray to RGB", OP_IMAGE, NORMAL, {PIXELS(3, 1, 10, 10), CROPS(3)}, {ACT(3, 3, 8, 8)}},
    {"four channels", OP_IMAGE, NORMAL, {PIXELS(2, 4, 10, 10), CROPS(2)}, {ACT(2, 4, 8, 8)}},
};

CASE_TABLE(input, rows);
