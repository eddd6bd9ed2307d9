/* Nodes that work element by element: functions of one number as curves, sums and products, factors and biases of channels, and the
 * normalization of the image by a file's first nodes. */
#include "inception/networks/onnx_walk.h"

/* ---- functions of one number */

/* The node's output is a curve of the same base. */
static void give_curve(OnnxWalk *w, const OnnxNode *node, const Active *of, const Curve *curve, int a, int b)
{
    OnnxItem *item = &w->item[node->out[0]];
    Curve *kept = walk_memory(w, 1, sizeof *kept);
    if (!kept) return;
    *kept = *curve;
    *item = (OnnxItem){.known = KNOWN_ACTIVE, .active = *of};
    item->active.curve = kept;
    item->active.made = (Value){0};
    item->active.operand[0] = a;
    item->active.operand[1] = b;
    item->active.node = node;
}

/* What a function of one number is computed of: without a border, which it would not leave 0. */
static Active *borderless(OnnxWalk *w, const OnnxNode *node, int k)
{
    Active *a = walk_active(w, node, k);
    return a && walk_value(w, node->in[k]).id ? a : NULL;
}

static Curve curve_so_far(const Active *a)
{
    return a->curve ? *a->curve : curve_identity();
}

static void unary_of(OnnxWalk *w, const OnnxNode *node, int k)
{
    Active *a = walk_active(w, node, k);
    if (a && has_border(a)) a = borderless(w, node, k);
    if (!a) {
        walk_refuse(w, node, "its operand cannot be used so");
        return;
    }
    Curve curve = curve_so_far(a);
    if (curve_of_node(w, node, &curve))
        give_curve(w, node, a, &curve, node->in[k], 0);
    else
        walk_refuse(w, node, "it has no counterpart among the operations here");
}

void build_unary(OnnxWalk *w, const OnnxNode *node)
{
    for (int k = 1; k < node->in_count; k++) {
        const Fixed *limit = walk_fixed(w, node, k);
        if (!walk_in(w, node, k) || (limit && limit->count == 1 && scalar_stays(w, node, limit))) continue;
        walk_refuse(w, node, "expected limits that are known before the network runs");
        return;
    }
    unary_of(w, node, 0);
}

/* ---- numbers of channels */

bool fixed_is_of_channels(const Fixed *f, const AxisOrder *order)
{
    int channels = -1;
    if (f->rank > order->rank || f->count != order_size(order, AXIS_CHANNEL)) return false;
    for (int i = 0; i < order->count; i++)
        if (order->part[i].of == AXIS_CHANNEL) {
            if (order->part[i].place || (channels >= 0 && channels != order->part[i].axis)) return false;
            channels = order->part[i].axis;
        }
    int own = channels - (order->rank - f->rank);
    return channels >= 0 && own >= 0 && f->dims[own] == f->count && order_dim(order, channels) == f->count;
}

static Shape vector_of(OnnxWalk *w, Value v)
{
    return (Shape){1, graph_shape(w->g, v).c, 1, 1};
}

/* What a node does with a value and parameters. */
typedef struct Arithmetic {
    bool known, sum, less; /* less: a Sub or Div */
} Arithmetic;

static Arithmetic arithmetic_of(const OnnxNode *node)
{
    bool sub = !strcmp(node->type, "Sub"), div = !strcmp(node->type, "Div");
    bool sum = sub || !strcmp(node->type, "Add");
    return (Arithmetic){sum || div || !strcmp(node->type, "Mul"), sum, sub || div};
}

/* Operand k, x, with parameters p, {1, c, 1, 1}: a Sub or Div of them becomes a sum or a product, in whichever order they stand. */
static void give_with_params(OnnxWalk *w, const OnnxNode *node, int k, Value x, Value p)
{
    Arithmetic does = arithmetic_of(node);
    AxisOrder order = walk_active(w, node, k)->order;
    Value *turned = k == 0 ? &p : &x;
    if (does.less) *turned = does.sum ? affine(w->g, *turned, -1, 0) : power(w->g, *turned, -1);
    Shape like = graph_shape(w->g, x);
    if (does.sum) p = graph_op(w->g, OP_CHANNEL_SPREAD, node->name, &p, 1, NULL, &like);
    walk_give(w, node, graph_op(w->g, does.sum ? OP_ADD : OP_MUL, node->name, (Value[]){x, p}, 2, NULL, NULL), &order);
}

