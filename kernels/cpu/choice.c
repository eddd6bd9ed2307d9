/* Candidates for a call, and their parts; see choice.h. */
#include "kernels/cpu/choice.h"

#include "kernels/cpu/span.h"

/* ---- parts */

enum { PARTS_MAX = 16 /* of a cut */, UNDIVIDED = -1 };

/* How an extent of a task is divided, and which axis of which operand that is. */
typedef struct Cut {
    int count;
    int8_t axis[ONEDNN_ROLES]; /* UNDIVIDED: all parts have the whole operand */
    int64_t begin[PARTS_MAX + 1];
} Cut;

/* Parts along `results` have results of their own; what parts along `sums` compute is added up in order. */
typedef struct Cuts {
    Cut results, sums;
} Cuts;

typedef struct TaskPart {
    OnednnTask *task;            /* owned */
    size_t offset[ONEDNN_ROLES]; /* bytes */
    int sum;                     /* 0: into the output, else into that sum in workspace */
} TaskPart;

struct OnednnParts {
    int count, sums, threads;
    OnednnRole out;
    int64_t out_count;            /* elements of the output, if there are sums */
    size_t sum_bytes, task_bytes; /* of workspace: a sum; what a thread needs */
    TaskPart part[];
};

static const Cut whole = {.count = 1, .axis = {UNDIVIDED, UNDIVIDED, UNDIVIDED, UNDIVIDED}};

/* Whether oneDNN may compute the sums otherwise for another number of threads: all sums without AVX-512; with it sums of
 * 1,024 and more products, if the first factor is transposed, which oneDNN 3.7 takes a single row for, or in bf16 by AMX. */
static bool sums_are_divided(const OnednnSpec *spec)
{
    enum { LONG_SUM = 1024 };
    const OnednnView *x = &spec->held[ONEDNN_X];
    if (spec->kind != ONEDNN_MATMUL || spec->one_thread) return false;
    if (cpu_isa() < CPU_AVX512) return true;
    bool by_tiles = cpu_isa() >= CPU_AMX && spec->compute[ONEDNN_X] == DTYPE_BF16;
    return x->dims[1] >= LONG_SUM && (by_tiles || x->strides[1] != 1 || x->dims[0] == 1);
}

/* A product's rows or columns, in parts as small as they may be without cost: starting one takes about a microsecond, its
 * work fifty times as long. And no more than PARTS_MAX threads need, because each part packs the operand that is not divided,
 * and converts it, so that weights are divided if they must be converted. A grain is a multiple of what oneDNN computes at
 * once: 16 columns and 6 rows with AVX2, 64 columns and 32 rows with AMX. */
static Cut product_cut(const OnednnSpec *spec)
{
    enum { PART_WORK = 2 << 20 /* multiplications */ };
    const OnednnView *x = &spec->held[ONEDNN_X], *y = &spec->held[ONEDNN_Y];
    int64_t grain = cpu_isa() >= CPU_AVX512 ? 64 : 48;
    bool converts = spec->held[ONEDNN_W].dtype != spec->compute[ONEDNN_W];
    bool columns = converts || y->dims[1] > y->dims[0];
    Cut cut = {.axis = {[ONEDNN_X] = columns ? UNDIVIDED : 0,
                        [ONEDNN_W] = columns ? 1 : UNDIVIDED,
                        [ONEDNN_Y] = columns,
                        [ONEDNN_BIAS] = columns ? 1 : UNDIVIDED}};
    int64_t work = y->dims[0] * y->dims[1] * x->dims[1], parts = larger(1, smaller(work / PART_WORK, PARTS_MAX));
    int64_t extent = y->dims[columns], step = smaller(extent, (extent + parts * grain - 1) / (parts * grain) * grain);
    for (; cut.begin[cut.count] < extent; cut.count++)
        cut.begin[cut.count + 1] = smaller(extent, cut.begin[cut.count] + step);
    return cut;
}

/* `parts` of about equal size, cut between multiples of `step`; a multiple of `scale` for each of `extent`. */
static Cut even_cut(int64_t extent, int parts, int64_t step, int64_t scale)
{
    int64_t steps = (extent + step - 1) / step;
    Cut cut = whole;
    cut.count = parts;
    for (int k = 0; k <= parts; k++) cut.begin[k] = smaller(extent, steps * k / parts * step) * scale;
    return cut;
}

