/* The graph API of cuDNN 9 (cudnnBackend*): everything is a descriptor with attributes, finalized before use. */
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/text.h"

#include <cudnn.h>

typedef cudnnBackendDescriptor_t Descriptor;

struct CudnnLibrary {
    cudnnHandle_t handle;  /* NULL: plans only */
    Descriptor device;     /* NULL: the device of the handle */
    PlanRefusals *refused; /* borrowed, or NULL */
};

struct CudnnGraph {
    CudnnLibrary *library; /* borrowed */
    Status status;         /* sticky */
    char message[400];
    Descriptor tensor[CUDNN_TENSORS + 1], operation[CUDNN_OPERATIONS], helper[CUDNN_OPERATIONS];
    int tensors, operations, helpers;
    Descriptor graph; /* made by the first request for plans */
};

struct CudnnPlan {
    CudnnLibrary *library; /* borrowed */
    Descriptor plan, pack; /* owned; pack: the pointers of the last run */
    int64_t workspace_bytes;
    void *memory[CUDNN_TENSORS + 1]; /* what pack holds */
    char text[CUDNN_PLAN_BYTES];
};

/* ---- descriptors */

static Status descriptor_create(cudnnBackendDescriptorType_t type, Descriptor *made)
{
    TRY_CUDNN(cudnnBackendCreateDescriptor(type, made));
    return OK;
}

static void descriptor_destroy(Descriptor *d)
{
    if (*d) cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

static Status set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void *values)
{
    TRY_CUDNN(cudnnBackendSetAttribute(d, name, type, count, values));
    return OK;
}

static Status set_descriptor(Descriptor d, cudnnBackendAttributeName_t name, Descriptor value)
{
    return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static Status finalize(Descriptor d)
{
    TRY_CUDNN(cudnnBackendFinalize(d));
    return OK;
}

/* ---- library */

/* Descriptions of devices came with 9.8, as did the joined graphs' engines. */
enum { OLDEST = 90000, WITH_JOINS = 90800 };
#if CUDNN_VERSION >= 90800
#define DESCRIBED true
#define OF_DEVICE(name) CUDNN_ATTR_##name##_DEVICEPROP
#else /* headers that lack the names: nothing is opened from a description, so nothing uses these */
#define DESCRIBED false
#define OF_DEVICE(name) (cudnnBackendAttributeName_t)0
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR (cudnnBackendDescriptorType_t)0
#define CUDNN_ATTR_DEVICEPROP_DEVICE_ID (cudnnBackendAttributeName_t)0
#define CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION (cudnnBackendAttributeName_t)0
#endif

void plan_refused(PlanRefusals *refused)
{
    if (refused && refused->count++ == 0) snprintf(refused->first, sizeof refused->first, "%s", status_message());
}

bool cudnn_joins(void)
{
    return cudnnGetVersion() >= WITH_JOINS;
}

static Status descriptions_check(void)
{
    char text[64];
    if (DESCRIBED && cudnn_joins()) return OK;
    cudnn_describe(text, sizeof text);
    return FAIL(ERR_UNSUPPORTED, "%s cannot describe a device that is not present: expected cuDNN 9.8 or newer", text);
}

Status cudnn_open(cudaStream_t stream, PlanRefusals *refused, CudnnLibrary **made)
{
    Status st = OK;
    if (cudnnGetVersion() < OLDEST)
        return FAIL(ERR_UNSUPPORTED, "expected cuDNN 9.0 or newer at run time, found version %zu (cudnnGetVersion)",
                    cudnnGetVersion());
    CudnnLibrary *library = calloc(1, sizeof *library);
    if (!library) return FAIL(ERR_MEMORY, "no memory for the cuDNN handle");
    library->refused = refused;
    TRY_CUDNN_OUT(cudnnCreate(&library->handle));
    TRY_CUDNN_OUT(cudnnSetStream(library->handle, stream));
    *made = library;
    library = NULL;
out:
    cudnn_close(library);
    return st;
}

Status cudnn_open_described(const char *json, CudnnLibrary **made)
{
    Status st = OK;
    TRY(descriptions_check());
    CudnnLibrary *library = calloc(1, sizeof *library);
    if (!library) return FAIL(ERR_MEMORY, "no memory for the cuDNN device description");
    TRY_OUT(descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &library->device));
    TRY_OUT(
        set(library->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json), json));
    TRY_OUT(finalize(library->device));
    *made = library;
    library = NULL;
out:
    cudnn_close(library);
    return st;
}

void cudnn_close(CudnnLibrary *library)
{
    if (!library) return;
    descriptor_destroy(&library->device);
    if (library->handle) cudnnDestroy(library->handle);
    free(library);
}