/* Factors, or terms, that are parameters. */
static void of_channels(OnnxWalk *w, const OnnxNode *node, int k, const Fixed *f)
{
    Arithmetic does = arithmetic_of(node);
    Value x = walk_value(w, node->in[k]);
    if (!x.id) return;
    if (!does.known) {
        walk_refuse(w, node,
                    "a number for each channel can be added, subtracted, multiplied or divided by, and nothing else");
        return;
    }
    Wanted wanted = {.shape = vector_of(w, x),
                     .rank = f->rank >= 3 ? 3 : 1,
                     .init = {does.sum ? INIT_ZERO : INIT_CONSTANT, !does.sum}};
    Value p = walk_param(w, node, f, wanted);
    if (p.id) give_with_params(w, node, k, x, p);
}

/* ---- single numbers */

/* The parameter as one equal number for each channel of x. */
static Value scalar_param(OnnxWalk *w, const OnnxNode *node, const Fixed *f, Value x, Init init)
{
    Wanted wanted = {.shape = {1, 1, 1, 1}, .rank = f->from.rank > 1 ? f->from.rank : 1, .init = init, .scalar = true};
    int32_t channels = graph_shape(w->g, x).c;
    Fixed itself = *f;
    itself.curve = NULL;
    Value p = walk_param(w, node, &itself, wanted), made;
    if (p.id && channels > 1) p = spread_to(w->g, p, (Shape){1, channels, 1, 1});
    return p.id && f->curve && curve_build(w->g, p, f->curve, &made) ? made : p;
}

/* Adds or multiplies operand k and a single number of the file that is trained, as one parameter; false: the number is none. */
static bool scalar_trains(OnnxWalk *w, const OnnxNode *node, int k)
{
    const Fixed *f = walk_fixed(w, node, 1 - k);
    Arithmetic does = arithmetic_of(node);
    if (!does.known || f->rank > walk_active(w, node, k)->order.rank || f->from.rank > 4) return false;
    if (scalar_of(w, f) != SCALAR_PARAMETER || (f->curve && !curve_is_known(f->curve))) return false;
    Value x = walk_value(w, node->in[k]);
    Init init = {does.sum ? INIT_ZERO : INIT_CONSTANT, !does.sum};
    Value p = x.id ? scalar_param(w, node, f, x, init) : x;
    if (p.id) give_with_params(w, node, k, x, p);
    return true;
}

/* Below 0 a line whose slope is trained, one for all channels or one for each. */
void build_prelu(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *f = walk_fixed(w, node, 1);
    Active *a = walk_active(w, node, 0);
    Value x = a ? walk_value(w, node->in[0]) : (Value){0}, p = {0};
    bool one = f && f->count == 1 && f->from.rank <= 4 && (!f->curve || curve_is_known(f->curve)),
         each = a && f && fixed_is_of_channels(f, &a->order);
    if (!x.id || !(one || each)) {
        walk_refuse(w, node, "expected a slope of the file, one or one for each channel");
        return;
    }
    AxisOrder order = a->order;
    Init init = {INIT_CONSTANT, 0.25f}; /* PyTorch's */
    if (one)
        p = scalar_param(w, node, f, x, init);
    else
        p = walk_param(w, node, f, (Wanted){.shape = vector_of(w, x), .rank = f->rank >= 3 ? 3 : 1, .init = init});
    if (!p.id) return;
    Value up = relu(w->g, x);
    walk_give(w, node, add(w->g, up, mul(w->g, sub(w->g, x, up), p)), &order);
}

/* ---- the image's normalization */

