/* Axes of a file's value as factors of the four sizes in memory; see onnx_order.h. */
#include "inception/networks/onnx_order.h"

static const char letters[] = "NCHW";

static int64_t size_of(Shape s, OnnxAxis of)
{
    const int64_t sizes[] = {BATCH_SIZE, s.c, s.h, s.w};
    return sizes[of];
}

AxisOrder order_make(const char *axes, Shape shape)
{
    AxisOrder order = {.rank = (int)strlen(axes)};
    for (int i = 0; i < order.rank; i++) {
        OnnxAxis of = (OnnxAxis)(strchr(letters, axes[i]) - letters);
        if (size_of(shape, of) > 1) order.part[order.count++] = (AxisPart){i, of, 0, size_of(shape, of)};
    }
    return order;
}

int64_t order_dim(const AxisOrder *order, int axis)
{
    int64_t size = 1;
    for (int i = 0; i < order->count; i++)
        if (order->part[i].axis == axis) size *= order->part[i].size;
    return size;
}

int64_t order_count(const AxisOrder *order)
{
    int64_t count = 1;
    for (int i = 0; i < order->count; i++) count *= order->part[i].size;
    return count;
}

int64_t order_size(const AxisOrder *order, OnnxAxis of)
{
    int64_t size = 1;
    for (int i = 0; i < order->count; i++)
        if (order->part[i].of == of) size *= order->part[i].size;
    return size;
}

bool order_transpose(AxisOrder *order, const int64_t *permutation, int rank)
{
    AxisOrder from = *order;
    bool seen[NET_FILE_RANK] = {false};
    if (rank != from.rank) return false;
    order->count = 0;
    for (int i = 0; i < rank; i++) {
        int64_t axis = permutation[i];
        if (axis < 0 || axis >= rank || seen[axis]) return false;
        seen[axis] = true;
        for (int k = 0; k < from.count; k++)
            if (from.part[k].axis == axis) {
                order->part[order->count] = from.part[k];
                order->part[order->count++].axis = i;
            }
    }
    return true;
}

/* AxisPart i becomes two, of which the outer one has this size. */
static bool part_split(AxisOrder *order, int i, int64_t outer)
{
    if (order->count >= ORDER_PARTS - 3)
        return false; /* order_resize may add a part of channels, of rows and of columns */
    for (int k = 0; k < order->count; k++)
        if (order->part[k].of == order->part[i].of && order->part[k].place > order->part[i].place)
            order->part[k].place++;
    memmove(&order->part[i + 1], &order->part[i], (size_t)(order->count++ - i) * sizeof *order->part);
    order->part[i].size = outer;
    order->part[i + 1].size /= outer;
    order->part[i + 1].place++;
    return true;
}

/* Parts that are beside each other here and in memory become one again. */
static void parts_join(AxisOrder *order)
{
    for (int i = 0; i + 1 < order->count;) {
        AxisPart *a = &order->part[i], *b = a + 1;
        if (a->axis != b->axis || a->of != b->of || b->place != a->place + 1) {
            i++;
            continue;
        }
        a->size *= b->size;
        AxisPart gone = *b;
        memmove(b, b + 1, (size_t)(--order->count - i - 1) * sizeof *b);
        for (int k = 0; k < order->count; k++)
            if (order->part[k].of == gone.of && order->part[k].place > gone.place) order->part[k].place--;
    }
}

bool order_reshape(AxisOrder *order, const int64_t *dims, int rank)
{
    int next = 0;
    if (rank > NET_FILE_RANK) return false;
    for (int axis = 0; axis < rank; axis++) {
        int64_t rest = dims[axis];
        while (rest > 1) {
            if (next == order->count) return false;
            int64_t size = order->part[next].size;
            if (rest % size && (size % rest || !part_split(order, next, rest))) return false;
            order->part[next].axis = axis;
            rest /= order->part[next++].size;
        }
        if (rest != 1) return false;
    }
    order->rank = rank;
    if (next != order->count) return false;
    parts_join(order);
    return true;
}

bool order_equal(const AxisOrder *a, const AxisOrder *b)
{
    bool equal = a->rank == b->rank && a->count == b->count;
    for (int i = 0; equal && i < a->count; i++)
        equal = a->part[i].axis == b->part[i].axis && a->part[i].of == b->part[i].of &&
                a->part[i].place == b->part[i].place && a->part[i].size == b->part[i].size;
    return equal;
}

bool order_is(const AxisOrder *order, const char *axes)
{
    if (order->rank != (int)strlen(axes)) return false;
    for (int i = 0; i < order->count; i++) /* a second part has another axis, or lies elsewhere than in memory */
        if (order->part[i].place || axes[order->part[i].axis] != letters[order->part[i].of]) return false;
    return true;
}

bool order_has_channels(const AxisOrder *order, int axis)
{
    for (int i = 0; i < order->count; i++) {
        const AxisPart *part = &order->part[i];
        if ((part->of == AXIS_CHANNEL) != (part->axis == axis) || part->place) return false;
    }
    return true;
}

void order_resize(AxisOrder *order, int axis, OnnxAxis of, int64_t size)
{
    int kept = 0, at = 0;
    for (int i = 0; i < order->count; i++) {
        if (order->part[i].of == of) continue;
        order->part[kept++] = order->part[i];
        if (order->part[i].axis <= axis) at = kept;
    }
    order->count = kept;
    if (size == 1) return;
    memmove(&order->part[at + 1], &order->part[at], (size_t)(order->count++ - at) * sizeof *order->part);
    order->part[at] = (AxisPart){axis, of, 0, size};
}
