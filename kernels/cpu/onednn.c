/* oneDNN tasks; see onednn.h.
 *
 * First from a spec to oneDNN's description of a primitive, whether oneDNN is 2.6 or 3.x: memory descriptors (Layout) are
 * structs in the first and handles in the second, and only 3.x makes primitive descriptors without an operation descriptor
 * in between. Then tasks, the memory of their operands, and the trial of a small product. */
#include "kernels/cpu/onednn.h"

#include <dnnl.h>
#include <float.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

typedef dnnl_memory_desc_t Layout;
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t LayoutRef;
#define LAYOUT_REF(layout) (layout)
#else
typedef const dnnl_memory_desc_t *LayoutRef;
#define LAYOUT_REF(layout) (&(layout))
#define dnnl_memory_desc_create_with_strides dnnl_memory_desc_init_by_strides
#define dnnl_memory_desc_create_with_tag dnnl_memory_desc_init_by_tag
#endif

#define TRY_DNNL_OUT(call)                                                                                             \
    do {                                                                                                               \
        dnnl_status_t dnnl_status_ = (call);                                                                           \
        if (dnnl_status_ != dnnl_success) {                                                                            \
            st = onednn_fail(dnnl_status_, #call);                                                                     \
            goto out;                                                                                                  \
        }                                                                                                              \
    } while (0)

static Status onednn_fail(dnnl_status_t code, const char *call)
{
    switch (code) {
    case dnnl_out_of_memory: return FAIL(ERR_MEMORY, "oneDNN ran out of memory in %s", call);
    case dnnl_unimplemented: return FAIL(ERR_UNSUPPORTED, "oneDNN has no implementation for %s", call);
    case dnnl_invalid_arguments: return FAIL(ERR_INTERNAL, "oneDNN rejects the arguments of %s", call);
    default: return FAIL(ERR_DEVICE, "oneDNN: %s failed with code %d", call, (int)code);
    }
}

/* oneDNN's ReLU makes NaN 0, unless it has a slope for x < 0. This one is not 0 when code is made for it, but 0 for the
 * team, which takes denormals for 0 (team.h). */
#define RELU_SLOPE FLT_TRUE_MIN

/* ---- differences of oneDNN 2.x and 3.x */

#if DNNL_VERSION_MAJOR >= 3
static void layout_free(Layout *layout)
{
    if (*layout) dnnl_memory_desc_destroy(*layout);
    *layout = NULL;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, RELU_SLOPE, 0.0f);
}

static dnnl_status_t describe_conv(dnnl_primitive_desc_t *made, dnnl_engine_t engine, OnednnKind kind, const Layout *l,
                                   bool bias, dnnl_dims_t pads[4], const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint)
{
    if (kind == ONEDNN_CONV_DX)
        return dnnl_convolution_backward_data_primitive_desc_create(made, engine, dnnl_convolution_direct, l[ONEDNN_X],
                                                                    l[ONEDNN_W], l[ONEDNN_Y], pads[0], pads[1], pads[2],
                                                                    pads[3], hint, attr);
    if (kind == ONEDNN_CONV_DW)
        return dnnl_convolution_backward_weights_primitive_desc_create(made, engine, dnnl_convolution_direct,
                                                                       l[ONEDNN_X], l[ONEDNN_W], NULL, l[ONEDNN_Y],
                                                                       pads[0], pads[1], pads[2], pads[3], hint, attr);
    return dnnl_convolution_forward_primitive_desc_create(made, engine, dnnl_forward_training, dnnl_convolution_direct,
                                                          l[ONEDNN_X], l[ONEDNN_W], bias ? l[ONEDNN_BIAS] : NULL,
                                                          l[ONEDNN_Y], pads[0], pads[1], pads[2], pads[3], attr);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine, const Layout *l, bool bias,
                                     const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(made, engine, l[ONEDNN_X], l[ONEDNN_W], bias ? l[ONEDNN_BIAS] : NULL,
                                             l[ONEDNN_Y], attr);
}
#else
static void layout_free(Layout *layout)
{
    (void)layout;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}

static dnnl_status_t append_relu(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, RELU_SLOPE, 0.0f);
}

