/* Numbers known before the network runs: nodes of constants and of shapes, as exporters write them. The batch is BATCH_SIZE in them. */
#include "inception/networks/onnx_walk.h"

/* ---- results */

/* A value with room for its numbers; NULL if they are too many. */
static Fixed *result(OnnxWalk *w, const OnnxNode *node, int k, int rank, const int64_t *dims, bool integer)
{
    OnnxItem *item = &w->item[node->out[k]];
    Fixed *f = &item->fixed;
    const char *source = NULL;
    for (int i = 0; i < node->in_count && strcmp(node->type, "Shape") != 0; i++) {
        const Fixed *in = walk_fixed(w, node, i);
        const char *name = in ? scalar_source(w, in) : NULL;
        if (name && source && in->count == 1 && strcmp(name, source) != 0 && !scalar_stays(w, node, in)) return NULL;
        if (!source) source = name;
        if (!in || !in->from.absent || in->number) continue;
        *item = (OnnxItem){.known = KNOWN_LATER, .late = node}; /* its trained values are in another file */
        return NULL;
    }
    *f = (Fixed){
        .rank = rank, .count = 1, .integer = integer, .name = w->file->value[node->out[k]].name, .source = source};
    for (int i = 0; i < rank; i++) {
        f->dims[i] = dims[i];
        if (dims[i] < 0 || __builtin_mul_overflow(f->count, dims[i], &f->count) || f->count > NUMBERS_MAX) {
            walk_refuse(w, node, "it makes a constant of more than %d numbers", NUMBERS_MAX);
            return NULL;
        }
    }
    f->number = walk_memory(w, (size_t)f->count + 1, sizeof *f->number);
    if (!f->number) return NULL;
    item->known = KNOWN_FIXED;
    return f;
}

/* The same numbers in another shape: still a parameter, if they were one. True: it was given, or refused. */
static bool viewed(OnnxWalk *w, const OnnxNode *node, const Fixed *from, int rank, const int64_t *dims)
{
    OnnxItem *item = &w->item[node->out[0]];
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(count, dims[i], &count)) count = -1;
    if (count != from->count || (from->turned && (rank != 2 || dims[0] != from->dims[0]))) {
        walk_refuse(w, node, "%" PRId64 " numbers cannot get the shape that is asked for", from->count);
        return true;
    }
    item->fixed = *from;
    item->fixed.rank = rank;
    for (int i = 0; i < rank; i++) item->fixed.dims[i] = dims[i];
    item->known = KNOWN_FIXED;
    return true;
}

/* ---- elements */

static double unary(const char *type, double x, bool *is)
{
    CurveFunction *f = curve_function(type);
    *is = true;
    if (f) return f(x);
    if (!strcmp(type, "Floor")) return floor(x);
    if (!strcmp(type, "Ceil")) return ceil(x);
    if (!strcmp(type, "Not")) return x == 0;
    *is = false;
    return 0;
}

static double binary(const char *type, double a, double b, bool integer, bool *is)
{
    *is = true;
    if (!strcmp(type, "Add")) return a + b;
    if (!strcmp(type, "Sub")) return a - b;
    if (!strcmp(type, "Mul")) return a * b;
    if (!strcmp(type, "Div")) return integer ? trunc(a / b) : a / b;
    if (!strcmp(type, "Mod")) return a - floor(a / b) * b;
    if (!strcmp(type, "Pow")) return pow(a, b);
    if (!strcmp(type, "Min")) return fmin(a, b);
    if (!strcmp(type, "Max")) return fmax(a, b);
    if (!strcmp(type, "Equal")) return a == b;
    if (!strcmp(type, "Less")) return a < b;
    if (!strcmp(type, "Greater")) return a > b;
    if (!strcmp(type, "And")) return a != 0 && b != 0;
    if (!strcmp(type, "Or")) return a != 0 || b != 0;
    *is = false;
    return 0;
}

int fixed_shape(OnnxWalk *w, const OnnxNode *node, int64_t dims[NET_FILE_RANK])
{
    bool spreads = !strcmp(node->type, "Expand"), of = !strcmp(node->type, "ConstantOfShape");
    const Fixed *from = walk_fixed(w, node, 0);
    if (!spreads && !of && strcmp(node->type, "Reshape") != 0) return -1;
    int rank = fixed_ints(of ? from : walk_fixed(w, node, 1), dims, NET_FILE_RANK);
    return rank >= 0 && spreads && (!from || !fixed_spread(from, &rank, dims)) ? -1 : rank;
}