void cudnn_describe(char *text, size_t bytes)
{
    size_t v = cudnnGetVersion();
    snprintf(text, bytes, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

Status cudnn_device_json(CudnnLibrary *library, int ordinal, char *json, size_t bytes)
{
    Status st = OK;
    Descriptor device = NULL;
    int32_t id = ordinal;
    int64_t written = 0;
    (void)library;
    TRY(descriptions_check());
    TRY_OUT(descriptor_create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device));
    TRY_OUT(set(device, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id));
    TRY_OUT(finalize(device));
    TRY_CUDNN_OUT(cudnnBackendGetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                           (int64_t)bytes - 1, &written, json));
    json[written < (int64_t)bytes ? written : (int64_t)bytes - 1] = 0;
out:
    descriptor_destroy(&device);
    return st;
}

/* ---- building */

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

static Status tensor_fill(Descriptor d, int64_t id, Shape s, Dtype dtype, int64_t pitch, bool is_virtual)
{
    int64_t dims[4] = {s.n, s.c, s.h, s.w}, strides[4] = {s.h * s.w * pitch, 1, s.w * pitch, pitch}, alignment = 16;
    cudnnDataType_t type = data_type(dtype);
    TRY(set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TRY(set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    TRY(set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    TRY(set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    TRY(set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    return finalize(d);
}

static int tensor_add(CudnnGraph *g, Shape shape, Dtype dtype, int64_t pitch, bool is_virtual)
{
    if (g->status != OK) return 0;
    if (g->tensors == CUDNN_TENSORS) {
        keep(g, FAIL(ERR_INTERNAL, "more than %d tensors in a cuDNN graph", CUDNN_TENSORS));
        return 0;
    }
    int id = ++g->tensors;
    Status st = descriptor_create(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &g->tensor[id]);
    if (st == OK) st = tensor_fill(g->tensor[id], id, shape, dtype, pitch ? pitch : shape.c, is_virtual);
    keep(g, st);
    return id;
}

int cudnn_tensor(CudnnGraph *g, Shape shape, Dtype dtype, int64_t pitch)
{
    return tensor_add(g, shape, dtype, pitch, false);
}

int cudnn_virtual(CudnnGraph *g, Shape shape, Dtype dtype)
{
    return tensor_add(g, shape, dtype, 0, true);
}

int cudnn_channels(CudnnGraph *g, int32_t c, Dtype dtype)
{
    return tensor_add(g, (Shape){1, c, 1, 1}, dtype, 0, false);
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
    [CUDNN_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDNN_CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDNN_CONV_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
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

static Status graph_finish(CudnnGraph *g)
{
    if (g->status != OK) return FAIL(g->status, "%s", g->message);
    if (g->graph) return OK;
    Descriptor graph = NULL;
    Status st = OK;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
    TRY_OUT(set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations, g->operation));
    if (g->library->handle)
        TRY_OUT(set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->library->handle));
    TRY_OUT(finalize(graph));
    g->graph = graph;
    graph = NULL;
out:
    descriptor_destroy(&graph);
    return st;
}

/* ---- plans */

/* Does an engine carry a note? `name`: numerical or behaviour notes. */
static bool engine_notes(Descriptor engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int note)
{
    int32_t notes[32];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, name, type, 32, &count, notes) != CUDNN_STATUS_SUCCESS) return false;
    for (int64_t i = 0; i < count && i < 32; i++)
        if (notes[i] == note) return true;
    return false;
}

static bool engine_keeps(Descriptor engine, const CudnnRules *rules)
{
    const cudnnBackendAttributeName_t numerical = CUDNN_ATTR_ENGINE_NUMERICAL_NOTE;
    const cudnnBackendAttributeType_t type = CUDNN_TYPE_NUMERICAL_NOTE;
    if (engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
    if (!rules->tensor_cores && engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) return false;
    if (engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)) return false;
    if (engine_notes(engine, numerical, type, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
    return !rules->no_runtime_compile ||
           !engine_notes(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                         CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
}

/* The engine of a configuration; the caller destroys it. */
static Status config_engine(Descriptor config, Descriptor *engine)
{
    int64_t count = 0;
    TRY(descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, engine));
    TRY_CUDNN(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                       engine));
    return OK;
}

enum { KNOBS = 48 }; /* cuDNN 9.19 has 44 kinds */

/* False if there is no room for all of them, or no memory. */
static bool text_add_knobs(Descriptor config, char *buffer, size_t bytes)
{
    Descriptor choice[KNOBS] = {0};
    int64_t count = 0, got = 0;
    Text text = text_behind(buffer, bytes);
    bool room = true;
    for (int i = 0; room && i < KNOBS; i++)
        room = cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[i]) == CUDNN_STATUS_SUCCESS;
    if (room && cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         KNOBS, &count, choice) != CUDNN_STATUS_SUCCESS)
        count = 0;
    for (int64_t i = 0; i < count && i < KNOBS; i++) {
        cudnnBackendKnobType_t type;
        int64_t value;
        if (cudnnBackendGetAttribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got,
                                     &type) == CUDNN_STATUS_SUCCESS &&
            cudnnBackendGetAttribute(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value) ==
                CUDNN_STATUS_SUCCESS)
            text_add(&text, " %d=%lld", (int)type, (long long)value);
    }
    for (int i = 0; i < KNOBS; i++) descriptor_destroy(&choice[i]);
    return room && !text.truncated && count <= KNOBS;
}

/* A plan of one configuration, or OK and NULL where it breaks a rule or the library has no kernel for it on this device (any
 * CUDNN_STATUS_NOT_SUPPORTED_...): that is an answer, not a failure. */
static Status plan_create(CudnnGraph *g, Descriptor config, const CudnnRules *rules, CudnnPlan **made)
{
    Status st = OK;
    Descriptor engine = NULL, plan = NULL;
    CudnnPlan *p = NULL;
    int64_t number = -1, count = 0, workspace = 0;
    *made = NULL;
    TRY_OUT(config_engine(config, &engine));
    if (!engine_keeps(engine, rules)) goto out;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan));
    TRY_OUT(set_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    if (g->library->handle)
        TRY_OUT(set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->library->handle));
    else
        TRY_OUT(set_descriptor(plan, OF_DEVICE(EXECUTION_PLAN), g->library->device));
    cudnnStatus_t made_it = cudnnBackendFinalize(plan);
    if (CUDNN_STATUS_CATEGORY(made_it) == CUDNN_STATUS_NOT_SUPPORTED) goto out;
    if (made_it != CUDNN_STATUS_SUCCESS)
        TRY_OUT(cudnn_failed(made_it, __FILE__, __LINE__, "cudnnBackendFinalize of a plan"));
    TRY_CUDNN_OUT(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                           &workspace));
    if (rules->workspace_max && (size_t)workspace > rules->workspace_max) goto out;
    TRY_CUDNN_OUT(
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &number));
    p = calloc(1, sizeof *p);
    if (!p) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the cuDNN plan"));
    p->library = g->library;
    p->workspace_bytes = workspace;
    snprintf(p->text, sizeof p->text, "engine %lld knobs", (long long)number);
    if (!text_add_knobs(config, p->text, sizeof p->text)) goto out; /* no other process could make it */
    p->plan = plan;
    plan = NULL;
    *made = p;
    p = NULL;
