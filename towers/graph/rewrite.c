/* What passes over the list share: counting readers, and putting a changed list in place of the old one. */
#include "towers/graph/list.h"

#include <stdlib.h>

int *list_readers(Graph *g)
{
    int *readers = calloc((size_t)g->value_count + 1, sizeof *readers);
    if (!readers) {
        list_fail(g, ERR_MEMORY, "no memory to count the readers of %d values", g->value_count);
        return NULL;
    }
    for (int index = 0; index < g->op_count; index++)
        for (int i = 0; i < g->ops[index].in_count; i++) readers[g->ops[index].in[i].id]++;
    return readers;
}

/* Tell every value who writes it now; -1 for nobody. */
static void link_writers(Graph *g)
{
    for (int32_t id = 1; id <= g->value_count; id++) g->values[id].op = -1;
    for (int index = 0; index < g->op_count; index++)
        for (int o = 0; o < op_outputs(g->ops[index].kind); o++) {
            g->values[g->ops[index].out[o].id].op = index;
            g->values[g->ops[index].out[o].id].out = o;
        }
}

static bool is_dropped(const ValueInfo *info)
{
    return info->op < 0 && info->role == ROLE_TEMP;
}

/* Close the gaps; renumber[old id] = new id, 0 for dropped values. */
static void compact_values(Graph *g, int32_t *renumber)
{
    int32_t count = 0;
    for (int32_t id = 1; id <= g->value_count; id++) {
        if (is_dropped(&g->values[id])) continue;
        renumber[id] = ++count;
        g->values[count] = g->values[id];
    }
    g->value_count = count;
}

static void apply_numbers(Graph *g, const int32_t *renumber)
{
    for (int index = 0; index < g->op_count; index++) {
        Op *op = &g->ops[index];
        for (int i = 0; i < OP_MAX_IN; i++) op->in[i].id = renumber[op->in[i].id];
        for (int o = 0; o < OP_MAX_OUT; o++) op->out[o].id = renumber[op->out[o].id];
    }
    for (int32_t id = 1; id <= g->value_count; id++) {
        ValueInfo *info = &g->values[id];
        info->of.id = renumber[info->of.id];
        for (int i = 0; i < info->member_count; i++) info->members[i].id = renumber[info->members[i].id];
    }
}

void list_replace(Graph *g, Op *ops, int op_count, Value *keep, int keep_count)
{
    int32_t *renumber = calloc((size_t)g->value_count + 1, sizeof *renumber);
    if (!renumber) {
        list_fail(g, ERR_MEMORY, "no memory to rewrite a list of %d values", g->value_count);
        free(ops);
        return;
    }
    free(g->ops);
    g->ops = ops;
    g->op_count = g->op_room = op_count;
    link_writers(g);
    compact_values(g, renumber);
    apply_numbers(g, renumber);
    for (int i = 0; i < keep_count; i++) keep[i].id = renumber[keep[i].id];
    free(renumber);
}