/* The gradient of weights, as a convolution or as the product of dy, transposed, and x. */
static Cuts slices_cut(const OnednnSpec *spec, const OnednnSlices *slices)
{
    enum { VECTOR = 16 };
    bool product = spec->kind == ONEDNN_MATMUL;
    OnednnRole x = product ? ONEDNN_W : ONEDNN_X, dy = product ? ONEDNN_X : ONEDNN_Y,
               dw = product ? ONEDNN_Y : ONEDNN_W;
    int64_t n = spec->held[x].dims[0], outs = spec->held[dw].dims[0];
    Cuts cuts = {.results = even_cut(outs, slices->outs, VECTOR, 1),
                 .sums = even_cut(slices->batch, slices->images, 1, n / slices->batch)};
    cuts.sums.axis[x] = 0;
    if (slices->outs > 1) {
        cuts.results.axis[dw] = 0;
        cuts.results.axis[dy] = product ? 0 : 1;
    }
    cuts.sums.axis[dy] = product ? 1 : 0;
    return cuts;
}

static void cut_apply(const Cut *cut, int k, OnednnSpec *spec, TaskPart *part)
{
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        OnednnView *view = &spec->held[role];
        int axis = cut->axis[role];
        if (axis == UNDIVIDED || !view->rank) continue;
        view->dims[axis] = cut->begin[k + 1] - cut->begin[k];
        part->offset[role] += (size_t)(cut->begin[k] * view->strides[axis]) * dtype_bytes(view->dtype);
    }
}

/* ERR_UNSUPPORTED as onednn_create; *right is false if oneDNN computes a part wrongly. */
static Status part_create(OnednnParts *parts, Onednn *onednn, const OnednnSpec *spec, TaskPart *part, bool *right)
{
    TRY(onednn_create(onednn, spec, &part->task));
    parts->task_bytes = (size_t)larger((int64_t)parts->task_bytes,
                                       (int64_t)align_up(onednn_workspace_bytes(part->task), CPU_ALIGNMENT));
    return *right && onednn_is_suspect(spec) ? onednn_probe(onednn, spec, right) : OK;
}

static void parts_destroy(OnednnParts *parts)
{
    if (!parts) return;
    for (int k = 0; k < parts->count; k++) onednn_destroy(parts->part[k].task);
    free(parts);
}

/* Weights of products in parts stay as they are held: to lay them out otherwise would be repeated for each part. */
static Status parts_create(Device *device, const OnednnSpec *spec, const Cuts *cuts, bool one_thread, bool *right,
                           OnednnParts **made)
{
    Status st = OK;
    int outs = cuts->results.count, count = outs * cuts->sums.count;
    OnednnParts *parts = calloc(1, sizeof *parts + (size_t)count * sizeof parts->part[0]);
    if (!parts) return FAIL(ERR_MEMORY, "no memory for the parts of a oneDNN task");
    parts->count = count;
    parts->sums = cuts->sums.count;
    parts->threads = (int)smaller(cpu_threads(device), count);
    parts->out = onednn_out(spec->kind);
    const OnednnView *out = &spec->held[parts->out];
    parts->out_count = 1;
    for (int axis = 0; axis < out->rank; axis++) parts->out_count *= out->dims[axis];
    parts->sum_bytes = align_up((size_t)parts->out_count * dtype_bytes(out->dtype), CPU_ALIGNMENT);
    for (int k = 0; k < count; k++) {
        TaskPart *part = &parts->part[k];
        OnednnSpec own = *spec;
        own.one_thread = one_thread;
        if (count > 1 && own.kind == ONEDNN_MATMUL && own.fit[ONEDNN_W] == ONEDNN_ANY)
            own.fit[ONEDNN_W] = ONEDNN_AS_HELD;
        part->sum = k / outs;
        cut_apply(&cuts->results, k % outs, &own, part);
        cut_apply(&cuts->sums, k / outs, &own, part);
        TRY_OUT(part_create(parts, cpu_onednn(device), &own, part, right));
    }
    *made = parts;
    parts = NULL;
out:
    parts_destroy(parts);
    return st;
}

typedef struct PartsRun {
    const OnednnParts *parts;
    void *const *data;
    char *sums, *tasks; /* in workspace */
} PartsRun;

static Status part_run(const PartsRun *run, int k, int thread)
{
    const OnednnParts *parts = run->parts;
    const TaskPart *part = &parts->part[k];
    void *data[ONEDNN_ROLES];
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        char *base = run->data[role];
        if (role == (int)parts->out && part->sum) base = run->sums + (size_t)(part->sum - 1) * parts->sum_bytes;
        data[role] = base ? base + part->offset[role] : NULL;
    }
    return onednn_run(part->task, data, run->tasks + (size_t)thread * parts->task_bytes);
}

static void sums_chunk(void *context, int64_t first, int64_t end)
{
    const PartsRun *run = context;
    float *to = (float *)run->data[run->parts->out] + first;
    for (int k = 0; k < run->parts->sums - 1; k++)
        row_add(to, (const float *)(const void *)(run->sums + (size_t)k * run->parts->sum_bytes) + first, end - first);
}

