/* What cuDNN refuses: attributes of another type or count, descriptors that lack some or contradict themselves, and graphs
 * that no engine has kernels for. tests/gpu/cudnn_refusals.h has most of the rules as a table, with their sources, and asks
 * the library for the same; where the fake is stricter the library would read or write what is not there. */
#include "tests/gpu/fake_cuda/fake_cudnn.h"

size_t type_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT32:
    case CUDNN_TYPE_FLOAT: return 4;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4; /* enumerations */
    }
}

Attribute *attribute_of(Descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->count; i++)
        if (d->attribute[i].name == name) return &d->attribute[i];
    return NULL;
}

Descriptor *linked(Descriptor *d, cudnnBackendAttributeName_t name)
{
    const Attribute *a = d ? attribute_of(d, name) : NULL;
    return a && a->count ? ((Descriptor **)a->values)[0] : NULL;
}

/* ---- one attribute: the reference of the backend names the type and the count of each */

static cudnnBackendAttributeType_t type_wanted(cudnnBackendAttributeName_t name)
{
    switch (name) {
    case CUDNN_ATTR_TENSOR_UNIQUE_ID:
    case CUDNN_ATTR_TENSOR_DIMENSIONS:
    case CUDNN_ATTR_TENSOR_STRIDES:
    case CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT:
    case CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS:
    case CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS:
    case CUDNN_ATTR_CONVOLUTION_POST_PADDINGS:
    case CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES:
    case CUDNN_ATTR_CONVOLUTION_DILATIONS:
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: return CUDNN_TYPE_INT64;
    case CUDNN_ATTR_POINTWISE_MODE: return CUDNN_TYPE_POINTWISE_MODE;
    case CUDNN_ATTR_POINTWISE_NAN_PROPAGATION: return CUDNN_TYPE_NAN_PROPOGATION;
    case CUDNN_ATTR_TENSOR_IS_VIRTUAL: return CUDNN_TYPE_BOOLEAN;
    case CUDNN_ATTR_TENSOR_DATA_TYPE:
    case CUDNN_ATTR_POINTWISE_MATH_PREC:
    case CUDNN_ATTR_CONVOLUTION_COMP_TYPE: return CUDNN_TYPE_DATA_TYPE;
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA:
    case CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA: return CUDNN_TYPE_FLOAT;
    case CUDNN_ATTR_CONVOLUTION_CONV_MODE: return CUDNN_TYPE_CONVOLUTION_MODE;
    case CUDNN_ATTR_ENGINEHEUR_MODE: return CUDNN_TYPE_HEUR_MODE;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE: return CUDNN_TYPE_KNOB_TYPE;
    case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
    case CUDNN_ATTR_EXECUTION_PLAN_HANDLE: return CUDNN_TYPE_HANDLE;
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
    case CUDNN_ATTR_VARIANT_PACK_WORKSPACE: return CUDNN_TYPE_VOID_PTR;
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: return CUDNN_TYPE_CHAR;
    case CUDNN_ATTR_DEVICEPROP_DEVICE_ID: return CUDNN_TYPE_INT32;
    default: return CUDNN_TYPE_BACKEND_DESCRIPTOR;
    }
}

static bool has_many(cudnnBackendAttributeName_t name)
{
    switch (name) {
    case CUDNN_ATTR_TENSOR_DIMENSIONS:
    case CUDNN_ATTR_TENSOR_STRIDES:
    case CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS:
    case CUDNN_ATTR_CONVOLUTION_POST_PADDINGS:
    case CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES:
    case CUDNN_ATTR_CONVOLUTION_DILATIONS:
    case CUDNN_ATTR_OPERATIONGRAPH_OPS:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
    case CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS:
    case CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS:
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: return true;
    default: return false;
    }
}

/* The numbers of cudnnBackendAttributeName_t (cudnn_graph_v9.h) that a descriptor has: blocks of tens or hundreds. */
static bool attribute_belongs(cudnnBackendDescriptorType_t type, int name)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        int first, last;
    } blocks[] = {
        {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0, 99},
        {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 100, 199},
        {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 200, 299},
        {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 300, 399},
        {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 400, 499},
        {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 600, 699},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 700, 705},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 706, 711},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 712, 717},
        {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 750, 769},
        {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 800, 899},
        {CUDNN_BACKEND_TENSOR_DESCRIPTOR, 900, 999},
        {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 1000, 1099},
        {CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1300, 1399},
        {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, 2700, 2799},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i].type == type) return name >= blocks[i].first && name <= blocks[i].last;
    return false;
}

