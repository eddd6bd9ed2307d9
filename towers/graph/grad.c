/* Reverse-mode differentiation: a sweep over the list from y back to the first op, in which the gradient rule of each
 * op appends further ops. Only ops between wrt and y are visited, so nothing unneeded is computed.
 *
 * The order of the appended ops is the schedule of the backward pass. It is the reverse of the forward list, and within
 * an op db, dw, dx (see rules_conv.c): gradients of the last layers are final first, each as early as possible, and a
 * gradient of several contributions is summed as soon as the last one is known.
 *
 * Contributions to a value are kept in a stack. A rule whose op has an `acc` operand pops the newest and adds to it in
 * its own pass; the others are added by ADD, after slices have been joined by CONCAT. */
#include "kernels/base/array.h"
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

enum { ALL_CHANNELS = -1 };

typedef struct Share { /* one contribution */
    Value from;
    int32_t first;  /* channel, or ALL_CHANNELS */
    int32_t before; /* the one below it in the stack, -1 at the bottom */
} Share;

typedef struct Track { /* what the sweep knows about one value */
    bool depends;      /* on wrt */
    bool asked;        /* is in wrt */
    bool masked;       /* contributions have been masked by its ReLU already */
    int readers;       /* ops on the way to y that read it */
    int first_reader;  /* the earliest of them */
    int32_t top;       /* of its stack of shares, -1 if empty */
    Value gradient;    /* when complete */
} Track;

typedef struct GradSweep {
    Graph *g;
    Track *tracks; /* by id */
    bool *reached; /* by op: y depends on it */
    Share *shares; /* owned */
    /* state */
    int value_count;
    int end; /* index of y's op + 1 */
    int share_count;
} GradSweep;

static const Value none = {0};

/* ---- contributions */

static Track *track_of(GradSweep *s, Value v)
{
    return &s->tracks[v.id];
}

static void push_share(GradSweep *s, Value to, Value from, int32_t first)
{
    if (!to.id || !from.id || !track_of(s, to)->depends || graph_failed(s->g)) return;
    if (array_grow(&s->shares, s->share_count, sizeof *s->shares, "the gradients of a graph") != OK) {
        list_fail(s->g, ERR_MEMORY, "%s", status_message());
        return;
    }
    s->shares[s->share_count] = (Share){from, first, track_of(s, to)->top};
    track_of(s, to)->top = s->share_count++;
}

/* Reverses the stack of a value, so that walking it follows the order of arrival. */
static int32_t reversed(GradSweep *s, int32_t top)
{
    int32_t below = -1;
    while (top >= 0) {
        int32_t next = s->shares[top].before;
        s->shares[top].before = below;
        below = top;
        top = next;
    }
    return below;
}

typedef struct Sum { /* terms to be added, in several ADDs if one has too few operands */
    Value terms[OP_MAX_IN];
    int count;
    const char *name;
} Sum;

static Value sum_close(Graph *g, Sum *sum)
{
    if (sum->count > 1) sum->terms[0] = graph_op(g, OP_ADD, sum->name, sum->terms, sum->count, NULL, NULL);
    return sum->count ? sum->terms[0] : none;
}

static void sum_add(Graph *g, Sum *sum, Value term)
{
    if (sum->count == OP_MAX_IN) {
        sum->terms[0] = sum_close(g, sum);
        sum->count = 1;
    }
    sum->terms[sum->count++] = term;
}

static bool has_slices(const GradSweep *s, int32_t stack)
{
    for (int32_t i = stack; i >= 0; i = s->shares[i].before)
        if (s->shares[i].first != ALL_CHANNELS && s->shares[i].from.id) return true;
    return false;
}

static Value join_concat(Graph *g, const char *name, Value *parts, int count)
{
    return count == 1 ? parts[0] : graph_op(g, OP_CONCAT, name, parts, count, NULL, NULL);
}

/* The channel at which the next slice begins: the first one from here, or the end. */
static int32_t next_slice(const GradSweep *s, int32_t stack, int32_t at, int32_t channels)
{
    int32_t next = channels;
    for (int32_t i = stack; i >= 0; i = s->shares[i].before)
        if (s->shares[i].from.id && s->shares[i].first >= at && s->shares[i].first < next) next = s->shares[i].first;
    return next;
}