static dnnl_status_t describe_conv(dnnl_primitive_desc_t *made, dnnl_engine_t engine, OnednnKind kind, const Layout *l,
                                   bool bias, dnnl_dims_t pads[4], const_dnnl_primitive_attr_t attr,
                                   const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t code;
    if (kind == ONEDNN_CONV_DX)
        code =
            dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &l[ONEDNN_X], &l[ONEDNN_W],
                                                             &l[ONEDNN_Y], pads[0], pads[1], pads[2], pads[3]);
    else if (kind == ONEDNN_CONV_DW)
        code = dnnl_dilated_convolution_backward_weights_desc_init(&desc, dnnl_convolution_direct, &l[ONEDNN_X],
                                                                   &l[ONEDNN_W], NULL, &l[ONEDNN_Y], pads[0], pads[1],
                                                                   pads[2], pads[3]);
    else
        code = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_direct,
                                                          &l[ONEDNN_X], &l[ONEDNN_W], bias ? &l[ONEDNN_BIAS] : NULL,
                                                          &l[ONEDNN_Y], pads[0], pads[1], pads[2], pads[3]);
    return code == dnnl_success ? dnnl_primitive_desc_create(made, &desc, attr, engine, hint) : code;
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *made, dnnl_engine_t engine, const Layout *l, bool bias,
                                     const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t code =
        dnnl_matmul_desc_init(&desc, &l[ONEDNN_X], &l[ONEDNN_W], bias ? &l[ONEDNN_BIAS] : NULL, &l[ONEDNN_Y]);
    return code == dnnl_success ? dnnl_primitive_desc_create(made, &desc, attr, engine, NULL) : code;
}
#endif

/* ---- from a spec to a primitive */

static bool dtype_to_dnnl(Dtype dtype, dnnl_data_type_t *type)
{
    switch (dtype) {
    case DTYPE_F32: *type = dnnl_f32; return true;
    case DTYPE_BF16: *type = dnnl_bf16; return true;
    case DTYPE_F16: *type = dnnl_f16; return true;
    default: return false;
    }
}

/* Gaps in a copy would only cost memory, and oneDNN 3.7 with AMX computes products wrongly whose weights have some. */
static OnednnFit fit_of(const OnednnSpec *spec, int role)
{
    bool copied = spec->held[role].dtype != spec->compute[role];
    return copied && spec->fit[role] == ONEDNN_AS_HELD ? ONEDNN_PACKED : spec->fit[role];
}

static Status layout_make(const OnednnView *view, OnednnFit fit, Dtype dtype, Layout *layout)
{
    Status st = OK;
    dnnl_dims_t dims = {0}, strides = {0};
    dnnl_data_type_t type;
    if (!dtype_to_dnnl(dtype, &type))
        return FAIL(ERR_UNSUPPORTED, "oneDNN kernels do not support %s", dtype_name(dtype));
    for (int axis = 0; axis < view->rank; axis++) {
        dims[axis] = view->dims[axis];
        strides[axis] = view->strides[axis];
    }
    if (fit == ONEDNN_PACKED) {
        /* The strides of `view` with the gaps taken out, its order of axes kept. */
        bool done[ONEDNN_AXES] = {false};
        int64_t stride = 1;
        for (int turn = 0; turn < view->rank; turn++) {
            int next = -1;
            for (int axis = view->rank - 1; axis >= 0; axis--)
                if (!done[axis] && (next < 0 || view->strides[axis] < view->strides[next])) next = axis;
            done[next] = true;
            strides[next] = stride;
            stride *= view->dims[next];
        }
    }
    if (fit == ONEDNN_ANY)
        TRY_DNNL_OUT(dnnl_memory_desc_create_with_tag(layout, view->rank, dims, type, dnnl_format_tag_any));
    else
        TRY_DNNL_OUT(dnnl_memory_desc_create_with_strides(layout, view->rank, dims, type, strides));
out:
    return st;
}

