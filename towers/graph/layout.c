/* Layout: the order of parameters and batch-norm running statistics in the flat arenas; see layout.h.
 *
 * The parameters of a phase are in the order in which its list completes their gradients, so that a prefix of them is
 * final as early as possible and can be reduced while the rest is computed; frozen ones, without gradients, come last. A
 * unit is one PARAM, or one PACK with contiguous members; units start at multiples of 16 elements (64 bytes), and the
 * gaps always hold zeros. layout_init.c sets initial values; plan.c places the values of a graph. */
#include "towers/graph/layout.h"

#include <limits.h>

enum { UNIT_ALIGN = 16 };

typedef struct Unit {
    int32_t value; /* PARAM or PACK */
    int32_t done;  /* op that completes its gradient, INT_MAX if it has none */
} Unit;

typedef struct Units {
    const Graph *graph; /* borrowed */
    Unit *list;         /* owned */
    int count;
    int32_t *of; /* owned, [values + 1]: the unit that holds a PARAM or is a PACK; 0 for other values */
} Units;

static const ValueInfo *value_info(const Graph *g, int32_t id)
{
    return graph_value(g, (Value){id});
}

static size_t align_unit(size_t elements)
{
    return (elements + UNIT_ALIGN - 1) / UNIT_ALIGN * UNIT_ALIGN;
}

/* A PARAM is in one pack at most (graph_pack refuses more). */
static void claim_members(Units *units, int32_t pack)
{
    const ValueInfo *info = value_info(units->graph, pack);
    units->of[pack] = pack;
    for (int k = 0; k < info->member_count; k++) units->of[info->members[k].id] = pack;
}