/* The gradient of channels [from, to) of v, which nothing reads: all rows are cropped, and as many of zeros stand in their place. A
 * product by 0 would be NaN where v is infinite or NaN. */
static Value zero_slice(Graph *g, const char *name, Value v, int32_t from, int32_t to)
{
    Shape part = graph_shape(g, v);
    OpAttr slice = {.slice.first = from}, zero = {.pad = {.top = -part.h, .bottom = part.h}};
    part.c = to - from;
    Value read = graph_op(g, OP_SLICE, name, &v, 1, &slice, &part);
    return graph_op(g, OP_PAD, name, &read, 1, &zero, NULL);
}

/* Adds up all slices that begin at channel `at` and have the same end; they leave the stack. Value 0 if there is none. */
static Value sum_slices(GradSweep *s, const char *name, int32_t stack, int32_t at)
{
    Sum sum = {.name = name};
    int32_t size = 0;
    for (int32_t i = stack; i >= 0; i = s->shares[i].before) {
        if (s->shares[i].first != at || !s->shares[i].from.id) continue;
        int32_t own = graph_shape(s->g, s->shares[i].from).c;
        if (sum.count && own != size) continue;
        size = own;
        sum_add(s->g, &sum, s->shares[i].from);
        s->shares[i].from = none;
    }
    return sum_close(s->g, &sum);
}

/* Concatenates slices of v, with zeros where there is none. Those that begin in the middle of another one stay on the stack. */
static Value join_slices(GradSweep *s, Value v, int32_t stack)
{
    Graph *g = s->g;
    const char *name = list_text(g, "%s.joined", graph_value(g, v)->name);
    int32_t channels = graph_shape(g, v).c, at = 0;
    Value parts[OP_MAX_IN];
    int count = 0;
    while (at < channels && !graph_failed(g)) {
        Value part = sum_slices(s, name, stack, at);
        if (!part.id) part = zero_slice(s->g, name, v, at, next_slice(s, stack, at, channels));
        if (count == OP_MAX_IN) {
            parts[0] = join_concat(g, name, parts, count);
            count = 1;
        }
        parts[count++] = part;
        at += graph_shape(g, part).c;
    }
    return graph_failed(g) ? none : join_concat(g, name, parts, count);
}

/* All contributions to v become its gradient. */
static Value fold(GradSweep *s, Value v)
{
    Graph *g = s->g;
    int32_t top = track_of(s, v)->top;
    track_of(s, v)->top = -1;
    if (top < 0) return none;
    if (s->shares[top].before < 0 && s->shares[top].first == ALL_CHANNELS)
        return track_of(s, v)->gradient = s->shares[top].from;
    int32_t stack = reversed(s, top);
    Sum sum = {.name = list_text(g, "%s.sum", graph_value(g, v)->name)};
    for (int32_t i = stack; i >= 0; i = s->shares[i].before)
        if (s->shares[i].first == ALL_CHANNELS) sum_add(g, &sum, s->shares[i].from);
    while (has_slices(s, stack) && !graph_failed(g)) sum_add(g, &sum, join_slices(s, v, stack));
    return track_of(s, v)->gradient = sum_close(g, &sum);
}

/* ---- for rules */

bool grad_wanted(const GradCall *c, int i)
{
    return c->op.in[i].id && track_of(c->sweep, c->op.in[i])->depends;
}

Shape grad_shape(const GradCall *c, int i)
{
    return graph_shape(c->g, c->op.in[i]);
}

Value grad_op(GradCall *c, OpKind kind, const char *suffix, const Value *in, int count, const OpAttr *attr,
              const Shape *shape)
{
    return graph_op(c->g, kind, list_text(c->g, "%s.%s", c->op.name, suffix), in, count, attr, shape);
}

void grad_give(GradCall *c, int i, Value dx)
{
    push_share(c->sweep, c->op.in[i], dx, ALL_CHANNELS);
}

void grad_give_channels(GradCall *c, int i, Value dx, int32_t first)
{
    push_share(c->sweep, c->op.in[i], dx, first);
}

Value grad_take(GradCall *c, int i)
{
    Track *t = track_of(c->sweep, c->op.in[i]);
    if (!t->depends || t->top < 0 || c->sweep->shares[t->top].first != ALL_CHANNELS) return none;
    Value newest = c->sweep->shares[t->top].from;
    t->top = c->sweep->shares[t->top].before;
    return newest;
}

