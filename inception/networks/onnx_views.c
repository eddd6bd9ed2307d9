/* Nodes that move numbers without computing any: most only change the order of axes through which a value is seen, and cost nothing. */
#include "inception/networks/onnx_walk.h"

static const char *const not_in_memory = "its axes cannot be followed: what it makes does not lie so in memory";

/* The operand with its curve computed, whose order may be changed. */
static Active *view_of(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0);
    if (!a || !walk_value(w, node->in[0]).id) {
        if (w->item[node->out[0]].known != KNOWN_LOST) walk_refuse(w, node, "its operand cannot be used so");
        return NULL;
    }
    return a;
}

static void give_view(OnnxWalk *w, const OnnxNode *node, bool follows, const AxisOrder *order)
{
    if (follows) {
        walk_give(w, node, walk_value(w, node->in[0]), order);
        walk_settle(w, &w->item[node->out[0]].active);
    } else
        walk_refuse(w, node, "%s", not_in_memory);
}

/* A border stays around the same rows and columns. */
void build_transpose(OnnxWalk *w, const OnnxNode *node)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, "perm");
    Active *from = walk_active(w, node, 0);
    int64_t reverse[NET_FILE_RANK];
    if (!from || !walk_inner(w, node->in[0]).id || !node_permutes(w, node, from->order.rank)) return;
    for (int i = 0; i < from->order.rank; i++) reverse[i] = from->order.rank - 1 - i;
    Active to = *from;
    to.base = walk_inner(w, node->in[0]);
    to.curve = NULL;
    if (order_transpose(&to.order, a ? a->ints : reverse, to.order.rank))
        w->item[node->out[0]] = (OnnxItem){.known = KNOWN_ACTIVE, .active = to};
}

/* ---- other axes for the same elements */

/* The sizes of an operand's axes; their number, or -1 if it is none that the network computes. */
static int dims_of(const Active *a, int64_t dims[NET_FILE_RANK])
{
    for (int i = 0; a && i < a->order.rank; i++) dims[i] = order_dim(&a->order, i);
    return a ? a->order.rank : -1;
}

static void reshaped(OnnxWalk *w, const OnnxNode *node, int64_t *dims, int rank)
{
    Active *a = view_of(w, node);
    if (!a) return;
    int64_t from[NET_FILE_RANK];
    AxisOrder order = a->order;
    dims_of(a, from);
    give_view(w, node,
              dims_reshape(node, from, order.rank, w->survey->batch, dims, rank) && order_reshape(&order, dims, rank),
              &order);
}

/* A file with its own number of classes in a shape behind the head. */
static void other_classes(const OnnxWalk *w, const AxisOrder *order, int64_t *dims, int rank)
{
    int64_t classes = w->options->classes;
    if (w->head[0].node < 0 || classes <= 0 || order_size(order, AXIS_CHANNEL) != classes) return;
    for (int i = 0; i < rank; i++)
        if (dims[i] == w->head[0].classes) dims[i] = classes;
}

void build_reshape(OnnxWalk *w, const OnnxNode *node)
{
    int64_t dims[NET_FILE_RANK];
    int rank = fixed_ints(walk_fixed(w, node, 1), dims, NET_FILE_RANK);
    Active *a = walk_active(w, node, 0);
    if (rank < 0 || !a)
        walk_refuse(w, node, "expected a shape that is known before the network runs");
    else {
        other_classes(w, &a->order, dims, rank);
        reshaped(w, node, dims, rank);
    }
}

void build_flatten(OnnxWalk *w, const OnnxNode *node)
{
    Active *a = walk_active(w, node, 0);
    int64_t axis = onnx_int(node, "axis", 1), dims[2] = {1, 1};
    if (!a) {
        walk_refuse(w, node, "expected a value that the network computes");
        return;
    }
    if (axis != a->order.rank && (axis = node_axis(w, node, axis, a->order.rank)) < 0) return;
    for (int i = 0; i < a->order.rank; i++) dims[i >= axis] *= order_dim(&a->order, i);
    reshaped(w, node, dims, 2);
}

/* The size that an axis of the file is: -1 if it is none, or more than one. */
static int axis_is(const AxisOrder *order, int axis)
{
    int of = -1;
    for (int i = 0; i < order->count; i++)
        if (order->part[i].axis == axis) {
            if (of >= 0 || order->part[i].place) return -1;
            of = (int)order->part[i].of;
        }
    return of;
}