/* Primitives, conversions too, take their scratch memory from the caller. */
static dnnl_status_t attr_create(bool sum, bool relu, dnnl_primitive_attr_t *made)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t code = dnnl_primitive_attr_create(&attr);
    if (code == dnnl_success) code = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (code == dnnl_success) code = dnnl_post_ops_create(&ops);
    if (code == dnnl_success && sum) code = append_sum(ops);
    if (code == dnnl_success && relu) code = append_relu(ops);
    if (code == dnnl_success) code = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    if (code == dnnl_success)
        *made = attr;
    else if (attr)
        dnnl_primitive_attr_destroy(attr);
    return code;
}

/* Strides, dilations, left and right padding, as describe_conv takes them. The right padding is what makes the last
 * window of a rounded-up output fit; it is the window's own where windows leave pixels over. */
static void window_to_dnnl(const OnednnSpec *spec, dnnl_dims_t pads[4])
{
    const Window *window = &spec->window;
    const int64_t k[2] = {window->kh, window->kw}, stride[2] = {window->stride_h, window->stride_w};
    const int64_t pad[2] = {window->pad_h, window->pad_w}, more[2] = {window->more_h, window->more_w};
    const int64_t dilate[2] = {window->dilate_h, window->dilate_w};
    memset(pads, 0, 4 * sizeof(dnnl_dims_t));
    for (int axis = 0; axis < 2; axis++) {
        int64_t in = spec->held[ONEDNN_X].dims[2 + axis], out = spec->held[ONEDNN_Y].dims[2 + axis];
        int64_t reach = (out - 1) * stride[axis] + (k[axis] - 1) * (dilate[axis] + 1) + 1 - in - pad[axis];
        int64_t right = pad[axis] + more[axis];
        pads[0][axis] = stride[axis];
        pads[1][axis] = dilate[axis];
        pads[2][axis] = pad[axis];
        pads[3][axis] = reach > right || stride[axis] == 1 ? reach : right;
    }
}

/* 2.x and 3.x choose a backward implementation beside a forward one, which must be valid in itself: one dtype
 * throughout, that of the operand that is not a gradient. */
static OnednnSpec hint_of(const OnednnSpec *spec)
{
    OnednnSpec hint = *spec;
    hint.kind = ONEDNN_CONV;
    hint.relu = hint.sum = false;
    hint.held[ONEDNN_BIAS].rank = 0;
    for (int role = 0; role < ONEDNN_BIAS; role++) {
        hint.fit[role] = fit_of(spec, role);
        hint.compute[role] = hint.held[role].dtype = spec->compute[spec->kind == ONEDNN_CONV_DX ? ONEDNN_W : ONEDNN_X];
    }
    return hint;
}

static Status onednn_primitive(dnnl_engine_t engine, const OnednnSpec *spec, dnnl_primitive_desc_t *made)
{
    Status st = OK;
    Layout layouts[ONEDNN_ROLES];
    bool bias = spec->held[ONEDNN_BIAS].rank > 0;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_dims_t pads[4];
    memset(layouts, 0, sizeof layouts);
    for (int role = 0; role < ONEDNN_ROLES; role++)
        if (spec->held[role].rank)
            TRY_OUT(layout_make(&spec->held[role], fit_of(spec, role), spec->compute[role], &layouts[role]));
    TRY_DNNL_OUT(attr_create(spec->sum, spec->relu, &attr));
    if (spec->kind == ONEDNN_MATMUL) {
        TRY_DNNL_OUT(describe_matmul(made, engine, layouts, bias, attr));
        goto out;
    }
    window_to_dnnl(spec, pads);
    if (spec->kind != ONEDNN_CONV) {
        OnednnSpec forward = hint_of(spec);
        TRY_OUT(onednn_primitive(engine, &forward, &hint));
    }
    TRY_DNNL_OUT(describe_conv(made, engine, spec->kind, layouts, bias, pads, attr, hint));
out:
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (attr) dnnl_primitive_attr_destroy(attr);
    for (int role = 0; role < ONEDNN_ROLES; role++) layout_free(&layouts[role]);
    return st;
}

/* ---- engine */

struct Onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

Status onednn_open(Onednn **made)
{
    Status st = OK;
    Onednn *onednn = calloc(1, sizeof *onednn);
    if (!onednn) return FAIL(ERR_MEMORY, "no memory for the oneDNN engine");
    TRY_DNNL_OUT(dnnl_engine_create(&onednn->engine, dnnl_cpu, 0));
    TRY_DNNL_OUT(dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags));
    *made = onednn;
    onednn = NULL;