Value grad_before_relu(GradCall *c)
{
    Value y = c->op.out[0];
    if (track_of(c->sweep, y)->masked) return c->dy[0];
    return grad_op(c, OP_RELU_DX, "relu", OPERANDS(c->dy[0], y), NULL, NULL);
}

static bool ends_in_relu(const Op *op)
{
    return op->kind == OP_RELU || (op->kind == OP_CONV && op->attr.conv.relu) ||
           (op->kind == OP_ADD && op->attr.add.relu);
}

bool grad_claim_relu(GradCall *c, int i)
{
    Track *t = track_of(c->sweep, c->op.in[i]);
    int32_t writer = graph_value(c->g, c->op.in[i])->op;
    if (writer < 0 || t->readers != 1 || t->asked || !ends_in_relu(graph_op_at(c->g, writer))) return false;
    return t->masked = true;
}

void grad_no_rule(GradCall *c)
{
    list_fail(c->g, ERR_UNSUPPORTED, "%s: %s has no gradient rule", c->op.name, op_name(c->op.kind));
}

/* ---- the sweep */

static bool sweep_open(GradSweep *s, Value y)
{
    s->end = graph_value(s->g, y)->op + 1;
    s->value_count = s->g->value_count;
    s->tracks = list_scratch(s->g, s->value_count, sizeof *s->tracks);
    s->reached = list_scratch(s->g, s->end, sizeof *s->reached);
    for (int id = 0; id <= s->value_count && !graph_failed(s->g); id++) s->tracks[id].top = -1;
    return !graph_failed(s->g);
}

/* Operands that only select, whose derivative is 0 wherever it exists. */
static bool is_mask(OpKind kind, int i)
{
    return i == 1 && (kind == OP_RELU_DX || kind == OP_LEAKY_RELU_DX);
}

/* Backward: which ops y depends on, and the readers of each value among them. */
static void mark_reached(GradSweep *s, Value y)
{
    if (s->end) s->reached[s->end - 1] = track_of(s, y)->depends;
    for (int index = s->end - 1; index >= 0; index--) {
        const Op *op = graph_op_at(s->g, index);
        for (int i = 0; i < op->in_count && s->reached[index]; i++) {
            Track *t = track_of(s, op->in[i]);
            int32_t writer = graph_value(s->g, op->in[i])->op;
            t->readers++;
            t->first_reader = index;
            if (writer >= 0) s->reached[writer] |= t->depends && !is_mask(op->kind, i);
        }
    }
}

static void visit(GradSweep *s, int index)
{
    GradCall call = {.sweep = s, .g = s->g, .op = *graph_op_at(s->g, index)};
    bool any = false;
    for (int o = 0; o < op_outputs(call.op.kind); o++) {
        call.dy[o] = fold(s, call.op.out[o]);
        any |= call.dy[o].id != 0;
    }
    if (any && !graph_failed(s->g)) op_rules[call.op.kind].grad(&call);
    for (int i = 0; i < call.op.in_count; i++) {
        Value leaf = call.op.in[i];
        if (leaf.id && graph_value(s->g, leaf)->op < 0 && track_of(s, leaf)->first_reader == index &&
            track_of(s, leaf)->top >= 0)
            fold(s, leaf);
    }
}

static bool grad_fits(Graph *g, Value y, Value dy, const Value *wrt, int count)
{
    const ValueInfo *a = graph_value(g, y), *b = graph_value(g, dy);
    if (!y.id || !dy.id) graph_fail(g, ERR_ARG, "graph_grad needs y and dy, but one of them is missing");
    if (!shape_equal(a->shape, b->shape) || a->dtype != b->dtype)
        graph_fail(g, ERR_SHAPE, "%s: dy is %s %s, expected %s %s as y", a->name, dtype_name(b->dtype),
                   shape_text(b->shape), dtype_name(a->dtype), shape_text(a->shape));
    for (int i = 0; i < count; i++)
        if (wrt[i].id < 0 || wrt[i].id > g->value_count)
            graph_fail(g, ERR_ARG, "cannot compute the gradient of a value of another graph");
        else if (wrt[i].id && list_packed(g, wrt[i]))
            graph_fail(g, ERR_UNSUPPORTED, "%s: lies in a pack, which has a gradient only as a whole",
                       graph_value(g, wrt[i])->name);
    return !graph_failed(g);
}

