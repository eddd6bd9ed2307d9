/* Nodes that put many numbers of a sample together: means, sums and lengths over axes, softmax over pixels and the weighted sums behind
 * it. All are sums and spreads of the op list, which have gradients. */
#include "inception/networks/onnx_walk.h"

void means_note(OnnxWalk *w, const OnnxNode *node)
{
    if (w->first) w->survey->means[node - w->file->node] = true;
}

/* ---- means, sums and lengths */

/* The shape in which each size in memory that the node reduces is 1. False: it reduces a part of one, or the batch. */
static bool reduced_shape(const Active *a, const int64_t *axes, int count, Shape *shape)
{
    bool over[4] = {false}, kept[4] = {false};
    for (int i = 0; i < a->order.count; i++) {
        const AxisPart *part = &a->order.part[i];
        (axes_have(axes, count, part->axis) ? over : kept)[part->of] = true;
    }
    for (int of = AXIS_BATCH; of <= AXIS_COLUMN; of++)
        if (over[of] && (kept[of] || of == AXIS_BATCH)) return false;
    if (over[AXIS_CHANNEL]) shape->c = 1;
    if (over[AXIS_ROW]) shape->h = 1;
    if (over[AXIS_COLUMN]) shape->w = 1;
    return true;
}

static int32_t divisor_at_most(int32_t size, int32_t most)
{
    int32_t divisor = most < size ? most : size;
    while (size % divisor) divisor--;
    return divisor;
}

/* Of a size without such a divisor, windows that overlap: so long, each *stride behind the one before it, the last one at the end. Two
 * of them may find the same number; whatever finds the largest of theirs takes it, and gives the gradient, once. */
static int32_t overlapping(int32_t size, int32_t *stride)
{
    for (int32_t count = 1 + (size - 1) / LARGEST_OF;; count++) {
        *stride = size / count;
        if (size - (count - 1) * *stride <= LARGEST_OF) return size - (count - 1) * *stride;
    }
}

Value largest_pixel(Graph *g, Value x, Shape few)
{
    for (Shape s = graph_shape(g, x); s.h > few.h || s.w > few.w; s = graph_shape(g, x)) {
        int32_t kh = few.h < s.h ? divisor_at_most(s.h, LARGEST_OF) : 1,
                kw = few.w < s.w ? divisor_at_most(s.w, LARGEST_OF / kh) : 1;
        Window window = {.kh = kh, .kw = kw, .stride_h = kh < s.h ? kh : 1, .stride_w = kw < s.w ? kw : 1};
        if (kh * kw == 1 && few.h < s.h)
            window.kh = overlapping(s.h, &window.stride_h);
        else if (kh * kw == 1)
            window.kw = overlapping(s.w, &window.stride_w);
        x = max_pool_window(g, x, window);
    }
    return x;
}

/* Of each pixel, whose channels are columns of an image with a row for each pixel, which lies so in memory. */
static Value largest_channel(Graph *g, Value x)
{
    Shape s = graph_shape(g, x), rows = {s.n, 1, s.h * s.w, s.c}, column = {s.n, 1, s.h * s.w, 1};
    return reshape(g, largest_pixel(g, reshape(g, x, rows), column), (Shape){s.n, 1, s.h, s.w});
}

static Value largest(Graph *g, Value x, Shape few)
{
    x = largest_pixel(g, x, few);
    return few.c < graph_shape(g, x).c ? largest_channel(g, x) : x;
}

/* Of all pixels the mean comes first, whose sum is rounded once; a sum of squares may exceed 16 bits. */
static Value reduced(OnnxWalk *w, const OnnxNode *node, Value x, Shape few)
{
    Shape many = graph_shape(w->g, x);
    float count = (float)shape_count(many) / (float)shape_count(few);
    if (!strcmp(node->type, "ReduceMax")) return largest(w->g, x, few);
    bool pixels = few.c == many.c && few.h == 1 && few.w == 1, length = !strcmp(node->type, "ReduceL2"),
         mean = !strcmp(node->type, "ReduceMean");
    if (length) x = mul(w->g, x, x);
    Value y = pixels ? global_avg_pool(w->g, x) : sum_to(w->g, x, few);
    float scale = mean == pixels ? 1
                  : pixels       ? count
                                 : 1 / count,
          least = length ? 1e-30f : 0; /* a finite slope at 0 */
    if (pixels && !length) means_note(w, node);
    if (scale != 1 || length) y = affine(w->g, y, scale, least);
    return length ? power(w->g, y, 0.5f) : y;
}