out:
    onednn_close(onednn);
    return st;
}

void onednn_close(Onednn *onednn)
{
    if (!onednn) return;
    if (onednn->stream) dnnl_stream_destroy(onednn->stream);
    if (onednn->engine) dnnl_engine_destroy(onednn->engine);
    free(onednn);
}

/* ---- stages of a task */

/* A primitive that converts an operand, or does the work itself. */
typedef struct PrimitiveStage {
    dnnl_primitive_t primitive;
    dnnl_memory_t scratch;
} PrimitiveStage;

typedef struct Operand {
    int arg;                     /* DNNL_ARG_*, 0: absent */
    dnnl_memory_t used;          /* memory of the primitive */
    dnnl_memory_t held;          /* memory of the caller; NULL: the same */
    void *used_data, *held_data; /* last handles: setting one may write padding */
    PrimitiveStage convert;
    size_t offset; /* of `used` in workspace */
    void *kept;    /* owned: in place of that, for OnednnSpec.keeps_w */
    bool made;     /* what is kept is up to date */
} Operand;

struct OnednnTask {
    Onednn *onednn; /* borrowed */
    Operand operand[ONEDNN_ROLES];
    OnednnRole out;
    PrimitiveStage work;
    size_t scratch_offset, scratch_bytes, workspace_bytes;
    OnednnCode code; /* the slowest of its stages */
    bool one_thread;
    char impl[96];
};

static OnednnCode code_of(const char *impl)
{
    if (strstr(impl, "gemm:ref")) return ONEDNN_PLAIN_PRODUCTS;
    return strncmp(impl, "ref", 3) == 0 || strstr(impl, "ref:") ? ONEDNN_LOOPS : ONEDNN_OPTIMIZED;
}

static Status stage_create(OnednnTask *task, const_dnnl_primitive_desc_t desc, PrimitiveStage *stage)
{
    Status st = OK;
    const char *impl = "";
    dnnl_engine_t engine = task->onednn->engine;
    LayoutRef scratch = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    TRY_DNNL_OUT(dnnl_primitive_create(&stage->primitive, desc));
    if (scratch && dnnl_memory_desc_get_size(scratch) > 0) {
        TRY_DNNL_OUT(dnnl_memory_create(&stage->scratch, scratch, engine, DNNL_MEMORY_NONE));
        size_t bytes = dnnl_memory_desc_get_size(scratch);
        if (bytes > task->scratch_bytes) task->scratch_bytes = bytes;
    }
    TRY_DNNL_OUT(dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&impl));
    OnednnCode code = code_of(impl);
    if (stage == &task->work || code > task->code) snprintf(task->impl, sizeof task->impl, "%s", impl);
    if (code > task->code) task->code = code;
out:
    return st;
}

static void stage_destroy(PrimitiveStage *stage)
{
    if (stage->primitive) dnnl_primitive_destroy(stage->primitive);
    if (stage->scratch) dnnl_memory_destroy(stage->scratch);
}

/* ---- tasks */

static const int args_of[][ONEDNN_ROLES] = {
    [ONEDNN_CONV] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
    [ONEDNN_CONV_DX] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0},
    [ONEDNN_CONV_DW] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, 0},
    [ONEDNN_MATMUL] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
};
static const OnednnRole out_of[] = {
    [ONEDNN_CONV] = ONEDNN_Y, [ONEDNN_CONV_DX] = ONEDNN_X, [ONEDNN_CONV_DW] = ONEDNN_W, [ONEDNN_MATMUL] = ONEDNN_Y};

OnednnRole onednn_out(OnednnKind kind)
{
    return out_of[kind];
}

static Status convert_create(OnednnTask *task, LayoutRef from, LayoutRef to, PrimitiveStage *stage)
{
    Status st = OK;
    dnnl_engine_t engine = task->onednn->engine;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    TRY_DNNL_OUT(attr_create(false, false, &attr));
    TRY_DNNL_OUT(dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr));
    TRY_OUT(stage_create(task, desc, stage));
out:
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}

