/* Plan: the prepared calls of a graph; see plan.h. plan_alias.c decides which values share storage, plan_arena.c their
 * addresses.
 *
 * Until an arena is bound, its operands have fake addresses: prepare may only test whether operands exist and compare
 * addresses inside an arena. Binding adds the base to a list of (pointer, offset) made once. */
#include "towers/graph/plan.h"

#include "kernels/base/progress.h"
#include "towers/graph/plan_internal.h"

#include <errno.h>

/* A pointer of a call that lies in some arena. */
typedef struct Patch {
    void **at;
    size_t offset;
} Patch;

typedef struct Gradient {
    size_t first, count; /* elements of the gradient arena */
    int32_t op;          /* the last one that writes or reads it */
    const char *name;
} Gradient;

struct Plan {
    /* borrowed */
    const Graph *graph;
    const Layout *layout;
    Device *device;
    /* owned */
    Alias alias;
    ValuePlace *place; /* [values + 1] */
    OpCall *call;      /* [op_count] */
    Patch *patch;      /* those of arena a: patch_end[a - 1] .. patch_end[a] - 1 */
    int patch_end[ARENA_COUNT];
    Gradient *gradient; /* by first element */
    int gradient_count;
    /* state */
    int op_count;
    int prepared; /* calls whose prepare was called */
    size_t bytes[ARENA_COUNT];
    size_t workspace_bytes;
    int64_t peak_elements, all_elements; /* see PlanReport */
    void *base[ARENA_COUNT];
};

static const ValueInfo *value_info(const Plan *plan, int32_t id)
{
    return graph_value(plan->graph, (Value){id});
}

static const OpKernel *kernel_of(const Plan *plan, int op)
{
    return plan->device->backend->kernels[plan->call[op].kind];
}

/* ---- calls */

static char *made_up_base(int arena)
{
    return (char *)((uintptr_t)(arena + 1) << 44);
}

static Tensor place_tensor(const Plan *plan, int32_t id, char *base)
{
    if (!id) return (Tensor){0};
    const ValueInfo *info = value_info(plan, id);
    const ValuePlace *place = &plan->place[id];
    return (Tensor){
        .data = place->none || !base ? NULL : base + place->offset,
        .shape = info->shape,
        .dtype = info->dtype,
        .pitch = plan->alias.member[id].pitch,
    };
}

static void fill_call(const Plan *plan, int index)
{
    const Op *op = graph_op_at(plan->graph, index);
    OpCall *call = &plan->call[index];
    *call = (OpCall){.kind = op->kind, .attr = op->attr, .name = op->name, .in_count = op->in_count, .renewed = true};
    call->out_count = op_outputs(op->kind);
    for (int k = 0; k < op->in_count; k++) {
        call->in[k] = place_tensor(plan, op->in[k].id, made_up_base(plan->place[op->in[k].id].arena));
        call->padded_in |= (uint32_t)plan->alias.member[op->in[k].id].padded << k;
        call->kept_in |= (uint32_t)(value_info(plan, op->in[k].id)->role == ROLE_FOLDED) << k;
    }
    for (int k = 0; k < call->out_count; k++) {
        call->out[k] = place_tensor(plan, op->out[k].id, made_up_base(plan->place[op->out[k].id].arena));
        call->padded_out |= (uint32_t)plan->alias.member[op->out[k].id].padded << k;
    }
}

static Status prepare_call(Plan *plan, int index)
{
    OpCall *call = &plan->call[index];
    const OpKernel *kernel = kernel_of(plan, index);
    plan->prepared = index + 1;
    if (!kernel->prepare || alias_skips(&plan->alias, index)) return OK;
    errno = 0; /* if a library crashes now, errno tells whether it ran out of memory (process.c) */
    Status st = kernel->prepare(plan->device, call);
    if (st != OK) return FAIL(st, "%s (%s): %s", call->name, op_name(call->kind), status_message());
    if (call->workspace_bytes > plan->workspace_bytes) plan->workspace_bytes = call->workspace_bytes;
    progress_made(call->name);
    return OK;
}

/* ---- addresses */

static void add_patch(Plan *plan, int *count, Arena arena, int32_t id, void **at)
{
    const ValuePlace *place = &plan->place[id];
    if (id && !place->none && place->arena == arena) plan->patch[(*count)++] = (Patch){at, place->offset};
}

static void patch_arena(Plan *plan, int *count, Arena arena)
{
    for (int i = 0; i < plan->op_count; i++) {
        const Op *op = graph_op_at(plan->graph, i);
        OpCall *call = &plan->call[i];
        for (int k = 0; k < call->in_count; k++) add_patch(plan, count, arena, op->in[k].id, &call->in[k].data);
        for (int k = 0; k < call->out_count; k++) add_patch(plan, count, arena, op->out[k].id, &call->out[k].data);
        if (arena == ARENA_SCRATCH && call->workspace_bytes > 0)
            plan->patch[(*count)++] = (Patch){&call->workspace, plan->bytes[ARENA_SCRATCH]};
    }
    plan->patch_end[arena] = *count;
}

