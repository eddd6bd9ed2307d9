/* Building graphs for cuDNN; see cudnn_graph.h. */
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/cudnn_descriptor.h"

struct CudnnGraph {
    CudnnLibrary *library; /* borrowed */
    Status status;         /* sticky */
    char message[400];
    Descriptor tensor[CUDNN_TENSORS + 1], operation[CUDNN_OPERATIONS], helper[CUDNN_OPERATIONS];
    int tensors, operations, helpers;
    Descriptor graph; /* made by the first request for plans */
};

Status cudnn_graph_create(CudnnLibrary *library, CudnnGraph **made)
{
    CudnnGraph *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the cuDNN graph");
    g->library = library;
    *made = g;
    return OK;
}

void cudnn_graph_destroy(CudnnGraph *g)
{
    if (!g) return;
    descriptor_destroy(&g->graph);
    for (int i = 0; i < g->operations; i++) descriptor_destroy(&g->operation[i]);
    for (int i = 0; i < g->helpers; i++) descriptor_destroy(&g->helper[i]);
    for (int i = 1; i <= g->tensors; i++) descriptor_destroy(&g->tensor[i]);
    free(g);
}

static void keep(CudnnGraph *g, Status status)
{
    if (g->status != OK || status == OK) return;
    g->status = status;
    snprintf(g->message, sizeof g->message, "%s", status_message());
}