static Status parts_run(const OnednnParts *parts, const Device *device, void *const data[ONEDNN_ROLES], void *workspace)
{
    enum { SUMS_CHUNK = 2048 };
    PartsRun run = {.parts = parts, .data = data, .sums = workspace};
    TeamStatus first;
    first.status = OK;
    if (parts->count == 1) return onednn_run(parts->part[0].task, data, workspace);
    run.tasks = run.sums + (size_t)(parts->sums - 1) * parts->sum_bytes;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(device))
    for (int k = 0; k < parts->count; k++) team_status_take(&first, part_run(&run, k, team_member()));
    TRY(team_status_end(&first));
    if (parts->sums > 1) chunks_run(device, parts->out_count, SUMS_CHUNK, sums_chunk, &run);
    return OK;
}

/* ---- candidates */

/* Makes the task of a candidate; NULL if oneDNN has none, or one that computes wrongly. */
static Status candidate_create(OnednnChoice *choice, Device *device, const OnednnSpec *spec, OnednnParts **task)
{
    bool right = true, divided = sums_are_divided(spec), sliced = choice->slices.batch > 0;
    Cuts cuts = {whole, whole};
    if (sliced)
        cuts = slices_cut(spec, &choice->slices);
    else if (divided)
        cuts.results = product_cut(spec);
    Status st = parts_create(device, spec, &cuts, spec->one_thread || sliced || divided, &right, task);
    if (st == ERR_UNSUPPORTED) return OK;
    TRY(st);
    if (right) return OK;
    choice->wrong = true;
    parts_destroy(*task);
    *task = NULL;
    return OK;
}

static OnednnCode parts_code(const OnednnParts *parts)
{
    OnednnCode slowest = ONEDNN_OPTIMIZED;
    for (int k = 0; k < parts->count; k++)
        if (onednn_code(parts->part[k].task) > slowest) slowest = onednn_code(parts->part[k].task);
    return slowest;
}

Status choice_offer(OnednnChoice *choice, Device *device, const OnednnSpec *spec, const int8_t operand[ONEDNN_ROLES])
{
    OnednnParts *task = NULL;
    OnednnSpec wanted = *spec;
    if (choice->task) return OK;
    wanted.one_thread = choice->one_thread;
    TRY(candidate_create(choice, device, &wanted, &task));
    if (!task) return OK;
    if (parts_code(task) == ONEDNN_OPTIMIZED) {
        choice->task = task;
        memcpy(choice->operand, operand, sizeof choice->operand);
    } else if (!choice->reference || parts_code(task) < parts_code(choice->reference)) {
        parts_destroy(choice->reference);
        choice->reference = task;
        memcpy(choice->reference_operand, operand, sizeof choice->reference_operand);
    } else {
        parts_destroy(task);
    }
    return OK;
}

static Status refuse(const OnednnChoice *choice, const OpCall *call)
{
    char have[160] = "no implementation";
    if (choice->wrong) snprintf(have, sizeof have, "no correct implementation");
    if (choice->reference)
        snprintf(have, sizeof have,
                 "only a reference implementation (%s), about a hundred times slower than an optimized one",
                 onednn_impl(choice->reference->part[0].task));
    return FAIL(ERR_UNSUPPORTED,
                "'%s' (%s): on this processor, oneDNN has %s for in[0] %s %s, in[1] %s %s, out %s %s; use f32 "
                "activations or another shape, or allow reference code",
                call->name, op_name(call->kind), have, dtype_name(call->in[0].dtype), shape_text(call->in[0].shape),
                dtype_name(call->in[1].dtype), shape_text(call->in[1].shape), dtype_name(call->out[0].dtype),
                shape_text(call->out[0].shape));
}

Status choice_settle(OnednnChoice *choice, Device *device, const OpCall *call)
{
    if (!choice->task && choice->reference &&
        (device->config.allow_reference || parts_code(choice->reference) == ONEDNN_PLAIN_PRODUCTS)) {
        choice->task = choice->reference;
        choice->reference = NULL;
        memcpy(choice->operand, choice->reference_operand, sizeof choice->operand);
    }
    return choice->task ? OK : refuse(choice, call);
}

void choice_free(OnednnChoice *choice)
{
    parts_destroy(choice->task);
    parts_destroy(choice->reference);
    choice->task = choice->reference = NULL;
}

const char *choice_impl(const OnednnChoice *choice)
{
    return onednn_impl(choice->task->part[0].task);
}

size_t choice_workspace_bytes(const OnednnChoice *choice)
{
    const OnednnParts *parts = choice->task;
    return (size_t)(parts->sums - 1) * parts->sum_bytes + (size_t)parts->threads * parts->task_bytes;
}

