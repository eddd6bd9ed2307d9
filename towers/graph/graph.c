/* The builder: values, names, ops and their shapes; see graph.h. The list is kept by list.c. Shapes come from rules_*.c,
 * gradients from grad.c, the textual form from print.c. */
#include "towers/graph/graph.h"
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

static const Value none = {0};
static const int64_t count_limit = (int64_t)1 << 40; /* elements of one value: far above any memory */

uint32_t graph_next_stream(Graph *g)
{
    return ++g->streams;
}

/* ---- names */

void graph_scope(Graph *g, const char *scope)
{
    g->scope = *scope ? list_text(g, "%s", scope) : "";
    g->weights_scope = NULL;
}

void graph_scope_shared(Graph *g, const char *scope, const char *reading)
{
    g->scope = list_text(g, "%s.%s", scope, reading);
    g->weights_scope = list_text(g, "%s", scope);
}

static const char *scoped(Graph *g, const char *name)
{
    return list_text(g, "%s%s%s", g->scope, *g->scope ? "." : "", name);
}

static const char *scoped_weight(Graph *g, const char *name)
{
    return g->weights_scope ? list_text(g, "%s.%s", g->weights_scope, name) : scoped(g, name);
}

/* ---- values that no op writes */

static bool shape_is_valid(Shape s)
{
    if (s.n < 1 || s.c < 1 || s.h < 1 || s.w < 1) return false;
    int64_t count = s.n;
    return !__builtin_mul_overflow(count, s.c, &count) && !__builtin_mul_overflow(count, s.h, &count) &&
           !__builtin_mul_overflow(count, s.w, &count) && count <= count_limit;
}

static Value add_leaf(Graph *g, ValueInfo info)
{
    if (graph_failed(g)) return none;
    if (!shape_is_valid(info.shape))
        return list_fail(g, ERR_SHAPE,
                         "%s: %s is not a shape: every size is at least 1, and no value has more than %" PRId64
                         " elements",
                         info.name, shape_text(info.shape), count_limit);
    if (graph_find(g, info.name).id)
        return list_fail(g, ERR_ARG, "%s: this name is already used in the graph", info.name);
    info.op = -1;
    return list_value(g, &info);
}

Value graph_input(Graph *g, const char *name, Shape shape, Dtype dtype)
{
    return add_leaf(g,
                    (ValueInfo){.shape = shape, .dtype = dtype, .role = ROLE_INPUT, .name = list_text(g, "%s", name)});
}

Value graph_param(Graph *g, const char *name, Shape shape, Init init, bool decay)
{
    ValueInfo info = {.shape = shape, .role = ROLE_PARAM, .name = scoped_weight(g, name), .init = init, .decay = decay};
    Value there = g->weights_scope ? graph_find(g, info.name) : none;
    const ValueInfo *old = graph_value(g, there);
    if (!there.id || graph_failed(g)) return add_leaf(g, info);
    if (old->role == ROLE_PARAM && shape_equal(old->shape, shape) && old->init.kind == init.kind &&
        old->init.a == init.a && old->decay == decay)
        return there;
    return list_fail(g, ERR_SHAPE, "%s: used again as %s, but it is %s, or has other starting values", info.name,
                     shape_text(shape), shape_text(old->shape));
}

Value graph_running(Graph *g, const char *name, Shape shape, float start)
{
    Init init = {start == 0 ? INIT_ZERO : INIT_CONSTANT, start};
    return add_leaf(g, (ValueInfo){.shape = shape, .role = ROLE_RUNNING, .name = scoped_weight(g, name), .init = init});
}

void graph_unfold(Graph *g, Value x, const char *name, int32_t pixels)
{
    const char *layer = scoped_weight(g, name);
    size_t length = layer ? strlen(layer) : 0;
    for (int32_t id = 1; layer && id <= g->value_count; id++) {
        ValueInfo *info = &g->values[id];
        bool kept = info->role == ROLE_PARAM || info->role == ROLE_RUNNING;
        if (id == x.id || (kept && !strncmp(info->name, layer, length) && info->name[length] == '.'))
            info->pixels = pixels;
    }
}

