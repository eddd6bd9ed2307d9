/* Values of a file during a walk (onnx_walk.h): memory, refusals, operands and results of nodes. */
#include "inception/networks/onnx_walk.h"
#include "kernels/base/array.h"
#include "kernels/base/text.h"

enum { MEMORY_MOST = 1 << 28 /* bytes of folded numbers and curves of one walk */ };

/* ---- memory and refusals */

void walk_fail(OnnxWalk *w, Status code, const char *message)
{
    if (w->status == OK) w->status = FAIL(code, "%s", message);
}

void *walk_memory(OnnxWalk *w, size_t count, size_t bytes)
{
    void *memory = NULL;
    w->bytes += count * bytes;
    if (w->bytes > MEMORY_MOST) {
        walk_fail(w, ERR_FORMAT, "the constants of the file take more than 256 MiB");
        return NULL;
    }
    if (ARRAY_ADD(w->memory, w->memory_count, "the values of a network", NULL) == OK)
        memory = w->memory[w->memory_count - 1] = calloc(count, bytes);
    if (!memory) walk_fail(w, ERR_MEMORY, "no memory for the values of a network");
    return memory;
}

void walk_refuse(OnnxWalk *w, const OnnxNode *node, const char *format, ...)
{
    OnnxSurvey *s = w->survey;
    NodeRefusal refusal = {.node = node, .count = 1};
    va_list args;
    va_start(args, format);
    Text text = text_start(refusal.reason, sizeof refusal.reason);
    text_vadd(&text, format, args);
    va_end(args);
    for (int k = 0; k < node->out_count; k++)
        if (node->out[k]) w->item[node->out[k]].known = KNOWN_LOST;
    if (graph_failed(w->g) || (w->lost && node == w->node)) return; /* for a reason that was given */
    for (int i = 0; i < s->refusal_count; i++)
        if (!strcmp(s->refusal[i].node->type, node->type) && !strcmp(s->refusal[i].reason, refusal.reason)) {
            s->refusal[i].count++;
            return;
        }
    if (s->refusal_count < REFUSALS)
        s->refusal[s->refusal_count++] = refusal;
    else
        s->more++;
}

void walk_refuse_late(OnnxWalk *w, const OnnxNode *node)
{
    for (int k = 0; k < node->in_count; k++) {
        OnnxItem *item = walk_in(w, node, k);
        if (item && item->known == KNOWN_LATER) walk_refuse(w, item->late, "this constant cannot be computed here");
    }
    for (int k = 0; k < node->out_count; k++)
        if (node->out[k]) w->item[node->out[k]].known = KNOWN_LOST;
}

/* ---- items */

OnnxItem *walk_in(OnnxWalk *w, const OnnxNode *node, int k)
{
    return k < node->in_count && node->in[k] ? &w->item[node->in[k]] : NULL;
}

const Fixed *walk_fixed(OnnxWalk *w, const OnnxNode *node, int k)
{
    OnnxItem *item = walk_in(w, node, k);
    return item && item->known == KNOWN_FIXED ? &item->fixed : NULL;
}

Active *walk_active(OnnxWalk *w, const OnnxNode *node, int k)
{
    OnnxItem *item = walk_in(w, node, k);
    return item && item->known == KNOWN_ACTIVE ? &item->active : NULL;
}

void walk_give(OnnxWalk *w, const OnnxNode *node, Value v, const AxisOrder *order)
{
    w->item[node->out[0]] = (OnnxItem){.known = KNOWN_ACTIVE, .active = {.base = v, .order = *order}};
}

void walk_give_image(OnnxWalk *w, const OnnxNode *node, Value v)
{
    AxisOrder order = order_make("NCHW", graph_shape(w->g, v));
    walk_give(w, node, v, &order);
}

void walk_alias(OnnxWalk *w, int id, int of)
{
    w->item[id] = w->item[of];
}

const OnnxNode *walk_next(OnnxWalk *w, const OnnxNode *node, const char *type)
{
    const OnnxValue *value = &w->file->value[node->out[0]];
    if (value->reads != 1 || value->reader < 0) return NULL;
    const OnnxNode *next = &w->file->node[value->reader];
    return !strcmp(next->type, type) && !next->foreign && !w->done[value->reader] ? next : NULL;
}

void walk_skip(OnnxWalk *w, const OnnxNode *node, const OnnxNode *next)
{
    w->done[next - w->file->node] = true;
    walk_alias(w, next->out[0], node->out[0]);
}
