/* The arena and the offset of every value; see plan_internal.h.
 *
 * The role decides the arena. PARAM, PACK, GRAD, RUNNING and BATCH_STATISTIC are placed by the layout, by name; INPUT, FOLDED
 * and RESULT one after another; all other storage shares SCRATCH by its time of use: from the first write to the last read
 * of any value in it. */
#include "towers/graph/plan_internal.h"

typedef struct Assign {
    const Alias *alias;   /* borrowed */
    const Layout *layout; /* borrowed */
    ValuePlace *place;    /* borrowed, result */
    size_t *bytes;        /* borrowed, result */
} Assign;

static const ValueInfo *value_info(const Assign *a, int32_t id)
{
    return graph_value(a->alias->graph, (Value){id});
}

/* The first element of an entry of the layout, which must be of this value. */
static Status find_entry(const LayoutEntry *entry, const ValueInfo *info, const char *what, size_t *first)
{
    if (!entry)
        return FAIL(ERR_ARG,
                    "%s '%s' is not in the layout, which was made from the training graph: build both graphs from the "
                    "same model, with the same options and passes",
                    what, info->name);
    if (!shape_equal(entry->shape, info->shape))
        return FAIL(ERR_SHAPE, "%s '%s' is %s here and %s in the layout, which was made from the training graph", what,
                    info->name, shape_text(info->shape), shape_text(entry->shape));
    if (info->dtype != DTYPE_F32)
        return FAIL(ERR_INTERNAL, "%s '%s' is %s, but arenas of the layout are f32", what, info->name,
                    dtype_name(info->dtype));
    *first = entry->first;
    return OK;
}

static Status find_param(const Assign *a, const ValueInfo *info, size_t *first)
{
    return find_entry(layout_param(a->layout, info->name), info, "parameter", first);
}

static Status find_pack(const Assign *a, const ValueInfo *info, size_t *first)
{
    size_t expected = 0, at = 0;
    for (int k = 0; k < info->member_count; k++) {
        const ValueInfo *member = value_info(a, info->members[k].id);
        TRY(find_param(a, member, &at));
        if (k == 0) *first = expected = at;
        if (at != expected)
            return FAIL(ERR_ARG,
                        "parameters '%s' and '%s' are one pack here, but are not adjacent in the layout: apply the "
                        "same passes to every graph of a model",
                        value_info(a, info->members[k - 1].id)->name, member->name);
        expected += (size_t)shape_count(member->shape);
    }
    return OK;
}

static Status find_parameters(const Assign *a, const ValueInfo *info, size_t *first)
{
    return info->role == ROLE_PACK ? find_pack(a, info, first) : find_param(a, info, first);
}

static Status find_state(const Assign *a, const ValueInfo *info, size_t *first)
{
    return find_entry(layout_running(a->layout, info->name), info, "running statistic", first);
}

static void append(const Assign *a, int32_t id, Arena arena)
{
    const ValueInfo *info = value_info(a, id);
    a->place[id] = (ValuePlace){arena, a->bytes[arena], false};
    a->bytes[arena] += place_align((size_t)shape_count(info->shape) * dtype_bytes(info->dtype));
}

/* The gradient or statistic of a value has the same offset in an arena of the same layout. */
static Status check_same_count(const Assign *a, const ValueInfo *info)
{
    const ValueInfo *of = value_info(a, info->of.id);
    if (info->dtype != DTYPE_F32 || shape_count(info->shape) != shape_count(of->shape))
        return FAIL(ERR_INTERNAL, "'%s' (%s %s) cannot share the storage of '%s' (%s)", info->name,
                    dtype_name(info->dtype), shape_text(info->shape), of->name, shape_text(of->shape));
    return OK;
}

static Status check_trained(const Assign *a, const ValueInfo *info, size_t first)
{
    if (first < a->layout->trained_elements) return OK;
    return FAIL(ERR_ARG, "'%s' is trained here, but frozen in the layout: freeze the same parameters in every graph",
                value_info(a, info->of.id)->name);
}