/* Only if nothing else reads the image, so that the normalized one can take its place. */
static bool is_image(OnnxWalk *w, const OnnxNode *node, int k)
{
    const Active *a = walk_active(w, node, k);
    const OnnxValue *image = &w->file->value[node->in[k]];
    int readers = w->file->counts_all_reads ? image->reads : image->operands;
    return a && a->base.id == w->image.id && !a->curve && !has_border(a) && readers == 1;
}

/* y = s x + t so far; the node's place in that. */
static bool normalization(OnnxWalk *w, const OnnxNode *node, int k, const Fixed *f)
{
    OnnxSurvey *s = w->survey;
    AxisOrder order = walk_active(w, node, k)->order;
    int64_t channels = order_size(&order, AXIS_CHANNEL);
    bool add = !strcmp(node->type, "Add"), sub = !strcmp(node->type, "Sub"), mul = !strcmp(node->type, "Mul"),
         div = !strcmp(node->type, "Div");
    if (f->from.absent) return false; /* the run of this file trains it */
    if (channels > 3 || (k == 1 && (sub || div)) || !(add || sub || mul || div) || f->integer) return false;
    if (f->count != 1 && !fixed_is_of_channels(f, &order)) return false;
    if (!walk_stays(w, node, f)) return true;
    for (int64_t c = 0; c < channels && w->first; c++) {
        float x = (float)fixed_at(f, f->count == 1 ? 0 : c);
        if (!s->normalizes) s->scale[c] = 1, s->shift[c] = 0;
        if (add || sub) s->shift[c] += add ? x : -x;
        if (mul || div) s->scale[c] *= mul ? x : 1 / x, s->shift[c] *= mul ? x : 1 / x;
    }
    if (w->first) s->normalizes = true;
    walk_alias(w, node->out[0], node->in[k]);
    return true;
}

/* ---- two operands */

/* Whether each part of b is on the same axis of a, counted from the last one. */
static bool is_spread(const AxisOrder *a, const AxisOrder *b)
{
    int more = a->rank - b->rank;
    if (more < 0) return false;
    for (int i = 0; i < b->count; i++) {
        bool found = false;
        for (int k = 0; k < a->count; k++)
            found |= a->part[k].axis == b->part[i].axis + more && a->part[k].of == b->part[i].of &&
                     a->part[k].place == b->part[i].place && a->part[k].size == b->part[i].size;
        if (!found) return false;
    }
    return true;
}

/* The larger of each two: both beside each other as two columns of an image with a row for each pixel, which lie so in memory. */
static Value larger(Graph *g, Value x, Value y)
{
    Shape s = graph_shape(g, x), pairs = {s.n, s.c, s.h * s.w, 2};
    Window two = {.kh = 1, .kw = 2, .stride_h = 1, .stride_w = 1};
    return reshape(g, max_pool_window(g, reshape(g, CONCAT(g, x, y), pairs), two), s);
}

/* Operand a with b spread over it: a Div or Sub of them becomes a product or a sum, in whichever order they stand. */
static void two_values(OnnxWalk *w, const OnnxNode *node, int a, int b)
{
    AxisOrder order = walk_active(w, node, a)->order, other = walk_active(w, node, b)->order;
    Value x = walk_value(w, node->in[a]), y = walk_value(w, node->in[b]);
    bool divided = !strcmp(node->type, "Div"), times = divided || !strcmp(node->type, "Mul"),
         minus = !strcmp(node->type, "Sub"), plus = !strcmp(node->type, "Add") || (minus && a == 1);
    if (!x.id || !y.id) {
        w->item[node->out[0]].known = KNOWN_LOST;
        return;
    }
    if (divided && a == 0) y = power(w->g, y, -1);
    if (divided && a == 1) x = power(w->g, x, -1);
    if (minus && a == 1) x = affine(w->g, x, -1, 0);
    bool factors =
        graph_shape(w->g, y).h == 1 && graph_shape(w->g, y).w == 1 && graph_shape(w->g, y).c == graph_shape(w->g, x).c;
    Shape like = graph_shape(w->g, x);
    if (!strcmp(node->type, "Max") && order_equal(&order, &other) && (int64_t)like.h * like.w <= INT32_MAX) {
        walk_give(w, node, larger(w->g, x, y), &order);
        return;
    }
    if (!times && !plus && !minus) {
        walk_refuse(w, node, "it has no counterpart for two values that the network computes");
        return;
    }
    if (order_equal(&order, &other)) {
        const OnnxNode *next = plus ? walk_next(w, node, "Relu") : NULL;
        Value term[] = {x, y};
        if (plus) residual_sum(w, node, term);
        walk_give(w, node,
                  times   ? mul(w->g, x, y)
                  : !plus ? sub(w->g, x, y)
                  : next  ? add_relu(w->g, term[0], term[1])
                          : add(w->g, term[0], term[1]),
                  &order);
        if (next) walk_skip(w, node, next);
        return;
    }
    if (!(times && factors)) y = graph_op(w->g, OP_SPREAD_TO, NULL, &y, 1, NULL, &like);
    walk_give(w, node, times ? mul(w->g, x, y) : plus ? add(w->g, x, y) : sub(w->g, x, y), &order);
}

