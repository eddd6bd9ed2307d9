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

void list_replace(Graph *g, Op *ops, int op_count)
{
    free(g->ops);
    g->ops = ops;
    g->op_count = g->op_room = op_count;
    for (int index = 0; index < op_count; index++)
        for (int o = 0; o < op_outputs(ops[index].kind); o++) {
            g->values[ops[index].out[o].id].op = index;
            g->values[ops[index].out[o].id].out = o;
        }
}