void graph_rank(Graph *g, Value param, int rank)
{
    if (param.id) g->values[param.id].rank = rank;
}

static bool pack_takes(Graph *g, Value first, Value param)
{
    const ValueInfo *a = graph_value(g, first), *b = graph_value(g, param);
    if (b->role != ROLE_PARAM)
        list_fail(g, ERR_ARG, "%s: expected a parameter as the member of a pack", b->name);
    else if (list_packed(g, param))
        list_fail(g, ERR_ARG, "%s: is already in another pack", b->name);
    else if (a->shape.c != b->shape.c || a->shape.h != b->shape.h || a->shape.w != b->shape.w)
        list_fail(g, ERR_SHAPE, "%s: cannot be stacked on %s: %s and %s", b->name, a->name, shape_text(b->shape),
                  shape_text(a->shape));
    return !graph_failed(g);
}

Value graph_pack(Graph *g, const Value *params, int count)
{
    if (graph_failed(g)) return none;
    if (count < 1 || count > OP_MAX_IN)
        return graph_fail(g, ERR_ARG, "a pack has 1 to %d members, not %d", OP_MAX_IN, count);
    ValueInfo pack = {.role = ROLE_PACK, .op = -1, .shape = graph_shape(g, params[0]), .member_count = count};
    pack.shape.n = 0;
    for (int i = 0; i < count; i++) {
        if (!pack_takes(g, params[0], params[i])) return none;
        pack.members[i] = params[i];
        pack.shape.n += graph_shape(g, params[i]).n;
    }
    pack.name = list_text(g, "%s+%d", graph_value(g, params[0])->name, count - 1);
    return list_value(g, &pack);
}

/* ---- ops */

/* Copies operands into the op, without absent ones at the end. */
static bool take_operands(Graph *g, Op *op, const Value *in, int count)
{
    while (count > 0 && !in[count - 1].id) count--;
    if (count > op_max_inputs(op->kind)) {
        list_fail(g, ERR_ARG, "%s: %s takes at most %d operands, not %d", op->name, op_name(op->kind),
                  op_max_inputs(op->kind), count);
        return false;
    }
    for (int i = 0; i < count || i < op_min_inputs(op->kind); i++) {
        int32_t id = i < count ? in[i].id : 0;
        if (id < 0 || id > g->value_count || (!id && i < op_min_inputs(op->kind))) {
            list_fail(g, ERR_ARG, "%s: operand %d of %s is %s", op->name, i, op_name(op->kind),
                      id ? "no value of this graph" : "missing");
            return false;
        }
        op->in[i].id = id;
    }
    op->in_count = count;
    return true;
}

static void apply_shape_rule(Graph *g, const Op *op, const Shape *asked, ShapeCall *call)
{
    *call = (ShapeCall){.g = g, .op = op, .asked = asked};
    if (asked && !shape_is_valid(*asked)) rule_fail(call, ERR_SHAPE, "%s is not a shape", shape_text(*asked));
    for (int i = 0; i < op->in_count; i++) {
        call->in[i] = graph_shape(g, op->in[i]);
        call->dtype[i] = graph_value(g, op->in[i])->dtype;
    }
    if ((op->kind != OP_IMAGE && op->kind != OP_RANDOM) && !dtype_is_float(call->dtype[0]))
        rule_fail(call, ERR_SHAPE, "%s computes on floats, not on %s", op_name(op->kind), dtype_name(call->dtype[0]));
    if (!graph_failed(g)) op_rules[op->kind].shape(call);
    for (int i = 0; i < op_outputs(op->kind) && !graph_failed(g); i++)
        if (!shape_is_valid(call->out[i].shape))
            rule_fail(call, ERR_SHAPE, "the output %s is too large", shape_text(call->out[i].shape));
}

