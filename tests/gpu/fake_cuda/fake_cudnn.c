/* cuDNN's graph API, executed by the reference in double precision.
 *
 * A descriptor is a set of attributes; one that another refers to is shared. The heuristics return the engines of the
 * table below in its order: as in the library, those with tensor cores come first, and these round f32 operands of a
 * convolution to TF32. A graph is one convolution, and what adds a bias and applies a ReLU behind it. What it refuses: fake_cudnn_rules.c. */
#include "tests/gpu/fake_cuda/fake_cudnn.h"
#include "kernels/cuda/libraries/cudnn_library.h"
#include "tests/support/reference.h"

void nvrtc_hold(void)
{
} /* the fake compiles nothing */

enum { ENGINES = 8, ALWAYS = 6 /* in every answer */, TENSORS = 6, NOTES = 2 };

static const struct {
    int notes;
    cudnnBackendNumericalNote_t note[NOTES];
} engines[ENGINES] = {
    {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
    {1, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}},
    {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}},
    {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}},
    {0, {0}},
    {0, {0}},
    {0, {0}},
    {1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
};

struct cudnnContext {
    cudaStream_t stream;
};

/* ---- descriptors */

static void descriptor_leave(Descriptor *d)
{
    if (!d || --d->users > 0) return;
    for (int i = 0; i < d->count; i++) {
        Attribute *a = &d->attribute[i];
        for (int64_t k = 0; a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < a->count; k++)
            descriptor_leave(((Descriptor **)a->values)[k]);
        free(a->values);
    }
    free(d);
}

static void attribute_add(Descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t count, const void *values)
{
    size_t bytes = type_bytes(type) * (size_t)count;
    Attribute *a = &d->attribute[d->count++];
    *a = (Attribute){name, type, count, malloc(bytes ? bytes : 1)};
    if (bytes) memcpy(a->values, values, bytes);
    for (int64_t k = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && k < count; k++) ((Descriptor **)a->values)[k]->users++;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made)
{
    ENTER(CUDNN, cudnnBackendCreateDescriptor);
    Descriptor *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_ALLOC_FAILED;
    d->type = type;
    d->users = 1;
    *made = d;
    fake_born("cuDNN descriptor");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    int code = fake_enter(FAKE_CUDNN, "cudnnBackendDestroyDescriptor");
    fake_died("cuDNN descriptor");
    descriptor_leave(descriptor);
    return code;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    Descriptor *d = descriptor;
    ENTER(CUDNN, cudnnBackendSetAttribute);
    if (!d || d->finalized || attribute_of(d, name) || d->count == ATTRIBUTES) return CUDNN_STATUS_BAD_PARAM;
    cudnnStatus_t allowed = fake_cudnn_set(d, name, type, count, values);
    if (allowed != CUDNN_STATUS_SUCCESS) return allowed;
    attribute_add(d, name, type, count, values);
    return CUDNN_STATUS_SUCCESS;
}

static int lost_on;
static unsigned engines_lost;

void fake_gpu_engines_lost(int device, unsigned set)
{
    lost_on = device;
    engines_lost = set;
}

static int64_t engine_number(Descriptor *engine)
{
    const Attribute *a = engine ? attribute_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) : NULL;
    return a ? *(int64_t *)a->values : -1;
}