static cudnnDataType_t data_type(Dtype dtype)
{
    return dtype == DTYPE_F16 ? CUDNN_DATA_HALF : dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static Status tensor_fill(Descriptor d, int64_t id, Shape s, Dtype dtype, bool is_virtual)
{
    int64_t c = s.c, dims[4] = {s.n, c, s.h, s.w}, strides[4] = {s.h * s.w * c, 1, s.w * c, c}, alignment = 16;
    cudnnDataType_t type = data_type(dtype);
    TRY(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TRY(set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    TRY(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    TRY(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    TRY(set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    return finalize(d);
}

static int tensor_add(CudnnGraph *g, Shape shape, Dtype dtype, bool is_virtual)
{
    if (g->status != OK) return 0;
    if (g->tensors == CUDNN_TENSORS) {
        keep(g, FAIL(ERR_INTERNAL, "more than %d tensors in a cuDNN graph", CUDNN_TENSORS));
        return 0;
    }
    int id = ++g->tensors;
    Status st = descriptor_create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &g->tensor[id]);
    if (st == OK) st = tensor_fill(g->tensor[id], id, shape, dtype, is_virtual);
    keep(g, st);
    return id;
}

int cudnn_tensor(CudnnGraph *g, Shape shape, Dtype dtype)
{
    return tensor_add(g, shape, dtype, false);
}

int cudnn_virtual(CudnnGraph *g, Shape shape, Dtype dtype)
{
    return tensor_add(g, shape, dtype, true);
}

int cudnn_channels(CudnnGraph *g, int32_t c, Dtype dtype)
{
    return tensor_add(g, (Shape){1, c, 1, 1}, dtype, false);
}

/* Room for one more operation, and for a helper that it refers to. */
static Status operation_add(CudnnGraph *g, cudnnBackendDescriptorType_t type, Descriptor *made)
{
    if (g->operations == CUDNN_OPERATIONS)
        return FAIL(ERR_INTERNAL, "more than %d operations in a cuDNN graph", CUDNN_OPERATIONS);
    TRY(descriptor_create(type, &g->operation[g->operations]));
    *made = g->operation[g->operations++];
    return OK;
}

static Status helper_add(CudnnGraph *g, cudnnBackendDescriptorType_t type, Descriptor *made)
{
    if (g->helpers == CUDNN_OPERATIONS)
        return FAIL(ERR_INTERNAL, "more than %d descriptors in a cuDNN graph", CUDNN_OPERATIONS);
    TRY(descriptor_create(type, &g->helper[g->helpers]));
    *made = g->helper[g->helpers++];
    return OK;
}

/* The three kinds have the same attributes under different names. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
} conv_names[] = {
#define ATTRIBUTE(kind, name) CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##name
#define NAMES(type, kind, x, w, y)                                                                                     \
    {                                                                                                                  \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, ATTRIBUTE(kind, CONV_DESC), ATTRIBUTE(kind, x),       \
            ATTRIBUTE(kind, w), ATTRIBUTE(kind, y), ATTRIBUTE(kind, ALPHA), ATTRIBUTE(kind, BETA)                      \
    }
    [CUDNN_CONV_FORWARD] = NAMES(FORWARD, FORWARD, X, W, Y),
    [CUDNN_CONV_DATA] = NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    [CUDNN_CONV_FILTER] = NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
};

static Status conv_add(CudnnGraph *g, CudnnConv kind, const Window *window, int x, int w, int y, float beta)
{
    Descriptor op = NULL, k = NULL;
    float alpha = 1;
    TRY(helper_add(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &k));
    int64_t sides = 2, pad[2] = {window->pad_h, window->pad_w}, stride[2] = {window->stride_h, window->stride_w},
            dilation[2] = {1, 1};
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &sides));
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
    TRY(set(k, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
    TRY(finalize(k));
    TRY(operation_add(g, conv_names[kind].type, &op));
    TRY(set_descriptor(op, conv_names[kind].window, k));
    TRY(set_descriptor(op, conv_names[kind].x, g->tensor[x]));
    TRY(set_descriptor(op, conv_names[kind].w, g->tensor[w]));
    TRY(set_descriptor(op, conv_names[kind].y, g->tensor[y]));
    TRY(set(op, conv_names[kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
    TRY(set(op, conv_names[kind].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    return finalize(op);
}

void cudnn_conv(CudnnGraph *g, CudnnConv kind, const Window *window, int x, int w, int y, float beta)
{
    if (g->status == OK) keep(g, conv_add(g, kind, window, x, w, y, beta));
}

static const cudnnPointwiseMode_t pointwise_modes[] = {
    [CUDNN_ADD] = CUDNN_POINTWISE_ADD,
    [CUDNN_SUB] = CUDNN_POINTWISE_SUB,
    [CUDNN_MUL] = CUDNN_POINTWISE_MUL,
    [CUDNN_RELU] = CUDNN_POINTWISE_RELU_FWD,
    [CUDNN_RELU_BACKWARD] = CUDNN_POINTWISE_RELU_BWD,
};

static Status pointwise_add(CudnnGraph *g, CudnnPointwise mode, int a, int b, int y)
{
    Descriptor op = NULL, how = NULL;
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    bool backward = mode == CUDNN_RELU_BACKWARD;
    TRY(helper_add(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &how));
    TRY(set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &pointwise_modes[mode]));
    TRY(set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision));
    TRY(finalize(how));
    TRY(operation_add(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &op));
    TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how));
    TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->tensor[backward ? b : a]));
    if (backward) {
        TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, g->tensor[a]));
        TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, g->tensor[y]));
        return finalize(op);
    }
    if (mode != CUDNN_RELU) TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, g->tensor[b]));
    TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, g->tensor[y]));
    return finalize(op);
}

void cudnn_pointwise(CudnnGraph *g, CudnnPointwise op, int a, int b, int y)
{
    if (g->status == OK) keep(g, pointwise_add(g, op, a, b, y));
}

static Status statistics_add(CudnnGraph *g, int x, int sum, int square_sum)
{
    Descriptor op = NULL;
    cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    TRY(operation_add(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, &op));
    TRY(set(op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode));
    TRY(set(op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision));
    TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, g->tensor[x]));
    TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, g->tensor[sum]));
    TRY(set_descriptor(op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, g->tensor[square_sum]));
    return finalize(op);
}

void cudnn_statistics(CudnnGraph *g, int x, int sum, int square_sum)
{
    if (g->status == OK) keep(g, statistics_add(g, x, sum, square_sum));
}

static Status norm_sums_add(CudnnGraph *g, const CudnnNormSums *s)
{
    Descriptor op = NULL;
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    const struct {
        cudnnBackendAttributeName_t name;
        int tensor;
    } operands[] = {
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, s->mean},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, s->inverse_deviation},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, s->scale},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, s->x},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, s->dy},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, s->scale_gradient},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, s->bias_gradient},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, s->dy_factor},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, s->x_factor},
        {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, s->constant},
    };
    TRY(operation_add(g, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, &op));
    TRY(set(op, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision));
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        TRY(set_descriptor(op, operands[i].name, g->tensor[operands[i].tensor]));
    return finalize(op);
}

void cudnn_norm_sums(CudnnGraph *g, const CudnnNormSums *sums)
{
    if (g->status == OK) keep(g, norm_sums_add(g, sums));
}

Status cudnn_graph_finish(CudnnGraph *g, CudnnLibrary **library, Descriptor *finished)
{
    *library = g->library;
    if (g->status != OK) return FAIL(g->status, "%s", g->message);
    Descriptor graph = NULL;
    Status st = OK;
    *finished = g->graph;
    if (g->graph) return OK;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
    TRY_OUT(set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations, g->operation));
    if (g->library->handle)
        TRY_OUT(set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->library->handle));
    TRY_OUT(finalize(graph));
    *finished = g->graph = graph;
    graph = NULL;
out:
    descriptor_destroy(&graph);
    return st;
}
