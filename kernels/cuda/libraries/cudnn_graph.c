/* Building graphs for cuDNN; see cudnn_graph.h. */
#include "kernels/cuda/libraries/cudnn_graph.h"
#include "kernels/cuda/libraries/cudnn_descriptor.h"

/* The convolution, + bias, ReLU. */
enum { STEPS = 3 };

struct CudnnGraph {
    CudnnLibrary *library; /* borrowed */
    Status status;         /* of building it */
    char message[400];
    Descriptor tensor[CUDNN_OPERANDS], window;
    Descriptor between[STEPS - 1], pointwise[STEPS - 1],
        operation[STEPS]; /* a value between two operations is virtual */
    int count;            /* of operations */
    Descriptor graph;     /* made by the first request for plans */
};

void cudnn_graph_destroy(CudnnGraph *g)
{
    if (!g) return;
    descriptor_destroy(&g->graph);
    for (int i = 0; i < STEPS; i++) descriptor_destroy(&g->operation[i]);
    for (int i = 0; i < STEPS - 1; i++) {
        descriptor_destroy(&g->pointwise[i]);
        descriptor_destroy(&g->between[i]);
    }
    descriptor_destroy(&g->window);
    for (int i = 0; i < CUDNN_OPERANDS; i++) descriptor_destroy(&g->tensor[i]);
    free(g);
}

static cudnnDataType_t data_type(Dtype dtype)
{
    return dtype == DTYPE_F16 ? CUDNN_DATA_HALF : dtype == DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static Status tensor_create(int64_t id, Shape s, Dtype dtype, bool is_virtual, Descriptor *made)
{
    int64_t c = s.c, dims[4] = {s.n, c, s.h, s.w}, strides[4] = {s.h * s.w * c, 1, s.w * c, c}, alignment = 16;
    cudnnDataType_t type = data_type(dtype);
    TRY(descriptor_create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, made));
    TRY(set(*made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TRY(set(*made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(set(*made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    TRY(set(*made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    TRY(set(*made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    if (is_virtual) TRY(set(*made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    return finalize(*made);
}

/* Padding is symmetric: conv.c sees to that. */
static Status window_create(const Window *window, Descriptor *made)
{
    int64_t sides = 2, pad[2] = {window->pad_h, window->pad_w}, stride[2] = {window->stride_h, window->stride_w},
            dilation[2] = {window->dilate_h + 1, window->dilate_w + 1};
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    TRY(descriptor_create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, made));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &sides));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation));
    return finalize(*made);
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

static Status convolution_create(CudnnGraph *g, const CudnnSpec *s, Descriptor y)
{
    Descriptor *made = &g->operation[g->count++];
    float alpha = 1, beta = s->accumulate ? 1 : 0;
    TRY(window_create(&s->window, &g->window));
    TRY(descriptor_create(conv_names[s->kind].type, made));
    TRY(set_descriptor(*made, conv_names[s->kind].window, g->window));
    TRY(set_descriptor(*made, conv_names[s->kind].x, g->tensor[0]));
    TRY(set_descriptor(*made, conv_names[s->kind].w, g->tensor[1]));
    TRY(set_descriptor(*made, conv_names[s->kind].y, y));
    TRY(set(*made, conv_names[s->kind].alpha, CUDNN_TYPE_FLOAT, 1, &alpha));
    TRY(set(*made, conv_names[s->kind].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    return finalize(*made);
}

/* y = x + b, or if b is NULL relu(x), which keeps NaN. */
static Status pointwise_create(CudnnGraph *g, Descriptor x, Descriptor b, Descriptor y)
{
    Descriptor *how = &g->pointwise[g->count - 1], *made = &g->operation[g->count++];
    cudnnPointwiseMode_t mode = b ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    TRY(descriptor_create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, how));
    TRY(set(*how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    TRY(set(*how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    if (!b) TRY(set(*how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan));
    TRY(finalize(*how));
    TRY(descriptor_create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, made));
    TRY(set_descriptor(*made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *how));
    TRY(set_descriptor(*made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
    if (b) TRY(set_descriptor(*made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
    TRY(set_descriptor(*made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
    return finalize(*made);
}

static Status graph_build(CudnnGraph *g, const CudnnSpec *s)
{
    const Shape shapes[CUDNN_OPERANDS] = {s->x, s->w, s->y, {1, s->y.c, 1, 1}};
    Descriptor *sum = &g->between[0], *shifted = &g->between[1], y;
    for (int i = 0; i < CUDNN_OPERANDS - !s->bias; i++)
        TRY(tensor_create(i + 1, shapes[i], s->dtype, false, &g->tensor[i]));
    y = g->tensor[2];
    if (!s->bias) return convolution_create(g, s, y);
    TRY(tensor_create(CUDNN_OPERANDS + 1, s->y, DTYPE_F32, true, sum));
    if (s->relu) TRY(tensor_create(CUDNN_OPERANDS + 2, s->y, DTYPE_F32, true, shifted));
    TRY(convolution_create(g, s, *sum));
    TRY(pointwise_create(g, *sum, g->tensor[3], s->relu ? *shifted : y));
    return s->relu ? pointwise_create(g, *shifted, NULL, y) : OK;
}

Status cudnn_graph_create(CudnnLibrary *library, const CudnnSpec *spec, CudnnGraph **made)
{
    CudnnGraph *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the cuDNN graph");
    g->library = library;
    g->status = graph_build(g, spec);
    if (g->status != OK) snprintf(g->message, sizeof g->message, "%s", status_message());
    *made = g;
    return OK;
}

Status cudnn_graph_finish(CudnnGraph *g, CudnnLibrary **library, void **finished)
{
    *library = g->library;
    if (g->status != OK) return FAIL(g->status, "%s", g->message);
    Descriptor graph = NULL;
    Status st = OK;
    *finished = g->graph;
    if (g->graph) return OK;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
    TRY_OUT(set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->count, g->operation));
    if (g->library->handle)
        TRY_OUT(set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->library->handle));
    TRY_OUT(finalize(graph));
    *finished = g->graph = graph;
    graph = NULL;
out:
    descriptor_destroy(&graph);
    return st;
}