cudnnStatus_t fake_cudnn_set(const Descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t count, const void *values)
{
    bool says_type = d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR || d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR ||
                     d->type == CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
    if (!attribute_belongs(d->type, (int)name)) return CUDNN_STATUS_NOT_SUPPORTED;
    if (type != type_wanted(name)) return says_type ? CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE : CUDNN_STATUS_BAD_PARAM;
    if (!values || count < 1 || (count > 1 && !has_many(name))) return CUDNN_STATUS_BAD_PARAM;
    for (int64_t k = 0; name == CUDNN_ATTR_OPERATIONGRAPH_OPS && k < count; k++)
        if (!((Descriptor *const *)values)[k]->finalized) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- one descriptor */

static int64_t count_of(Descriptor *d, cudnnBackendAttributeName_t name)
{
    const Attribute *a = attribute_of(d, name);
    return a ? a->count : 0;
}

/* Value k, or `otherwise` if it was not set. */
static int64_t number_at(Descriptor *d, cudnnBackendAttributeName_t name, int64_t k, int64_t otherwise)
{
    const Attribute *a = attribute_of(d, name);
    if (!a || k >= a->count) return otherwise;
    return type_bytes(a->type) == 8 ? ((int64_t *)a->values)[k] : ((int32_t *)a->values)[k];
}

/* 1000: not set, or none that the project uses. */
static int64_t bytes_of(Descriptor *tensor)
{
    switch (number_at(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, -1)) {
    case CUDNN_DATA_FLOAT: return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    default: return 1000;
    }
}

static bool all_at_least(Descriptor *d, cudnnBackendAttributeName_t name, int64_t least)
{
    for (int64_t k = 0; k < count_of(d, name); k++)
        if (number_at(d, name, k, 0) < least) return false;
    return true;
}

static bool tensor_right(Descriptor *d)
{
    int64_t bytes = bytes_of(d), alignment = number_at(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0, 0),
            dims = count_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    return dims && dims == count_of(d, CUDNN_ATTR_TENSOR_STRIDES) && all_at_least(d, CUDNN_ATTR_TENSOR_DIMENSIONS, 0) &&
           all_at_least(d, CUDNN_ATTR_TENSOR_STRIDES, 0) && alignment > 0 && (bytes == 1000 || alignment % bytes == 0);
}

/* Paddings that were not set are 0. */
static bool window_right(Descriptor *d)
{
    int64_t sides = number_at(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0, 0),
            pads = count_of(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    return sides && sides == count_of(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES) &&
           sides == count_of(d, CUDNN_ATTR_CONVOLUTION_DILATIONS) && (!pads || pads == sides) &&
           all_at_least(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1) &&
           all_at_least(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 1) &&
           all_at_least(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0) &&
           all_at_least(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0);
}

static int64_t size_of(Descriptor *tensor, int64_t k)
{
    return number_at(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, k, 0);
}

/* NHWC: a row of pixels holds its channels, an image its rows. */
static bool overlaps(Descriptor *tensor)
{
    int64_t pitch = number_at(tensor, CUDNN_ATTR_TENSOR_STRIDES, 3, 0);
    return pitch && pitch < size_of(tensor, 1);
}

static bool conv_right(Descriptor *window, Descriptor *x, Descriptor *w, Descriptor *y)
{
    if (!window || !x || !w || !y || !window->finalized || !x->finalized || !w->finalized || !y->finalized)
        return false;
    bool fits = !overlaps(x) && size_of(w, 1) && size_of(x, 1) && size_of(x, 1) % size_of(w, 1) == 0 &&
                size_of(y, 0) == size_of(x, 0) && size_of(y, 1) == size_of(w, 0);
    for (int64_t k = 0; fits && k < 2; k++) {
        int64_t pads = number_at(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, k, 0) +
                       number_at(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, k, 0),
                reach = number_at(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, k, 1) * (size_of(w, 2 + k) - 1) + 1;
        fits = size_of(y, 2 + k) ==
               (size_of(x, 2 + k) + pads - reach) / number_at(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, k, 1) + 1;
    }
    return fits;
}

/* window, x, w and y of a convolution's operation, whichever of them it computes. False: it is another one. */
static bool conv_parts(Descriptor *op, Descriptor *part[4])
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t name[4];
    } kinds[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].type != op->type) continue;
        for (int k = 0; k < 4; k++) part[k] = linked(op, kinds[i].name[k]);
        return true;
    }
    return false;
}