static int64_t plan_engine(Descriptor *plan)
{
    return engine_number(linked(linked(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE));
}

static cudnnStatus_t engine_code[ENGINES];

void fake_gpu_engine_refused(int engine, int code)
{
    if (engine < 0)
        memset(engine_code, 0, sizeof engine_code);
    else
        engine_code[engine] = (cudnnStatus_t)code;
}

/* Engine 0 has no knobs, the last one all kinds. */
static int64_t knobs_of(int64_t engine)
{
    return engine * CUDNN_KNOB_TYPE_COUNTS / (ENGINES - 1);
}

static int64_t knob_value(int64_t engine, int64_t kind)
{
    return kind * kind * engine + 1;
}

/* Does a configuration have its engine's knobs? The library takes a usual value for one that is not set, and so another plan. */
static bool knobs_are_whole(Descriptor *config)
{
    const Attribute *knobs = attribute_of(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    int64_t engine = engine_number(linked(config, CUDNN_ATTR_ENGINECFG_ENGINE)), count = knobs_of(engine);
    if ((knobs ? knobs->count : 0) != count) return false;
    for (int64_t k = 0; k < count; k++) {
        Descriptor *choice = ((Descriptor **)knobs->values)[k];
        const Attribute *kind = attribute_of(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
                        *value = attribute_of(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
        if (*(cudnnBackendKnobType_t *)kind->values != (cudnnBackendKnobType_t)k ||
            *(int64_t *)value->values != knob_value(engine, k))
            return false;
    }
    return true;
}

static int64_t engines_known = ENGINES;
static uint32_t adversary, draws;

void fake_gpu_adversary(uint32_t seed)
{
    adversary = seed;
    draws = 0;
}

/* A number that looks random and differs from device to device: the finalizer of MurmurHash3. */
static uint32_t mixed(uint32_t number)
{
    uint32_t h = (adversary + 1000 * (uint32_t)fake_device_current()) * 0x9e3779b9u + number;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

/* What cudnnBackendFinalize says to a plan. An adversary fails to make some that it has offered, but none that is asked for
 * by its knobs: a choice can be repeated. */
static cudnnStatus_t plan_code(Descriptor *plan)
{
    static const cudnnStatus_t codes[] = {
        CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,       CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,          CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
        CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
        CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE,   CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER};
    int64_t engine = plan_engine(plan);
    Descriptor *config = linked(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    bool offered = !attribute_of(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    uint32_t drawn = mixed(100 + (uint32_t)engine);
    if (engine_code[engine] != CUDNN_STATUS_SUCCESS) return engine_code[engine];
    if (!adversary || !offered || engine == ALWAYS || drawn % 4) return CUDNN_STATUS_SUCCESS;
    return codes[drawn / 4 % (sizeof codes / sizeof *codes)];
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    Descriptor *d = descriptor;
    ENTER(CUDNN, cudnnBackendFinalize);
    if (!d || d->finalized) return CUDNN_STATUS_BAD_PARAM;
    cudnnStatus_t right = fake_cudnn_finalize(d);
    if (right != CUDNN_STATUS_SUCCESS) return right;
    if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && (engine_number(d) < 0 || engine_number(d) >= ENGINES))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && fake_device_current() == lost_on &&
        engines_lost >> plan_engine(d) & 1)
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan_code(d) != CUDNN_STATUS_SUCCESS) return plan_code(d);
    if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !knobs_are_whole(d)) return CUDNN_STATUS_NOT_SUPPORTED;
    d->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- questions */

/* An engine of a graph, and its configuration; the previous content of `made` is lost. */
static void engine_fill(Descriptor *engine, Descriptor *graph, int64_t number)
{
    attribute_add(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    attribute_add(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    engine->finalized = true;
}

static void config_fill(Descriptor *config, Descriptor *graph, int64_t number)
{
    Descriptor *engine = calloc(1, sizeof *engine);
    engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    engine_fill(engine, graph, number);
    attribute_add(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    config->finalized = true;
}

static void knob_fill(Descriptor *choice, int64_t engine, int64_t kind)
{
    cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)kind;
    int64_t value = knob_value(engine, kind);
    attribute_add(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    attribute_add(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
}

void fake_gpu_engines(int count)
{
    engines_known = count < ENGINES ? count : ENGINES;
}

/* The heuristics' order of engines; returns how many there are. An adversary leaves some out. */
static int64_t engines_ordered(int64_t *order)
{
    int64_t count = 0;
    for (int64_t k = 0; k < engines_known; k++) {
        int64_t number = adversary ? (k * 3 + adversary) % engines_known : k;
        bool left_out = adversary && number != ALWAYS && mixed((uint32_t)number) % 3 == 0;
        if (!left_out) order[count++] = number;
    }
    return count;
}

static bool ends_lost;

void fake_gpu_ends_lost(bool lost)
{
    ends_lost = lost;
}

static int64_t heuristics_answer(Descriptor *question, int64_t room, Descriptor **configs)
{
    Descriptor *graph = linked(question, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int64_t order[ENGINES], known = engines_ordered(order), count = 0;
    bool lost = ends_lost && attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->count > 1;
    if (room && (lost || !fake_cudnn_graph_fits(graph))) return 0; /* though some are counted, as by the library */
    for (; count < room && count < known; count++) config_fill(configs[count], graph, order[count]);
    return room ? count : known;
}

static int64_t notes_answer(Descriptor *engine, int32_t *notes)
{
    int64_t number = engine_number(engine);
    if (number < 0 || number >= ENGINES) return 0;
    for (int i = 0; i < engines[number].notes; i++) notes[i] = (int32_t)engines[number].note[i];
    return engines[number].notes;
}

static bool engine_has(int64_t number, cudnnBackendNumericalNote_t note)
{
    bool has = false;
    for (int i = 0; i < engines[number].notes; i++) has = has || engines[number].note[i] == note;
    return has;
}

static int64_t stored_answer(const Attribute *a, int64_t room, void *values)
{
    int64_t count = a->count < room ? a->count : room;
    memcpy(values, a->values, type_bytes(a->type) * (size_t)count);
    return count;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values)
{
    static const char device[] = "{\"name\": \"Fake GPU\"}";
    Descriptor *d = descriptor, *config = linked(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    int64_t answer = 0;
    ENTER(CUDNN, cudnnBackendGetAttribute);
    if (!d || (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && room > 0 && !((Descriptor **)values)[0]))
        return CUDNN_STATUS_BAD_PARAM;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: answer = heuristics_answer(d, room, values); break;
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        Descriptor *own = linked(d, name), **given = values;
        engine_fill(given[0], linked(own, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), engine_number(own));
        answer = 1;
        break;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: answer = notes_answer(d, values); break;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: {
        int64_t engine = engine_number(linked(d, CUDNN_ATTR_ENGINECFG_ENGINE));
        answer = knobs_of(engine);
        for (int64_t k = 0; k < answer && k < room; k++) knob_fill(((Descriptor **)values)[k], engine, k);
        break;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = 256 * (1 + engine_number(linked(config, CUDNN_ATTR_ENGINECFG_ENGINE)));
        answer = 1;
        break;
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
        answer = (int64_t)sizeof device - 1;
        memcpy(values, device, (size_t)(answer < room ? answer : room));
        break;
    default:
        if (!attribute_of(d, name)) return CUDNN_STATUS_BAD_PARAM;
        answer = stored_answer(attribute_of(d, name), room, values);
    }
    if (count) *count = answer;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the library */

cudnnStatus_t cudnnCreate(cudnnHandle_t *made)
{
    ENTER(CUDNN, cudnnCreate);
    *made = calloc(1, sizeof **made);
    fake_born("cuDNN handle");
    return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    int code = fake_enter(FAKE_CUDNN, "cudnnDestroy");
    fake_died("cuDNN handle");
    free(handle);
    return code;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    ENTER(CUDNN, cudnnSetStream);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

static int64_t engine_time[ENGINES];
static bool engine_wrong[ENGINES];

void fake_gpu_engine(int engine, int64_t microseconds, bool wrong)
{
    if (engine < 0) {
        memset(engine_time, 0, sizeof engine_time);
        memset(engine_wrong, 0, sizeof engine_wrong);
    } else if (engine < ENGINES) {
        engine_time[engine] = microseconds;
        engine_wrong[engine] = wrong;
    }
}

static size_t version = CUDNN_VERSION;

void fake_gpu_cudnn_version(size_t wanted)
{
    version = wanted;
}

size_t cudnnGetVersion(void)
{
    return version;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    (void)status;
    return "a failure of the fake";
}

void cudnnGetLastErrorString(char *words, size_t bytes)
{
    if (bytes) *words = 0;
}

/* ---- a run */

typedef struct Slot { /* one tensor of the graph */
    int64_t id;
    RefTensor value;
    Dtype dtype;
    int64_t pitch;
    void *memory;
    bool loaded, written, is_virtual; /* virtual: in no memory */
} Slot;

typedef struct Run {
    Descriptor *plan, *pack; /* shared */
    Slot slot[TENSORS];
    int slots;
    int64_t engine;
} Run;

static Dtype dtype_of(int32_t type)
{
    return type == CUDNN_DATA_HALF ? DTYPE_F16 : type == CUDNN_DATA_BFLOAT16 ? DTYPE_BF16 : DTYPE_F32;
}

static void *memory_of(Descriptor *pack, int64_t id)
{
    const Attribute *ids = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                    *pointers = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int64_t i = 0; i < ids->count; i++)
        if (((int64_t *)ids->values)[i] == id) return ((void **)pointers->values)[i];
    return NULL;
}

static int64_t element_at(const Slot *s, int64_t packed)
{
    int64_t c = s->value.shape.c;
    return packed / c * s->pitch + packed % c;
}

static Slot *slot_of(Run *run, Descriptor *tensor)
{
    int64_t id = *(int64_t *)attribute_of(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)->values;
    for (int i = 0; i < run->slots; i++)
        if (run->slot[i].id == id) return &run->slot[i];
    Slot *s = &run->slot[run->slots++];
    const int64_t *dims = attribute_of(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->values,
                  *strides = attribute_of(tensor, CUDNN_ATTR_TENSOR_STRIDES)->values;
    *s = (Slot){.id = id,
                .dtype = dtype_of(*(int32_t *)attribute_of(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE)->values),
                .pitch = strides[3],
                .is_virtual = fake_cudnn_virtual(tensor),
                .memory = memory_of(run->pack, id)};
    s->value = ref_create((Shape){(int32_t)dims[0], (int32_t)dims[1], (int32_t)dims[2], (int32_t)dims[3]});
    return s;
}

static Slot *operand(Run *run, Descriptor *op, cudnnBackendAttributeName_t name)
{
    Slot *s = slot_of(run, linked(op, name));
    if (s->loaded || s->is_virtual) return s;
    for (int64_t i = 0; i < shape_count(s->value.shape); i++)
        s->value.data[i] = dtype_load(s->dtype, s->memory, element_at(s, i));
    s->loaded = true;
    return s;
}

static Slot *result(Run *run, Descriptor *op, cudnnBackendAttributeName_t name)
{
    Slot *s = slot_of(run, linked(op, name));
    s->written = true;
    return s;
}

static void results_store(Run *run)
{
    for (int k = 0; k < run->slots; k++) {
        Slot *s = &run->slot[k];
        for (int64_t i = 0; s->written && !s->is_virtual && i < shape_count(s->value.shape); i++)
            dtype_store(s->dtype, s->memory, element_at(s, i), s->value.data[i]);
        ref_destroy(&s->value);
    }
    run->slots = 0;
}

static float number_of(Descriptor *op, cudnnBackendAttributeName_t name, float otherwise)
{
    const Attribute *a = attribute_of(op, name);
    return a ? *(float *)a->values : otherwise;
}

static Window window_of(Descriptor *conv)
{
    const int64_t *pad = attribute_of(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->values,
                  *end = attribute_of(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)->values,
                  *stride = attribute_of(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->values,
                  *dilation = attribute_of(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS)->values;
    return (Window){.stride_h = (int32_t)stride[0],
                    .stride_w = (int32_t)stride[1],
                    .pad_h = (int32_t)pad[0],
                    .pad_w = (int32_t)pad[1],
                    .more_h = (int32_t)(end[0] - pad[0]),
                    .more_w = (int32_t)(end[1] - pad[1]),
                    .dilate_h = (int32_t)dilation[0] - 1,
                    .dilate_w = (int32_t)dilation[1] - 1};
}

/* Ten bits behind the point, ties to even. */
static double tf32_round(double value)
{
    int exponent;
    double fraction = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(ldexp(fraction, 11)), exponent - 11) : value;
}

/* A convolution's operand as the engine takes it. */
static RefTensor multiplied(const Run *run, const Slot *s)
{
    RefTensor made = ref_create(s->value.shape);
    bool f16 = engine_has(run->engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS),
         tf32 = engine_has(run->engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    for (int64_t i = 0; i < shape_count(made.shape); i++) {
        double value = s->value.data[i];
        made.data[i] = f16 ? dtype_round(DTYPE_F16, value) : tf32 ? tf32_round(value) : value;
    }
    return made;
}

/* What the engine's order of additions does to a sum. */
static double engine_factor(const Run *run)
{
    bool loose = engine_has(run->engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    if (engine_wrong[run->engine]) return 1.5;
    if (!adversary) return 1;
    return 1 + ldexp((double)(1 + run->engine) + (loose ? mixed(++draws) % 8 : 0), -20);
}

/* beta old + the convolution; `in` in the order of ops.def. */
static void conv_do(const Run *run, OpKind kind, Window window, const Slot *w, const Slot *a, const Slot *b, float beta,
                    Slot *to)
{
    OpAttr attr = {.conv = {.window = window}};
    RefTensor in[OP_MAX_IN] = {multiplied(run, a), multiplied(run, b)}, out[OP_MAX_OUT] = {ref_create(to->value.shape)};
    attr.conv.window.kh = w->value.shape.h;
    attr.conv.window.kw = w->value.shape.w;
    reference_run(kind, &attr, in, out);
    double factor = engine_factor(run);
    for (int64_t i = 0; i < shape_count(to->value.shape); i++)
        to->value.data[i] = (beta != 0 ? beta * to->value.data[i] : 0) + out[0].data[i] * factor;
    ref_destroy(&in[0]);
    ref_destroy(&in[1]);
    ref_destroy(&out[0]);
}

static void forward_do(Run *run, Descriptor *op)
{
    float beta = number_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
    Slot *x = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
         *w = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    if (beta != 0) operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    conv_do(run, OP_CONV, window_of(linked(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC)), w, x, w, beta,
            result(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y));
}

static void data_do(Run *run, Descriptor *op)
{
    float beta = number_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0);
    Slot *dy = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY),
         *w = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
    if (beta != 0) operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
    conv_do(run, OP_CONV_DX, window_of(linked(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC)), w, dy, w, beta,
            result(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX));
}

static void filter_do(Run *run, Descriptor *op)
{
    Slot *x = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
         *dy = operand(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY),
         *dw = result(run, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
    conv_do(run, OP_CONV_DW, window_of(linked(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC)), dw, x, dy, 0,
            dw);
}

/* y = x + b for each channel, or relu(x). */
static void pointwise_do(Run *run, Descriptor *op)
{
    Descriptor *how = linked(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const Attribute *nan = attribute_of(how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
    bool adds = *(int32_t *)attribute_of(how, CUDNN_ATTR_POINTWISE_MODE)->values == CUDNN_POINTWISE_ADD,
         keeps_nan = nan && *(int32_t *)nan->values == CUDNN_PROPAGATE_NAN;
    Slot *x = operand(run, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
         *b = adds ? operand(run, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : NULL,
         *y = result(run, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    for (int64_t i = 0; i < shape_count(y->value.shape); i++) {
        double value = x->value.data[i];
        bool passes = value > 0 || (keeps_nan && isnan(value));
        y->value.data[i] = b ? value + b->value.data[i % y->value.shape.c] : passes ? value : 0;
    }
}

static void operation_do(Run *run, Descriptor *op)
{
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise_do(run, op); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: forward_do(run, op); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: data_do(run, op); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: filter_do(run, op); break;
    default: fprintf(stderr, "the fake cuDNN has no operation %d\n", (int)op->type); abort();
    }
}

/* Every tensor in memory has a pointer, aligned as it was promised, to all of its elements on the device; and the
 * workspace is as large as the plan said. */
static bool tensor_fits(Descriptor *pack, Descriptor *tensor)
{
    const int64_t *dims = attribute_of(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->values,
                  *strides = attribute_of(tensor, CUDNN_ATTR_TENSOR_STRIDES)->values;
    int64_t id = *(int64_t *)attribute_of(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID)->values, last = 0;
    int64_t alignment = *(int64_t *)attribute_of(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->values;
    Dtype dtype = dtype_of(*(int32_t *)attribute_of(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE)->values);
    const void *at = memory_of(pack, id);
    for (int k = 0; k < 4; k++) last += (dims[k] - 1) * strides[k];
    if (fake_cudnn_virtual(tensor)) return true;
    return at && (uintptr_t)at % (uintptr_t)alignment == 0 &&
           fake_on_device(at, (size_t)(last + 1) * dtype_bytes(dtype));
}

static cudnnStatus_t operands_fit(Descriptor *plan, Descriptor *pack)
{
    Descriptor *engine = linked(linked(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
    const Attribute *ops =
        attribute_of(linked(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const Attribute *workspace = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!workspace || !fake_on_device(*(void **)workspace->values, (size_t)(256 * (1 + engine_number(engine)))))
        return CUDNN_STATUS_BAD_PARAM;
    for (int64_t n = 0; n < ops->count; n++) {
        Descriptor *op = ((Descriptor **)ops->values)[n];
        for (int k = 0; k < op->count; k++) {
            const Attribute *a = &op->attribute[k];
            Descriptor *other = a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? ((Descriptor **)a->values)[0] : NULL;
            if (other && other->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && !tensor_fits(pack, other))
                return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

static bool plan_run(void *context)
{
    Run *run = context;
    Descriptor *config = linked(run->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
               *engine = linked(config, CUDNN_ATTR_ENGINECFG_ENGINE),
               *graph = linked(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    const Attribute *ops = attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    run->engine = engine_number(engine);
    for (int64_t k = 0; k < ops->count; k++) operation_do(run, ((Descriptor **)ops->values)[k]);
    results_store(run);
    return true;
}

static void plan_drop(void *context)
{
    Run *run = context;
    descriptor_leave(run->plan);
    descriptor_leave(run->pack);
    free(run);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    ENTER(CUDNN, cudnnBackendExecute);
    cudnnStatus_t fits = operands_fit(plan, pack);
    if (fits != CUDNN_STATUS_SUCCESS) return fits;
    Run *run = calloc(1, sizeof *run);
    if (!run) return CUDNN_STATUS_ALLOC_FAILED;
    run->plan = plan;
    run->pack = pack;
    run->plan->users++;
    run->pack->users++;
    static const char *const names[ENGINES] = {"engine 0", "engine 1", "engine 2", "engine 3",
                                               "engine 4", "engine 5", "engine 6", "engine 7"};
    int64_t number = plan_engine(plan);
    fake_time_pass(adversary ? (int64_t)mixed(++draws) % 1000 + 1 : engine_time[number]);
    fake_note(names[number]);
    cudaError_t error = fake_queue(handle->stream, &(FakeWork){"cudnnBackendExecute", plan_run, plan_drop, run});
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