/* A parameter times 1 is that parameter. */
static bool fold_times_one(OnnxWalk *w, const OnnxNode *node)
{
    for (int k = 0; k < 2 && node->in_count == 2 && !strcmp(node->type, "Mul"); k++) {
        const Fixed *of = walk_fixed(w, node, k), *one = walk_fixed(w, node, 1 - k);
        if (!of || !one || !of->from.proto || one->count != 1 || one->rank > of->rank || one->from.absent) continue;
        if (w->file->value[node->in[1 - k]].writer < 0 || fixed_at(one, 0) != 1) continue;
        w->item[node->out[0]] = w->item[node->in[k]];
        return true;
    }
    return false;
}

/* The function that a number is of the only one that is trained among these; false: there is none, or several. */
static bool curve_of_trained(OnnxWalk *w, const OnnxNode *node, const Fixed **trained, Curve *curve)
{
    Curve own[2];
    *trained = NULL;
    for (int k = 0; k < node->in_count && k < 2; k++) {
        const Fixed *f = walk_fixed(w, node, k);
        bool is = f && scalar_of(w, f) == SCALAR_PARAMETER;
        if (!f || f->count != 1 || (!is && (f->from.absent || f->source))) return false;
        if (is && *trained && strcmp(f->name, (*trained)->name) != 0) return false;
        own[k] = !is ? curve_constant(fixed_at(f, 0)) : f->curve ? *f->curve : curve_identity();
        if (is) *trained = f;
    }
    *curve = own[0];
    if (node->in_count == 1)
        return *trained && curve_function(node->type) && curve_apply(node->type, (CurveSettings){0, 0}, curve);
    return *trained && node->in_count == 2 && curve_combine(node->type, &own[0], &own[1], curve);
}

/* A number that is computed of one that is trained stays a function of that one: 1 - alpha, or the sigmoid of a gate. */
static bool fold_of_trained(OnnxWalk *w, const OnnxNode *node)
{
    Curve curve;
    const Fixed *of, *in[2];
    Fixed *made = &w->item[node->out[0]].fixed;
    bool is;
    if (!curve_of_trained(w, node, &of, &curve)) return false;
    *made = *of;
    made->rank = 0;
    for (int k = 0; k < node->in_count; k++) {
        in[k] = walk_fixed(w, node, k);
        if (scalar_of(w, in[k]) == SCALAR_UNKNOWN && !scalar_stays(w, node, in[k])) return true;
    }
    for (int k = 0; k < node->in_count; k++) (void)fixed_spread(in[k], &made->rank, made->dims);
    made->curve = walk_memory(w, 1, sizeof *made->curve);
    made->number = of->from.absent ? NULL : walk_memory(w, 1, sizeof *made->number);
    if (!made->curve || (!made->number && !of->from.absent)) return true;
    *made->curve = curve;
    if (made->number)
        *made->number = node->in_count == 1 ? unary(node->type, fixed_at(in[0], 0), &is)
                                            : binary(node->type, fixed_at(in[0], 0), fixed_at(in[1], 0), false, &is);
    w->item[node->out[0]].known = KNOWN_FIXED;
    return true;
}

static bool fold_elements(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *in[3];
    if (curve_function(node->type) && node->proto->n_attribute) return false; /* another function of this name */
    if (fold_times_one(w, node) || fold_of_trained(w, node)) return true;
    int rank = 0, count = node->in_count;
    int64_t dims[NET_FILE_RANK] = {0};
    bool is = count >= 1 && count <= 3, where = !strcmp(node->type, "Where");
    for (int k = 0; k < count && is; k++) {
        in[k] = walk_fixed(w, node, k);
        is = in[k] && fixed_spread(in[k], &rank, dims);
    }
    if (!is || (count == 3) != where || onnx_int(node, "fmod", 0)) return false;
    if (count == 1)
        unary(node->type, 0, &is);
    else if (count == 2)
        binary(node->type, 1, 1, false, &is);
    if (!is) return false;
    Fixed *f = result(w, node, 0, rank, dims, in[count - 1]->integer);
    for (int64_t i = 0; f && i < f->count; i++) {
        double a = fixed_spread_at(in[0], i, rank, dims), b = count > 1 ? fixed_spread_at(in[1], i, rank, dims) : 0;
        if (where)
            f->number[i] = a != 0 ? b : fixed_spread_at(in[2], i, rank, dims);
        else
            f->number[i] = count == 1 ? unary(node->type, a, &is) : binary(node->type, a, b, in[0]->integer, &is);
    }
    return true;
}

