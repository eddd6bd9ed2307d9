/* Order: which axis of an ONNX value lies where in memory. Values here have four axes in the order NHWC, a file's have any number in
 * any order. So an axis of the file is a list of parts, each of them a factor of one of the four sizes: transposing only moves parts,
 * and reshaping splits and joins them, as in (n, (g k), h, w) -> (n, (k g), h, w), which is a channel shuffle. */
#pragma once

#include "inception/networks/net_file.h"

typedef enum OnnxAxis { AXIS_BATCH, AXIS_CHANNEL, AXIS_ROW, AXIS_COLUMN } OnnxAxis;

/* The size of the batch in shapes that are computed before it is known: a prime number that is no size. */
#define BATCH_SIZE INT64_C(4294967311)

enum { ORDER_PARTS = 16 };
typedef struct AxisPart {
    int axis;     /* of the file's value */
    OnnxAxis of;  /* what it is a factor of */
    int place;    /* among the factors of that size, the outermost is 0 */
    int64_t size; /* more than 1; BATCH_SIZE */
} AxisPart;

/* Parts in the order of the file's elements. */
typedef struct AxisOrder {
    int rank, count;
    AxisPart part[ORDER_PARTS];
} AxisOrder;

/* `axes`: one letter of "NCHW" for each axis of the file. */
AxisOrder order_make(const char *axes, Shape shape);
int64_t order_dim(const AxisOrder *order, int axis);
int64_t order_count(const AxisOrder *order);
/* The product of the factors of one size. */
int64_t order_size(const AxisOrder *order, OnnxAxis of);
bool order_transpose(AxisOrder *order, const int64_t *permutation, int rank);
/* False if parts cannot be split and joined to these sizes, each at least 1. */
bool order_reshape(AxisOrder *order, const int64_t *dims, int rank);
bool order_equal(const AxisOrder *a, const AxisOrder *b);

/* Whether each axis is what its letter says, or of size 1, and each size is on one axis, whose parts are in the order of memory. */
bool order_is(const AxisOrder *order, const char *axes);
/* Whether the parts of `axis` are all factors of the channels, and no others, in the order of memory. */
bool order_has_channels(const AxisOrder *order, int axis);
/* Another size, for all of its factors together. They must be on one axis and in the order of memory. */
void order_resize(AxisOrder *order, int axis, OnnxAxis of, int64_t size);
