/* oneDNN tasks; see onednn.h. */
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_primitive.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { ALIGNMENT = 64 };

struct Onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

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
    bool reference, one_thread;
    char impl[96];
};

/* ---- engine */

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

/* ---- stages */

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
    bool reference = strncmp(impl, "ref", 3) == 0 || strstr(impl, "ref:");
    if (stage == &task->work || (reference && !task->reference)) snprintf(task->impl, sizeof task->impl, "%s", impl);
    task->reference |= reference;
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

static Status convert_create(OnednnTask *task, LayoutRef from, LayoutRef to, PrimitiveStage *stage)
{
    Status st = OK;
    dnnl_primitive_desc_t desc = NULL;
    TRY_OUT(onednn_reorder(task->onednn->engine, from, to, &desc));
    TRY_OUT(stage_create(task, desc, stage));
out:
    if (desc) dnnl_primitive_desc_destroy(desc);
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
    size_t bytes = align_up(dnnl_memory_desc_get_size(used), ALIGNMENT);
    if (spec->keeps_w && role == ONEDNN_W) {
        operand->kept = aligned_alloc(ALIGNMENT, bytes);
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
    task->workspace_bytes += align_up(task->scratch_bytes, ALIGNMENT);
    if (spec->sum && task->operand[task->out].held)
        st = FAIL(ERR_UNSUPPORTED, "%s cannot accumulate into an output in the caller's layout", task->impl);
out:
    if (desc) dnnl_primitive_desc_destroy(desc);
    return st;
}

/* Lets denormals count while primitives are made; returns the modes before, for modes_set. */
static unsigned modes_for_making(void)
{
#if defined(__x86_64__)
    const unsigned denormals_are_zero = 0x0040, modes = _mm_getcsr();
    _mm_setcsr(modes & ~denormals_are_zero);
    return modes;
#else
    return 0;
#endif
}

static void modes_set(unsigned modes)
{
#if defined(__x86_64__)
    _mm_setcsr(modes);
#else
    (void)modes;
#endif
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
    task->out = out_of[spec->kind];
    task->one_thread = spec->one_thread;
    int team = team_set(spec->one_thread ? 1 : 0);
    unsigned modes = modes_for_making();
    st = task_build(task, spec);
    modes_set(modes);
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

bool onednn_is_reference(const OnednnTask *task)
{
    return task->reference;
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