/* Channels `first` and so many of the operand, whose channels are on this axis. */
static void give_channels(OnnxWalk *w, const OnnxNode *node, int k, int axis, int64_t first, int64_t count)
{
    Active *a = walk_active(w, node, 0);
    Value x = walk_value(w, node->in[0]);
    AxisOrder order = a->order;
    if (!x.id) return;
    order_resize(&order, axis, AXIS_CHANNEL, count);
    w->item[node->out[k]] = (OnnxItem){
        .known = KNOWN_ACTIVE, .active = {.base = slice(w->g, x, (int32_t)first, (int32_t)count), .order = order}};
}

/* One place of an axis, x[:, :, 0] in Python, which takes the axis away: the only place, or a channel. False: it is another one. */
static bool place_taken(OnnxWalk *w, const OnnxNode *node, int axis, const Fixed *index)
{
    const Active *a = walk_active(w, node, 0);
    int64_t dims[NET_FILE_RANK], size = order_dim(&a->order, axis), place;
    if (index->rank != 0 || fixed_ints(index, &place, 1) != 1 || (place = axis_among(place, (int)size)) < 0)
        return false;
    int rank = dims_of(a, dims) - 1;
    memmove(&dims[axis], &dims[axis + 1], (size_t)(rank - axis) * sizeof *dims);
    if (size == 1) {
        reshaped(w, node, dims, rank);
        return true;
    }
    if (axis_is(&a->order, axis) != AXIS_CHANNEL || order_size(&a->order, AXIS_CHANNEL) != size) return false;
    give_channels(w, node, 0, axis, place, 1);
    OnnxItem *made = &w->item[node->out[0]];
    return made->known == KNOWN_ACTIVE && order_reshape(&made->active.order, dims, rank);
}

/* More values than an op takes are concatenated in groups. */
static Value concatenated(OnnxWalk *w, Value *x, int count)
{
    while (count > OP_MAX_IN) {
        int made = 0;
        for (int i = 0; i < count; i += OP_MAX_IN) {
            int group = count - i < OP_MAX_IN ? count - i : OP_MAX_IN;
            x[made++] = group == 1 ? x[i] : concat(w->g, x + i, group);
        }
        count = made;
    }
    return count == 1 ? x[0] : concat(w->g, x, count);
}

/* Channels in another order, x[:, [2, 1, 0]] in Python, or some of them: ranges, put together. False: they are no list of channels. */
static bool channels_listed(OnnxWalk *w, const OnnxNode *node, int axis, const Fixed *places)
{
    enum {
        RANGES = 256,
        RANGES_OF_FILE = 4096
    }; /* each is an op: lists that nodes share must not make any number of them */
    Active *a = walk_active(w, node, 0);
    int64_t size = order_dim(&a->order, axis), place[RANGES];
    int count = places->rank == 1 ? fixed_ints(places, place, RANGES) : 0, ranges = 0;
    if (count < 1 || axis_is(&a->order, axis) != AXIS_CHANNEL || order_size(&a->order, AXIS_CHANNEL) != size)
        return false;
    Value x = walk_value(w, node->in[0]), range[RANGES];
    for (int i = 0; i < count; i++)
        if ((place[i] = axis_among(place[i], (int)size)) < 0) return false;
    for (int i = 0, next; i < count && x.id; i = next) {
        for (next = i + 1; next < count && place[next] == place[next - 1] + 1;) next++;
        range[ranges++] = slice(w->g, x, (int32_t)place[i], next - i);
    }
    AxisOrder order = a->order;
    order_resize(&order, axis, AXIS_CHANNEL, count);
    if ((w->listed += ranges) > RANGES_OF_FILE) return false;
    if (x.id) walk_give(w, node, concatenated(w, range, ranges), &order);
    return true;
}

/* PyTorch writes the view of a contiguous value (as_strided) as all of its elements, once each and in their order. */
void build_gather(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *indices = walk_fixed(w, node, 1);
    const Places *of_images = walk_places(w, node, 1);
    Active *a = walk_active(w, node, 0);
    int64_t dims[NET_FILE_RANK];
    int axis = a ? node_axis(w, node, onnx_int(node, "axis", 0), a->order.rank) : 0;
    if (axis < 0 || (a && indices && (place_taken(w, node, axis, indices) || channels_listed(w, node, axis, indices))))
        return;
    bool view = a && a->order.rank == 1 && (of_images ? places_in_order(of_images) : indices && indices->rank > 0);
    for (int64_t i = 0; view && indices && i < indices->count; i++) view = fixed_at(indices, i) == (double)i;
    if (!view) {
        walk_refuse(
            w, node,
            "expected one place of an axis that has no other, at most 256 channels, or all elements of its operand "
            "in their order");
        return;
    }
    memcpy(dims, of_images ? of_images->dims : indices->dims, sizeof dims);
    reshaped(w, node, dims, of_images ? of_images->rank : indices->rank);
}