/* Two values of four axes, each of which has axes that only the other one fills, as a row of channels and a map of one: both are spread to
 * the shape that they have in common. False: they are others. */
static bool two_parts(OnnxWalk *w, const OnnxNode *node)
{
    Value x[2];
    Shape s[2];
    for (int k = 0; k < 2; k++) {
        const Active *a = walk_active(w, node, k);
        if (!order_is(&a->order, "NCHW") || !(x[k] = walk_value(w, node->in[k])).id) return false;
        s[k] = graph_shape(w->g, x[k]);
    }
    Shape both = {s[0].n, s[0].c > s[1].c ? s[0].c : s[1].c, s[0].h > s[1].h ? s[0].h : s[1].h,
                  s[0].w > s[1].w ? s[0].w : s[1].w};
    for (int k = 0; k < 2; k++) {
        if ((s[k].c != both.c && s[k].c != 1) || (s[k].h != both.h && s[k].h != 1) || (s[k].w != both.w && s[k].w != 1))
            return false;
        x[k] = spread_to(w->g, x[k], both);
    }
    bool times = !strcmp(node->type, "Mul");
    if (!times && strcmp(node->type, "Add") != 0) return false;
    walk_give_image(w, node, times ? mul(w->g, x[0], x[1]) : add(w->g, x[0], x[1]));
    return true;
}

static void one_fixed(OnnxWalk *w, const OnnxNode *node, int k)
{
    const Fixed *f = walk_fixed(w, node, 1 - k);
    const Active *a = walk_active(w, node, k);
    Curve scalar;
    if ((is_image(w, node, k) && normalization(w, node, k, f)) || scalar_trains(w, node, k)) return;
    if (walk_scalar(w, node, 1 - k, a->order.rank, &scalar))
        unary_of(w, node, k);
    else if (fixed_is_of_channels(f, &a->order))
        of_channels(w, node, k, f);
    else
        walk_refuse(w, node, "its constant is neither one number nor one for each channel");
}

void build_binary(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0), *b = walk_active(w, node, 1);
    Curve curve, left, right;
    if (node->in_count != 2 || !node->in[0] || !node->in[1] || (!a && !b)) {
        walk_refuse(w, node, "expected two operands");
        return;
    }
    if (!a || !b) {
        one_fixed(w, node, a ? 0 : 1);
        return;
    }
    if (a->base.id == b->base.id && order_equal(&a->order, &b->order) && !has_border(a) && !has_border(b)) {
        left = curve_so_far(a), right = curve_so_far(b);
        if (curve_combine(node->type, &left, &right, &curve)) {
            give_curve(w, node, a, &curve, node->in[0], node->in[1]);
            return;
        }
    }
    if (is_spread(&a->order, &b->order))
        two_values(w, node, 0, 1);
    else if (is_spread(&b->order, &a->order))
        two_values(w, node, 1, 0);
    else if (!two_parts(w, node))
        walk_refuse(w, node, "its operands have axes that do not lie alike in memory");
}