/* ---- shapes */

static bool fold_shape(OnnxWalk *w, const OnnxNode *node)
{
    OnnxItem *in = walk_in(w, node, 0);
    if (!in) return false;
    bool fixed = in->known == KNOWN_FIXED || in->known == KNOWN_LATER;
    int rank = fixed ? in->fixed.rank : in->active.order.rank;
    int64_t start = onnx_int(node, "start", 0), end = onnx_int(node, "end", rank);
    if (start < 0) start += rank;
    if (end < 0) end += rank;
    if (end > rank) end = rank;
    if (start < 0 || start > end) start = end;
    Fixed *f = result(w, node, 0, 1, (const int64_t[]){end - start}, true);
    for (int64_t i = start; f && i < end; i++)
        f->number[i - start] = (double)(fixed ? in->fixed.dims[i] : order_dim(&in->active.order, (int)i));
    return true;
}

static bool fold_constant(OnnxWalk *w, const OnnxNode *node)
{
    const Onnx__AttributeProto *a;
    OnnxItem *item = &w->item[node->out[0]];
    if ((a = onnx_attribute(node, "value")) && a->t) {
        OnnxTensor tensor;
        if (onnx_tensor(w->file, a->t, &tensor) != OK) {
            walk_refuse(w, node, "%s", status_message());
            return true;
        }
        item->known = KNOWN_FIXED;
        fixed_from_tensor(tensor, w->file->value[node->out[0]].name, &item->fixed);
        return true;
    }
    if ((a = onnx_attribute(node, "value_int")) || (a = onnx_attribute(node, "value_float"))) {
        Fixed *f = result(w, node, 0, 0, NULL, !a->has_f);
        if (f) f->number[0] = a->has_f ? (double)a->f : (double)a->i;
        return true;
    }
    if ((a = onnx_attribute(node, "value_ints")) || (a = onnx_attribute(node, "value_floats"))) {
        int64_t count = (int64_t)(a->n_ints + a->n_floats);
        Fixed *f = result(w, node, 0, 1, &count, a->n_ints > 0);
        for (int64_t i = 0; f && i < count; i++) f->number[i] = a->n_ints ? (double)a->ints[i] : (double)a->floats[i];
        return true;
    }
    return false;
}

/* Numbers for each image of a batch, whose size is open: only their sizes are known. */
static bool is_for_images(int rank, const int64_t *dims)
{
    return rank > 0 && dims[0] == BATCH_SIZE;
}

static bool fold_of_shape(OnnxWalk *w, const OnnxNode *node)
{
    int64_t dims[NET_FILE_RANK];
    int rank = fixed_shape(w, node, dims);
    const Onnx__AttributeProto *a = onnx_attribute(node, "value");
    OnnxTensor tensor;
    double value = 0;
    bool integer = false;
    if (rank < 0 || is_for_images(rank, dims)) return false;
    if (a && a->t && onnx_tensor(w->file, a->t, &tensor) == OK && tensor.count > 0) {
        value = onnx_element(&tensor, 0);
        integer = element_is_integer(tensor.type);
    }
    Fixed *f = result(w, node, 0, rank, dims, integer);
    for (int64_t i = 0; f && i < f->count; i++) f->number[i] = value;
    return true;
}

/* Numbers that are spread over no axis stay a parameter. */
static bool fold_expand(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    int64_t dims[NET_FILE_RANK];
    int rank = fixed_shape(w, node, dims);
    if (!from || rank < 0 || is_for_images(rank, dims)) return false;
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(count, dims[i], &count)) return false;
    if (count == from->count && !from->turned) return viewed(w, node, from, rank, dims);
    Fixed *f = result(w, node, 0, rank, dims, from->integer);
    for (int64_t i = 0; f && i < f->count; i++) f->number[i] = fixed_spread_at(from, i, rank, dims);
    return true;
}

/* ---- parts */

static bool fold_gather(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0), *at = walk_fixed(w, node, 1);
    if (!from || !at) return false;
    if (node_axis(w, node, onnx_int(node, "axis", 0), from->rank) < 0) return true;
    if (at->rank > 1 || from->rank != 1) return false;
    Fixed *f = result(w, node, 0, at->rank, at->dims, from->integer);
    for (int64_t i = 0; f && i < f->count; i++) {
        double place = fixed_at(at, i);
        if (place < 0) place += (double)from->count;
        if (!(place >= 0 && place < (double)from->count)) return false;
        f->number[i] = fixed_at(from, (int64_t)place);
    }
    return true;
}