out:
    free(p);
    descriptor_destroy(&plan);
    descriptor_destroy(&engine);
    return st;
}

void cudnn_plan_destroy(CudnnPlan *plan)
{
    if (!plan) return;
    descriptor_destroy(&plan->pack);
    descriptor_destroy(&plan->plan);
    free(plan);
}

/* The configurations that one mode of the heuristics offers; the caller destroys them. */
static Status configs_ask(CudnnGraph *g, cudnnBackendHeurMode_t mode, Descriptor *configs, int room, int *found)
{
    Status st = OK;
    Descriptor question = NULL;
    int64_t got = 0;
    TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &question));
    TRY_OUT(set_descriptor(question, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph));
    TRY_OUT(set(question, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (g->library->device) TRY_OUT(set_descriptor(question, OF_DEVICE(ENGINEHEUR), g->library->device));
    if (cudnnBackendFinalize(question) != CUDNN_STATUS_SUCCESS) goto out; /* nothing to offer */
    if (cudnnBackendGetAttribute(question, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &got,
                                 NULL) != CUDNN_STATUS_SUCCESS)
        got = 0;
    room = got < room ? (int)got : room;
    got = 0;
    if (room == 0) goto out;
    for (int i = 0; i < room; i++) TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    if (cudnnBackendGetAttribute(question, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &got,
                                 configs) != CUDNN_STATUS_SUCCESS)
        got = 0;
out:
    *found = (int)got;
    descriptor_destroy(&question);
    return st;
}

static Status plans_of_mode(CudnnGraph *g, cudnnBackendHeurMode_t mode, int offers, const CudnnRules *rules, int wanted,
                            CudnnPlan **plans, int *found)
{
    Status st = OK;
    Descriptor configs[CUDNN_PLANS] = {0};
    int offered = 0;
    TRY_OUT(configs_ask(g, mode, configs, offers, &offered));
    for (int i = 0; i < offered && *found < wanted; i++) {
        if (plan_create(g, configs[i], rules, &plans[*found]) != OK) plan_refused(g->library->refused);
        if (plans[*found]) (*found)++;
    }
out:
    for (int i = 0; i < CUDNN_PLANS; i++) descriptor_destroy(&configs[i]);
    return st;
}

Status cudnn_plans(CudnnGraph *g, const CudnnRules *rules, int wanted, CudnnPlan **plans, int *found)
{
    int few = wanted == 1 ? 4 : CUDNN_PLANS; /* offers cost time, and the first is mostly good */
    *found = 0;
    Status st = graph_finish(g);
    if (st == OK) st = plans_of_mode(g, CUDNN_HEUR_MODE_A, few, rules, wanted, plans, found);
    if (st == OK && *found == 0) st = plans_of_mode(g, CUDNN_HEUR_MODE_A, CUDNN_PLANS, rules, wanted, plans, found);
    if (st == OK && *found == 0)
        st = plans_of_mode(g, CUDNN_HEUR_MODE_FALLBACK, CUDNN_PLANS, rules, wanted, plans, found);
    if (st == OK && *found == 0)
        st = FAIL(ERR_UNSUPPORTED,
                  "cuDNN has no plan that meets the requirements (memory, the same bits every time, number format)");
    if (st == OK) return OK;
    if (st != ERR_UNSUPPORTED) plan_refused(g->library->refused);
    while (*found > 0) cudnn_plan_destroy(plans[--*found]);
    return st;
}

/* ---- a plan by name */

static Status knobs_read(const char *text, Descriptor *choice, int *count)
{
    int type, used;
    long long value;
    *count = 0;
    while (*count < KNOBS && sscanf(text, " %d=%lld%n", &type, &value, &used) == 2) {
        cudnnBackendKnobType_t knob = (cudnnBackendKnobType_t)type;
        int64_t setting = value;
        TRY(descriptor_create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[*count]));
        Descriptor d = choice[(*count)++];
        TRY(set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob));
        TRY(set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &setting));
        TRY(finalize(d));
        text += used;
    }
    return OK;
}