static Value append(Graph *g, Op *op, const ShapeCall *call)
{
    for (int i = 0; i < op_outputs(op->kind); i++) {
        const char *suffix = call->out[i].suffix;
        ValueInfo info = {.shape = call->out[i].shape,
                          .dtype = call->out[i].dtype,
                          .op = g->op_count,
                          .out = i,
                          .name = suffix ? list_text(g, "%s.%s", op->name, suffix) : op->name};
        op->out[i] = list_value(g, &info);
    }
    return list_op(g, op) < 0 ? none : op->out[0];
}

Value graph_op(Graph *g, OpKind kind, const char *name, const Value *in, int count, const OpAttr *attr,
               const Shape *shape)
{
    if (graph_failed(g)) return none;
    if (kind <= OP_NONE || kind >= OP_COUNT) return graph_fail(g, ERR_ARG, "unknown op kind %d", (int)kind);
    Op op = {.kind = kind, .name = scoped(g, name ? name : op_name(kind))};
    if (attr) op.attr = *attr;
    if (!take_operands(g, &op, in, count)) return none;
    ShapeCall call;
    apply_shape_rule(g, &op, shape, &call);
    return graph_failed(g) ? none : append(g, &op, &call);
}

Value graph_output(const Graph *g, Value v, int out)
{
    if (graph_failed(g) || graph_value(g, v)->op < 0) return none;
    return out >= 0 && out < OP_MAX_OUT ? g->ops[g->values[v.id].op].out[out] : none;
}

/* ---- roles */

static bool is_temporary(Graph *g, Value v, const char *use)
{
    if (graph_failed(g)) return false;
    const ValueInfo *info = graph_value(g, v);
    if (info->op >= 0 && info->role == ROLE_TEMP) return true;
    graph_fail(g, ERR_ARG, "%s: '%s' is not a plain output of an op", use, info->name);
    return false;
}

void graph_result(Graph *g, Value v, const char *name)
{
    if (!is_temporary(g, v, name)) return;
    if (graph_find(g, name).id) {
        list_fail(g, ERR_ARG, "%s: this name is already used in the graph", name);
        return;
    }
    g->values[v.id].name = list_text(g, "%s", name);
    g->values[v.id].role = ROLE_RESULT;
}

void graph_batch_statistic(Graph *g, Value batch, Value running, int64_t values, bool unbiased)
{
    const ValueInfo *to = graph_value(g, running);
    if (!is_temporary(g, batch, to->name)) return;
    ValueInfo *from = &g->values[batch.id];
    if (to->role != ROLE_RUNNING || !shape_equal(from->shape, to->shape) || from->dtype != DTYPE_F32) {
        list_fail(g, ERR_SHAPE, "%s: %s %s cannot feed '%s' %s: expected f32 and a running statistic of the same shape",
                  from->name, dtype_name(from->dtype), shape_text(from->shape), to->name, shape_text(to->shape));
        return;
    }
    from->role = ROLE_BATCH_STATISTIC;
    from->of = running;
    from->values = values;
    from->unbiased = unbiased;
}

/* ---- checks beside model lines */

void graph_canonical(Graph *g, int32_t side)
{
    g->canonical = side;
}

/* The image that enters the network: the output of the first IMAGE op, else the first input with a height or width. */
static Shape image_shape(const Graph *g)
{
    for (int i = 0; i < g->op_count; i++)
        if (g->ops[i].kind == OP_IMAGE) return graph_shape(g, g->ops[i].out[0]);
    for (int32_t id = 1; id <= g->value_count; id++)
        if (g->values[id].role == ROLE_INPUT && (g->values[id].shape.h > 1 || g->values[id].shape.w > 1))
            return g->values[id].shape;
    return (Shape){1, 1, 1, 1};
}

void graph_expect(Graph *g, Value v, int32_t c, int32_t side)
{
    Shape image = image_shape(g), have = graph_shape(g, v);
    if (graph_failed(g) || image.h != g->canonical || image.w != g->canonical) return;
    if (have.c == c && have.h == side && have.w == side) return;
    list_fail(g, ERR_SHAPE, "%s: expected %d channels of %dx%d, found %d of %dx%d (%s)", graph_value(g, v)->name, c,
              side, side, have.c, have.h, have.w, shape_text(have));
}
