/* The list itself: its memory, the sticky error, reading, and what passes change; see list.h. */
#include "towers/graph/list.h"

#include "kernels/base/array.h"
#include "kernels/base/text.h"

static const Value none = {0};

Status graph_create(const GraphOptions *options, Graph **made)
{
    if (options->compute != DTYPE_F32 && options->compute != DTYPE_BF16 && options->compute != DTYPE_F16)
        return FAIL(ERR_ARG, "expected a compute dtype of f32, bf16 or f16, found %s",
                    (unsigned)options->compute < DTYPE_COUNT ? dtype_name(options->compute) : "an unknown dtype");
    Graph *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for a graph");
    g->options = *options;
    g->scope = "";
    *made = g;
    return OK;
}

static void scratch_free(Graph *g)
{
    while (g->scratch_count > 0) free(g->scratch[--g->scratch_count]);
}

void graph_destroy(Graph *g)
{
    if (!g) return;
    scratch_free(g);
    free(g->scratch);
    for (int i = 0; i < g->text_count; i++) free(g->texts[i]);
    free(g->texts);
    free(g->values);
    free(g->ops);
    free(g);
}

/* ---- the sticky error */

Status graph_finish(Graph *g)
{
    scratch_free(g);
    return g->status == OK ? OK : FAIL(g->status, "%s", g->why);
}

bool graph_failed(const Graph *g)
{
    return g->status != OK;
}

static Value keep_failure(Graph *g, Status code, const char *scope, const char *format, va_list args)
{
    if (g->status != OK) return none;
    g->status = code;
    Text why = text_start(g->why, sizeof g->why);
    if (*scope) text_add(&why, "%.200s: ", scope);
    text_vadd(&why, format, args);
    return none;
}

Value graph_fail(Graph *g, Status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep_failure(g, code, g->scope, format, args);
    va_end(args);
    return none;
}

Value list_fail(Graph *g, Status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    keep_failure(g, code, "", format, args);
    va_end(args);
    return none;
}

/* ---- growing arrays */

/* Makes room for one more item; false after failing the graph. */
static bool list_grow(Graph *g, void *items, int count, size_t *room, size_t item_bytes)
{
    if (array_reserve(items, room, (size_t)count + 1, item_bytes, "a graph") == OK) return true;
    list_fail(g, ERR_MEMORY, "%s", status_message());
    return false;
}

void *list_scratch(Graph *g, int count, size_t item_bytes)
{
    if (!list_grow(g, &g->scratch, g->scratch_count, &g->scratch_room, sizeof *g->scratch)) return NULL;
    void *made = g->scratch[g->scratch_count++] = calloc((size_t)count + 1, item_bytes);
    if (!made) list_fail(g, ERR_MEMORY, "no memory for work on %d ops", g->op_count);
    return made;
}

const char *list_text(Graph *g, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    if (!text) list_fail(g, ERR_MEMORY, "no memory for a name");
    if (!text || !list_grow(g, &g->texts, g->text_count, &g->text_room, sizeof *g->texts)) {
        free(text);
        return "";
    }
    return g->texts[g->text_count++] = text;
}

Value list_value(Graph *g, const ValueInfo *info)
{
    if (graph_failed(g)) return none;
    if (!list_grow(g, &g->values, g->value_count + 1, &g->value_room, sizeof *g->values)) return none;
    if (!g->value_count) g->values[0] = (ValueInfo){.shape = {1, 1, 1, 1}, .name = "", .op = -1};
    g->values[++g->value_count] = *info;
    return (Value){g->value_count};
}

int list_op(Graph *g, const Op *op)
{
    if (graph_failed(g) || !list_grow(g, &g->ops, g->op_count, &g->op_room, sizeof *g->ops)) return -1;
    g->ops[g->op_count] = *op;
    return g->op_count++;
}

/* ---- reading */

int graph_op_count(const Graph *g)
{
    return g->op_count;
}

const Op *graph_op_at(const Graph *g, int index)
{
    return &g->ops[index];
}

int graph_value_count(const Graph *g)
{
    return g->value_count;
}

const ValueInfo *graph_value(const Graph *g, Value v)
{
    static const ValueInfo nothing = {.shape = {1, 1, 1, 1}, .name = "", .op = -1};
    return v.id > 0 && v.id <= g->value_count ? &g->values[v.id] : &nothing;
}

Shape graph_shape(const Graph *g, Value v)
{
    return graph_value(g, v)->shape;
}

const GraphOptions *graph_options(const Graph *g)
{
    return &g->options;
}

static bool role_is_named(Role role)
{
    return role == ROLE_INPUT || role == ROLE_PARAM || role == ROLE_RUNNING || role == ROLE_RESULT;
}

Value graph_find(const Graph *g, const char *name)
{
    for (int32_t id = 1; id <= g->value_count; id++)
        if (role_is_named(g->values[id].role) && !strcmp(g->values[id].name, name)) return (Value){id};
    return none;
}

bool list_packed(const Graph *g, Value param)
{
    for (int32_t id = 1; id <= g->value_count; id++)
        for (int i = 0; i < g->values[id].member_count; i++)
            if (g->values[id].members[i].id == param.id) return true;
    return false;
}

/* ---- rewriting */

int *list_readers(Graph *g)
{
    int *readers = list_scratch(g, g->value_count, sizeof *readers);
    for (int index = 0; readers && index < g->op_count; index++)
        for (int i = 0; i < g->ops[index].in_count; i++) readers[g->ops[index].in[i].id]++;
    return readers;
}

void list_replace(Graph *g, Op *ops, int op_count)
{
    if (graph_failed(g)) return;
    for (int i = 0; i < g->scratch_count; i++)
        if (g->scratch[i] == ops) g->scratch[i] = g->ops;
    g->ops = ops;
    g->op_count = op_count;
    g->op_room = (size_t)op_count;
    for (int index = 0; index < op_count; index++)
        for (int o = 0; o < op_outputs(ops[index].kind); o++) {
            g->values[ops[index].out[o].id].op = index;
            g->values[ops[index].out[o].id].out = o;
        }
}

/* The pitch that the planner gives a slice of another value, if all its readers take slices. */
static int64_t likely_pitch(const Graph *g, Value v)
{
    const ValueInfo *info = graph_value(g, v);
    bool cut = info->op >= 0 && g->ops[info->op].kind == OP_SLICE;
    return cut ? graph_shape(g, g->ops[info->op].in[0]).c : info->shape.c;
}

static Tensor likely_tensor(const Graph *g, Value v)
{
    const ValueInfo *info = graph_value(g, v);
    void *somewhere = (void *)64;
    if (!v.id) return (Tensor){0};
    return (Tensor){.data = somewhere, .shape = info->shape, .dtype = info->dtype, .pitch = likely_pitch(g, v)};
}

OpCall list_call(const Graph *g, const Op *op)
{
    OpCall call = {.kind = op->kind, .attr = op->attr, .name = op->name, .in_count = op->in_count};
    call.out_count = op_outputs(op->kind);
    for (int i = 0; i < op->in_count; i++) call.in[i] = likely_tensor(g, op->in[i]);
    for (int o = 0; o < call.out_count; o++) call.out[o] = likely_tensor(g, op->out[o]);
    return call;
}