Status cudnn_plan_named(CudnnGraph *g, const CudnnRules *rules, const char *text, CudnnPlan **made)
{
    Status st = OK;
    Descriptor engine = NULL, config = NULL, choice[KNOBS] = {0};
    long long number;
    int used = 0, knobs = 0;
    *made = NULL;
    if (sscanf(text, "engine %lld knobs%n", &number, &used) != 1 || !used)
        return FAIL(ERR_FORMAT, "'%s' is not the name of a cuDNN plan", text);
    int64_t index = number;
    TRY(graph_finish(g));
    TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY_OUT(set_descriptor(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph));
    TRY_OUT(set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index));
    if (g->library->device) TRY_OUT(set_descriptor(engine, OF_DEVICE(ENGINE), g->library->device));
    TRY_OUT(finalize(engine));
    TRY_OUT(knobs_read(text + used, choice, &knobs));
    TRY_OUT(descriptor_create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config));
    TRY_OUT(set_descriptor(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine));
    if (knobs) TRY_OUT(set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs, choice));
    TRY_OUT(finalize(config));
    TRY_OUT(plan_create(g, config, rules, made));
    if (!*made)
        st = FAIL(ERR_UNSUPPORTED, "the plan '%s' is rejected by cuDNN or does not meet the requirements", text);
out:
    for (int i = 0; i < KNOBS; i++) descriptor_destroy(&choice[i]);
    descriptor_destroy(&config);
    descriptor_destroy(&engine);
    return st;
}

size_t cudnn_plan_workspace(const CudnnPlan *plan)
{
    return (size_t)plan->workspace_bytes;
}

const char *cudnn_plan_text(const CudnnPlan *plan)
{
    return plan->text;
}

/* ---- running */

static Status pack_create(CudnnPlan *p, const int *tensor, void *const *memory, int count, void *workspace)
{
    Status st = OK;
    Descriptor pack = NULL;
    int64_t ids[CUDNN_TENSORS];
    for (int i = 0; i < count; i++) ids[i] = tensor[i];
    TRY_OUT(descriptor_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TRY_OUT(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids));
    TRY_OUT(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, memory));
    TRY_OUT(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    TRY_OUT(finalize(pack));
    descriptor_destroy(&p->pack);
    p->pack = pack;
    pack = NULL;
    memcpy(p->memory, memory, (size_t)count * sizeof *memory);
    p->memory[CUDNN_TENSORS] = workspace;
out:
    descriptor_destroy(&pack);
    return st;
}

/* The pack is made anew only when the memory has changed: in a training run, once. */
Status cudnn_plan_run(CudnnPlan *p, const int *tensor, void *const *memory, int count, void *workspace)
{
    bool same = p->pack && p->memory[CUDNN_TENSORS] == workspace &&
                memcmp(p->memory, memory, (size_t)count * sizeof *memory) == 0;
    if (!same) TRY(pack_create(p, tensor, memory, count, workspace));
    TRY_CUDNN(cudnnBackendExecute(p->library->handle, p->plan, p->pack));
    return OK;
}