void build_reduce(OnnxWalk *w, const OnnxNode *node)
{
    int64_t axes[NET_FILE_RANK], dims[NET_FILE_RANK];
    Active *a = walk_active(w, node, 0);
    int count = a ? node_axes(w, node, a->order.rank, axes) : 0, rank = 0;
    if (count < 0) return;
    Value x = a && count > 0 ? walk_value(w, node->in[0]) : (Value){0};
    if (!x.id) {
        walk_refuse(w, node, "expected axes, known before the network runs, of a value that it computes");
        return;
    }
    Shape many = graph_shape(w->g, x), few = many;
    AxisOrder order = a->order;
    for (int i = 0; i < order.rank; i++) {
        bool over = axes_have(axes, count, i);
        if (!over || onnx_int(node, "keepdims", 1)) dims[rank++] = over ? 1 : order_dim(&order, i);
    }
    if (count == 1 && reduce_groups(w, node, (int)axes[0])) return;
    bool whole = reduced_shape(a, axes, count, &few) && (int64_t)many.h * many.w <= INT32_MAX;
    if (few.c < many.c) order_resize(&order, 0, AXIS_CHANNEL, 1);
    if (few.h < many.h) order_resize(&order, 0, AXIS_ROW, 1);
    if (few.w < many.w) order_resize(&order, 0, AXIS_COLUMN, 1);
    if (whole && order_reshape(&order, dims, rank))
        walk_give(w, node, reduced(w, node, x, few), &order);
    else
        walk_refuse(w, node, "expected all rows, all columns or all channels, or several of them");
}

/* ---- softmax over pixels */

/* Whether these axes of the value have all its pixels and nothing else. */
static bool is_of_pixels(const AxisOrder *order, int first, int end)
{
    bool only = true;
    for (int i = 0; i < order->count; i++) {
        const AxisPart *part = &order->part[i];
        bool here = part->axis >= first && part->axis < end;
        only &= here == (part->of == AXIS_ROW || part->of == AXIS_COLUMN);
    }
    return only;
}

/* e^t = s(t) / s(-t) for t <= 0, s(t) = 1 / (1 + e^-t). */
static Value exponential(Graph *g, Value t)
{
    Value rises = sigmoid(g, t), falls = sigmoid(g, affine(g, t, -1, 0));
    return mul(g, rises, power(g, falls, -1));
}

bool softmax_of_pixels(OnnxWalk *w, const OnnxNode *node, int axis, int end)
{
    const Active *a = walk_active(w, node, 0);
    Value x = a ? walk_value(w, node->in[0]) : (Value){0};
    if (!x.id || !is_of_pixels(&a->order, axis, end)) return false;
    AxisOrder order = a->order;
    Shape s = graph_shape(w->g, x), one = {s.n, s.c, 1, 1};
    if (s.h * s.w == 1) return false;
    Value most = largest_pixel(w->g, x, one);
    Value e = exponential(w->g, add(w->g, x, spread_to(w->g, affine(w->g, most, -1, 0), s)));
    walk_give(w, node, mul(w->g, e, power(w->g, sum_to(w->g, e, one), -1)), &order);
    return true;
}

/* The parts that lie on these axes, from left to right, are the same, and the batch lies on the same axis. */
static bool pixels_agree(const AxisOrder *a, int axis_a, const AxisOrder *b, int axis_b)
{
    int j = 0;
    for (int i = 0; i < a->count; i++) {
        const AxisPart *p = &a->part[i];
        if (p->axis != axis_a) continue;
        while (j < b->count && b->part[j].axis != axis_b) j++;
        if (j == b->count || b->part[j].of != p->of || b->part[j].place != p->place || b->part[j].size != p->size)
            return false;
        j++;
    }
    while (j < b->count && b->part[j].axis != axis_b) j++;
    if (j < b->count) return false;
    for (int i = 0; i < a->count; i++)
        for (j = 0; j < b->count; j++)
            if (a->part[i].of == AXIS_BATCH && b->part[j].of == AXIS_BATCH && a->part[i].axis != b->part[j].axis)
                return false;
    return true;
}

/* Channels {.., c, pixels} times {.., pixels, 1}: the sum of all pixels, each by its weight. */
bool weighted_sum(OnnxWalk *w, const OnnxNode *node)
{
    const Active *a = walk_active(w, node, 0), *b = walk_active(w, node, 1);
    int rank = a && b ? a->order.rank : 0;
    if (rank < 3 || b->order.rank != rank) return false;
    AxisOrder order = a->order, weights = b->order;
    if (!is_of_pixels(&order, rank - 1, rank) || !is_of_pixels(&weights, rank - 2, rank - 1)) return false;
    for (int i = 0; i < order.count; i++)
        if (order.part[i].of == AXIS_CHANNEL && (order.part[i].axis != rank - 2 || order.part[i].place)) return false;
    if (!pixels_agree(&order, rank - 1, &weights, rank - 2)) return false;
    if (order_size(&weights, AXIS_CHANNEL) > 1 || order_dim(&weights, rank - 2) != order_dim(&order, rank - 1))
        return false;
    Value x = walk_value(w, node->in[0]), y = walk_value(w, node->in[1]);
    if (!x.id || !y.id) return false;
    Shape s = graph_shape(w->g, x), one = {s.n, s.c, 1, 1};
    if (graph_shape(w->g, y).h != s.h) return false;
    order_resize(&order, 0, AXIS_ROW, 1);
    order_resize(&order, 0, AXIS_COLUMN, 1);
    means_note(w, node);
    walk_give(w, node, sum_to(w->g, mul(w->g, x, spread_to(w->g, y, s)), one), &order);
    return true;
}