/* Memory of an operand, and its conversion if the primitive wants another layout than the caller's. */
static Status operand_create(OnednnTask *task, const OnednnSpec *spec, OnednnRole role,
                             const_dnnl_primitive_desc_t desc)
{
    Status st = OK;
    Operand *operand = &task->operand[role];
    dnnl_engine_t engine = task->onednn->engine;
    Layout held = {0};
    operand->arg = args_of[spec->kind][role];
    LayoutRef used = dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, operand->arg);
    TRY_OUT(layout_make(&spec->held[role], ONEDNN_AS_HELD, spec->held[role].dtype, &held));
    TRY_DNNL_OUT(dnnl_memory_create(&operand->used, used, engine, DNNL_MEMORY_NONE));
    if (dnnl_memory_desc_equal(used, LAYOUT_REF(held))) goto out;
    TRY_DNNL_OUT(dnnl_memory_create(&operand->held, LAYOUT_REF(held), engine, DNNL_MEMORY_NONE));
    size_t bytes = align_up(dnnl_memory_desc_get_size(used), CPU_ALIGNMENT);
    if (spec->keeps_w && role == ONEDNN_W) {
        operand->kept = aligned_alloc(CPU_ALIGNMENT, bytes);
        if (!operand->kept) TRY_OUT(FAIL(ERR_MEMORY, "no memory to keep converted weights (%zu KiB)", bytes >> 10));
    } else {
        operand->offset = task->workspace_bytes;
        task->workspace_bytes += bytes;
    }
    if (role == task->out)
        TRY_OUT(convert_create(task, used, LAYOUT_REF(held), &operand->convert));
    else
        TRY_OUT(convert_create(task, LAYOUT_REF(held), used, &operand->convert));
out:
    layout_free(&held);
    return st;
}

static Status task_build(OnednnTask *task, const OnednnSpec *spec)
{
    Status st = OK;
    dnnl_primitive_desc_t desc = NULL;
    TRY_OUT(onednn_primitive(task->onednn->engine, spec, &desc));
    TRY_OUT(stage_create(task, desc, &task->work));
    for (int role = 0; role < ONEDNN_ROLES; role++)
        if (spec->held[role].rank) TRY_OUT(operand_create(task, spec, role, desc));
    task->scratch_offset = task->workspace_bytes;
    task->workspace_bytes += align_up(task->scratch_bytes, CPU_ALIGNMENT);
    if (spec->sum && task->operand[task->out].held)
        st = FAIL(ERR_UNSUPPORTED, "%s cannot accumulate into an output in the caller's layout", task->impl);
out:
    if (desc) dnnl_primitive_desc_destroy(desc);
    return st;
}

/* Set the team size for which oneDNN makes primitives (0: leave it); returns the old one. */
static int team_set(int threads)
{
#ifdef _OPENMP
    int was = omp_get_max_threads();
    if (threads && threads != was) omp_set_num_threads(threads);
    return was;
#else
    return threads;
#endif
}

Status onednn_create(Onednn *onednn, const OnednnSpec *spec, OnednnTask **made)
{
    Status st = OK;
    OnednnTask *task = calloc(1, sizeof *task);
    if (!task) return FAIL(ERR_MEMORY, "no memory for the oneDNN task");
    task->onednn = onednn;
    task->out = onednn_out(spec->kind);
    task->one_thread = spec->one_thread;
    int team = team_set(spec->one_thread ? 1 : 0);
    unsigned modes = denormals_keep(); /* see RELU_SLOPE */
    st = task_build(task, spec);
    denormals_restore(modes);
    team_set(team);
    TRY_OUT(st);
    *made = task;
    task = NULL;
out:
    onednn_destroy(task);
    return st;
}

void onednn_destroy(OnednnTask *task)
{
    if (!task) return;
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        Operand *operand = &task->operand[role];
        if (operand->used) dnnl_memory_destroy(operand->used);
        if (operand->held) dnnl_memory_destroy(operand->held);
        stage_destroy(&operand->convert);
        free(operand->kept);
    }
    stage_destroy(&task->work);
    free(task);
}

const char *onednn_impl(const OnednnTask *task)
{
    return task->impl;
}