bool fake_cudnn_virtual(Descriptor *tensor)
{
    const Attribute *a = attribute_of(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    return a && *(bool *)a->values;
}

static bool is_final(Descriptor *d)
{
    return d && d->finalized;
}

/* y = x + b, where b has one pixel, or y = relu(x). */
static bool pointwise_right(Descriptor *op)
{
    Descriptor *how = linked(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
               *x = linked(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
               *b = linked(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
               *y = linked(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (!is_final(how) || !is_final(x) || !is_final(y) || (b && !is_final(b))) return false;
    bool adds = number_at(how, CUDNN_ATTR_POINTWISE_MODE, 0, -1) == CUDNN_POINTWISE_ADD;
    for (int64_t k = 0; k < 4; k++)
        if (size_of(y, k) != size_of(x, k) || (b && size_of(b, k) != (k == 1 ? size_of(x, k) : 1))) return false;
    return adds == (b != NULL);
}

static bool operation_right(Descriptor *op)
{
    Descriptor *part[4];
    if (op->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return pointwise_right(op);
    return !conv_parts(op, part) || conv_right(part[0], part[1], part[2], part[3]);
}

/* What the project asks for: a convolution, and operations that each go on with the virtual result of the one before. */
static bool graph_right(Descriptor *graph)
{
    const Attribute *ops = attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    Descriptor *part[4], *last = NULL;
    for (int64_t k = 0; ops && k < ops->count; k++) {
        Descriptor *op = ((Descriptor **)ops->values)[k];
        bool conv = conv_parts(op, part);
        if (conv != (k == 0) || (!conv && op->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)) return false;
        if (k && (!fake_cudnn_virtual(last) || linked(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != last)) return false;
        last = conv ? part[3] : linked(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    }
    return last && !fake_cudnn_virtual(last);
}

/* What a descriptor is made of must be there, and final. */
static cudnnStatus_t after(Descriptor *d, cudnnBackendAttributeName_t name, cudnnStatus_t missing)
{
    Descriptor *to = linked(d, name);
    if (!to) return missing;
    return to->finalized ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
}

cudnnStatus_t fake_cudnn_finalize(Descriptor *d)
{
    bool right = true;
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: right = tensor_right(d); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: right = window_right(d); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        right = count_of(d, CUDNN_ATTR_POINTWISE_MODE) && count_of(d, CUDNN_ATTR_POINTWISE_MATH_PREC);
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: right = graph_right(d); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return after(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_STATUS_BAD_PARAM);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return after(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return after(d, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_STATUS_BAD_PARAM);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return after(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        right = count_of(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) == count_of(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
        break;
    default: right = operation_right(d);
    }
    return right ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/* ---- a graph */

/* In memory it has this type, and is aligned for vectors; between operations it is f32. */
static bool operand_fits(Descriptor *tensor, int64_t type)
{
    bool is_virtual = fake_cudnn_virtual(tensor);
    return number_at(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, -1) == (is_virtual ? CUDNN_DATA_FLOAT : type) &&
           (is_virtual || number_at(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0, 0) % 16 == 0);
}

/* Operands of one 16-bit or 32-bit type, the bias, too, summed in f32: the library would take 16 bits, too. */
bool fake_cudnn_graph_fits(Descriptor *graph)
{
    const Attribute *ops = attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    Descriptor *part[4];
    if (!conv_parts(linked(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS), part)) return false;
    int64_t type = number_at(part[1], CUDNN_ATTR_TENSOR_DATA_TYPE, 0, -1);
    for (int k = 1; k < 4; k++)
        if (!operand_fits(part[k], type)) return false;
    for (int64_t k = 1; k < ops->count; k++) {
        Descriptor *op = ((Descriptor **)ops->values)[k], *b = linked(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        if (!operand_fits(linked(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), type) || (b && !operand_fits(b, type)))
            return false;
    }
    return type >= 0 && number_at(part[0], CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 0, -1) == CUDNN_DATA_FLOAT;
}
