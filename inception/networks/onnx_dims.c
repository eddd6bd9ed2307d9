/* Sizes of an operand in another shape, for values that the network computes and for constants (onnx_walk.h). */
#include "inception/networks/onnx_walk.h"

int node_ints(OnnxWalk *w, const OnnxNode *node, int k, const char *name, int64_t *to, int room)
{
    const Onnx__AttributeProto *a = onnx_attribute(node, name);
    if (!a) return fixed_ints(walk_fixed(w, node, k), to, room);
    if (a->n_ints > (size_t)room) return -1;
    for (size_t i = 0; i < a->n_ints; i++) to[i] = a->ints[i];
    return (int)a->n_ints;
}

int node_axes(OnnxWalk *w, const OnnxNode *node, int64_t axes[NET_FILE_RANK])
{
    bool given = onnx_attribute(node, "axes") || walk_in(w, node, 1);
    return given ? node_ints(w, node, 1, "axes", axes, NET_FILE_RANK) : 0;
}

bool axes_have(const int64_t *axes, int count, int axis, int rank)
{
    for (int i = 0; i < count; i++)
        if (axes[i] == axis || axes[i] == axis - rank) return true;
    return false;
}

int dims_squeeze(OnnxWalk *w, const OnnxNode *node, const int64_t *from, int rank, int64_t *to)
{
    int64_t axes[NET_FILE_RANK];
    int count = node_axes(w, node, axes), made = 0;
    for (int i = 0; i < rank && count >= 0; i++)
        if (count ? !axes_have(axes, count, i, rank) : from[i] != 1) to[made++] = from[i];
    return count < 0 ? -1 : made;
}

int dims_unsqueeze(OnnxWalk *w, const OnnxNode *node, const int64_t *from, int rank, int64_t *to)
{
    int64_t axes[NET_FILE_RANK];
    int count = node_axes(w, node, axes), next = 0;
    if (count < 0 || rank + count > NET_FILE_RANK) return -1;
    for (int i = 0; i < rank + count; i++) {
        bool added = axes_have(axes, count, i, rank + count);
        if (!added && next == rank) return -1;
        to[i] = added ? 1 : from[next++];
    }
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
