/* Which numbers of a file are parameters of the network, each of one name (onnx_walk.h). */
#include "inception/networks/onnx_walk.h"
#include "kernels/base/array.h"

enum { PARAMETERS_MOST = 4096 /* the largest networks have half of that */ };

ValueNotes *walk_notes(OnnxWalk *w, const char *name)
{
    return &w->survey->notes[onnx_value(w->file, name)];
}

static Binding *binding_find(const OnnxSurvey *s, const char *name)
{
    for (int i = 0; i < s->binding_count; i++)
        if (!strcmp(s->binding[i].name, name)) return &s->binding[i];
    return NULL;
}

bool walk_name_stays(OnnxWalk *w, const OnnxNode *node, const char *name)
{
    if (!w->first || walk_notes(w, name)->stays) return true;
    if (binding_find(w->survey, name)) {
        walk_refuse(w, node, "its numbers '%s' are trained by another node: export with optimize=False", name);
        return false;
    }
    walk_notes(w, name)->stays = true;
    return true;
}

bool walk_stays(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed)
{
    return !fixed->from.proto || walk_name_stays(w, node, fixed->name);
}

/* Whether these numbers may be a parameter of this name; false: refused. */
static bool is_bindable(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed)
{
    static const char *const inputs[] = {"image",   "pixels",          "labels", "augment", "counter",
                                         "targets", "positive_weight", "weight", "dloss"};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (!strcmp(inputs[i], fixed->name)) {
            walk_refuse(w, node, "its weights are named '%s', as an input of every network here", fixed->name);
            return false;
        }
    if (fixed->from.proto && !fixed->integer && !fixed->curve) return true;
    walk_refuse(w, node, "its weights are computed by other nodes");
    return false;
}

static void binding_dims(const Wanted *wanted, int64_t *dims)
{
    Shape s = wanted->shape;
    switch (wanted->rank) {
    case 4: dims[0] = s.n, dims[1] = s.c, dims[2] = s.h, dims[3] = s.w; break;
    case 3: dims[0] = s.c, dims[1] = s.h, dims[2] = s.w; break;
    case 2: dims[0] = s.n, dims[1] = (int64_t)s.c * s.h * s.w; break;
    default: dims[0] = shape_count(s);
    }
}

/* In the first walk: a parameter that no node has had before. */
static bool binding_add(OnnxWalk *w, Binding binding)
{
    OnnxSurvey *s = w->survey;
    binding.head = onnx_head_of(w->head, binding.reader) >= 0;
    if (s->binding_count >= PARAMETERS_MOST)
        walk_fail(w, ERR_ARG, "the network has more than 4096 parameters, each of which is found by its name");
    else if (ARRAY_ADD(s->binding, s->binding_count, "the parameters of a network", binding) != OK)
        walk_fail(w, ERR_MEMORY, "no memory for the parameters of a network");
    else
        return true;
    return false;
}

bool walk_bind(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed, const Wanted *wanted)
{
    Binding binding = {.name = fixed->name,
                       .tensor = fixed->from,
                       .rank = wanted->rank,
                       .turned = wanted->turned,
                       .scalar = wanted->scalar,
                       .reader = (int)(node - w->file->node)};
    if (!is_bindable(w, node, fixed)) return false;
    if (!w->first) return true;
    if (walk_notes(w, fixed->name)->stays) {
        walk_refuse(w, node, "its weights '%s' are constants of another node: export with optimize=False", fixed->name);
        return false;
    }
    Binding *old = binding_find(w->survey, binding.name);
    if (old && (old->turned != binding.turned || old->tensor.proto != binding.tensor.proto)) {
        walk_refuse(w, node, "another node has its weights '%s', too, in another layout", fixed->name);
        return false;
    }
    if (old) {
        old->shared |= old->reader != binding.reader;
        return true;
    }
    binding_dims(wanted, binding.dims);
    return binding_add(w, binding);
}

Value walk_param(OnnxWalk *w, const OnnxNode *node, const Fixed *fixed, Wanted wanted)
{
    if (!walk_bind(w, node, fixed, &wanted)) return (Value){0};
    Value there = graph_find(w->g, fixed->name);
    if (there.id && graph_value(w->g, there)->role == ROLE_PARAM && shape_equal(graph_shape(w->g, there), wanted.shape))
        return there;
    Value v = graph_param(w->g, fixed->name, wanted.shape, wanted.init, wanted.decay);
    if (wanted.rank >= 3 || wanted.scalar) graph_rank(w->g, v, wanted.rank);
    return v;
}

bool walk_is_trained(OnnxWalk *w, const OnnxNode *node, int k, double nothing)
{
    const Fixed *f = walk_fixed(w, node, k);
    if (!f || !f->from.proto || f->from.absent) return f && f->from.absent;
    int writer = w->file->value[onnx_value(w->file, f->name)].writer;
    bool constant = writer >= 0 && !strcmp(w->file->node[writer].type, "Constant"),
         others = w->file->model->graph->n_initializer > 0; /* else all weights are such nodes */
    return !constant || !others || !fixed_all_are(f, nothing);
}

Value walk_vector(OnnxWalk *w, const OnnxNode *node, const Fixed *f, int64_t count, Init init)
{
    return walk_param(w, node, f, (Wanted){.shape = {1, (int32_t)count, 1, 1}, .rank = 1, .init = init});
}

const char *layer_name(OnnxWalk *w, const OnnxNode *node, const Fixed *weights)
{
    const char *end = weights ? strrchr(weights->name, '.') : NULL;
    if (!end || strchr(end, '/')) return node->name; /* a path of TensorFlow, "mobilenetv2_1.00_96/Conv1/kernel" */
    size_t length = (size_t)(end - weights->name);
    char *name = walk_memory(w, length + 1, 1);
    if (name) memcpy(name, weights->name, length);
    return name ? name : "";
}

int64_t walk_classes(const OnnxWalk *w, const OnnxNode *node, int64_t in_file)
{
    bool head = onnx_head_of(w->head, (int)(node - w->file->node)) >= 0;
    return head && w->options->classes > 0 ? w->options->classes : in_file;
}
