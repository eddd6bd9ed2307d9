/* The graphs of a convolution that cuDNN has one kernel for: alone, and joined with batch normalization.
 *
 * z is a convolution's output before its normalization, a = relu(scale z + shift) after it; scale and shift are 16-bit
 * vectors, sums are f32. The joined forms read and write each large tensor once:
 *   STATISTICS        y = x * w, and sum and sum of squares of y per channel
 *   APPLY_STATISTICS  y = relu(scale z + shift) * w, and the sums: x is normalized when it is read
 *   DATA_SUMS         dx = relu'(a) (dy * transpose(w)), with the sums that the normalization's gradient needs
 *   APPLY_FILTER      dw = sum of relu(scale z + shift) * dy */
#pragma once

#include "kernels/cuda/cudnn_graph.h"

typedef enum ConvPattern {
    PATTERN_FORWARD = 0,
    PATTERN_DATA,
    PATTERN_FILTER,
    PATTERN_STATISTICS,
    PATTERN_APPLY_STATISTICS,
    PATTERN_DATA_SUMS,
    PATTERN_APPLY_FILTER,
    PATTERN_COUNT
} ConvPattern;

typedef struct ConvShape {
    Shape x, w, y;
    Window window;
    Dtype dtype;
    bool accumulate; /* PATTERN_DATA: dx is added to what is there */
} ConvShape;

/* Numbers of the tensors in memory; 0 where a pattern has none. */
typedef struct ConvTensors {
    int x, w, y;                                 /* x: z of the input in the joined forms, dx in PATTERN_DATA */
    int scale, shift;                            /* of the input's normalization */
    int sum, square_sum;                         /* of y */
    int z, mean, inverse_deviation, gamma, beta; /* PATTERN_DATA_SUMS: of dx's normalization */
    int dgamma, dbeta, dy_factor, x_factor, constant;
} ConvTensors;

/* Its name: "forward", "statistics", ... */
const char *conv_pattern_name(ConvPattern pattern);

NODISCARD Status conv_graph_create(CudnnLibrary *library, ConvPattern pattern, const ConvShape *shape,
                                   ConvTensors *tensors, CudnnGraph **made);