/* Squeeze and Unsqueeze. */
static void axes_changed(OnnxWalk *w, const OnnxNode *node,
                         int (*change)(OnnxWalk *, const OnnxNode *, const int64_t *, int, int64_t *))
{
    int64_t from[NET_FILE_RANK], dims[NET_FILE_RANK];
    int before = dims_of(walk_active(w, node, 0), from), rank = before < 0 ? -1 : change(w, node, from, before, dims);
    if (rank >= 0) reshaped(w, node, dims, rank);
    if (before < 0) walk_refuse(w, node, "expected a value that the network computes");
}

void build_squeeze(OnnxWalk *w, const OnnxNode *node)
{
    axes_changed(w, node, dims_squeeze);
}

void build_unsqueeze(OnnxWalk *w, const OnnxNode *node)
{
    axes_changed(w, node, dims_unsqueeze);
}

/* ---- borders */

/* Adds rows or columns at both ends of an axis; fewer than none takes away. */
static bool border_add(Active *a, int axis, int64_t before, int64_t after)
{
    int of = axis_is(&a->order, axis);
    int64_t size = order_dim(&a->order, axis);
    if (!before && !after) return true;
    if ((of != AXIS_ROW && of != AXIS_COLUMN) || order_size(&a->order, (OnnxAxis)of) != size || before < -INT16_MAX ||
        before > INT16_MAX || after < -INT16_MAX || after > INT16_MAX)
        return false;
    size += before + after;
    if (size < 1 || size > INT32_MAX) return false;
    if (of == AXIS_ROW)
        a->border.top += (int32_t)before, a->border.bottom += (int32_t)after;
    else
        a->border.left += (int32_t)before, a->border.right += (int32_t)after;
    order_resize(&a->order, axis, (OnnxAxis)of, size);
    return true;
}

/* Channels of zeros around those of x: columns of an image with a row for each pixel, which lies so in memory. */
static bool channels_add(OnnxWalk *w, Active *a, int axis, int64_t before, int64_t after)
{
    int64_t size = order_dim(&a->order, axis);
    bool known = axis_is(&a->order, axis) == AXIS_CHANNEL && order_size(&a->order, AXIS_CHANNEL) == size &&
                 a->base.id && a->border.value == 0 && !a->border.mirrored && before >= 0 && before <= INT16_MAX &&
                 after >= 0 && after <= INT16_MAX;
    if (!known) return false;
    Shape s = graph_shape(w->g, a->base);
    int64_t wide = size + before + after;
    if ((int64_t)s.h * s.w > INT32_MAX || wide > INT32_MAX) return false;
    Value rows = reshape(w->g, a->base, (Shape){s.n, 1, s.h * s.w, s.c});
    a->base =
        reshape(w->g, pad(w->g, rows, 0, 0, (int32_t)before, (int32_t)after), (Shape){s.n, (int32_t)wide, s.h, s.w});
    order_resize(&a->order, axis, AXIS_CHANNEL, wide);
    return true;
}