void plan_bind(Plan *plan, Arena arena, void *base)
{
    plan->base[arena] = base;
    if (!base) return;
    for (int i = arena ? plan->patch_end[arena - 1] : 0; i < plan->patch_end[arena]; i++)
        *plan->patch[i].at = (char *)base + plan->patch[i].offset;
}

/* ---- gradients */

static int compare_gradients(const void *a, const void *b)
{
    const Gradient *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static Status check_gradients(const Plan *plan)
{
    for (int i = 1; i < plan->gradient_count; i++) {
        const Gradient *a = &plan->gradient[i - 1], *b = &plan->gradient[i];
        if (a->first + a->count > b->first)
            return FAIL(ERR_UNSUPPORTED,
                        "gradients '%s' and '%s' belong to the same weights and would overwrite each other", a->name,
                        b->name);
    }
    return OK;
}

static Gradient *gradient_find(Plan *plan, const ValuePlace *place)
{
    for (int i = 0; i < plan->gradient_count && place->arena == ARENA_GRAD && !place->none; i++) {
        Gradient *g = &plan->gradient[i];
        size_t element = place->offset / sizeof(float);
        if (element >= g->first && element - g->first < g->count) return g;
    }
    return NULL;
}

/* The dx of a batch norm reads dbeta and dgamma, which may not be reduced in place before. */
static void wait_for_readers(Plan *plan)
{
    for (int i = 0; i < plan->op_count; i++) {
        const Op *op = graph_op_at(plan->graph, i);
        for (int k = 0; k < op->in_count; k++) {
            Gradient *read = op->in[k].id ? gradient_find(plan, &plan->place[op->in[k].id]) : NULL;
            if (read && i > read->op) read->op = i;
        }
    }
}

static Status list_gradients(Plan *plan)
{
    int values = graph_value_count(plan->graph);
    plan->gradient = calloc((size_t)values + 1, sizeof *plan->gradient);
    if (!plan->gradient) return FAIL(ERR_MEMORY, "no memory for the plan of %d values", values);
    for (int32_t id = 1; id <= values; id++) {
        const ValueInfo *info = value_info(plan, id);
        if (info->role != ROLE_GRAD) continue;
        plan->gradient[plan->gradient_count++] =
            (Gradient){plan->place[id].offset / sizeof(float), (size_t)shape_count(info->shape), info->op, info->name};
    }
    qsort(plan->gradient, (size_t)plan->gradient_count, sizeof *plan->gradient, compare_gradients);
    wait_for_readers(plan);
    return check_gradients(plan);
}

int plan_ready_after(const Plan *plan, size_t elements)
{
    int end = 0;
    for (int i = 0; i < plan->gradient_count && plan->gradient[i].first < elements; i++)
        if (plan->gradient[i].op + 1 > end) end = plan->gradient[i].op + 1;
    return end;
}

/* ---- elements */

/* Of TEMP values: all of them, and the most that are alive at once. A value begins to live at one op and ceases to behind another, so
 * that one pass over the values and one over the ops are enough. */
static Status count_elements(Plan *plan)
{
    int64_t *change = calloc((size_t)plan->op_count + 1, sizeof *change), alive = 0;
    if (!change) return FAIL(ERR_MEMORY, "no memory for the plan of %d ops", plan->op_count);
    for (int32_t id = 1; id <= graph_value_count(plan->graph); id++) {
        const ValueInfo *info = value_info(plan, id);
        if (info->role != ROLE_TEMP || plan->place[id].none) continue;
        int64_t elements = shape_count(info->shape);
        change[info->op] += elements;
        change[plan->alias.member[id].last_read + 1] -= elements;
        plan->all_elements += elements;
    }
    for (int op = 0; op < plan->op_count; op++) {
        alive += change[op];
        if (alive > plan->peak_elements) plan->peak_elements = alive;
    }
    free(change);
    return OK;
}

/* ---- life */

static Status fill_plan(Plan *plan, bool no_alias)
{
    int values = graph_value_count(plan->graph);
    plan->op_count = graph_op_count(plan->graph);
    plan->place = calloc((size_t)values + 1, sizeof *plan->place);
    if (!plan->place) return FAIL(ERR_MEMORY, "no memory for the plan of %d values", values);
    TRY(alias_create(&plan->alias, plan->graph, plan->device->backend, no_alias));
    TRY(arena_assign(&plan->alias, plan->layout, no_alias, plan->place, plan->bytes));
    TRY(list_gradients(plan));
    TRY(count_elements(plan));
    plan->call = calloc((size_t)plan->op_count + 1, sizeof *plan->call);
    if (!plan->call) return FAIL(ERR_MEMORY, "no memory for the plan of %d ops", plan->op_count);
    for (int i = 0; i < plan->op_count; i++) fill_call(plan, i);
    for (int i = 0; i < plan->op_count; i++) TRY(prepare_call(plan, i));
    /* The workspace comes after everything else in SCRATCH. */
    int count = 0;
    plan->patch = calloc((size_t)plan->op_count * (OP_MAX_IN + OP_MAX_OUT + 1) + 1, sizeof *plan->patch);
    if (!plan->patch) return FAIL(ERR_MEMORY, "no memory for the plan of %d ops", plan->op_count);
    for (int arena = 0; arena < ARENA_COUNT; arena++) patch_arena(plan, &count, (Arena)arena);
    plan->workspace_bytes = place_align(plan->workspace_bytes);
    plan->bytes[ARENA_SCRATCH] += plan->workspace_bytes;
    return OK;
}

Status plan_create(const Graph *graph, const Layout *layout, Device *device, const PlanOptions *options, Plan **made)
{
    Status st = OK;
    Plan *plan = NULL;
    if (graph_failed(graph))
        return FAIL(ERR_INTERNAL, "cannot plan a graph that is unfinished or has failed: call graph_finish first");
    plan = calloc(1, sizeof *plan);
    if (!plan) return FAIL(ERR_MEMORY, "no memory for the plan");
    plan->graph = graph;
    plan->layout = layout;
    plan->device = device;
    TRY_OUT(fill_plan(plan, options && options->no_alias));
    *made = plan;
    plan = NULL;
out:
    plan_destroy(plan);
    return st;
}

Status plan_measure(const Graph *graph, const Layout *layout, const Backend *backend, const PlanOptions *options,
                    size_t bytes[ARENA_COUNT])
{
    Status st = OK;
    Alias alias = {0};
    bool no_alias = options && options->no_alias;
    ValuePlace *place = calloc((size_t)graph_value_count(graph) + 1, sizeof *place);
    if (!place) return FAIL(ERR_MEMORY, "no memory for the plan of %d values", graph_value_count(graph));
    TRY_OUT(alias_create(&alias, graph, backend, no_alias));
    TRY_OUT(arena_assign(&alias, layout, no_alias, place, bytes));
out:
    alias_destroy(&alias);
    free(place);
    return st;
}

void plan_destroy(Plan *plan)
{
    if (!plan) return;
    for (int i = 0; i < plan->prepared; i++) {
        const OpKernel *kernel = kernel_of(plan, i);
        if (plan->call[i].state && kernel->discard) kernel->discard(plan->device, &plan->call[i]);
    }
    alias_destroy(&plan->alias);
    free(plan->place);
    free(plan->call);
    free(plan->patch);
    free(plan->gradient);
    free(plan);
}

/* ---- running */

static Status check_run(const Plan *plan, int first, int end)
{
    static const char *const name[ARENA_COUNT] = {"PARAM", "GRAD",   "RUNNING", "BATCH_STATISTICS",
                                                  "INPUT", "FOLDED", "RESULT",  "SCRATCH"};
    if (first < 0 || end > plan->op_count || first > end)
        return FAIL(ERR_INTERNAL, "ops %d to %d exceed a plan of %d ops", first, end, plan->op_count);
    for (int arena = 0, begin = 0; arena < ARENA_COUNT; begin = plan->patch_end[arena++])
        if (plan->patch_end[arena] > begin && !plan->base[arena])
            return FAIL(ERR_INTERNAL, "the plan has no memory for its arena %s: call plan_bind first", name[arena]);
    return OK;
}

void plan_renew(Plan *plan)
{
    for (int i = 0; i < plan->op_count; i++) plan->call[i].renewed = true;
}

Status plan_run(Plan *plan, int first, int end)
{
    TRY(check_run(plan, first, end));
    for (int i = first; i < end; i++) {
        if (alias_skips(&plan->alias, i)) continue;
        OpCall *call = &plan->call[i];
        Status st = kernel_of(plan, i)->launch(plan->device, call);
        if (st != OK) return FAIL(st, "%s (%s): %s", call->name, op_name(call->kind), status_message());
        progress_made(call->name);
        call->renewed = false;
        if (call->kind == OP_NORM_FOLD) plan_renew(plan);
    }
    return OK;
}

size_t plan_bytes(const Plan *plan, Arena arena)
{
    return plan->bytes[arena];
}

int plan_op_count(const Plan *plan)
{
    return plan->op_count;
}

const OpCall *plan_call(const Plan *plan, int op)
{
    return &plan->call[op];
}

Tensor plan_tensor(const Plan *plan, Value v)
{
    return place_tensor(plan, v.id, plan->base[plan->place[v.id].arena]);
}

/* ---- report */

void plan_report(const Plan *plan, PlanReport *report)
{
    *report = (PlanReport){.workspace_bytes = plan->workspace_bytes,
                           .peak_elements = plan->peak_elements,
                           .all_elements = plan->all_elements,
                           .shared_values = plan->alias.shared,
                           .copied_concats = plan->alias.copied};
    memcpy(report->arena_bytes, plan->bytes, sizeof plan->bytes);
}
