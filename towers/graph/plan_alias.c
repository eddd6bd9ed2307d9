/* Which values share storage; see plan_internal.h.
 *
 * Ops are visited once, in list order. The result of an op starts in its own storage and may join that of an operand:
 *   SLICE, RESHAPE  the result is a view of the operand
 *   CONCAT          the storage of the operand moves into that of the result, so its producer writes the slice directly
 *   in place        the result takes over the storage of an operand that has no later reader
 * A value may lie inside a wider one only if its producer and all its readers take strided tensors at that place and
 * its channels start at multiples of 16 bytes, as vector loads need. Otherwise the op copies. A value whose producer can
 * pad its rows to such a multiple, and whose readers all want that, gets the wider pitch and storage of its own. Since
 * the readers of a value come after its op, decisions in list order are final: an operand that is read now has not been
 * overwritten before, and an op that overwrites it later checks all values in that storage. */
#include "towers/graph/plan_internal.h"

enum { CHANNEL_ALIGN_BYTES = 16 };

static const ValueInfo *value_info(const Alias *alias, int32_t id)
{
    return graph_value(alias->graph, (Value){id});
}

/* ---- who reads what */

/* Afterwards the uses of value v are uses[first_use[v]] .. uses[first_use[v + 1] - 1], in list order. */
static void index_uses(Alias *alias)
{
    int32_t *start = alias->first_use;
    int values = graph_value_count(alias->graph), ops = graph_op_count(alias->graph);
    for (int i = 0; i < ops; i++)
        for (int k = 0; k < graph_op_at(alias->graph, i)->in_count; k++)
            start[graph_op_at(alias->graph, i)->in[k].id + 2]++;
    for (int32_t id = 0; id <= values; id++) start[id + 2] += start[id + 1];
    for (int i = 0; i < ops; i++) {
        const Op *op = graph_op_at(alias->graph, i);
        for (int k = 0; k < op->in_count; k++) alias->uses[start[op->in[k].id + 1]++] = (ValueUse){i, k};
    }
}

static bool is_padded(const Alias *alias, int32_t id)
{
    const ValueInfo *info = value_info(alias, id);
    if (info->op < 0 || info->role != ROLE_TEMP) return false;
    if (!(alias->backend->kernels[graph_op_at(alias->graph, info->op)->kind]->pads_out >> info->out & 1)) return false;
    for (int32_t i = alias->first_use[id]; i < alias->first_use[id + 1]; i++) {
        ValueUse use = alias->uses[i];
        if (!(alias->backend->kernels[graph_op_at(alias->graph, use.op)->kind]->pads_in >> use.in & 1)) return false;
    }
    return (size_t)info->shape.c * dtype_bytes(info->dtype) % CHANNEL_ALIGN_BYTES != 0;
}

/* ---- whether a value may be placed there */

static bool op_is_view(OpKind kind)
{
    return kind == OP_SLICE || kind == OP_CONCAT || kind == OP_RESHAPE;
}

bool alias_skips(const Alias *alias, int op)
{
    const Op *o = graph_op_at(alias->graph, op);
    return op_is_view(o->kind) && alias->placed[op] == (1u << o->in_count) - 1;
}

/* The y of a batch norm, without which it makes its statistics alone. */
static bool only_sums(const Alias *alias, int32_t id)
{
    return graph_op_at(alias->graph, value_info(alias, id)->op)->kind == OP_BATCHNORM;
}

static bool takes_strided_out(const Alias *alias, const ValueInfo *info)
{
    if (info->op < 0) return false;
    if (alias_skips(alias, info->op)) return true;
    return alias->backend->storage[graph_op_at(alias->graph, info->op)->kind].strided_out >> info->out & 1;
}

static bool take_strided_in(const Alias *alias, int32_t id)
{
    for (int32_t i = alias->first_use[id]; i < alias->first_use[id + 1]; i++) {
        ValueUse use = alias->uses[i];
        if (alias->placed[use.op] >> use.in & 1) continue;
        if (!(alias->backend->storage[graph_op_at(alias->graph, use.op)->kind].strided_in >> use.in & 1)) return false;
    }
    return true;
}

static bool member_fits(const Alias *alias, int32_t id, int64_t first, int64_t pitch)
{
    const ValueInfo *info = value_info(alias, id);
    size_t bytes = dtype_bytes(info->dtype);
    if (pitch == info->shape.c) return true;
    if ((size_t)first * bytes % CHANNEL_ALIGN_BYTES || (size_t)pitch * bytes % CHANNEL_ALIGN_BYTES) return false;
    return takes_strided_out(alias, info) && take_strided_in(alias, id);
}

