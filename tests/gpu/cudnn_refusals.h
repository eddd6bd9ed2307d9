/* What cuDNN refuses in a graph, where, and with which code: one table that is asked of the library itself, for a described
 * GPU (test_cudnn_plans), and of the fake (test_gpu_plans), so that the fake refuses what the library refuses. The types of
 * the attributes are in the reference of the backend (docs.nvidia.com/deeplearning/cudnn, cudnn_graph library), the codes
 * in cudnn_graph_v9.h; the rest is what cuDNN 9.19 answers, with its own words from cudnnGetLastErrorString beside. */
#pragma once

#include "tests/support/unit.h"

#include <cudnn.h>

#if CUDNN_VERSION < 90800 /* no descriptions of devices */
static void assert_refusals(const char *json)
{
    (void)json;
    skip();
}
#else

/* The descriptors of the graph y = x * w, or its gradient of w. */
typedef enum Part {
    PART_NONE = 0,
    PART_X,
    PART_W,
    PART_Y,
    PART_WINDOW,
    PART_CONV,
    PART_FILTER,
    PART_GRAPH,
    PART_QUESTION,
    PART_ENGINE,
    PART_KNOB,
    PART_PLAN,
    PART_PACK,
    PART_COUNT
} Part;

typedef enum Change { NOTHING = 0, LEFT_OUT, TYPED, COUNTED, VALUED, NOT_FINALIZED } Change;
/* AT_ANSWER: there are no plans; NOWHERE: there are. */
typedef enum Stage { NOWHERE = 0, AT_SET, AT_FINALIZE, AT_ANSWER } Stage;

typedef struct Refusal {
    Part part; /* that is changed */
    int attribute;
    Change change;
    int64_t to; /* another type, another count, another value at `index` */
    int index;
    Stage stage;
    Part by; /* the descriptor that refuses */
    int status;
} Refusal;

#define TENSOR(name) CUDNN_ATTR_TENSOR_##name
#define WINDOW(name) CUDNN_ATTR_CONVOLUTION_##name
#define CONV(name) CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_##name
#define FILTER(name) CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_##name
#define BAD CUDNN_STATUS_BAD_PARAM
#define BAD_TYPE CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE
#define BAD_ORDER CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED

