/* Values of a file during a walk (onnx_walk.h): memory, refusals, operands and results of nodes, parameters. */
#include "inception/networks/onnx_walk.h"
#include "kernels/base/array.h"
#include "kernels/base/text.h"

enum {
    MEMORY_MOST = 1 << 28, /* bytes of folded numbers and curves of one walk */
    PARAMETERS_MOST = 4096 /* the largest networks have half of that */
};

/* ---- memory and refusals */

static void fail(OnnxWalk *w, Status code, const char *message)
{
    if (w->status == OK) w->status = FAIL(code, "%s", message);
}

void *walk_memory(OnnxWalk *w, size_t count, size_t bytes)
{
    void *memory = NULL;
    w->bytes += count * bytes;
    if (w->bytes > MEMORY_MOST) {
        fail(w, ERR_FORMAT, "the constants of the file take more than 256 MiB");
        return NULL;
    }
    if (ARRAY_ADD(w->memory, w->memory_count, "the values of a network", NULL) == OK)
        memory = w->memory[w->memory_count - 1] = calloc(count, bytes);
    if (!memory) fail(w, ERR_MEMORY, "no memory for the values of a network");
    return memory;
}

void walk_refuse(OnnxWalk *w, const OnnxNode *node, const char *format, ...)
{
    OnnxSurvey *s = w->survey;
    NodeRefusal refusal = {.node = node, .count = 1};
    va_list args;
    va_start(args, format);
    Text text = text_start(refusal.reason, sizeof refusal.reason);
    text_vadd(&text, format, args);
    va_end(args);
    for (int k = 0; k < node->out_count; k++)
        if (node->out[k]) w->item[node->out[k]].known = KNOWN_LOST;
    if (graph_failed(w->g) || (w->lost && node == w->node)) return; /* for a reason that was given */
    for (int i = 0; i < s->refusal_count; i++)
        if (!strcmp(s->refusal[i].node->type, node->type) && !strcmp(s->refusal[i].reason, refusal.reason)) {
            s->refusal[i].count++;
            return;
        }
    if (s->refusal_count < REFUSALS)
        s->refusal[s->refusal_count++] = refusal;
    else
        s->more++;
}

void walk_refuse_late(OnnxWalk *w, const OnnxNode *node)
{
    for (int k = 0; k < node->in_count; k++) {
        OnnxItem *item = walk_in(w, node, k);
        if (item && item->known == KNOWN_LATER) walk_refuse(w, item->late, "this constant cannot be computed here");
    }
    for (int k = 0; k < node->out_count; k++)
        if (node->out[k]) w->item[node->out[k]].known = KNOWN_LOST;
}

/* ---- items */

OnnxItem *walk_in(OnnxWalk *w, const OnnxNode *node, int k)
{
    return k < node->in_count && node->in[k] ? &w->item[node->in[k]] : NULL;
}

const Fixed *walk_fixed(OnnxWalk *w, const OnnxNode *node, int k)
{
    OnnxItem *item = walk_in(w, node, k);
    return item && item->known == KNOWN_FIXED ? &item->fixed : NULL;
}

Active *walk_active(OnnxWalk *w, const OnnxNode *node, int k)
{
    OnnxItem *item = walk_in(w, node, k);
    return item && item->known == KNOWN_ACTIVE ? &item->active : NULL;
}

void walk_give(OnnxWalk *w, const OnnxNode *node, Value v, const AxisOrder *order)
{
    w->item[node->out[0]] = (OnnxItem){.known = KNOWN_ACTIVE, .active = {.base = v, .order = *order}};
}

void walk_alias(OnnxWalk *w, int id, int of)
{
    w->item[id] = w->item[of];
}

const OnnxNode *walk_next(OnnxWalk *w, const OnnxNode *node, const char *type)
{
    const OnnxValue *value = &w->file->value[node->out[0]];
    if (value->reads != 1 || value->reader < 0) return NULL;
    const OnnxNode *next = &w->file->node[value->reader];
    return !strcmp(next->type, type) && !next->foreign && !w->done[value->reader] ? next : NULL;
}

void walk_skip(OnnxWalk *w, const OnnxNode *node, const OnnxNode *next)
{
    w->done[next - w->file->node] = true;
    walk_alias(w, next->out[0], node->out[0]);
}

bool norm_epsilon(OnnxWalk *w, const OnnxNode *node, float *epsilon)
{
    *epsilon = (float)onnx_float(node, "epsilon", 1e-5);
    if (*epsilon > 0 && isfinite(*epsilon)) return true;
    walk_refuse(w, node, "its epsilon is %g; expected one above 0, without which equal numbers are divided by 0",
                (double)*epsilon);
    return false;
}

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
    return (CurveSettings){onnx_float(node, "alpha", 1), 0};
}

/* Computed from the size of the batch, which is another one in training than in use. */
static bool is_of_batch(const Fixed *f, double x)
{
    double times = round(fabs(x) < 1 ? 1 / fabs(x) : fabs(x));
    return f->number && isfinite(times) && times > 0 && fmod(times, (double)BATCH_SIZE) == 0;
}

/* In the first walk, of a value of the file. */
static ValueNotes *notes_of(OnnxWalk *w, const char *name)
{
    return &w->survey->notes[onnx_value(w->file, name)];
}