/* Reshaped members have another pitch than the rest and cover everything. */
static bool members_overlap(const Alias *alias, int32_t a, int32_t b)
{
    const AliasMember *x = &alias->member[a], *y = &alias->member[b];
    if (x->root != y->root) return false;
    if (x->pitch != y->pitch) return true;
    return x->first < y->first + value_info(alias, b)->shape.c && y->first < x->first + value_info(alias, a)->shape.c;
}

/* ---- joining */

/* `id` is in its own storage, alone. */
static void join(Alias *alias, int32_t id, int32_t host, int64_t first, int64_t pitch)
{
    AliasMember *member = alias->member;
    int32_t root = member[host].root;
    member[id] = (AliasMember){
        .root = root, .next = member[root].next, .first = first, .pitch = pitch, .last_read = member[id].last_read};
    member[root].next = id;
}

/* The operand fills its storage, so that it may move, and all members may move to channel `first` of a tensor of pitch
 * `pitch`. */
static bool can_move(const Alias *alias, int32_t id, int64_t first, int64_t pitch)
{
    const AliasMember *moved = &alias->member[id];
    int32_t channels = value_info(alias, id)->shape.c;
    for (int32_t m = moved->root; m; m = alias->member[m].next) {
        const AliasMember *member = &alias->member[m];
        if (member->pitch != channels || value_info(alias, m)->role != ROLE_TEMP) return false;
        if (!member_fits(alias, m, first + member->first, pitch)) return false;
    }
    return true;
}

static void move(Alias *alias, int32_t id, int32_t host, int64_t first)
{
    AliasMember *member = alias->member;
    int32_t root = member[host].root, last = 0, head = member[id].root;
    for (int32_t m = head; m; m = member[m].next) {
        member[m].root = root;
        member[m].first += first;
        member[m].pitch = member[root].pitch;
        last = m;
    }
    member[last].next = member[root].next;
    member[root].next = head;
}

/* The operands are already adjacent in one storage, which then holds the result, too. */
static bool join_ready_concat(Alias *alias, int32_t i)
{
    const Op *op = graph_op_at(alias->graph, i);
    const AliasMember *head = &alias->member[op->in[0].id];
    int64_t first = head->first;
    int32_t y = op->out[0].id;
    if (value_info(alias, y)->role != ROLE_TEMP) return false;
    for (int k = 0; k < op->in_count; k++) {
        const AliasMember *part = &alias->member[op->in[k].id];
        if (part->root != head->root || part->pitch != head->pitch || part->first != first) return false;
        first += graph_shape(alias->graph, op->in[k]).c;
    }
    alias->placed[i] = (uint8_t)((1u << op->in_count) - 1);
    if (member_fits(alias, y, head->first, head->pitch)) {
        join(alias, y, head->root, head->first, head->pitch);
        return true;
    }
    alias->placed[i] = 0;
    return false;
}

static void alias_concat(Alias *alias, int32_t i)
{
    const Op *op = graph_op_at(alias->graph, i);
    int32_t y = op->out[0].id;
    int64_t first = 0;
    if (join_ready_concat(alias, i)) return;
    for (int k = 0; k < op->in_count; k++) {
        int32_t x = op->in[k].id;
        alias->placed[i] |= (uint8_t)(1u << k);
        if (can_move(alias, x, first, alias->member[y].pitch))
            move(alias, x, y, first);
        else
            alias->placed[i] &= (uint8_t) ~(1u << k);
        first += value_info(alias, x)->shape.c;
    }
}

static void alias_slice(Alias *alias, int32_t i)
{
    const Op *op = graph_op_at(alias->graph, i);
    const AliasMember *x = &alias->member[op->in[0].id];
    int64_t first = x->first + op->attr.slice.first;
    if (value_info(alias, op->out[0].id)->role != ROLE_TEMP) return;
    alias->placed[i] = 1;
    if (member_fits(alias, op->out[0].id, first, x->pitch))
        join(alias, op->out[0].id, op->in[0].id, first, x->pitch);
    else
        alias->placed[i] = 0;
}

static void alias_reshape(Alias *alias, int32_t i)
{
    const Op *op = graph_op_at(alias->graph, i);
    const AliasMember *x = &alias->member[op->in[0].id];
    bool packed = x->first == 0 && x->pitch == value_info(alias, op->in[0].id)->shape.c;
    if (!packed || value_info(alias, op->out[0].id)->role != ROLE_TEMP) return;
    join(alias, op->out[0].id, op->in[0].id, 0, value_info(alias, op->out[0].id)->shape.c);
    alias->placed[i] = 1;
}

/* ---- in place */

static bool nobody_needs(const Alias *alias, int32_t i, int k)
{
    const Op *op = graph_op_at(alias->graph, i);
    int32_t x = op->in[k].id;
    for (int32_t m = alias->member[x].root; m; m = alias->member[m].next) {
        if (!members_overlap(alias, m, x)) continue;
        if (value_info(alias, m)->role != ROLE_TEMP || alias->member[m].last_read > i) return false;
    }
    for (int other = 0; other < op->in_count; other++)
        if (other != k && op->in[other].id && members_overlap(alias, op->in[other].id, x)) return false;
    return true;
}