static const Refusal refusals[] = {
    {PART_NONE, 0, NOTHING, 0, 0, NOWHERE, PART_NONE, 0},
    /* "CUDNN_TYPE_INT64 != attrType", ...; "1 != elemCount" */
    {PART_X, TENSOR(UNIQUE_ID), TYPED, CUDNN_TYPE_INT32, 0, AT_SET, PART_X, BAD_TYPE},
    {PART_X, TENSOR(DATA_TYPE), TYPED, CUDNN_TYPE_INT64, 0, AT_SET, PART_X, BAD_TYPE},
    {PART_X, TENSOR(DIMENSIONS), TYPED, CUDNN_TYPE_INT32, 0, AT_SET, PART_X, BAD_TYPE},
    {PART_X, TENSOR(UNIQUE_ID), COUNTED, 2, 0, AT_SET, PART_X, BAD},
    {PART_WINDOW, WINDOW(SPATIAL_DIMS), TYPED, CUDNN_TYPE_INT32, 0, AT_SET, PART_WINDOW, BAD},
    {PART_CONV, CONV(X), TYPED, CUDNN_TYPE_VOID_PTR, 0, AT_SET, PART_CONV, BAD},
    {PART_GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, TYPED, CUDNN_TYPE_INT64, 0, AT_SET, PART_GRAPH, BAD_TYPE},
    {PART_ENGINE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, TYPED, CUDNN_TYPE_INT32, 0, AT_SET, PART_ENGINE, BAD},
    {PART_KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, TYPED, CUDNN_TYPE_INT64, 0, AT_SET, PART_KNOB, BAD_TYPE},
    {PART_KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, TYPED, CUDNN_TYPE_INT32, 0, AT_SET, PART_KNOB, BAD_TYPE},
    /* "_nbDims != _nbStrides", "_dimA[d] < 0", "_strA[d] < 0" */
    {PART_X, TENSOR(DIMENSIONS), LEFT_OUT, 0, 0, AT_FINALIZE, PART_X, BAD},
    {PART_X, TENSOR(STRIDES), LEFT_OUT, 0, 0, AT_FINALIZE, PART_X, BAD},
    {PART_X, TENSOR(DIMENSIONS), COUNTED, 3, 0, AT_FINALIZE, PART_X, BAD},
    {PART_X, TENSOR(DIMENSIONS), VALUED, -1, 1, AT_FINALIZE, PART_X, BAD},
    {PART_X, TENSOR(STRIDES), VALUED, -16, 3, AT_FINALIZE, PART_X, BAD},
    /* "(_ptrAlignment <= 0) || _ptrAlignment % sizeofCudnnType(_dataType) != 0" */
    {PART_X, TENSOR(BYTE_ALIGNMENT), LEFT_OUT, 0, 0, AT_FINALIZE, PART_X, BAD},
    {PART_X, TENSOR(BYTE_ALIGNMENT), VALUED, 3, 0, AT_FINALIZE, PART_X, BAD},
    /* "finalize_internal()"; paddings that are left out are 0: "is_valid_spatial_dim(...)" of the operation */
    {PART_WINDOW, WINDOW(SPATIAL_DIMS), LEFT_OUT, 0, 0, AT_FINALIZE, PART_WINDOW, BAD},
    {PART_WINDOW, WINDOW(SPATIAL_DIMS), VALUED, 3, 0, AT_FINALIZE, PART_WINDOW, BAD},
    {PART_WINDOW, WINDOW(FILTER_STRIDES), LEFT_OUT, 0, 0, AT_FINALIZE, PART_WINDOW, BAD},
    {PART_WINDOW, WINDOW(FILTER_STRIDES), VALUED, 0, 0, AT_FINALIZE, PART_WINDOW, BAD},
    {PART_WINDOW, WINDOW(DILATIONS), LEFT_OUT, 0, 0, AT_FINALIZE, PART_WINDOW, BAD},
    {PART_WINDOW, WINDOW(PRE_PADDINGS), VALUED, -1, 0, AT_FINALIZE, PART_WINDOW, BAD},
    {PART_WINDOW, WINDOW(PRE_PADDINGS), LEFT_OUT, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_WINDOW, WINDOW(POST_PADDINGS), LEFT_OUT, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_WINDOW, WINDOW(FILTER_STRIDES), VALUED, 2, 0, AT_FINALIZE, PART_CONV, BAD},
    /* "(!xDesc.isFinalized()) || (!wDesc.isFinalized()) || (!cDesc.isFinalized()) || (!yDesc.isFinalized())" */
    {PART_CONV, CONV(CONV_DESC), LEFT_OUT, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_CONV, CONV(X), LEFT_OUT, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_CONV, CONV(W), LEFT_OUT, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_CONV, CONV(Y), LEFT_OUT, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_X, 0, NOT_FINALIZED, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_WINDOW, 0, NOT_FINALIZED, 0, 0, AT_FINALIZE, PART_CONV, BAD},
    /* "xDesc.hasOverlappingStrides()", "0 != xDimA[1] % wDimA[1]", "yDimA[N_DIM] != xDimA[N_DIM]", "... != wDimA[WK_DIM]" */
    {PART_X, TENSOR(STRIDES), VALUED, 8, 3, AT_FINALIZE, PART_CONV, BAD},
    {PART_X, TENSOR(DIMENSIONS), VALUED, 24, 1, AT_FINALIZE, PART_CONV, BAD},
    {PART_Y, TENSOR(DIMENSIONS), VALUED, 4, 0, AT_FINALIZE, PART_CONV, BAD},
    {PART_Y, TENSOR(DIMENSIONS), VALUED, 16, 1, AT_FINALIZE, PART_CONV, BAD},
    {PART_Y, TENSOR(DIMENSIONS), VALUED, 7, 2, AT_FINALIZE, PART_CONV, BAD},
    /* "outputGraph.buildDAG()", "desc->isFinalized() == false" */
    {PART_GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, LEFT_OUT, 0, 0, AT_FINALIZE, PART_GRAPH, BAD},
    {PART_CONV, 0, NOT_FINALIZED, 0, 0, AT_SET, PART_GRAPH, BAD_ORDER},
    /* "nullptr == opset_ptr", "opset_ptr->isFinalized() == false" */
    {PART_QUESTION, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, LEFT_OUT, 0, 0, AT_FINALIZE, PART_QUESTION, BAD},
    {PART_GRAPH, 0, NOT_FINALIZED, 0, 0, AT_FINALIZE, PART_QUESTION, BAD_ORDER},
    /* no engine takes these, though every descriptor was accepted, and though the heuristics count some */
    {PART_X, TENSOR(DATA_TYPE), LEFT_OUT, 0, 0, AT_ANSWER, PART_QUESTION, 0},
    {PART_X, TENSOR(DATA_TYPE), VALUED, CUDNN_DATA_FLOAT, 0, AT_ANSWER, PART_QUESTION, 0},
    {PART_X, TENSOR(BYTE_ALIGNMENT), VALUED, 2, 0, AT_ANSWER, PART_QUESTION, 0},
    {PART_FILTER, 0, NOTHING, 0, 0, NOWHERE, PART_NONE, 0},
    {PART_FILTER, FILTER(DW), LEFT_OUT, 0, 0, AT_FINALIZE, PART_FILTER, BAD},
    /* a gradient of 16-bit operands has 16 bits (docs/performance.md counts what its cast costs) */
    {PART_FILTER, TENSOR(DATA_TYPE), VALUED, CUDNN_DATA_FLOAT, 0, AT_ANSWER, PART_QUESTION, 0},
    /* "Received null pointer on operation set", "assert_finalized == true" */
    {PART_ENGINE, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, LEFT_OUT, 0, 0, AT_FINALIZE, PART_ENGINE,
     CUDNN_STATUS_BAD_PARAM_NULL_POINTER},
    {PART_ENGINE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, LEFT_OUT, 0, 0, AT_FINALIZE, PART_ENGINE, CUDNN_STATUS_NOT_SUPPORTED},
    {PART_ENGINE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, VALUED, 99999, 0, AT_FINALIZE, PART_ENGINE,
     CUDNN_STATUS_NOT_SUPPORTED},
    {PART_PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, LEFT_OUT, 0, 0, AT_FINALIZE, PART_PLAN, BAD_ORDER},
    {PART_PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, COUNTED, 2, 0, AT_FINALIZE, PART_PACK, BAD},
};

