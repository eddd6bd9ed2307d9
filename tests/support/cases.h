/* Cases: the tables in tests/support/cases, one row per op call that every backend must compute like the reference.
 *
 * A row names shapes, attributes and how operands are filled; the runner (test_ops.c) adds dtypes, slices, in-place
 * storage and absent outputs by itself. A new op is one row. */
#pragma once

#include "kernels/op.h"

typedef enum OperandType {
    TYPE_ACT = 0, /* the dtype of the run */
    TYPE_WEIGHT,  /* f32, with values that the dtype of the run can hold */
    TYPE_F32,
    TYPE_U8,
    TYPE_I32
} OperandType;

typedef enum Fill {
    FILL_UNIFORM = 0, /* [-1, 1) */
    FILL_POSITIVE,    /* [0.5, 1.5) */
    FILL_SHARE,       /* 0 or 1, some between: shares of classes */
    FILL_LEVELS,      /* [-1, 1) in steps of 1/8: many are equal, others differ by more than a rounding */
    FILL_FAR,         /* [-4, 4), some [-100, 100): logits that are sure */
    FILL_SIGN,        /* about half zero, half positive: the output of a ReLU */
    FILL_PIXEL,       /* 0 .. 255 */
    FILL_CROP,        /* records of OP_IMAGE that keep the crop inside; some erase a part */
    FILL_COUNTER,     /* seed, step, first sample */
    FILL_LABEL,       /* classes of in[0]; some LABEL_NONE */
    FILL_ARGMAX,      /* a place of the window that lies in the input */
    FILL_MEAN,        /* of in[1], per channel */
    FILL_VAR,
    FILL_PROB /* rows that sum to 1 */
} Fill;

typedef struct Operand {
    Shape shape; /* n == 0: absent */
    OperandType type;
    Fill fill;
} Operand;

typedef struct Case {
    const char *name;
    OpKind kind;
    OpAttr attr;
    Operand in[OP_MAX_IN];
    Operand out[OP_MAX_OUT];
    double roundings;  /* to a 16-bit dtype on the way to the output, as a factor on its tolerance; 0 means 1 */
    bool sums_rounded; /* f32 outputs are made of values that may have been rounded to the dtype of the run */
} Case;

#define ACT(n, c, h, w)                                                                                                \
    {                                                                                                                  \
        {n, c, h, w}, TYPE_ACT, FILL_UNIFORM                                                                           \
    }
#define FILLED(fill, n, c, h, w)                                                                                       \
    {                                                                                                                  \
        {n, c, h, w}, TYPE_ACT, fill                                                                                   \
    }
#define WEIGHT(n, c, h, w)                                                                                             \
    {                                                                                                                  \
        {n, c, h, w}, TYPE_WEIGHT, FILL_UNIFORM                                                                        \
    }
#define PLAIN(n, c, h, w)                                                                                              \
    {                                                                                                                  \
        {n, c, h, w}, TYPE_F32, FILL_UNIFORM                                                                           \
    }
#define VECTOR(c)                                                                                                      \
    {                                                                                                                  \
        {1, c, 1, 1}, TYPE_F32, FILL_UNIFORM                                                                           \
    }
#define SPREAD(c)                                                                                                      \
    {                                                                                                                  \
        {1, c, 1, 1}, TYPE_F32, FILL_POSITIVE                                                                          \
    }
#define SCALAR VECTOR(1)
#define COUNTER                                                                                                        \
    {                                                                                                                  \
        {1, 4, 1, 1}, TYPE_I32, FILL_COUNTER                                                                           \
    }
#define LABELS(n)                                                                                                      \
    {                                                                                                                  \
        {n, 1, 1, 1}, TYPE_I32, FILL_LABEL                                                                             \
    }
#define ARGMAX(n, c, h, w)                                                                                             \
    {                                                                                                                  \
        {n, c, h, w}, TYPE_U8, FILL_ARGMAX                                                                             \
    }
#define ABSENT                                                                                                         \
    {                                                                                                                  \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }

typedef struct CaseTable {
    const char *name;
    const Case *cases;
    int count;
} CaseTable;

#define CASE_TABLE(family, rows) const CaseTable family##_cases = {#family, rows, (int)(sizeof rows / sizeof *rows)}

extern const CaseTable conv_cases, dense_cases, norm_cases, activation_cases, pool_cases, channel_cases,
    elementwise_cases, input_cases, loss_cases;

/* All tables, NULL at the end. */
extern const CaseTable *const case_tables[];