static bool read_by_concat(const Alias *alias, int32_t id)
{
    for (int32_t i = alias->first_use[id]; i < alias->first_use[id + 1]; i++)
        if (graph_op_at(alias->graph, alias->uses[i].op)->kind == OP_CONCAT) return true;
    return false;
}

static bool can_take(const Alias *alias, int32_t i, int k)
{
    const Op *op = graph_op_at(alias->graph, i);
    if (!op->in[k].id || !(alias->backend->storage[op->kind].in_place >> k & 1)) return false;
    const ValueInfo *x = value_info(alias, op->in[k].id), *y = value_info(alias, op->out[0].id);
    const AliasMember *place = &alias->member[op->in[k].id];
    if (!shape_equal(x->shape, y->shape) || x->dtype != y->dtype || y->role != ROLE_TEMP) return false;
    /* A value inside a wider one cannot move into a concat any more. */
    if (place->pitch != x->shape.c && read_by_concat(alias, op->out[0].id)) return false;
    return nobody_needs(alias, i, k) && member_fits(alias, op->out[0].id, place->first, place->pitch);
}

static void alias_in_place(Alias *alias, int32_t i)
{
    const Op *op = graph_op_at(alias->graph, i);
    if (alias->member[op->out[0].id].unused) return;
    for (int k = 0; k < op->in_count; k++) {
        if (!can_take(alias, i, k)) continue;
        const AliasMember *place = &alias->member[op->in[k].id];
        join(alias, op->out[0].id, op->in[k].id, place->first, place->pitch);
        return;
    }
}

static void count_shared(Alias *alias)
{
    for (int32_t id = 1; id <= graph_value_count(alias->graph); id++) alias->shared += alias->member[id].root != id;
    for (int i = 0; i < graph_op_count(alias->graph); i++) {
        const Op *op = graph_op_at(alias->graph, i);
        if (!op_is_view(op->kind)) continue;
        for (int k = 0; k < op->in_count; k++) alias->copied += !(alias->placed[i] >> k & 1);
    }
}

static Status check_kernels(const Alias *alias)
{
    for (int i = 0; i < graph_op_count(alias->graph); i++) {
        const Op *op = graph_op_at(alias->graph, i);
        if (!alias->backend->kernels[op->kind])
            return FAIL(ERR_UNSUPPORTED, "%s: this backend has no kernel for '%s'", op->name, op_name(op->kind));
    }
    return OK;
}

Status alias_create(Alias *alias, const Graph *graph, const Backend *backend, bool no_alias)
{
    int values = graph_value_count(graph), ops = graph_op_count(graph);
    *alias = (Alias){.graph = graph, .backend = backend};
    alias->member = calloc((size_t)values + 1, sizeof *alias->member);
    alias->first_use = calloc((size_t)values + 3, sizeof *alias->first_use);
    alias->uses = calloc((size_t)ops * OP_MAX_IN + 1, sizeof *alias->uses);
    alias->placed = calloc((size_t)ops + 1, sizeof *alias->placed);
    if (!alias->member || !alias->first_use || !alias->uses || !alias->placed)
        return FAIL(ERR_MEMORY, "no memory for the plan of %d ops and %d values", ops, values);
    TRY(check_kernels(alias));
    index_uses(alias);
    for (int32_t id = 1; id <= values; id++) {
        const ValueInfo *info = value_info(alias, id);
        int32_t begin = alias->first_use[id], end = alias->first_use[id + 1];
        int64_t lanes = CHANNEL_ALIGN_BYTES / (int64_t)dtype_bytes(info->dtype);
        bool padded = is_padded(alias, id);
        alias->member[id] = (AliasMember){
            .root = id,
            .pitch = padded ? (info->shape.c + lanes - 1) / lanes * lanes : info->shape.c,
            .padded = padded,
            .last_read = begin == end ? info->op : alias->uses[end - 1].op,
            .unused =
                begin == end && info->role == ROLE_TEMP && (info->op < 0 || info->out >= 1 || only_sums(alias, id)),
        };
    }
    for (int i = 0; i < ops && !no_alias; i++) {
        switch (graph_op_at(alias->graph, i)->kind) {
        case OP_CONCAT: alias_concat(alias, i); break;
        case OP_SLICE: alias_slice(alias, i); break;
        case OP_RESHAPE: alias_reshape(alias, i); break;
        default: alias_in_place(alias, i); break;
        }
    }
    count_shared(alias);
    return OK;
}

void alias_destroy(Alias *alias)
{
    free(alias->member);
    free(alias->uses);
    free(alias->first_use);
    free(alias->placed);
}