static bool fold_concat(OnnxWalk *w, const OnnxNode *node)
{
    int64_t count = 0, at = 0;
    const Fixed *first = walk_fixed(w, node, 0);
    for (int k = 0; k < node->in_count; k++) {
        const Fixed *in = walk_fixed(w, node, k);
        if (!in || in->rank != 1) return false;
        count += in->count;
    }
    if (!first) return false;
    if (node_axis(w, node, onnx_int(node, "axis", 0), 1) < 0) return true;
    Fixed *f = result(w, node, 0, 1, &count, first->integer);
    for (int k = 0; f && k < node->in_count; k++)
        for (int64_t i = 0; i < walk_fixed(w, node, k)->count; i++)
            f->number[at++] = fixed_at(walk_fixed(w, node, k), i);
    return true;
}

/* Places `start` to before `end` of an axis, or backwards. */
static bool fold_slice(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    int64_t start, end, axis = 0, step = 1, dims[NET_FILE_RANK];
    if (!from || from->rank < 1 || from->turned || node->in_count < 3 ||
        fixed_ints(walk_fixed(w, node, 1), &start, 1) != 1 || fixed_ints(walk_fixed(w, node, 2), &end, 1) != 1 ||
        (walk_in(w, node, 3) && fixed_ints(walk_fixed(w, node, 3), &axis, 1) != 1) ||
        (walk_in(w, node, 4) && fixed_ints(walk_fixed(w, node, 4), &step, 1) != 1))
        return false;
    if ((axis = node_axis(w, node, axis, from->rank)) < 0) return true;
    if (step != 1 && step != -1) return false;
    memcpy(dims, from->dims, sizeof dims);
    int64_t size = dims[axis], least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1, inner = 1;
    start = start < 0 ? start + size : start;
    end = end < -size ? least : end < 0 ? end + size : end;
    start = start < 0 ? 0 : start > most ? most : start;
    end = end < least ? least : end > most ? most : end;
    dims[axis] = step * (end - start) > 0 ? step * (end - start) : 0;
    for (int i = (int)axis + 1; i < from->rank; i++) inner *= dims[i];
    int64_t here = dims[axis] * inner;
    Fixed *f = result(w, node, 0, from->rank, dims, from->integer);
    for (int64_t i = 0; f && i < f->count; i++) {
        int64_t place = start + step * (i % here / inner);
        f->number[i] = fixed_at(from, (i / here * size + place) * inner + i % inner);
    }
    return true;
}

/* ---- views */

static bool fold_reshape(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    int64_t dims[NET_FILE_RANK];
    int rank = fixed_ints(walk_fixed(w, node, 1), dims, NET_FILE_RANK);
    return from && rank >= 0 && dims_reshape(node, from->dims, from->rank, 0, dims, rank) &&
           viewed(w, node, from, rank, dims);
}

static bool fold_squeeze(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    int64_t dims[NET_FILE_RANK];
    int rank = from ? dims_squeeze(w, node, from->dims, from->rank, dims) : -1;
    return from && (rank < 0 || viewed(w, node, from, rank, dims));
}

static bool fold_unsqueeze(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    int64_t dims[NET_FILE_RANK];
    int rank = from ? dims_unsqueeze(w, node, from->dims, from->rank, dims) : -1;
    return from && (rank < 0 || viewed(w, node, from, rank, dims));
}

/* A matrix: weights of a product, which exporters keep as {out, in}; or numbers that are no parameter. */
static bool fold_transpose(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    const Onnx__AttributeProto *a = onnx_attribute(node, "perm");
    bool turns = !a || (a->n_ints == 2 && a->ints[0] == 1 && a->ints[1] == 0);
    if (from && !node_permutes(w, node, from->rank)) return true;
    if (!from || from->rank != 2 || !turns) return false;
    if (!from->from.proto) {
        const int64_t dims[] = {from->dims[1], from->dims[0]};
        Fixed *f = result(w, node, 0, 2, dims, from->integer);
        for (int64_t i = 0; f && i < f->count; i++) f->number[i] = fixed_at(from, i % dims[1] * dims[0] + i / dims[1]);
        return true;
    }
    Fixed *to = &w->item[node->out[0]].fixed;
    *to = *from;
    to->turned = !from->turned;
    to->dims[0] = from->dims[1];
    to->dims[1] = from->dims[0];
    w->item[node->out[0]].known = KNOWN_FIXED;
    return true;
}