void graph_grad(Graph *g, Value y, Value dy, const Value *wrt, int count, Value *grads)
{
    for (int i = 0; i < count; i++) grads[i] = none;
    if (graph_failed(g) || !grad_fits(g, y, dy, wrt, count)) return;
    const char *scope = g->scope;
    g->scope = ""; /* names are those of the forward ops, which include the scope */
    GradSweep s = {.g = g};
    if (sweep_open(&s, y)) {
        /* Forward: which values depend on wrt. */
        for (int i = 0; i < count; i++) track_of(&s, wrt[i])->asked = track_of(&s, wrt[i])->depends = wrt[i].id > 0;
        for (int index = 0; index < s.end; index++) {
            const Op *op = graph_op_at(s.g, index);
            bool depends = false;
            for (int i = 0; i < op->in_count; i++) depends |= !is_mask(op->kind, i) && track_of(&s, op->in[i])->depends;
            for (int o = 0; o < op_outputs(op->kind); o++)
                if (depends && dtype_is_float(graph_value(s.g, op->out[o])->dtype))
                    track_of(&s, op->out[o])->depends = true;
        }
        mark_reached(&s, y);
        push_share(&s, y, dy, ALL_CHANNELS);
        if (!s.end) fold(&s, y);
        for (int index = s.end - 1; index >= 0 && !graph_failed(s.g); index--)
            if (s.reached[index]) visit(&s, index);
    }
    for (int i = 0; i < count && !graph_failed(g); i++) grads[i] = track_of(&s, wrt[i])->gradient;
    free(s.shares);
    g->scope = scope;
}

/* ---- training */

static void mark_gradient(Graph *g, Value of, Value gradient)
{
    if (graph_failed(g) || !gradient.id) return;
    const char *name = list_text(g, "%s.grad", graph_value(g, of)->name);
    if (graph_value(g, gradient)->role != ROLE_TEMP) {
        OpAttr same = {.affine.scale = 1}; /* the value already is the gradient of another parameter */
        gradient = graph_op(g, OP_AFFINE, name, &gradient, 1, &same, NULL);
    }
    if (graph_failed(g)) return;
    ValueInfo *info = &g->values[gradient.id];
    info->role = ROLE_GRAD;
    info->name = name;
    info->of = of;
}

static bool is_trained(Graph *g, const ValueInfo *info, const NameFilter *trains)
{
    int passing = 0;
    if (info->role == ROLE_PARAM) return names_pass(trains, info->name);
    for (int k = 0; k < info->member_count; k++) passing += names_pass(trains, graph_value(g, info->members[k])->name);
    if (passing && passing < info->member_count)
        list_fail(g, ERR_UNSUPPORTED, "%s: %d of its %d parameters are trained; a pack is trained as a whole",
                  info->name, passing, info->member_count);
    return passing > 0;
}

/* PACKs, and PARAMs outside of them. */
static int trained_values(Graph *g, const int *readers, const NameFilter *trains, Value *wrt)
{
    int count = 0;
    for (int32_t id = 1; id <= g->value_count; id++) {
        Role role = g->values[id].role;
        bool packed = role == ROLE_PARAM && list_packed(g, (Value){id});
        if (packed && readers[id])
            list_fail(g, ERR_UNSUPPORTED, "%s: is used both by itself and in a pack", g->values[id].name);
        bool is_unit = role == ROLE_PACK || (role == ROLE_PARAM && !packed);
        if (is_unit && is_trained(g, &g->values[id], trains)) wrt[count++] = (Value){id};
    }
    return count;
}

void graph_train(Graph *g, Value loss, Value dloss, const NameFilter *trains)
{
    if (graph_failed(g)) return;
    int *readers = list_readers(g);
    Value *wrt = list_scratch(g, g->value_count, sizeof *wrt), *grads = list_scratch(g, g->value_count, sizeof *grads);
    int count = graph_failed(g) ? 0 : trained_values(g, readers, trains, wrt);
    const char *scope = g->scope;
    g->scope = "";
    if (count) graph_grad(g, loss, dloss, wrt, count, grads);
    for (int i = 0; i < count; i++) mark_gradient(g, wrt[i], grads[i]);
    g->scope = scope;
}
