/* Places of elements in a value of all images, where the number of images is open: PyTorch's dynamo exporter writes the view of a contiguous
 * value (as_strided) as a Range over the batch, of which it computes the place of each element. Here these are the places of the first image,
 * and how far apart the images are. */
#include "inception/networks/onnx_walk.h"

const Places *walk_places(OnnxWalk *w, const OnnxNode *node, int k)
{
    const OnnxItem *item = walk_in(w, node, k);
    return item && item->known == KNOWN_PLACES ? &item->places : NULL;
}

bool places_in_order(const Places *places)
{
    bool order = places->step == (double)places->count;
    for (int64_t i = 0; order && i < places->count; i++) order = places->first[i] == (double)i;
    return order;
}

static Places *places_give(OnnxWalk *w, const OnnxNode *node, Places made)
{
    OnnxItem *item = &w->item[node->out[0]];
    made.count = 1;
    for (int axis = 1; axis < made.rank; axis++)
        if (__builtin_mul_overflow(made.count, made.dims[axis], &made.count)) made.count = NUMBERS_MAX + 1;
    if (made.count > NUMBERS_MAX)
        walk_refuse(w, node, "it makes a constant of more than %d numbers for each image", NUMBERS_MAX);
    else if ((made.first = walk_memory(w, (size_t)made.count + 1, sizeof *made.first)))
        *item = (OnnxItem){.known = KNOWN_PLACES, .places = made};
    return item->known == KNOWN_PLACES ? &item->places : NULL;
}

/* 0, 1, ... for each image; false: another Range. */
static bool images_count(OnnxWalk *w, const OnnxNode *node)
{
    const Fixed *in[3];
    for (int k = 0; k < 3; k++)
        if (!(in[k] = walk_fixed(w, node, k)) || in[k]->count != 1 || !in[k]->integer) return false;
    if (fixed_at(in[0], 0) != 0 || fixed_at(in[1], 0) != (double)BATCH_SIZE || fixed_at(in[2], 0) != 1) return false;
    (void)places_give(w, node, (Places){.rank = 1, .dims = {BATCH_SIZE}, .step = 1});
    return true;
}

/* Numbers that are the same for every image are added to the places of each. */
static bool places_add(OnnxWalk *w, const OnnxNode *node, const Places *p, const Fixed *f)
{
    Fixed first = {.rank = p->rank, .number = p->first};
    Places made = *p;
    int rank = p->rank;
    if (f->rank > rank || (f->rank == rank && f->dims[0] != 1)) return false;
    memcpy(first.dims, p->dims, sizeof first.dims);
    made.dims[0] = first.dims[0] = 1;
    if (!fixed_spread(f, &rank, made.dims)) return false;
    made.dims[0] = BATCH_SIZE;
    Places *to = places_give(w, node, made);
    made.dims[0] = 1;
    for (int64_t i = 0; to && i < to->count; i++)
        to->first[i] = fixed_spread_at(&first, i, rank, made.dims) + fixed_spread_at(f, i, rank, made.dims);
    return true;
}

/* The same places in another shape, or `by` times as far apart. */
static bool places_scale(OnnxWalk *w, const OnnxNode *node, const Places *p, int rank, const int64_t *dims, double by)
{
    Places made = {.rank = rank, .step = p->step * by};
    if (rank < 1 || dims[0] != BATCH_SIZE) return false;
    memcpy(made.dims, dims, (size_t)rank * sizeof *dims);
    Places *to = places_give(w, node, made);
    for (int64_t i = 0; to && i < to->count; i++) to->first[i] = p->first[i] * by;
    return true;
}

/* A Slice of all images, x[:] in Python. */
static bool is_whole(OnnxWalk *w, const OnnxNode *node)
{
    const double expected[] = {0, (double)BATCH_SIZE, 0, 1}; /* start, end, axis, step */
    for (int i = 0; i < 4; i++) {
        const Fixed *f = walk_fixed(w, node, i + 1);
        double found = f && f->count == 1 ? fixed_at(f, 0) : NAN;
        if (walk_in(w, node, i + 1) && !(i == 1 ? found >= expected[i] : found == expected[i])) return false;
    }
    return node->in_count > 2;
}

/* x[:] += y changes all images of x, as the exporter writes it: what is scattered is the result. */
static bool all_scattered(OnnxWalk *w, const OnnxNode *node, const Places *p)
{
    const Active *x = walk_active(w, node, 0), *y = walk_active(w, node, 2);
    bool all = x && y && p->rank == 2 && p->dims[1] == 1 && places_in_order(p) && x->order.rank == y->order.rank &&
               x->order.rank > 0 && order_dim(&x->order, 0) == BATCH_SIZE &&
               (onnx_text_is(node, "reduction", "") || onnx_text_is(node, "reduction", "none"));
    for (int axis = 0; all && axis < x->order.rank; axis++)
        all = order_dim(&x->order, axis) == order_dim(&y->order, axis);
    if (all) walk_alias(w, node->out[0], node->in[2]);
    return all;
}

bool places_node(OnnxWalk *w, const OnnxNode *node)
{
    static const char *const takes[] = {"Gather", NULL}, *const passes[] = {"Cast", "Identity", NULL};
    int k = walk_places(w, node, 0) ? 0 : 1;
    const Places *p = walk_places(w, node, k);
    const Fixed *f = walk_fixed(w, node, 1 - k);
    int64_t dims[NET_FILE_RANK], to = onnx_int(node, "to", ELEMENT_INT64);
    bool known = false, whole = to == ELEMENT_INT64 || to == ELEMENT_INT32;
    if (!strcmp(node->type, "Range") && images_count(w, node)) return true;
    if (!p || onnx_type_is(node, takes)) return false;
    if (!strcmp(node->type, "Unsqueeze") && k == 0)
        known = places_scale(w, node, p, dims_unsqueeze(w, node, p->dims, p->rank, dims), dims, 1);
    else if (!strcmp(node->type, "Mul") && f && f->integer && f->count == 1 && f->rank <= p->rank)
        known = places_scale(w, node, p, p->rank, p->dims, fixed_at(f, 0));
    else if (!strcmp(node->type, "Slice") && k == 0 && is_whole(w, node))
        known = places_scale(w, node, p, p->rank, p->dims, 1);
    else if (!strcmp(node->type, "ScatterND") && k == 1)
        known = all_scattered(w, node, p);
    else if (!strcmp(node->type, "Add") && f && f->integer)
        known = places_add(w, node, p, f);
    else if (onnx_type_is(node, passes) && k == 0 && whole)
        known = places_scale(w, node, p, p->rank, p->dims, 1);
    if (!known)
        walk_refuse(w, node,
                    "a count of the images is known in the view of a whole value, and where all images change, and "
                    "nowhere else");
    return true;
}