Status choice_run(const OnednnChoice *choice, const Device *device, const OpCall *call, void *out)
{
    void *data[ONEDNN_ROLES];
    for (int k = 0; call->renewed && k < choice->task->count; k++) onednn_renew(choice->task->part[k].task);
    for (int role = 0; role < ONEDNN_ROLES; role++) {
        int from = choice->operand[role];
        data[role] = from == FROM_OUT ? out : from == FROM_NOTHING ? NULL : call->in[from].data;
    }
    return parts_run(choice->task, device, data, call->workspace);
}

/* ---- products */

static OnednnView matrix(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, Dtype dtype)
{
    OnednnView view = {.rank = 2, .dims = {rows, cols}, .strides = {row_stride, col_stride}, .dtype = dtype};
    return view;
}

/* Blocked weights make a product a few percent faster, but to make them costs several rows' worth of it: for the head
 * of a network (16 rows of 3200, or 64 of 2048) up to twice the product, unless they are kept. */
static OnednnFit weights_fit(const OnednnProduct *p)
{
    enum { MANY_ROWS = 2048 };
    return p->rows < MANY_ROWS && !p->keeps_w ? ONEDNN_AS_HELD : ONEDNN_ANY;
}

Status choice_offer_product(OnednnChoice *choice, Device *device, const OnednnProduct *p)
{
    static const int8_t operands[][ONEDNN_ROLES] = {[PRODUCT_Y] = {0, 1, FROM_OUT, 2},
                                                    [PRODUCT_DX] = {0, 1, FROM_OUT, FROM_NOTHING},
                                                    [PRODUCT_DW] = {1, 0, FROM_OUT, FROM_NOTHING}};
    OnednnSpec spec = {.kind = ONEDNN_MATMUL, .relu = p->relu, .keeps_w = p->keeps_w, .sum = p->sum};
    if (p->kind == PRODUCT_Y) {
        spec.held[ONEDNN_X] = matrix(p->rows, p->ins, p->x_pitch, 1, p->x);
        spec.held[ONEDNN_W] = matrix(p->ins, p->outs, 1, p->ins, DTYPE_F32);
        spec.held[ONEDNN_Y] = matrix(p->rows, p->outs, p->y_pitch, 1, p->y);
        if (p->bias) spec.held[ONEDNN_BIAS] = matrix(1, p->outs, p->outs, 1, DTYPE_F32);
        spec.fit[ONEDNN_W] = weights_fit(p);
    }
    if (p->kind == PRODUCT_DX) {
        spec.held[ONEDNN_X] = matrix(p->rows, p->outs, p->y_pitch, 1, p->y);
        spec.held[ONEDNN_W] = matrix(p->outs, p->ins, p->ins, 1, DTYPE_F32);
        spec.held[ONEDNN_Y] = matrix(p->rows, p->ins, p->x_pitch, 1, p->x);
        spec.fit[ONEDNN_W] = weights_fit(p);
    }
    if (p->kind == PRODUCT_DW) {
        spec.held[ONEDNN_X] = matrix(p->outs, p->rows, 1, p->y_pitch, p->y);
        spec.held[ONEDNN_W] = matrix(p->rows, p->ins, p->x_pitch, 1, p->x);
        spec.held[ONEDNN_Y] = matrix(p->outs, p->ins, p->ins, 1, DTYPE_F32);
    }
    /* Both factors in one dtype: 16 bits only if neither (but for the weights) is held in f32. */
    Dtype factor = spec.held[ONEDNN_X].dtype, other = spec.held[ONEDNN_W].dtype;
    if (p->kind == PRODUCT_DW && other != factor) factor = DTYPE_F32;
    for (int pass = 0; pass < 2; pass++, factor = DTYPE_F32) {
        spec.compute[ONEDNN_X] = spec.compute[ONEDNN_W] = factor;
        spec.compute[ONEDNN_Y] = factor == DTYPE_F32 ? DTYPE_F32 : spec.held[ONEDNN_Y].dtype;
        spec.compute[ONEDNN_BIAS] = DTYPE_F32;
        TRY(choice_offer(choice, device, &spec, operands[p->kind]));
        if (choice->wrong && !choice->task && !p->sum) {
            /* Offer the product on copies without gaps, for a oneDNN that computes wrongly on the slices. */
            OnednnSpec packed = spec;
            for (int role = 0; role < ONEDNN_BIAS; role++)
                if (packed.fit[role] == ONEDNN_AS_HELD) packed.fit[role] = ONEDNN_PACKED;
            TRY(choice_offer(choice, device, &packed, operands[p->kind]));
        }
        if (factor == DTYPE_F32) break;
    }
    return OK;
}