bool scalar_stays(OnnxWalk *w, const OnnxNode *node, const Fixed *f)
{
    OnnxSurvey *s = w->survey;
    bool said = f->source || scalar_of(w, f) != SCALAR_LITERAL;
    const char *name = f->source ? f->source : f->name;
    if (!w->first || !said) return true;
    if (!f->source && !walk_stays(w, node, f)) {
        w->lost = true;
        return false;
    }
    ValueNotes *notes = notes_of(w, name);
    if (!notes->held && ARRAY_ADD(s->held, s->held_count, "the constants of a network", name) != OK)
        fail(w, ERR_MEMORY, "no memory for the constants of a network");
    notes->held = true;
    return true;
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

/* The last node of a curve by itself, on what it reads. */
static Value last_node(OnnxWalk *w, const Active *a)
{
    Curve curve = curve_identity();
    Value in[2] = {{0}, {0}}, y = {0};
    for (int k = 0; k < 2; k++)
        if (a->operand[k] && !(in[k] = walk_value(w, a->operand[k])).id) return y;
    if (in[1].id) {
        if (!strcmp(a->node->type, "Add")) return add(w->g, in[0], in[1]);
        if (!strcmp(a->node->type, "Sub")) return sub(w->g, in[0], in[1]);
        if (!strcmp(a->node->type, "Mul")) return mul(w->g, in[0], in[1]);
        return y;
    }
    if (!curve_of_node(w, a->node, &curve) || !curve_build(w->g, in[0], &curve, &y)) y = (Value){0};
    return y;
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
    if (w->depth++ < DEPTH_MOST && !curve_build(w->g, a->base, a->curve, &y)) {
        bool alone = a->operand[0] && !a->operand[1] && !w->item[a->operand[0]].active.curve;
        y = alone ? (Value){0} : last_node(w, a);
    }
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

/* ---- parameters */

static Binding *binding_find(const OnnxSurvey *s, const char *name)
{
    for (int i = 0; i < s->binding_count; i++)
        if (!strcmp(s->binding[i].name, name)) return &s->binding[i];
    return NULL;
}

bool walk_stays(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed)
{
    if (!w->first || !fixed->from.proto || notes_of(w, fixed->name)->stays) return true;
    if (binding_find(w->survey, fixed->name)) {
        walk_refuse(w, node, "its numbers '%s' are trained by another node: export with optimize=False", fixed->name);
        return false;
    }
    notes_of(w, fixed->name)->stays = true;
    return true;
}

bool walk_bind(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed, const Wanted *wanted)
{
    Shape s = wanted->shape;
    Binding binding = {.name = fixed->name,
                       .tensor = fixed->from,
                       .rank = wanted->rank,
                       .turned = wanted->turned,
                       .scalar = wanted->scalar,
                       .reader = (int)(node - w->file->node)};
    static const char *const inputs[] = {"image",   "pixels",          "labels", "augment", "counter",
                                         "targets", "positive_weight", "weight", "dloss"};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (!strcmp(inputs[i], fixed->name)) {
            walk_refuse(w, node, "its weights are named '%s', as an input of every network here", fixed->name);
            return false;
        }
    if (!fixed->from.proto || fixed->integer) {
        walk_refuse(w, node, "its weights are computed by other nodes");
        return false;
    }
    if (!w->first) return true;
    if (notes_of(w, fixed->name)->stays) {
        walk_refuse(w, node, "its weights '%s' are constants of another node: export with optimize=False", fixed->name);
        return false;
    }
    Binding *old = binding_find(w->survey, binding.name);
    if (old && (old->turned != binding.turned || old->tensor.proto != binding.tensor.proto)) {
        walk_refuse(w, node, "another node has its weights '%s', too, in another layout", fixed->name);
        return false;
    }
    if (old) {
        old->shared |= old->reader != binding.reader;
        return true;
    }
    if (w->survey->binding_count >= PARAMETERS_MOST) {
        fail(w, ERR_ARG, "the network has more than 4096 parameters, each of which is found by its name");
        return false;
    }
    if (binding.rank == 4)
        memcpy(binding.dims, (int64_t[]){s.n, s.c, s.h, s.w}, 4 * sizeof(int64_t));
    else if (binding.rank == 3)
        memcpy(binding.dims, (int64_t[]){s.c, s.h, s.w}, 3 * sizeof(int64_t));
    else if (binding.rank == 2)
        memcpy(binding.dims, (int64_t[]){s.n, (int64_t)s.c * s.h * s.w}, 2 * sizeof(int64_t));
    else
        binding.dims[0] = shape_count(s);
    binding.head = onnx_head_of(w->head, (int)(node - w->file->node)) >= 0;
    if (ARRAY_ADD(w->survey->binding, w->survey->binding_count, "the parameters of a network", binding) != OK)
        fail(w, ERR_MEMORY, "no memory for the parameters of a network");
    return true;
}

Value walk_param(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed, Wanted wanted)
{
    if (!walk_bind(w, node, fixed, &wanted)) return (Value){0};
    Value there = graph_find(w->g, fixed->name);
    if (there.id && graph_value(w->g, there)->role == ROLE_PARAM && shape_equal(graph_shape(w->g, there), wanted.shape))
        return there;
    Value v = graph_param(w->g, fixed->name, wanted.shape, wanted.init, wanted.decay);
    if (wanted.rank >= 3 || wanted.scalar) graph_rank(w->g, v, wanted.rank);
    return v;
}

const char *layer_name(OnnxWalk *w, const OnnxNode *node, const Fixed *weights)
{
    const char *end = weights ? strrchr(weights->name, '.') : NULL;
    if (!end || strchr(end, '/')) return node->name; /* a path of TensorFlow, "mobilenetv2_1.00_96/Conv1/kernel" */
    size_t length = (size_t)(end - weights->name);
    char *name = walk_memory(w, length + 1, 1);
    if (name) memcpy(name, weights->name, length);
    return name ? name : "";
}

int64_t walk_classes(const OnnxWalk *w, const OnnxNode *node, int64_t in_file)
{
    bool head = onnx_head_of(w->head, (int)(node - w->file->node)) >= 0;
    return head && w->options->classes > 0 ? w->options->classes : in_file;
}
