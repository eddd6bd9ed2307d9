/* Values that the network computes (onnx_walk.h): their curves and borders become ops when a node needs them as they are in memory. */
#include "inception/networks/onnx_walk.h"

/* ---- functions of one number */

static double setting(OnnxWalk *w, const OnnxNode *node, const char *name, int k, double otherwise)
{
    const Fixed *operand = k ? walk_fixed(w, node, k) : NULL;
    return operand && operand->count == 1 ? fixed_at(operand, 0) : onnx_float(node, name, otherwise);
}

static const double huge = 3.5e38;

static CurveSettings settings_of(OnnxWalk *w, const OnnxNode *node)
{
    if (!strcmp(node->type, "Clip"))
        return (CurveSettings){setting(w, node, "min", 1, -huge), setting(w, node, "max", 2, huge)};
    if (!strcmp(node->type, "LeakyRelu")) return (CurveSettings){onnx_float(node, "alpha", 0.01), 0};
    if (!strcmp(node->type, "HardSigmoid"))
        return (CurveSettings){onnx_float(node, "alpha", 0.2), onnx_float(node, "beta", 0.5)};
    if (!strcmp(node->type, "Selu")) /* both as ONNX has them */
        return (CurveSettings){onnx_float(node, "alpha", 1.67326319217681884765625),
                               onnx_float(node, "gamma", 1.05070102214813232421875)};
    return (CurveSettings){onnx_float(node, "alpha", 1), 0};
}

/* Computed from the size of the batch, which is another one in training than in use. */
static bool is_of_batch(const Fixed *f, double x)
{
    double times = round(fabs(x) < 1 ? 1 / fabs(x) : fabs(x));
    return f->number && isfinite(times) && times > 0 && fmod(times, (double)BATCH_SIZE) == 0;
}

/* A number that both operands of the node have in common is what their curves are of. */
bool walk_scalar(OnnxWalk *w, const OnnxNode *node, int k, int rank, Curve *curve)
{
    const Fixed *f = walk_fixed(w, node, k);
    if (!f || f->count != 1 || f->rank > rank || f->from.absent || is_of_batch(f, fixed_at(f, 0))) return false;
    if (!scalar_stays(w, node, f)) return false;
    *curve = curve_constant(fixed_at(f, 0));
    return true;
}

bool curve_of_node(OnnxWalk *w, const OnnxNode *node, Curve *curve)
{
    Curve other;
    const char *type = onnx_text_is(node, "approximate", "tanh") ? "GeluTanh" : node->type;
    if (walk_scalar(w, node, 1, NET_FILE_RANK, &other) && curve_combine(type, curve, &other, curve)) return true;
    if (walk_scalar(w, node, 0, NET_FILE_RANK, &other) && curve_combine(type, &other, curve, curve)) return true;
    return curve_apply(type, settings_of(w, node), curve);
}

/* ---- active values as they are in memory */

bool has_border(const Active *a)
{
    return a->border.top || a->border.bottom || a->border.left || a->border.right;
}

/* Whether a node is a power of its operand with this exponent. */
static bool power_of(OnnxWalk *w, const OnnxNode *node, float *exponent)
{
    Curve number;
    *exponent = 0.5f;
    if (!strcmp(node->type, "Sqrt")) return true;
    if (strcmp(node->type, "Pow") != 0 || !walk_scalar(w, node, 1, NET_FILE_RANK, &number)) return false;
    *exponent = (float)number.y[0];
    return *exponent != 0 && isfinite(*exponent);
}

/* The last node of a curve by itself, on what it reads. */
static Value last_node(OnnxWalk *w, const Active *a)
{
    Curve curve = curve_identity();
    Value in[2] = {{0}, {0}}, y = {0};
    float exponent;
    for (int k = 0; k < 2; k++)
        if (a->operand[k] && !(in[k] = walk_value(w, a->operand[k])).id) return y;
    if (in[1].id) {
        if (!strcmp(a->node->type, "Add")) return add(w->g, in[0], in[1]);
        if (!strcmp(a->node->type, "Sub")) return sub(w->g, in[0], in[1]);
        if (!strcmp(a->node->type, "Mul")) return mul(w->g, in[0], in[1]);
        return y;
    }
    if (curve_of_node(w, a->node, &curve) && curve_build(w->g, in[0], &curve, &y)) return y;
    return in[0].id && power_of(w, a->node, &exponent) ? power(w->g, in[0], exponent) : (Value){0};
}

/* Says why no ops compute the curve. */
static void curve_refuse(OnnxWalk *w, const Active *a)
{
    const double *y = a->curve->y;
    int finite = 0, equal = 0;
    for (int i = 0; i < CURVE_PLACES; i++) finite += isfinite(y[i]), equal += y[i] == y[0];
    if (!finite)
        walk_refuse(w, a->node, "it makes no finite number of any, as a division by 0 does");
    else if (equal == CURVE_PLACES)
        walk_refuse(w, a->node,
                    "it makes %g of every number, as a factor of 0 does: nothing in front of it could be trained",
                    y[0] + 0);
    else
        walk_refuse(w, a->node, "this function of one number has no counterpart among the operations here");
}