/* A border waits for what reads it: convolutions have it in their windows. */
void build_pad(OnnxWalk *w, const OnnxNode *node)
{
    int64_t pads[2 * NET_FILE_RANK], axes[NET_FILE_RANK];
    Active *a = walk_active(w, node, 0);
    int count = node_ints(w, node, 1, "pads", pads, 2 * NET_FILE_RANK) / 2;
    int given = node->in_count > 3 && node->in[3] ? fixed_ints(walk_fixed(w, node, 3), axes, NET_FILE_RANK) : 0;
    const Fixed *value = walk_fixed(w, node, 2);
    bool mirrored = onnx_text_is(node, "mode", "reflect"),
         plain = onnx_text_is(node, "mode", "") || onnx_text_is(node, "mode", "constant");
    if (!plain && !mirrored) {
        const ProtobufCBinaryData *mode = &onnx_attribute(node, "mode")->s;
        walk_refuse(w, node,
                    "it pads in the mode '%.*s'; expected constant, or reflect in front of a binomial filter of 3 x 3",
                    (int)(mode->len < 32 ? mode->len : 32), (const char *)mode->data);
        return;
    }
    if (!a || count < 1 || (walk_in(w, node, 2) && !(value && value->count == 1)) || given < 0 ||
        (given ? given != count : count != a->order.rank)) {
        walk_refuse(w, node, "expected a border of one constant, of a size that is known before the network runs");
        return;
    }
    if (has_border(a)) walk_value(w, node->in[0]);
    Active to = *a;
    to.base = walk_inner(w, node->in[0]);
    to.curve = NULL;
    to.node = node;
    to.border = (Border){.value = value ? fixed_at(value, 0) : onnx_float(node, "value", 0), .mirrored = mirrored};
    if (given && !node_axes_settle(w, node, axes, given, a->order.rank)) return;
    for (int i = 0; i < count; i++) {
        int axis = given ? (int)axes[i] : i;
        if (border_add(&to, axis, pads[i], pads[count + i])) continue;
        if (channels_add(w, &to, axis, pads[i], pads[count + i])) continue;
        walk_refuse(w, node, "it pads another axis than rows, columns and channels, or by more than %d", INT16_MAX);
        return;
    }
    if (to.base.id) w->item[node->out[0]] = (OnnxItem){.known = KNOWN_ACTIVE, .active = to};
}

/* ---- repeated numbers */

/* Whether one node alone reads the value, one that spreads it over another operand of these sizes by itself. */
static bool is_spread_by_reader(OnnxWalk *w, const OnnxNode *node, const int64_t *dims, int rank)
{
    static const char *const spreading[] = {"Mul", "Add", "Div", "Sub", NULL};
    const OnnxValue *value = &w->file->value[node->out[0]];
    if (value->reads != 1 || value->reader < 0) return false;
    const OnnxNode *next = &w->file->node[value->reader];
    if (!onnx_type_is(next, spreading) || next->in_count != 2) return false;
    const Active *other = walk_active(w, next, next->in[0] == node->out[0]);
    bool alike = other && other->order.rank == rank;
    for (int i = 0; i < rank && alike; i++) alike = order_dim(&other->order, i) == dims[i];
    return alike;
}

/* One number for each channel of an image, all over it. */
void build_expand(OnnxWalk *w, const OnnxNode *node)
{
    int64_t dims[NET_FILE_RANK];
    Active *a = walk_active(w, node, 0);
    int rank = fixed_ints(walk_fixed(w, node, 1), dims, NET_FILE_RANK);
    Value x = a && rank == a->order.rank ? walk_value(w, node->in[0]) : (Value){0};
    bool same = x.id;
    for (int i = 0; x.id && i < rank; i++) {
        int64_t size = order_dim(&a->order, i);
        if (dims[i] == 1) dims[i] = size;
        if (i == 0 && dims[i] == w->survey->batch) dims[i] = size;
        same &= dims[i] == size;
    }
    if (same || (x.id && is_spread_by_reader(w, node, dims, rank))) {
        walk_alias(w, node->out[0], node->in[0]);
        return;
    }
    Shape s = graph_shape(w->g, x);
    bool fits = x.id && order_is(&a->order, "NCHW") && s.h * s.w == 1 && dims[0] == order_dim(&a->order, 0) &&
                dims[1] == s.c && dims[2] >= 1 && dims[2] <= INT16_MAX && dims[3] >= 1 && dims[3] <= INT16_MAX;
    if (!fits) {
        walk_refuse(w, node, "expected one number for each channel, spread over rows and columns");
        return;
    }
    Shape wide = {s.n, s.c, (int32_t)dims[2], (int32_t)dims[3]};
    walk_give_image(w, node, spread_to(w->g, x, wide));
}

/* ---- parts and wholes */

/* Start and end as ONNX counts them, made places of an axis. */
static void places_settle(int64_t size, int64_t *start, int64_t *end)
{
    *start = *start < -size ? 0 : *start < 0 ? *start + size : *start > size ? size : *start;
    *end = *end < -size ? 0 : *end < 0 ? *end + size : *end > size ? size : *end;
}

/* The parts that a Slice takes, each of an axis. */
typedef struct Ranges {
    int count;
    int64_t start[NET_FILE_RANK], end[NET_FILE_RANK], axes[NET_FILE_RANK], step[NET_FILE_RANK];
} Ranges;

