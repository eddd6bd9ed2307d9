/* Convolutions and their joined forms as cuDNN graphs; see conv_graph.h. The order of the elementwise steps is the one
 * that cuDNN's engines recognize. */
#include "kernels/cuda/conv/conv_graph.h"

const char *conv_pattern_name(ConvPattern pattern)
{
    static const char *const names[PATTERN_COUNT] = {
        [PATTERN_FORWARD] = "forward",
        [PATTERN_DATA] = "data",
        [PATTERN_FILTER] = "filter",
        [PATTERN_STATISTICS] = "statistics",
        [PATTERN_APPLY_STATISTICS] = "apply+statistics",
        [PATTERN_DATA_SUMS] = "data+sums",
        [PATTERN_APPLY_FILTER] = "apply+filter",
    };
    return names[pattern];
}

/* relu(scale z + shift), inside the graph; `inner` is the dtype of what lies between. */
static int apply(CudnnGraph *g, const ConvShape *s, Dtype inner, ConvTensors *t)
{
    t->x = cudnn_tensor(g, s->x, s->dtype);
    t->scale = cudnn_channels(g, s->x.c, s->dtype);
    t->shift = cudnn_channels(g, s->x.c, s->dtype);
    int scaled = cudnn_virtual(g, s->x, inner), shifted = cudnn_virtual(g, s->x, inner),
        a = cudnn_virtual(g, s->x, inner);
    cudnn_pointwise(g, CUDNN_MUL, t->x, t->scale, scaled);
    cudnn_pointwise(g, CUDNN_ADD, scaled, t->shift, shifted);
    cudnn_pointwise(g, CUDNN_RELU, shifted, 0, a);
    return a;
}

static void statistics(CudnnGraph *g, const ConvShape *s, ConvTensors *t)
{
    t->sum = cudnn_channels(g, s->y.c, DTYPE_F32);
    t->square_sum = cudnn_channels(g, s->y.c, DTYPE_F32);
    cudnn_statistics(g, t->y, t->sum, t->square_sum);
}

static void plain(CudnnGraph *g, CudnnConv kind, const ConvShape *s, ConvTensors *t)
{
    t->x = cudnn_tensor(g, s->x, s->dtype);
    t->w = cudnn_tensor(g, s->w, s->dtype);
    t->y = cudnn_tensor(g, s->y, s->dtype);
    cudnn_conv(g, kind, &s->window, t->x, t->w, t->y, s->accumulate ? 1 : 0);
}

static void apply_statistics(CudnnGraph *g, const ConvShape *s, ConvTensors *t)
{
    int a = apply(g, s, DTYPE_F32, t);
    t->w = cudnn_tensor(g, s->w, s->dtype);
    t->y = cudnn_tensor(g, s->y, s->dtype);
    cudnn_conv(g, CUDNN_CONV_FORWARD, &s->window, a, t->w, t->y, 0);
    statistics(g, s, t);
}

static void apply_filter(CudnnGraph *g, const ConvShape *s, ConvTensors *t)
{
    int a = apply(g, s, s->dtype, t);
    t->w = cudnn_tensor(g, s->w, s->dtype);
    t->y = cudnn_tensor(g, s->y, s->dtype);
    cudnn_conv(g, CUDNN_CONV_FILTER, &s->window, a, t->w, t->y, 0);
}

/* The mask is found again from z: relu'(gamma (z - mean) inverse_deviation + beta). */
static int masked(CudnnGraph *g, const ConvShape *s, int da, ConvTensors *t)
{
    int steps[4];
    for (int i = 0; i < 4; i++) steps[i] = cudnn_virtual(g, s->x, DTYPE_F32);
    t->z = cudnn_tensor(g, s->x, s->dtype);
    t->mean = cudnn_channels(g, s->x.c, DTYPE_F32);
    t->inverse_deviation = cudnn_channels(g, s->x.c, DTYPE_F32);
    t->gamma = cudnn_channels(g, s->x.c, DTYPE_F32);
    t->beta = cudnn_channels(g, s->x.c, DTYPE_F32);
    t->x = cudnn_tensor(g, s->x, s->dtype);
    cudnn_pointwise(g, CUDNN_SUB, t->z, t->mean, steps[0]);
    cudnn_pointwise(g, CUDNN_MUL, steps[0], t->inverse_deviation, steps[1]);
    cudnn_pointwise(g, CUDNN_MUL, steps[1], t->gamma, steps[2]);
    cudnn_pointwise(g, CUDNN_ADD, steps[2], t->beta, steps[3]);
    cudnn_pointwise(g, CUDNN_RELU_BACKWARD, da, steps[3], t->x);
    return t->x;
}

static void data_sums(CudnnGraph *g, const ConvShape *s, ConvTensors *t)
{
    int da = cudnn_virtual(g, s->x, DTYPE_F32);
    t->w = cudnn_tensor(g, s->w, s->dtype);
    t->y = cudnn_tensor(g, s->y, s->dtype);
    cudnn_conv(g, CUDNN_CONV_DATA, &s->window, da, t->w, t->y, 0);
    int dx = masked(g, s, da, t), *made[] = {&t->dgamma, &t->dbeta, &t->dy_factor, &t->x_factor, &t->constant};
    for (int i = 0; i < 5; i++) *made[i] = cudnn_channels(g, s->x.c, DTYPE_F32);
    CudnnNormSums sums = {.mean = t->mean,
                          .inverse_deviation = t->inverse_deviation,
                          .scale = t->gamma,
                          .x = t->z,
                          .dy = dx,
                          .scale_gradient = t->dgamma,
                          .bias_gradient = t->dbeta,
                          .dy_factor = t->dy_factor,
                          .x_factor = t->x_factor,
                          .constant = t->constant};
    cudnn_norm_sums(g, &sums);
}

Status conv_graph_create(CudnnLibrary *library, ConvPattern pattern, const ConvShape *shape, ConvTensors *tensors,
                         CudnnGraph **made)
{
    *tensors = (ConvTensors){0};
    TRY(cudnn_graph_create(library, made));
    switch (pattern) {
    case PATTERN_FORWARD: plain(*made, CUDNN_CONV_FORWARD, shape, tensors); break;
    case PATTERN_DATA: plain(*made, CUDNN_CONV_DATA, shape, tensors); break;
    case PATTERN_FILTER: plain(*made, CUDNN_CONV_FILTER, shape, tensors); break;
    case PATTERN_STATISTICS:
        plain(*made, CUDNN_CONV_FORWARD, shape, tensors);
        statistics(*made, shape, tensors);
        break;
    case PATTERN_APPLY_STATISTICS: apply_statistics(*made, shape, tensors); break;
    case PATTERN_DATA_SUMS: data_sums(*made, shape, tensors); break;
    case PATTERN_APPLY_FILTER: apply_filter(*made, shape, tensors); break;
    case PATTERN_COUNT: break;
    }
    return OK;
}
