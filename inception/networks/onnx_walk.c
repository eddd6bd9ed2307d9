/* From the nodes of a file to the ops of a graph; see onnx_walk.h. */
#include "inception/networks/onnx_walk.h"

Status walk_open(OnnxWalk *w)
{
    const OnnxFile *file = w->file;
    w->item = calloc((size_t)file->value_count + 1, sizeof *w->item);
    w->done = calloc((size_t)file->node_count + 1, sizeof *w->done);
    if (!w->item || !w->done) return FAIL(ERR_MEMORY, "no memory for the values of '%s'", file->path);
    for (int id = 1; id <= file->value_count; id++)
        if (file->value[id].tensor >= 0) {
            w->item[id].known = KNOWN_FIXED;
            fixed_from_tensor(file->tensor[file->value[id].tensor], file->value[id].name, &w->item[id].fixed);
        }
    return OK;
}

void walk_close(OnnxWalk *w)
{
    for (int i = 0; i < w->memory_count; i++) free(w->memory[i]);
    free(w->memory);
    free(w->item);
    free(w->done);
}

void walk_image(OnnxWalk *w, Value image, const char *axes)
{
    OnnxItem *item = &w->item[w->file->image];
    *item = (OnnxItem){.known = KNOWN_ACTIVE, .active = {.base = image}};
    item->active.order = order_make(axes, graph_shape(w->g, image));
    w->image = image;
}

/* Whether a list, separated by blanks, has this word. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == length && !strncmp(at, word, length)) return true;
    return false;
}

/* A file's other attributes may change what a node means. */
static bool attributes_known(OnnxWalk *w, const OnnxNode *node, const OnnxOp *op)
{
    for (size_t i = 0; i < node->proto->n_attribute; i++) {
        const char *name = node->proto->attribute[i]->name ? node->proto->attribute[i]->name : "";
        if (has_word(op->attributes, name)) continue;
        walk_refuse(w, node, "attribute '%s' is not known", name);
        return false;
    }
    return true;
}

/* All operands are known before the network runs, or it only asks for a shape. */
static bool is_fixed(OnnxWalk *w, const OnnxNode *node)
{
    if (!strcmp(node->type, "Shape") || !strcmp(node->type, "Constant")) return true;
    if (!strcmp(node->type, "CastLike")) return walk_fixed(w, node, 0);
    for (int k = 0; k < node->in_count; k++)
        if (node->in[k] && !walk_fixed(w, node, k)) return false;
    return true;
}

/* All operands are constants, of which some are not computed; so the outputs are not, either. */
static void put_off(OnnxWalk *w, const OnnxNode *node)
{
    const OnnxNode *late = node;
    for (int k = 0; k < node->in_count; k++) {
        OnnxItem *item = walk_in(w, node, k);
        if (item && item->known == KNOWN_LATER && late == node) late = item->late;
        if (!item || item->known == KNOWN_LATER || item->known == KNOWN_FIXED) continue;
        walk_refuse_late(w, node);
        return;
    }
    for (int k = 0; k < node->out_count; k++)
        if (node->out[k]) w->item[node->out[k]] = (OnnxItem){.known = KNOWN_LATER, .late = late};
    Fixed *f = &w->item[node->out[0]].fixed; /* its sizes, if the node says them all */
    int rank = !strcmp(node->type, "Reshape") ? fixed_ints(walk_fixed(w, node, 1), f->dims, NET_FILE_RANK) : 0;
    for (int i = 0; i < rank; i++)
        if (f->dims[i] < 1) rank = 0;
    f->rank = rank > 0 ? rank : 0;
}

/* A node that reads what is not computed, or its sizes only. */
static bool takes_late(const OnnxWalk *w, const OnnxNode *node, int k)
{
    bool sizes = !strcmp(node->type, "Shape") && w->item[node->in[k]].fixed.rank > 0;
    return sizes || (k == 1 && !strcmp(node->type, "Conv"));
}

static void node_walk(OnnxWalk *w, const OnnxNode *node)
{
    static const char *const with_graphs[] = {"If", "Loop", "Scan", NULL};
    const OnnxOp *op = onnx_op(node->type);
    bool late = false;
    for (int k = 0; k < node->in_count; k++) {
        Known known = node->in[k] ? w->item[node->in[k]].known : KNOWN_FIXED;
        late |= known == KNOWN_LATER && !takes_late(w, node, k);
        if (known != KNOWN_LOST && known != KNOWN_NOT) continue;
        if (known == KNOWN_NOT)
            walk_refuse(w, node, "it reads '%s', which the node before it does not give here",
                        w->file->value[node->in[k]].name);
        for (int i = 0; i < node->out_count; i++) w->item[node->out[i]].known = KNOWN_LOST;
        return;
    }
    if (!node->out[0])
        walk_refuse(w, node, "its first output has no name");
    else if (node->foreign)
        walk_refuse(w, node, "it is of the domain '%s', not one of ONNX's own operators", node->proto->domain);
    else if (onnx_type_is(node, with_graphs))
        walk_refuse(w, node,
                    "it chooses or repeats nodes while the network runs; PyTorch writes an If for squeeze(): use "
                    "flatten(1), or export with dynamo=True");
    else if (late)
        put_off(w, node);
    else if (random_node(w, node))
        return;
    else if (is_fixed(w, node) && !fold_node(w, node))
        put_off(w, node);
    else if (w->item[node->out[0]].known != KNOWN_NOT)
        return;
    else if (!op)
        walk_refuse(w, node, "it has no counterpart among the operations here");
    else if (attributes_known(w, node, op))
        op->build(w, node);
}

void walk_run(OnnxWalk *w)
{
    for (int i = 0; i < w->file->node_count && w->status == OK && !graph_failed(w->g); i++) {
        const OnnxNode *node = &w->file->node[i];
        if (!(node->needed & w->outputs) || w->done[i]) continue;
        w->node = node;
        w->lost = false;
        node_walk(w, node);
        if (node->out_count && node->out[0] && w->item[node->out[0]].known == KNOWN_NOT)
            walk_refuse(w, node, "it could not be built");
        w->done[i] = true;
    }
}