#undef TENSOR
#undef WINDOW
#undef CONV
#undef FILTER
#undef BAD
#undef BAD_TYPE
#undef BAD_ORDER

enum { OFFERS = 8, MADE = 32 };

typedef struct Asked {
    const Refusal *row;
    cudnnBackendDescriptor_t made[MADE]; /* owned */
    int count;
    Stage stage; /* of the first refusal */
    Part by;
    int status;
} Asked;

static void answer_take(Asked *a, Stage stage, Part by, int status)
{
    if (status == CUDNN_STATUS_SUCCESS || a->stage != NOWHERE) return;
    a->stage = stage;
    a->by = by;
    a->status = status;
}

static cudnnBackendDescriptor_t part_create(Asked *a, cudnnBackendDescriptorType_t type)
{
    assert_true(a->count < MADE);
    assert_int_equal(cudnnBackendCreateDescriptor(type, &a->made[a->count]), CUDNN_STATUS_SUCCESS);
    return a->made[a->count++];
}

/* As the row changes it. Values are copied where there is room for any of the types. */
static void part_set(Asked *a, cudnnBackendDescriptor_t d, Part part, int attribute, cudnnBackendAttributeType_t type,
                     int64_t count, const void *values, size_t bytes)
{
    const Refusal *r = a->row;
    int64_t room[8] = {0};
    memcpy(room, values, (size_t)count * bytes);
    if (r->part == part && r->attribute == attribute) {
        if (r->change == LEFT_OUT) return;
        if (r->change == TYPED) type = (cudnnBackendAttributeType_t)r->to;
        if (r->change == COUNTED) count = r->to;
        if (r->change == VALUED) memcpy((char *)room + (size_t)r->index * bytes, &r->to, bytes); /* little-endian */
    }
    if (a->stage == NOWHERE)
        answer_take(a, AT_SET, part,
                    cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)attribute, type, count, room));
}

