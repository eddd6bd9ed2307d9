/* Axes of an operand, and its sizes in another shape, for values that the network computes and for constants (onnx_walk.h). */
#include "inception/networks/onnx_walk.h"

int node_ints(OnnxWalk *w, const OnnxNode *node, int k, const char *name, int64_t *to, int room)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    if (!a) return fixed_ints(walk_fixed(w, node, k), to, room);
    if (a->n_ints > (size_t)room) return -1;
    for (size_t i = 0; i < a->n_ints; i++) to[i] = a->ints[i];
    return (int)a->n_ints;
}

/* ---- axes */

int axis_among(int64_t axis, int rank)
{
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

int node_axis(OnnxWalk *w, const OnnxNode *node, int64_t axis, int rank)
{
    int among = axis_among(axis, rank);
    if (among < 0)
        walk_refuse(w, node, "it has the axis %" PRId64 " of a value with %d axes, the first 0 and the last -1", axis,
                    rank);
    return among;
}

bool node_axes_settle(OnnxWalk *w, const OnnxNode *node, int64_t *axes, int count, int rank)
{
    for (int i = 0; i < count; i++) {
        if ((axes[i] = node_axis(w, node, axes[i], rank)) < 0) return false;
        if (!axes_have(axes, i, (int)axes[i])) continue;
        walk_refuse(w, node, "it has the axis %" PRId64 " twice", axes[i]);
        return false;
    }
    return true;
}

int node_axes_listed(OnnxWalk *w, const OnnxNode *node, int64_t axes[NET_FILE_RANK])
{
    bool given = onnx_attribute(node, "axes") || walk_in(w, node, 1);
    return given ? node_ints(w, node, 1, "axes", axes, NET_FILE_RANK) : 0;
}

int node_axes(OnnxWalk *w, const OnnxNode *node, int rank, int64_t axes[NET_FILE_RANK])
{
    int count = node_axes_listed(w, node, axes);
    if (count < 0) walk_refuse(w, node, "expected axes, at most %d, that are known before the network runs", rank);
    return count < 0 || !node_axes_settle(w, node, axes, count, rank) ? -1 : count;
}

bool axes_have(const int64_t *axes, int count, int axis)
{
    for (int i = 0; i < count; i++)
        if (axes[i] == axis) return true;
    return false;
}

bool node_permutes(OnnxWalk *w, const OnnxNode *node, int rank)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, "perm");
    bool seen[NET_FILE_RANK] = {false}, each = !a || a->n_ints == (size_t)rank;
    for (int i = 0; a && each && i < rank; i++) {
        each = a->ints[i] >= 0 && a->ints[i] < rank && !seen[a->ints[i]];
        if (each) seen[a->ints[i]] = true;
    }
    if (!each) walk_refuse(w, node, "expected each of its operand's %d axes once", rank);
    return each;
}

/* ---- sizes */

int dims_squeeze(OnnxWalk *w, const OnnxNode *node, const int64_t *from, int rank, int64_t *to)
{
    int64_t axes[NET_FILE_RANK];
    int count = node_axes(w, node, rank, axes), made = 0;
    if (count < 0) return -1;
    for (int i = 0; i < rank; i++) {
        bool gone = count ? axes_have(axes, count, i) : from[i] == 1;
        if (!gone) to[made++] = from[i];
        if (!gone || from[i] == 1) continue;
        walk_refuse(w, node, "it takes away axis %d, which has more than one place", i);
        return -1;
    }
    return made;
}

int dims_unsqueeze(OnnxWalk *w, const OnnxNode *node, const int64_t *from, int rank, int64_t *to)
{
    int64_t axes[NET_FILE_RANK];
    int count = node_axes_listed(w, node, axes), next = 0;
    if (count < 0 || rank + count > NET_FILE_RANK) {
        walk_refuse(w, node, "expected axes, of at most %d, that are known before the network runs", NET_FILE_RANK);
        return -1;
    }
    if (!node_axes_settle(w, node, axes, count, rank + count)) return -1;
    for (int i = 0; i < rank + count; i++) to[i] = axes_have(axes, count, i) ? 1 : from[next++];
    return rank + count;
}

bool dims_reshape(const OnnxNode *node, const int64_t *from, int from_rank, int64_t batch, int64_t *dims, int rank)
{
    int64_t total = 1, known = 1;
    int open = -1;
    bool zeros = onnx_int(node, "allowzero", 0) == 0;
    for (int i = 0; i < from_rank; i++)
        if (__builtin_mul_overflow(total, from[i], &total)) return false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 0 && zeros && i < from_rank) dims[i] = from[i];
        if (dims[i] == -1 && open < 0)
            open = i;
        else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known))
            return false;
    }
    if (rank && batch > 0 && dims[0] == batch && known % BATCH_SIZE) {
        known /= dims[0];
        if (__builtin_mul_overflow(known, BATCH_SIZE, &known)) return false;
        dims[0] = BATCH_SIZE;
    }
    if (open < 0) return known == total;
    dims[open] = known ? total / known : 0;
    return known * dims[open] == total;
}