static int compare_units(const void *a, const void *b)
{
    const Unit *x = a, *y = b;
    if (x->done != y->done) return x->done < y->done ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

static int32_t unit_done(const Units *units, int32_t unit)
{
    int32_t done = -1;
    for (int32_t id = 1; id <= graph_value_count(units->graph); id++) {
        const ValueInfo *info = value_info(units->graph, id);
        if (info->role == ROLE_GRAD && units->of[info->of.id] == unit && info->op > done) done = info->op;
    }
    return done < 0 ? INT_MAX : done;
}

static Status find_units(Units *units)
{
    int values = graph_value_count(units->graph);
    units->of = calloc((size_t)values + 1, sizeof *units->of);
    units->list = calloc((size_t)values + 1, sizeof *units->list);
    if (!units->of || !units->list) return FAIL(ERR_MEMORY, "no memory for the layout of %d values", values);
    for (int32_t id = 1; id <= values; id++)
        if (value_info(units->graph, id)->role == ROLE_PACK) claim_members(units, id);
    for (int32_t id = 1; id <= values; id++) {
        if (value_info(units->graph, id)->role == ROLE_PARAM && !units->of[id]) units->of[id] = id;
        if (units->of[id] == id) units->list[units->count++].value = id;
    }
    for (int i = 0; i < units->count; i++) units->list[i].done = unit_done(units, units->list[i].value);
    qsort(units->list, (size_t)units->count, sizeof *units->list, compare_units);
    return OK;
}

/* Weights of a dense layer have other fans than those of a convolution, and the shape alone does not tell which
 * it is. */
static bool is_dense_weight(const Graph *g, int32_t param, int32_t unit)
{
    for (int i = 0; i < graph_op_count(g); i++) {
        const Op *op = graph_op_at(g, i);
        bool dense = op->kind == OP_DENSE || op->kind == OP_DENSE_DX;
        if (dense && (op->in[1].id == param || op->in[1].id == unit)) return true;
    }
    return false;
}

static Init resolve_init(const Graph *g, int32_t param, int32_t unit)
{
    const ValueInfo *info = value_info(g, param);
    if (info->init.kind != INIT_GLOROT_UNIFORM && info->init.kind != INIT_HE_NORMAL) return info->init;
    Shape s = info->shape;
    double window = (double)s.h * s.w, fan_in = s.c * window;
    double fan_out = is_dense_weight(g, param, unit) ? s.n : s.n * window;
    if (info->init.kind == INIT_HE_NORMAL) return (Init){INIT_NORMAL, (float)sqrt(2 / fan_out)};
    return (Init){INIT_UNIFORM, (float)sqrt(6 / (fan_in + fan_out))};
}

static Status fill_entry(LayoutEntry *entry, const ValueInfo *info, size_t first, Init init)
{
    char *name = strdup(info->name);
    if (!name) return FAIL(ERR_MEMORY, "no memory for the layout entry '%s'", info->name);
    *entry = (LayoutEntry){.name = name,
                           .shape = info->shape,
                           .first = first,
                           .count = (size_t)shape_count(info->shape),
                           .init = init,
                           .decay = info->decay,
                           .rank = info->rank ? info->rank : 1,
                           .pixels = info->pixels};
    return OK;
}

/* A parameter or running statistic that an earlier phase has too must be the same there. */
static Status check_known(const LayoutEntry *known, const ValueInfo *info)
{
    if (shape_equal(known->shape, info->shape)) return OK;
    return FAIL(ERR_SHAPE, "'%s' is %s in one phase and %s in another", info->name, shape_text(known->shape),
                shape_text(info->shape));
}

static Status add_param(Layout *layout, const Units *units, int32_t param, const Unit *unit, int phase)
{
    const ValueInfo *info = value_info(units->graph, param);
    bool trained = unit->done != INT_MAX;
    const LayoutEntry *known = layout_param(layout, info->name);
    if (known && trained)
        return FAIL(ERR_UNSUPPORTED, "parameter '%s' is trained by two phases; a parameter may have one optimizer",
                    info->name);
    if (known) return check_known(known, info);
    LayoutEntry *entry = &layout->params[layout->param_count];
    TRY(fill_entry(entry, info, layout->param_elements, resolve_init(units->graph, param, unit->value)));
    entry->moves = trained ? 1u << phase : 0;
    layout->param_count++;
    layout->param_elements += entry->count;
    return OK;
}

static Status add_unit(Layout *layout, const Units *units, const Unit *unit, int phase)
{
    const ValueInfo *info = value_info(units->graph, unit->value);
    if (info->role == ROLE_PARAM) TRY(add_param(layout, units, unit->value, unit, phase));
    for (int k = 0; k < info->member_count; k++) TRY(add_param(layout, units, info->members[k].id, unit, phase));
    layout->param_elements = align_unit(layout->param_elements);
    return OK;
}

static Status add_running(Layout *layout, const ValueInfo *info)
{
    const LayoutEntry *known = layout_running(layout, info->name);
    if (known) return check_known(known, info);
    LayoutEntry *entry = &layout->running[layout->running_count];
    TRY(fill_entry(entry, info, layout->running_elements, info->init));
    layout->running_count++;
    layout->running_elements = align_unit(layout->running_elements + entry->count);
    return OK;
}

/* ---- ranks on disk */

static void set_rank(Layout *layout, const Graph *g, Value v, int rank)
{
    const ValueInfo *info = graph_value(g, v);
    for (int m = 0; m < info->member_count; m++) set_rank(layout, g, info->members[m], rank);
    const LayoutEntry *entry = info->role == ROLE_PARAM ? layout_param(layout, info->name) : NULL;
    if (entry && !info->rank) layout->params[entry - layout->params].rank = rank;
}

/* ---- statistics */

static Status add_statistic(Layout *layout, const Graph *g, int phase, int32_t batch, int32_t *fed_by)
{
    const ValueInfo *info = value_info(g, batch), *to = graph_value(g, info->of);
    const LayoutEntry *known = layout_running(layout, to->name);
    if (!known) return FAIL(ERR_INTERNAL, "statistic '%s' feeds no running statistic", info->name);
    if (fed_by[info->of.id])
        return FAIL(ERR_UNSUPPORTED,
                    "running statistic '%s' is fed by both '%s' and '%s': a batch norm may be applied once in a step",
                    to->name, value_info(g, fed_by[info->of.id])->name, info->name);
    fed_by[info->of.id] = batch;
    LayoutEntry *entry = &layout->running[known - layout->running];
    int64_t *values = layout->running_values + entry->first;
    bool *unbiased = layout->running_unbiased + entry->first;
    if (entry->moves && entry->count && values[0] != info->values)
        return FAIL(ERR_UNSUPPORTED, "running statistic '%s' is fed by batches of different sizes in two phases",
                    to->name);
    entry->moves |= 1u << phase;
    for (size_t i = 0; i < entry->count; i++) {
        values[i] = info->values;
        unbiased[i] = info->unbiased;
    }
    return OK;
}

static Status fill_statistics(Layout *layout, const Graph *g, int phase)
{
    Status st = OK;
    int values = graph_value_count(g);
    int32_t *fed_by = calloc((size_t)values + 1, sizeof *fed_by); /* by RUNNING */
    if (!fed_by) return FAIL(ERR_MEMORY, "no memory for the layout of %d values", values);
    for (int32_t id = 1; id <= values; id++)
        if (value_info(g, id)->role == ROLE_BATCH_STATISTIC) TRY_OUT(add_statistic(layout, g, phase, id, fed_by));
out:
    free(fed_by);
    return st;
}

/* ---- the whole */

static Status check_names(const Graph *g)
{
    int values = graph_value_count(g);
    for (int32_t id = 1; id <= values; id++) {
        const ValueInfo *info = value_info(g, id);
        bool running = info->role == ROLE_RUNNING;
        if (!running && info->role != ROLE_PARAM) continue;
        for (int32_t before = 1; before < id; before++) {
            const ValueInfo *other = value_info(g, before);
            if (other->role != info->role || strcmp(other->name, info->name) != 0) continue;
            return FAIL(ERR_ARG, "two %s are called '%s': give one of the layers another name",
                        running ? "running statistics" : "parameters", info->name);
        }
    }
    return OK;
}

static Status fill_layout(Layout *layout, Units *units, int count)
{
    size_t values = 0;
    for (int p = 0; p < count; p++) values += (size_t)graph_value_count(units[p].graph);
    layout->params = calloc(values + 1, sizeof *layout->params);
    layout->running = calloc(values + 1, sizeof *layout->running);
    if (!layout->params || !layout->running) return FAIL(ERR_MEMORY, "no memory for the layout of %zu values", values);
    layout->phase_count = count;
    for (int p = 0; p < count; p++) {
        TRY(check_names(units[p].graph));
        TRY(find_units(&units[p]));
        LayoutPhase *range = &layout->phase[p];
        *range = (LayoutPhase){.first_param = layout->param_count, .first = layout->param_elements};
        for (int i = 0; i < units[p].count && units[p].list[i].done != INT_MAX; i++)
            TRY(add_unit(layout, &units[p], &units[p].list[i], p));
        range->param_count = layout->param_count - range->first_param;
        range->elements = layout->param_elements - range->first;
        layout->trained_count = layout->param_count;
        layout->trained_elements = layout->param_elements;
    }
    for (int p = 0; p < count; p++) {
        const Graph *g = units[p].graph;
        for (int i = 0; i < units[p].count; i++)
            if (units[p].list[i].done == INT_MAX) TRY(add_unit(layout, &units[p], &units[p].list[i], 0));
        for (int32_t id = 1; id <= graph_value_count(g); id++)
            if (value_info(g, id)->role == ROLE_RUNNING) TRY(add_running(layout, value_info(g, id)));
        for (int i = 0; i < graph_op_count(g); i++) {
            const Op *op = graph_op_at(g, i);
            if (op->kind == OP_CONV || op->kind == OP_CONV_DX) set_rank(layout, g, op->in[1], 4);
            if (op->kind == OP_DENSE) set_rank(layout, g, op->in[1], 2);
        }
    }
    layout->running_values = calloc(layout->running_elements + 1, sizeof *layout->running_values);
    layout->running_unbiased = calloc(layout->running_elements + 1, sizeof *layout->running_unbiased);
    if (!layout->running_values || !layout->running_unbiased)
        return FAIL(ERR_MEMORY, "no memory for the layout of %zu running statistics", layout->running_elements);
    for (int p = 0; p < count; p++) TRY(fill_statistics(layout, units[p].graph, p));
    return OK;
}

Status layout_create_phases(const Graph *const *training, int count, Layout **made)
{
    Status st = OK;
    Units units[LAYOUT_PHASES] = {0};
    Layout *layout = NULL;
    if (count < 1 || count > LAYOUT_PHASES) return FAIL(ERR_ARG, "%d phases: expected 1 to %d", count, LAYOUT_PHASES);
    for (int p = 0; p < count; p++) {
        if (graph_failed(training[p]))
            return FAIL(ERR_INTERNAL,
                        "cannot make a layout of a graph that is unfinished or has failed: call graph_finish first");
        units[p].graph = training[p];
    }
    layout = calloc(1, sizeof *layout);
    if (!layout) return FAIL(ERR_MEMORY, "no memory for the layout");
    TRY_OUT(fill_layout(layout, units, count));
    *made = layout;
    layout = NULL;
out:
    for (int p = 0; p < count; p++) {
        free(units[p].list);
        free(units[p].of);
    }
    layout_destroy(layout);
    return st;
}

Status layout_create(const Graph *training, Layout **made)
{
    return layout_create_phases(&training, 1, made);
}

static void free_entries(LayoutEntry *entries, int count)
{
    for (int i = 0; i < count; i++) free((char *)entries[i].name);
    free(entries);
}

void layout_destroy(Layout *layout)
{
    if (!layout) return;
    free_entries(layout->params, layout->param_count);
    free_entries(layout->running, layout->running_count);
    free(layout->running_values);
    free(layout->running_unbiased);
    free(layout);
}

static const LayoutEntry *find_entry(const LayoutEntry *entries, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(entries[i].name, name)) return &entries[i];
    return NULL;
}

size_t layout_param_end(const Layout *layout, int i)
{
    return i + 1 < layout->param_count ? layout->params[i + 1].first : layout->param_elements;
}

size_t layout_running_end(const Layout *layout, int i)
{
    return i + 1 < layout->running_count ? layout->running[i + 1].first : layout->running_elements;
}

const LayoutEntry *layout_param(const Layout *layout, const char *name)
{
    return find_entry(layout->params, layout->param_count, name);
}

const LayoutEntry *layout_running(const Layout *layout, const char *name)
{
    return find_entry(layout->running, layout->running_count, name);
}