OnednnCode onednn_code(const OnednnTask *task)
{
    return task->code;
}

size_t onednn_workspace_bytes(const OnednnTask *task)
{
    return task->workspace_bytes;
}

static dnnl_status_t memory_point(dnnl_memory_t memory, void **last, void *data)
{
    if (*last == data) return dnnl_success;
    *last = data;
    return dnnl_memory_set_data_handle(memory, data);
}

static dnnl_status_t stage_run(OnednnTask *task, PrimitiveStage *stage, dnnl_exec_arg_t *args, int count,
                               char *workspace)
{
    if (stage->scratch) {
        dnnl_status_t code = dnnl_memory_set_data_handle(stage->scratch, workspace + task->scratch_offset);
        if (code != dnnl_success) return code;
        args[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, stage->scratch};
    }
    return dnnl_primitive_execute(stage->primitive, task->onednn->stream, count, args);
}

static dnnl_status_t convert_run(OnednnTask *task, Operand *operand, bool is_output, char *workspace)
{
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_FROM, is_output ? operand->used : operand->held},
                               {DNNL_ARG_TO, is_output ? operand->held : operand->used}};
    return stage_run(task, &operand->convert, args, 2, workspace);
}

void onednn_renew(OnednnTask *task)
{
    task->operand[ONEDNN_W].made = false;
}

Status onednn_run(OnednnTask *task, void *const data[ONEDNN_ROLES], void *workspace)
{
    Status st = OK;
    dnnl_exec_arg_t args[ONEDNN_ROLES + 1];
    int count = 0, team = team_set(task->one_thread ? 1 : 0);
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        Operand *operand = &task->operand[role];
        if (!operand->used) continue;
        void *used = operand->kept ? operand->kept : operand->held ? (char *)workspace + operand->offset : data[role];
        TRY_DNNL_OUT(memory_point(operand->used, &operand->used_data, used));
        if (operand->held) TRY_DNNL_OUT(memory_point(operand->held, &operand->held_data, data[role]));
        bool convert = operand->held && role != (int)task->out && !operand->made;
        if (convert) TRY_DNNL_OUT(convert_run(task, operand, false, workspace));
        operand->made = operand->kept != NULL;
        args[count++] = (dnnl_exec_arg_t){operand->arg, operand->used};
    }
    TRY_DNNL_OUT(stage_run(task, &task->work, args, count, workspace));
    if (task->operand[task->out].held) TRY_DNNL_OUT(convert_run(task, &task->operand[task->out], true, workspace));
out:
    team_set(team);
    return st;
}

/* ---- the trial: a matrix product of small integers, with NaN in the gaps between elements */

enum { EXTENT_MAX = 48, POISON = 0xff, GUARD = 64 /* elements behind the last one */ };

typedef struct Side {
    const OnednnView *view;
    size_t bytes;
    void *data;
} Side;

static bool view_is_strided_vector(const OnednnView *view)
{
    return view->rank == 2 &&
           ((view->dims[0] == 1 && view->strides[1] > 1) || (view->dims[1] == 1 && view->strides[0] > 1)) &&
           view->dims[0] * view->dims[1] > 1;
}

bool onednn_is_suspect(const OnednnSpec *spec)
{
    if (spec->kind != ONEDNN_MATMUL) return false;
    for (int role = 0; role < ONEDNN_BIAS; role++)
        if (spec->fit[role] == ONEDNN_AS_HELD && view_is_strided_vector(&spec->held[role])) return true;
    return false;
}

static size_t view_at(const OnednnView *view, int64_t row, int64_t col)
{
    return (size_t)(row * view->strides[0] + col * view->strides[1]);
}

/* 1 or 2, in no regular order: a sum of 48 products is below 256, and so exact in every dtype. */
static int value_at(OnednnRole role, int64_t row, int64_t col)
{
    return 1 + (int)(((uint64_t)(row * 48 + col * 5 + (int)role + 1) * 0x9e3779b97f4a7c15u) >> 63);
}

/* The bits of a small positive integer. */
static uint32_t encode(Dtype dtype, int value)
{
    float real = (float)value;
    uint32_t bits;
    memcpy(&bits, &real, sizeof bits);
    if (dtype == DTYPE_BF16) return bits >> 16;
    if (dtype == DTYPE_F16) return (bits >> 13) - ((127 - 15) << 10);
    return bits;
}