/* Numbers that several nodes read were several parameters before the exporter found them equal, so each Identity makes one. */
static bool fold_same(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    OnnxItem *item = &w->item[node->out[0]];
    const Fixed *like = walk_fixed(w, node, 1);
    int64_t to = !strcmp(node->type, "Cast") ? onnx_int(node, "to", ELEMENT_FLOAT) : 0;
    bool alike = !strcmp(node->type, "CastLike"), cast = to || alike, truth = to == ELEMENT_BOOL;
    if (!from || (to && element_is_integer((OnnxElement)to) && to != ELEMENT_INT64 && to != ELEMENT_INT32 && !truth))
        return false;
    bool integer = to ? element_is_integer((OnnxElement)to) : alike ? like && like->integer : from->integer;
    item->known = KNOWN_FIXED;
    item->fixed = *from;
    if (!cast && w->file->value[node->in[0]].reads > 1) item->fixed.name = w->file->value[node->out[0]].name;
    if (integer == from->integer && !truth) return true;
    Fixed copy = *from, *f = result(w, node, 0, copy.rank, copy.dims, integer);
    for (int64_t i = 0; f && i < f->count; i++) {
        double x = fixed_at(&copy, i);
        f->number[i] = truth ? x != 0 : integer ? trunc(x) : x;
    }
    return true;
}

static bool fold_range(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *in[3];
    for (int k = 0; k < 3; k++)
        if (!(in[k] = walk_fixed(w, node, k)) || in[k]->count != 1) return false;
    double start = fixed_at(in[0], 0), step = fixed_at(in[2], 0), count = ceil((fixed_at(in[1], 0) - start) / step);
    if (!(fabs(step) > 0) || !(count <= NUMBERS_MAX)) return false;
    Fixed *f = result(w, node, 0, 1, (const int64_t[]){count > 0 ? (int64_t)count : 0}, in[0]->integer);
    for (int64_t i = 0; f && i < f->count; i++) f->number[i] = start + (double)i * step;
    return true;
}

/* Sizes of padding that are at least 0. */
static bool fold_clip(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0), *limit[2] = {walk_fixed(w, node, 1), walk_fixed(w, node, 2)};
    double low = limit[0] && limit[0]->count == 1 ? fixed_at(limit[0], 0) : onnx_float(node, "min", -INFINITY),
           high = limit[1] && limit[1]->count == 1 ? fixed_at(limit[1], 0) : onnx_float(node, "max", INFINITY);
    if (!from) return false;
    Fixed copy = *from, *f = result(w, node, 0, copy.rank, copy.dims, copy.integer);
    for (int64_t i = 0; f && i < f->count; i++) f->number[i] = fmin(fmax(fixed_at(&copy, i), low), high);
    return true;
}

static bool fold_product(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *from = walk_fixed(w, node, 0);
    int64_t axes[NET_FILE_RANK];
    if (!from) return false;
    if (node_axes(w, node, from->rank, axes) < 0) return true;
    if (from->rank != 1) return false;
    bool keeps = onnx_int(node, "keepdims", 1);
    Fixed *f = result(w, node, 0, keeps, (const int64_t[]){1}, from->integer);
    if (!f) return true;
    f->number[0] = 1;
    for (int64_t i = 0; i < from->count; i++) f->number[0] *= fixed_at(from, i);
    return true;
}

bool fold_node(OnnxWalk *w, const OnnxNode *node)
{
    static const struct {
        const char *type;
        bool (*fold)(OnnxWalk *, const OnnxNode *);
    } folds[] = {{"Shape", fold_shape},
                 {"Constant", fold_constant},
                 {"ConstantOfShape", fold_of_shape},
                 {"Expand", fold_expand},
                 {"Gather", fold_gather},
                 {"Concat", fold_concat},
                 {"Slice", fold_slice},
                 {"Reshape", fold_reshape},
                 {"Squeeze", fold_squeeze},
                 {"Unsqueeze", fold_unsqueeze},
                 {"Transpose", fold_transpose},
                 {"Identity", fold_same},
                 {"Cast", fold_same},
                 {"CastLike", fold_same},
                 {"Range", fold_range},
                 {"ReduceProd", fold_product},
                 {"Clip", fold_clip}};
    for (size_t k = 0; k < sizeof folds / sizeof *folds; k++)
        if (!strcmp(folds[k].type, node->type)) return folds[k].fold(w, node);
    return fold_elements(w, node);
}