static Status assign_fixed(const Assign *a, int32_t id)
{
    const ValueInfo *info = value_info(a, id);
    size_t first = 0;
    switch (info->role) {
    case ROLE_PARAM:
    case ROLE_PACK:
        TRY(find_parameters(a, info, &first));
        a->place[id] = (ValuePlace){ARENA_PARAM, first * sizeof(float), false};
        break;
    case ROLE_GRAD:
        TRY(check_same_count(a, info));
        TRY(find_parameters(a, value_info(a, info->of.id), &first));
        TRY(check_trained(a, info, first));
        a->place[id] = (ValuePlace){ARENA_GRAD, first * sizeof(float), false};
        a->bytes[ARENA_GRAD] = a->layout->trained_elements * sizeof(float);
        break;
    case ROLE_RUNNING:
        TRY(find_state(a, info, &first));
        a->place[id] = (ValuePlace){ARENA_RUNNING, first * sizeof(float), false};
        break;
    case ROLE_BATCH_STATISTIC:
        TRY(check_same_count(a, info));
        TRY(find_state(a, value_info(a, info->of.id), &first));
        a->place[id] = (ValuePlace){ARENA_BATCH_STATISTICS, first * sizeof(float), false};
        a->bytes[ARENA_BATCH_STATISTICS] = a->layout->running_elements * sizeof(float);
        break;
    case ROLE_INPUT: append(a, id, ARENA_INPUT); break;
    case ROLE_FOLDED: append(a, id, ARENA_FOLDED); break;
    case ROLE_RESULT: append(a, id, ARENA_RESULT); break;
    case ROLE_TEMP: break;
    }
    return OK;
}

/* Time of use of a storage: over all its members. */
static ArenaBlock storage_block(const Assign *a, int32_t root)
{
    const AliasMember *member = a->alias->member;
    const ValueInfo *info = value_info(a, root);
    size_t bytes = (size_t)(shape_pixels(info->shape) * member[root].pitch) * dtype_bytes(info->dtype);
    ArenaBlock block = {info->op, member[root].last_read, bytes, 0};
    for (int32_t m = member[root].next; m; m = member[m].next) {
        int32_t op = value_info(a, m)->op;
        if (op < block.start) block.start = op;
        if (member[m].last_read > block.end) block.end = member[m].last_read;
    }
    return block;
}

static Status assign_scratch(const Assign *a, bool no_alias)
{
    Status st = OK;
    int values = graph_value_count(a->alias->graph), count = 0;
    ArenaBlock *blocks = calloc((size_t)values + 1, sizeof *blocks);
    int32_t *roots = calloc((size_t)values + 1, sizeof *roots);
    if (!blocks || !roots) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the plan of %d values", values));
    for (int32_t id = 1; id <= values; id++) {
        a->place[id].none = value_info(a, id)->role == ROLE_TEMP && a->alias->member[id].unused;
        if (value_info(a, id)->role != ROLE_TEMP || a->alias->member[id].root != id || a->place[id].none) continue;
        blocks[count] = storage_block(a, id);
        if (no_alias) blocks[count] = (ArenaBlock){0, graph_op_count(a->alias->graph), blocks[count].bytes, 0};
        roots[count++] = id;
    }
    TRY_OUT(place_blocks(blocks, count, &a->bytes[ARENA_SCRATCH]));
    for (int i = 0; i < count; i++) a->place[roots[i]] = (ValuePlace){ARENA_SCRATCH, blocks[i].offset, false};
out:
    free(blocks);
    free(roots);
    return st;
}

Status arena_assign(const Alias *alias, const Layout *layout, bool no_alias, ValuePlace *place, size_t *bytes)
{
    Assign a = {alias, layout, place, bytes};
    for (int i = 0; i < ARENA_COUNT; i++) bytes[i] = 0;
    bytes[ARENA_PARAM] = layout->param_elements * sizeof(float);
    bytes[ARENA_RUNNING] = layout->running_elements * sizeof(float);
    for (int32_t id = 1; id <= graph_value_count(alias->graph); id++) TRY(assign_fixed(&a, id));
    TRY(assign_scratch(&a, no_alias));
    for (int32_t id = 1; id <= graph_value_count(a.alias->graph); id++) {
        const AliasMember *member = &a.alias->member[id];
        if (member->root == id) continue;
        a.place[id] = a.place[member->root];
        a.place[id].offset += (size_t)member->first * dtype_bytes(value_info(&a, id)->dtype);
    }
    return OK;
}
