/* Image, products of the classes and logits; see onnx_head.h. */
#include "inception/networks/onnx_head.h"

enum { USUAL_SIDE = 224 };

/* ---- the image */

static const Onnx__TypeProto__Tensor *image_type(const OnnxFile *file)
{
    const Onnx__GraphProto *graph = file->model->graph;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *input = graph->input[i];
        if (!input->name || strcmp(input->name, file->value[file->image].name) != 0) continue;
        return input->type ? input->type->tensor_type : NULL;
    }
    return NULL;
}

static bool is_channels(int64_t size)
{
    return size == 1 || size == 3;
}

Status onnx_image(const OnnxFile *file, ImageForm *form)
{
    const Onnx__TypeProto__Tensor *type = image_type(file);
    const Onnx__TensorShapeProto *shape = type ? type->shape : NULL;
    OnnxElement element = type && type->has_elem_type ? (OnnxElement)type->elem_type : ELEMENT_FLOAT;
    int64_t size[4] = {0};
    for (size_t i = 0; shape && i < shape->n_dim && i < 4; i++)
        size[i] = shape->dim[i]->has_dim_value && shape->dim[i]->dim_value > 0 ? shape->dim[i]->dim_value : 0;
    bool last = !is_channels(size[1]) && is_channels(size[3]);
    int64_t channels = last ? size[3] : size[1], height = last ? size[1] : size[2], width = last ? size[2] : size[3];
    if (!shape || shape->n_dim != 4 || !is_channels(channels) || height != width || height > INT16_MAX)
        return FAIL(ERR_ARG,
                    "'%s': input '%s' has the sizes %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                    " (0: open); expected a square image of 1 or 3 channels, which are not open",
                    file->path, file->value[file->image].name, size[0], size[1], size[2], size[3]);
    if (element_is_integer(element) && element != ELEMENT_UINT8)
        return FAIL(ERR_ARG, "'%s': input '%s' has elements of type %d; expected floating-point numbers, or bytes",
                    file->path, file->value[file->image].name, (int)element);
    *form = (ImageForm){.bytes = element == ELEMENT_UINT8,
                        .side = height ? (int32_t)height : USUAL_SIDE,
                        .open = !height,
                        .channels = (int32_t)channels,
                        .batch = size[0]};
    memcpy(form->axes, last ? "NHWC" : "NCHW", sizeof form->axes);
    return OK;
}

/* ---- products of the classes */

/* Whether a node multiplies by a number of each class, which is no product that gives the classes. */
static bool is_factor_of_classes(const OnnxFile *file, const OnnxNode *node)
{
    static const char *const factors[] = {"Mul", "Div", NULL};
    for (int k = 0; k < node->in_count && onnx_type_is(node, factors); k++) {
        int tensor = node->in[k] ? file->value[node->in[k]].tensor : -1;
        if (tensor >= 0 && file->tensor[tensor].count != 1) return true;
    }
    return false;
}

/* The node that writes the only operand that is no constant; -1: there is none, or several. */
static int writer_before(const OnnxFile *file, const OnnxNode *node)
{
    static const char *const of_two[] = {"Add", "Mul", "Div", NULL};
    int found = -1;
    if (is_factor_of_classes(file, node)) return -1;
    for (int k = 0; k < node->in_count; k++) {
        int writer = node->in[k] ? file->value[node->in[k]].writer : -1;
        if (writer < 0 || !strcmp(file->node[writer].type, "Constant")) continue;
        if (k > 0 && !onnx_type_is(node, of_two)) break; /* a shape, or axes */
        if (found >= 0) return -1;
        found = writer;
    }
    return found;
}

void onnx_heads(const OnnxFile *file, OnnxHead heads[HEADS_MAX])
{
    static const char *const products[] = {"Gemm", "MatMul", "Conv", NULL};
    static const char *const between[] = {"Softmax",    "LogSoftmax", "Sigmoid",   "Flatten", "Reshape",
                                          "Squeeze",    "Identity",   "Cast",      "Dropout", "GlobalAveragePool",
                                          "ReduceMean", "Relu",       "Transpose", "Add",     "AveragePool",
                                          "Mul",        "Div",        NULL};
    for (int h = 0; h < HEADS_MAX; h++) {
        int at = h < file->output_count ? file->value[file->output[h]].writer : -1;
        while (at >= 0 && onnx_type_is(&file->node[at], between)) at = writer_before(file, &file->node[at]);
        heads[h] = (OnnxHead){at >= 0 && onnx_type_is(&file->node[at], products) ? at : -1, 0};
    }
}

/* ---- logits */

static Value logits_of(OnnxWalk *w, int output)
{
    const OnnxItem *item = &w->item[w->file->output[output]];
    Value v = walk_value(w, w->file->output[output]);
    if (item->known == KNOWN_LATER) {
        walk_refuse(w, item->late, "this constant cannot be computed here");
        return (Value){0};
    }
    if (item->known != KNOWN_ACTIVE && item->known != KNOWN_LOST)
        return graph_fail(w->g, ERR_ARG, "output '%s' does not depend on the image",
                          w->file->value[w->file->output[output]].name);
    Shape s = graph_shape(w->g, v);
    const AxisOrder *order = &item->active.order;
    bool plain = v.id && s.h == 1 && s.w == 1 && order->rank >= 1;
    for (int i = 0; plain && i < order->count; i++)
        plain = !order->part[i].place && (order->part[i].of == AXIS_BATCH) == (order->part[i].axis == 0);
    if (plain) return v;
    if (item->known == KNOWN_LOST || !v.id) return (Value){0};
    return graph_fail(w->g, ERR_ARG, "output '%s' is %s; expected one number for each class",
                      w->file->value[w->file->output[output]].name, shape_text(s));
}

void onnx_logits(OnnxWalk *w, ModelHeads *heads)
{
    heads->logits = logits_of(w, 0);
    for (int h = 1; h < w->file->output_count; h++)
        if (w->outputs >> h & 1) heads->aux[heads->aux_count++] = logits_of(w, h);
}