static void side_store(const Side *side, int64_t row, int64_t col, uint32_t bits)
{
    size_t size = dtype_bytes(side->view->dtype); /* x86 and ARM put the low bytes first */
    memcpy((char *)side->data + view_at(side->view, row, col) * size, &bits, size);
}

static uint32_t side_load(const Side *side, int64_t row, int64_t col)
{
    size_t size = dtype_bytes(side->view->dtype);
    uint32_t bits = 0;
    memcpy(&bits, (const char *)side->data + view_at(side->view, row, col) * size, size);
    return bits;
}

static Status side_create(const OnednnView *view, OnednnRole role, Side *side)
{
    side->view = view;
    side->bytes = (view_at(view, view->dims[0] - 1, view->dims[1] - 1) + 1 + GUARD) * dtype_bytes(view->dtype);
    side->data = malloc(side->bytes);
    if (!side->data) return FAIL(ERR_MEMORY, "no memory for %zu bytes to test a matrix product", side->bytes);
    memset(side->data, POISON, side->bytes);
    for (int64_t row = 0; row < view->dims[0]; row++)
        for (int64_t col = 0; col < view->dims[1]; col++)
            side_store(side, row, col, encode(view->dtype, value_at(role, row, col)));
    return OK;
}

static int wanted_element(const OnednnSpec *spec, int64_t row, int64_t col)
{
    int sum = spec->sum ? value_at(ONEDNN_Y, row, col) : 0;
    if (spec->held[ONEDNN_BIAS].rank) sum += value_at(ONEDNN_BIAS, 0, col);
    for (int64_t k = 0; k < spec->held[ONEDNN_X].dims[1]; k++)
        sum += value_at(ONEDNN_X, row, k) * value_at(ONEDNN_W, k, col);
    return sum;
}

/* Checks the elements of y and overwrites them, so that all of y must be poison afterwards. */
static bool elements_are_right(const OnednnSpec *spec, const Side *y)
{
    for (int64_t row = 0; row < y->view->dims[0]; row++)
        for (int64_t col = 0; col < y->view->dims[1]; col++) {
            if (side_load(y, row, col) != encode(y->view->dtype, wanted_element(spec, row, col))) return false;
            side_store(y, row, col, UINT32_MAX);
        }
    return true;
}

static bool is_poison(const Side *side)
{
    const unsigned char *byte = side->data;
    for (size_t i = 0; i < side->bytes; i++)
        if (byte[i] != POISON) return false;
    return true;
}

static void extents_clip(OnednnSpec *spec)
{
    for (int role = 0; role < ONEDNN_ROLES; role++)
        for (int axis = 0; axis < spec->held[role].rank; axis++)
            if (spec->held[role].dims[axis] > EXTENT_MAX) spec->held[role].dims[axis] = EXTENT_MAX;
}

Status onednn_probe(Onednn *onednn, const OnednnSpec *spec, bool *right)
{
    Status st = OK;
    OnednnSpec small = *spec;
    OnednnTask *task = NULL;
    Side side[ONEDNN_ROLES] = {{0}};
    void *data[ONEDNN_ROLES] = {NULL}, *workspace = NULL;
    extents_clip(&small);
    TRY_OUT(onednn_create(onednn, &small, &task));
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        if (!small.held[role].rank) continue;
        TRY_OUT(side_create(&small.held[role], (OnednnRole)role, &side[role]));
        data[role] = side[role].data;
    }
    workspace = aligned_alloc(CPU_ALIGNMENT, align_up(onednn_workspace_bytes(task) + 1, CPU_ALIGNMENT));
    if (!workspace) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the workspace to test a matrix product"));
    TRY_OUT(onednn_run(task, data, workspace));
    *right = elements_are_right(&small, &side[ONEDNN_Y]) && is_poison(&side[ONEDNN_Y]);
out:
    free(workspace);
    for (int role = 0; role < ONEDNN_ROLES; role++) free(side[role].data);
    onednn_destroy(task);
    return st;
}