/* False: refused. */
static bool ranges_read(OnnxWalk *w, const OnnxNode *node, Ranges *r)
{
    const Active *a = walk_active(w, node, 0);
    int count = r->count = node_ints(w, node, 1, "starts", r->start, NET_FILE_RANK);
    bool known = a && count >= 0 && node_ints(w, node, 2, "ends", r->end, NET_FILE_RANK) == count;
    bool named = onnx_attribute(node, "axes") || walk_in(w, node, 3), stepped = walk_in(w, node, 4);
    known = known && (!named || node_ints(w, node, 3, "axes", r->axes, NET_FILE_RANK) == count) &&
            (!stepped || node_ints(w, node, 4, "steps", r->step, NET_FILE_RANK) == count);
    for (int i = 0; known && i < count; i++) {
        if (!named) r->axes[i] = i;
        if (!stepped) r->step[i] = 1;
        known = r->step[i] >= 1 && r->step[i] <= INT16_MAX;
    }
    if (known) return node_axes_settle(w, node, r->axes, count, a->order.rank);
    walk_refuse(w, node, "expected a range, forwards, that is known before the network runs");
    return false;
}

/* Every so many rows or columns of what the node makes: windows of one pixel, which leave those between them out. */
static void thin(OnnxWalk *w, const OnnxNode *node, const int64_t step[AXIS_COLUMN + 1])
{
    Value x = walk_value(w, node->out[0]);
    if (!x.id) return;
    AxisOrder order = w->item[node->out[0]].active.order;
    for (int axis = 0; axis < order.rank; axis++) {
        int of = axis_is(&order, axis);
        if (of >= 0 && step[of] > 1)
            order_resize(&order, axis, (OnnxAxis)of, (order_dim(&order, axis) - 1) / step[of] + 1);
    }
    Window one = {.kh = 1, .kw = 1, .stride_h = (int32_t)step[AXIS_ROW], .stride_w = (int32_t)step[AXIS_COLUMN]};
    walk_give(w, node, avg_pool_window(w->g, x, one, false), &order);
}

/* A part of the channels is a value of its own; one of rows and columns is a border of fewer pixels. */
void build_slice(OnnxWalk *w, const OnnxNode *node)
{
    Ranges r;
    int64_t step[AXIS_COLUMN + 1] = {1, 1, 1, 1};
    if (!ranges_read(w, node, &r)) return;
    Active *a = walk_active(w, node, 0);
    Value x = walk_value(w, node->in[0]);
    if (!x.id) return;
    Active to = *a;
    to.node = node;
    to.base = x;
    to.curve = NULL;
    for (int i = 0; i < r.count; i++) {
        int axis = (int)r.axes[i], of = axis_is(&a->order, axis);
        int64_t size = order_dim(&a->order, axis);
        places_settle(size, &r.start[i], &r.end[i]);
        int64_t start = r.start[i], end = r.end[i];
        bool whole = of >= 0 && order_size(&a->order, (OnnxAxis)of) == size, channels = of == AXIS_CHANNEL;
        if (end > start + 1 && r.step[i] > 1) {
            if (!whole || (of != AXIS_ROW && of != AXIS_COLUMN)) {
                walk_refuse(w, node, "it leaves out every so many of another axis than rows and columns");
                return;
            }
            step[of] = r.step[i];
        }
        if (start == 0 && end == size) continue;
        if (r.count == 1 && end > start && channels && whole) {
            give_channels(w, node, 0, axis, start, end - start);
            return;
        }
        if (end > start && border_add(&to, axis, -start, end - size)) continue;
        walk_refuse(w, node, "%s",
                    end <= start ? "it leaves nothing of an axis"
                    : channels && r.count > 1
                        ? "it takes a part of the channels and of another axis; expected one of both"
                        : not_in_memory);
        return;
    }
    w->item[node->out[0]] = (OnnxItem){.known = KNOWN_ACTIVE, .active = to};
    if (step[AXIS_ROW] > 1 || step[AXIS_COLUMN] > 1) thin(w, node, step);
}

