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

/* Of the second operand of CastLike only the type is read. */
static bool is_type_only(const OnnxNode *node, int k)
{
    return k == 1 && !strcmp(node->type, "CastLike");
}

/* The sizes of what is not computed, if they are known: as the node says them all, or as those of its operand. */
static int late_sizes(OnnxWalk *w, const OnnxNode *node, int64_t dims[NET_FILE_RANK])
{
    static const char *const keeps[] = {"Cast", "CastLike", "Identity", NULL};
    const OnnxItem *of = walk_in(w, node, 0);
    bool kept = of && of->known == KNOWN_LATER && onnx_type_is(node, keeps);
    int rank = kept ? of->fixed.rank : fixed_shape(w, node, dims);
    if (kept) memcpy(dims, of->fixed.dims, sizeof of->fixed.dims);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 1) rank = 0;
    return rank > 0 ? rank : 0;
}

/* All operands are constants, of which some are not computed; so the outputs are not, either. */
static void put_off(OnnxWalk *w, const OnnxNode *node)
{
    const OnnxNode *late = node;
    for (int k = 0; k < node->in_count; k++) {
        OnnxItem *item = walk_in(w, node, k);
        if (!item || item->known == KNOWN_FIXED || is_type_only(node, k)) continue;
        if (item->known == KNOWN_LATER && late == node) late = item->late;
        if (item->known == KNOWN_LATER) continue;
        walk_refuse_late(w, node);
        return;
    }
    Fixed sizes = {0};
    sizes.rank = late_sizes(w, node, sizes.dims);
    for (int k = 0; k < node->out_count; k++)
        if (node->out[k]) w->item[node->out[k]] = (OnnxItem){.known = KNOWN_LATER, .late = late};
    w->item[node->out[0]].fixed = sizes;
}

/* A node that reads what is not computed, or its sizes or its type only. */
static bool takes_late(const OnnxWalk *w, const OnnxNode *node, int k)
{
    static const char *const of_sizes[] = {"Shape", "RandomUniformLike", NULL};
    bool sizes = onnx_type_is(node, of_sizes) && w->item[node->in[k]].fixed.rank > 0;
    bool type = is_type_only(node, k) && w->item[node->in[0]].known != KNOWN_FIXED; /* which it does not say */
    return sizes || type || (k == 1 && !strcmp(node->type, "Conv"));
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
    else if (random_node(w, node) || places_node(w, node))
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