static Value curve_value(OnnxWalk *w, Active *a)
{
    enum { DEPTH_MOST = 128 }; /* nodes one behind another, none of which is computed before the last */
    Value y = {0};
    if (!a->curve) return a->base;
    if (a->made.id) return a->made;
    bool lost = w->lost;
    w->lost = false; /* by what it reads */
    if (w->depth++ < DEPTH_MOST && !curve_build(w->g, a->base, a->curve, &y)) y = last_node(w, a);
    w->depth--;
    if (!y.id && !w->lost) curve_refuse(w, a);
    w->lost = lost || !y.id;
    a->made = y;
    return y;
}

Value walk_inner(OnnxWalk *w, int id)
{
    return w->item[id].known == KNOWN_ACTIVE ? curve_value(w, &w->item[id].active) : (Value){0};
}

Value walk_value(OnnxWalk *w, int id)
{
    OnnxItem *item = &w->item[id];
    Active *a = &item->active;
    if (item->known != KNOWN_ACTIVE) return (Value){0};
    Value v = curve_value(w, a);
    if (!v.id || !has_border(a)) return v;
    if (a->border.value != 0 || a->border.mirrored) {
        if (a->border.mirrored)
            walk_refuse(w, a->node,
                        "it mirrors the image at its border; expected a binomial filter of 3 x 3 behind it");
        else
            walk_refuse(w, a->node, "it pads with %g; expected 0, or a MaxPool behind it", a->border.value);
        w->lost = true;
        return (Value){0};
    }
    a->base = pad(w->g, v, a->border.top, a->border.bottom, a->border.left, a->border.right);
    a->border = (Border){0};
    a->curve = NULL;
    return a->base;
}

/* Blocks of rows and columns that stand in front of the channels become channels: {h, r, w, s c} to {h, w, r, s c} in memory, as two
 * transposed matrices of channels. */
static bool settle_blocks(OnnxWalk *w, Active *a)
{
    const AxisPart *row = NULL, *p = a->order.part;
    int count = a->order.count;
    for (int i = 0; i + 2 < count && !row; i++)
        if (p[i].of == AXIS_ROW && p[i].place == 1 && p[i + 1].of == AXIS_COLUMN && p[i + 1].place == 1) row = &p[i];
    if (!row || row[1].axis != row->axis || row[2].of != AXIS_CHANNEL || row[2].axis != row->axis) return false;
    int rows = 0, columns = 0; /* two parts each: the sides of a block, and those of the image of blocks */
    for (int i = 0; i < count; i++) rows += p[i].of == AXIS_ROW, columns += p[i].of == AXIS_COLUMN;
    if (rows != 2 || columns != 2) return false;
    Shape s = graph_shape(w->g, a->base);
    int32_t r = (int32_t)row->size, q = (int32_t)row[1].size, h = s.h / r, v = s.w / q;
    if (row[2].size != s.c || h < 2 || v < 2 || row->axis != 1 || (int64_t)s.c * s.w * r > INT32_MAX) return false;
    Shape lines = {s.n, s.c * s.w * r, h, 1}, blocks = {s.n, s.c * r * q, h, v};
    AxisOrder order = order_make("NCHW", blocks);
    for (int i = 0; i < count; i++) /* what is left of rows and columns lies as in an image */
        if (p[i].of != AXIS_CHANNEL && !p[i].place && p[i].axis != (int)p[i].of) return false;
    Value x = shuffle(w->g, reshape(w->g, a->base, lines), r);
    *a = (Active){.base = shuffle(w->g, reshape(w->g, x, blocks), q * s.c), .order = order};
    return true;
}

/* Two factors of the channels that have changed places become one shuffle in memory. */
bool walk_settle(OnnxWalk *w, Active *a)
{
    AxisPart *first = NULL, *second = NULL;
    if (a->order.rank == 4 && settle_blocks(w, a)) return true;
    for (int i = 0; i < a->order.count; i++) {
        AxisPart *part = &a->order.part[i];
        if (part->of != AXIS_CHANNEL) continue;
        if (part->place == 1 && !first)
            first = part;
        else if (part->place == 0 && first && !second && first == part - 1 && first->axis == part->axis)
            second = part;
        else
            return false;
    }
    if (!second) return false;
    AxisOrder order = a->order;
    order_resize(&order, first->axis, AXIS_CHANNEL, first->size * second->size);
    *a = (Active){.base = shuffle(w->g, a->base, (int32_t)second->size), .order = order};
    return true;
}

Value walk_ordered(OnnxWalk *w, const OnnxNode *node, int k, const char *axes)
{
    Active *a = walk_active(w, node, k);
    if (!a) {
        walk_refuse(w, node, "operand %d is a constant, which no such node has here", k);
        return (Value){0};
    }
    Value v = walk_value(w, node->in[k]);
    if (!v.id) return v;
    if (order_is(&a->order, axes)) return v;
    walk_refuse(w, node, "its operand's axes do not lie so in memory");
    return (Value){0};
}