void build_split(OnnxWalk *w, const OnnxNode *node)
{
    int64_t sizes[64], first = 0;
    Active *a = walk_active(w, node, 0);
    int count = node_ints(w, node, 1, "split", sizes, 64);
    bool given = onnx_attribute(node, "split") || walk_in(w, node, 1);
    if (!a || node->out_count > 64 || (given && count != node->out_count)) {
        walk_refuse(w, node, "expected sizes that are known before the network runs, one for each part");
        return;
    }
    int axis = node_axis(w, node, onnx_int(node, "axis", 0), a->order.rank);
    if (axis < 0) return;
    int64_t size = order_dim(&a->order, axis), equal = (size + node->out_count - 1) / node->out_count;
    bool uneven = !given && w->file->opset < 18 && size % node->out_count;
    if (axis_is(&a->order, axis) != AXIS_CHANNEL || order_size(&a->order, AXIS_CHANNEL) != size) {
        walk_refuse(w, node, "it splits another axis than the channels");
        return;
    }
    for (int k = 0; k < node->out_count; k++) {
        int64_t here = count >= 0 ? sizes[k] : equal < size - first ? equal : size - first;
        bool last = k == node->out_count - 1;
        if (uneven || here < 1 || here > size - first || (last && here < size - first)) {
            walk_refuse(w, node, "expected parts that are together the %" PRId64 " channels of its operand", size);
            return;
        }
        if (node->out[k]) give_channels(w, node, k, axis, first, here);
        first += here;
    }
}

/* A part of what SplitToSequence before it, which stands for its operand, divides among equal parts, or parts of these sizes. */
void build_sequence_at(OnnxWalk *w, const OnnxNode *node)
{
    int64_t sizes[64], at = -1, first = 0;
    int writer = node->in_count == 2 ? w->file->value[node->in[0]].writer : -1;
    const OnnxNode *split = writer >= 0 ? &w->file->node[writer] : node;
    Active *a = walk_active(w, node, 0);
    const Fixed *parts = walk_fixed(w, split, 1);
    int count = fixed_ints(parts, sizes, 64);
    int axis = a ? node_axis(w, node, onnx_int(split, "axis", 0), a->order.rank) : 0;
    if (axis < 0) return;
    if (!a || strcmp(split->type, "SplitToSequence") != 0 || count < 1 ||
        fixed_ints(walk_fixed(w, node, 1), &at, 1) != 1 || axis_is(&a->order, axis) != AXIS_CHANNEL ||
        order_size(&a->order, AXIS_CHANNEL) != order_dim(&a->order, axis) || !onnx_int(split, "keepdims", 1)) {
        walk_refuse(w, node, "expected a part of the channels, of a size that is known before the network runs");
        return;
    }
    int64_t size = order_dim(&a->order, axis), here = sizes[0];
    bool equal = parts->rank == 0;
    if (at < 0) at += equal && here > 0 ? size / here + (size % here != 0) : count;
    for (int64_t i = 0; i < at && first >= 0; i++) {
        int64_t before = equal ? here : sizes[i < count ? i : 0];
        first = before < 1 || before >= size - first ? -1 : first + before;
    }
    if (!equal) here = at >= 0 && at < count ? sizes[at] : 0;
    if (here > size - first) here = size - first;
    if (at < 0 || here < 1 || first < 0)
        walk_refuse(w, node, "it asks for a part that there is not");
    else
        give_channels(w, node, 0, axis, first, here);
}

void build_concat(OnnxWalk *w, const OnnxNode *node)
{
    Active *first = walk_active(w, node, 0);
    int64_t channels = 0;
    int axis = first ? node_axis(w, node, onnx_int(node, "axis", 0), first->order.rank) : 0;
    Value *x = walk_memory(w, (size_t)node->in_count + 1, sizeof *x);
    if (axis < 0 || stack_of_groups(w, node, axis)) return;
    for (int k = 0; x && k < node->in_count; k++) {
        Active *a = walk_active(w, node, k);
        AxisOrder order = first ? first->order : (AxisOrder){0}, own = a ? a->order : (AxisOrder){0};
        bool one = axis < own.rank && order_dim(&own, axis) == 1 && order_size(&own, AXIS_CHANNEL) == 1;
        if (!a || axis >= own.rank || !(one || axis_is(&own, axis) == AXIS_CHANNEL)) {
            walk_refuse(w, node, "expected values that the network computes, put together along the channels");
            return;
        }
        int64_t size = order_dim(&own, axis);
        order_resize(&order, axis, AXIS_CHANNEL, size);
        x[k] = walk_value(w, node->in[k]);
        if (!x[k].id) return;
        if (!order_equal(&order, &own)) {
            walk_refuse(w, node, "%s", not_in_memory);
            return;
        }
        channels += size;
    }
    if (!x || !first) return;
    AxisOrder order = first->order;
    order_resize(&order, axis, AXIS_CHANNEL, channels);
    walk_give(w, node, concatenated(w, x, node->in_count), &order);
}