static void part_link(Asked *a, cudnnBackendDescriptor_t d, Part part, int attribute, cudnnBackendDescriptor_t to)
{
    part_set(a, d, part, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to, sizeof(void *));
}

static void part_number(Asked *a, cudnnBackendDescriptor_t d, Part part, int attribute,
                        cudnnBackendAttributeType_t type, int32_t value)
{
    part_set(a, d, part, attribute, type, 1, &value, sizeof value);
}

static void part_sizes(Asked *a, cudnnBackendDescriptor_t d, Part part, int attribute, int64_t count,
                       const int64_t *values)
{
    part_set(a, d, part, attribute, CUDNN_TYPE_INT64, count, values, sizeof *values);
}

static void part_finish(Asked *a, cudnnBackendDescriptor_t d, Part part)
{
    if (a->stage != NOWHERE || (a->row->change == NOT_FINALIZED && a->row->part == part)) return;
    answer_take(a, AT_FINALIZE, part, cudnnBackendFinalize(d));
}

static cudnnBackendDescriptor_t tensor_make(Asked *a, Part part, int64_t n, int64_t c, int64_t h, cudnnDataType_t type)
{
    cudnnBackendDescriptor_t d = part_create(a, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t dims[] = {n, c, h, h}, strides[] = {h * h * c, 1, h * c, c}, alignment = 16, id = a->count;
    part_sizes(a, d, part, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    part_number(a, d, part, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, (int32_t)type);
    part_sizes(a, d, part, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims);
    part_sizes(a, d, part, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    part_sizes(a, d, part, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    part_finish(a, d, part);
    return d;
}

static cudnnBackendDescriptor_t window_make(Asked *a)
{
    const int64_t sides = 2, ones[] = {1, 1};
    cudnnBackendDescriptor_t d = part_create(a, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    part_sizes(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &sides);
    part_number(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    part_number(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                CUDNN_CROSS_CORRELATION);
    part_sizes(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, ones);
    part_sizes(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, ones);
    part_sizes(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, ones);
    part_sizes(a, d, PART_WINDOW, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, ones);
    part_finish(a, d, PART_WINDOW);
    return d;
}

static cudnnBackendDescriptor_t operation_make(Asked *a)
{
    bool filter = a->row->part == PART_FILTER;
    Part part = filter ? PART_FILTER : PART_CONV;
    float one = 1, zero = 0;
    cudnnBackendDescriptor_t x = tensor_make(a, PART_X, 8, 16, 8, CUDNN_DATA_HALF),
                             w = tensor_make(a, filter ? PART_FILTER : PART_W, 32, 16, 3, CUDNN_DATA_HALF),
                             y = tensor_make(a, PART_Y, 8, 32, 8, CUDNN_DATA_HALF), window = window_make(a);
    cudnnBackendDescriptor_t op = part_create(a, filter ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
                                                        : CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
#define EITHER(forward, backward)                                                                                      \
    (filter ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_##backward                                                   \
            : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_##forward)
    part_link(a, op, part, EITHER(CONV_DESC, CONV_DESC), window);
    part_link(a, op, part, EITHER(X, X), x);
    part_link(a, op, part, EITHER(W, DW), w);
    part_link(a, op, part, EITHER(Y, DY), y);
    part_set(a, op, part, EITHER(ALPHA, ALPHA), CUDNN_TYPE_FLOAT, 1, &one, sizeof one);
    part_set(a, op, part, EITHER(BETA, BETA), CUDNN_TYPE_FLOAT, 1, &zero, sizeof zero);
#undef EITHER
    part_finish(a, op, part);
    return op;
}

/* The heuristics' answer, and what is made of its first configuration. */
static void plans_make(Asked *a, cudnnBackendDescriptor_t graph, cudnnBackendDescriptor_t question,
                       cudnnBackendDescriptor_t device)
{
    cudnnBackendDescriptor_t config[OFFERS], first, engine, knob, plan, pack;
    int64_t found = 0, got, index = 0, value = 1, ids[] = {1, 2, 3};
    void *memory[] = {config, config, config}, *workspace = config; /* nothing runs */
    for (int i = 0; i < OFFERS; i++) config[i] = part_create(a, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (a->stage == NOWHERE)
        (void)cudnnBackendGetAttribute(question, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, OFFERS,
                                       &found, config);
    if (found == 0 && a->stage == NOWHERE) a->stage = AT_ANSWER, a->by = PART_QUESTION;
    if (a->stage != NOWHERE) return;
    first = part_create(a, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    (void)cudnnBackendGetAttribute(config[0], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                                   &first);
    (void)cudnnBackendGetAttribute(first, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &index);
    engine = part_create(a, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    part_link(a, engine, PART_ENGINE, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    part_sizes(a, engine, PART_ENGINE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &index);
    part_link(a, engine, PART_ENGINE, CUDNN_ATTR_ENGINE_DEVICEPROP, device);
    part_finish(a, engine, PART_ENGINE);
    knob = part_create(a, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    part_number(a, knob, PART_KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 2);
    part_sizes(a, knob, PART_KNOB, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1, &value);
    part_finish(a, knob, PART_KNOB);
    plan = part_create(a, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    part_link(a, plan, PART_PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config[0]);
    part_link(a, plan, PART_PLAN, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    part_finish(a, plan, PART_PLAN);
    pack = part_create(a, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    part_sizes(a, pack, PART_PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 3, ids);
    part_set(a, pack, PART_PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, memory, sizeof *memory);
    part_set(a, pack, PART_PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace,
             sizeof workspace);
    part_finish(a, pack, PART_PACK);
}

static Asked row_ask(const Refusal *row, const char *json)
{
    Asked a = {.row = row};
    cudnnBackendDescriptor_t device = part_create(&a, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    assert_int_equal(cudnnBackendSetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                              (int64_t)strlen(json), json),
                     CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudnnBackendFinalize(device), CUDNN_STATUS_SUCCESS);
    cudnnBackendDescriptor_t op = operation_make(&a), graph = part_create(&a, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
                             question = part_create(&a, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    part_link(&a, graph, PART_GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
    part_finish(&a, graph, PART_GRAPH);
    part_link(&a, question, PART_QUESTION, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    part_number(&a, question, PART_QUESTION, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    part_link(&a, question, PART_QUESTION, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    part_finish(&a, question, PART_QUESTION);
    plans_make(&a, graph, question, device);
    while (a.count > 0) cudnnBackendDestroyDescriptor(a.made[--a.count]);
    return a;
}

/* Every row gives what it says. */
static void assert_refusals(const char *json)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const Refusal *r = &refusals[i];
        Asked a = row_ask(r, json);
        if (a.stage == r->stage && a.by == r->by && a.status == r->status) continue;
        printf("  row %zu (part %d, attribute %d, change %d to %" PRId64
               "): stage %d by part %d with %d (%s), expected %d, %d, %d\n",
               i, r->part, r->attribute, r->change, r->to, a.stage, a.by, a.status,
               cudnnGetErrorString((cudnnStatus_t)a.status), r->stage, r->by, r->status);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}
#endif
