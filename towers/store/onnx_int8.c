/* Eight bits in an ONNX file: a pair of QuantizeLinear and DequantizeLinear behind each value, a DequantizeLinear behind the
 * weights. Runtimes join these pairs with the nodes between them to integer kernels. A number x becomes the integer
 *
 *   q = clamp(round(x / scale) + zero),   x ~ scale (q - zero)
 *
 * Values are uint8 with one scale and one zero; their range is widened to include 0, which borders and ReLUs need exactly.
 * Weights are int8 with a scale for each output and zero = 0. ONNX Runtime ("Quantize ONNX models") also takes int8 values,
 * but on x86 it makes uint8 of them, and of these only where a value has one reader: others would stay f32. Biases are
 * int32 in units of (scale of the input) * (scale of the weights), as the sums are. */
#include "towers/store/onnx_nodes.h"

#include <float.h>

enum { VALUE_MOST = 255, WEIGHT_MOST = 127, BIAS_MOST = 1 << 30 };

typedef struct Scale {
    float scale;
    uint8_t zero;
} Scale;

/* A maximum is one of its inputs, so it has their scale, and nothing is rounded twice. */
static Scale scale_of(const Writer *w, Value v)
{
    for (const Op *op; (op = graph_op_at(w->graph, graph_value(w->graph, v)->op))->kind == OP_MAX_POOL;) v = op->in[0];
    double low = fmin((double)w->ranges[v.id].low, 0), high = fmax((double)w->ranges[v.id].high, 0);
    double scale = high - low >= VALUE_MOST * FLT_MIN ? (high - low) / VALUE_MOST : 1;
    return (Scale){(float)scale, (uint8_t)lrint(-low / scale)};
}

bool int8_rounds(const Writer *w, Value v)
{
    return w->ranges && graph_value(w->graph, v)->role == ROLE_TEMP && v.id != w->result.id;
}

const char *int8_round(Writer *w, const char *layer, Value v, const char *from)
{
    Scale scale = scale_of(w, v);
    uint8_t *zero = malloc(sizeof *zero);
    if (zero) *zero = scale.zero;
    const char *names[] = {constant_scalar(w, "scale", scale.scale),
                           constant_own(w, "zero", ONNX_UINT8, 0, &(int64_t){1}, zero, sizeof *zero)};
    Node *to = node_add(w, "QuantizeLinear", layer), *back = node_add(w, "DequantizeLinear", layer);
    char *integer = to->text[OP_MAX_IN], *rounded = back->text[OP_MAX_IN];
    snprintf(integer, ONNX_NAME, "%.20s_q", from);
    snprintf(rounded, ONNX_NAME, "%.20s_int8", from);
    node_reads(to, from);
    node_reads(back, integer);
    for (int k = 0; k < 2; k++) {
        node_reads(to, names[k]);
        node_reads(back, names[k]);
    }
    node_writes(to, integer);
    node_writes(back, rounded);
    return rounded;
}

/* ---- weights */

bool int8_weighs(const Writer *w, const Op *op)
{
    return w->ranges && (op->kind == OP_CONV || op->kind == OP_DENSE);
}

static const StTensor *tensor_of(const Writer *w, Value v)
{
    const char *name = v.id ? graph_value(w->graph, v)->name : "";
    for (int i = 0; i < w->weights->count; i++)
        if (!strcmp(w->weights->tensor[i].name, name)) return &w->weights->tensor[i];
    return NULL;
}

/* The numbers of a layer with eight bits. */
typedef struct Layer {
    const StTensor *weight;
    int64_t outputs, each; /* each: weights of an output */
    /* owned, until they are constants of the file */
    int8_t *weights, *zeros;
    int32_t *biases;
    float *scales, *bias_scales;
} Layer;

/* The factor and the shift by which output `o` of a batch norm (w, beta, mean, var, gamma) follows from its input. */
static double norm_of(const Writer *w, const Op *norm, int64_t o, double *shift)
{
    double number[OP_MAX_IN] = {[4] = 1};
    for (int k = 1; k < norm->in_count; k++) {
        const StTensor *t = tensor_of(w, norm->in[k]);
        if (t) number[k] = (double)((const float *)t->data)[o];
    }
    double factor = number[4] / sqrt(number[3] + (double)norm->attr.norm.epsilon);
    *shift = number[1] - factor * number[2];
    return factor;
}

/* By comparisons, as gcc 12 fails on a maximum of doubles by fmax for 64-bit ARM (an internal error of its vectorizer). */
static double largest_of(const float *from, int64_t count)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++) most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
    return (double)most;
}

/* `norm`: NULL, or that of op->in. The scale is large enough for the bias to fit, too. */
static void output_fill(const Writer *w, const Op *op, const Op *norm, int64_t o, Layer *l)
{
    const StTensor *bias = norm ? NULL : tensor_of(w, op->in[2]);
    const float *from = (const float *)l->weight->data + o * l->each;
    double shift = bias ? (double)((const float *)bias->data)[o] : 0;
    double factor = norm ? norm_of(w, norm, o, &shift) : 1, input = (double)scale_of(w, op->in[0]).scale;
    double most = fmax(0, fabs(factor * largest_of(from, l->each))); /* a factor that is NaN counts as 0 */
    double scale = fmax(most / WEIGHT_MOST, fabs(shift) / (input * BIAS_MOST));
    l->scales[o] = scale * input >= FLT_MIN && scale >= FLT_MIN ? (float)scale : 1; /* such small numbers become 0 */
    l->bias_scales[o] = (float)(input * (double)l->scales[o]);
    for (int64_t i = 0; i < l->each; i++)
        l->weights[o * l->each + i] = (int8_t)lrint(factor * (double)from[i] / (double)l->scales[o]);
    l->biases[o] = (int32_t)lrint(shift / (double)l->bias_scales[o]);
}

/* The numbers that constants of integers stand for. */
static const char *integers_write(Writer *w, const Op *op, const char *what, const char *integers, const char *scales,
                                  const char *zeros)
{
    Node *node = node_add(w, "DequantizeLinear", op->name);
    char *name = node->text[OP_MAX_IN];
    snprintf(name, ONNX_NAME, "v%d_%s", op->out[0].id, what);
    node_reads(node, integers);
    node_reads(node, scales);
    if (zeros) node_reads(node, zeros);
    attribute_int(node, "axis", 0);
    node_writes(node, name);
    return name;
}

Status int8_weights(Writer *w, const Op *op, const char *names[2])
{
    int32_t writer = graph_value(w->graph, op->in[1])->op;
    const Op *norm = writer >= 0 ? graph_op_at(w->graph, writer) : NULL;
    Layer l = {.weight = tensor_of(w, norm ? norm->in[0] : op->in[1])};
    if (!l.weight)
        return FAIL(ERR_UNSUPPORTED, "%s: its weights are computed from others; export it without --int8", op->name);
    l.outputs = l.weight->dims[0];
    l.each = (int64_t)(l.weight->bytes / sizeof(float)) / l.outputs;
    size_t n = (size_t)l.outputs;
    l.weights = malloc(n * (size_t)l.each);
    l.zeros = calloc(n, sizeof *l.zeros);
    l.biases = malloc(n * sizeof *l.biases);
    l.scales = malloc(n * sizeof *l.scales);
    l.bias_scales = malloc(n * sizeof *l.bias_scales);
    bool whole = l.weights && l.zeros && l.biases && l.scales && l.bias_scales;
    for (int64_t o = 0; whole && o < l.outputs; o++) output_fill(w, op, norm, o, &l);
    int64_t dims[ST_MAX_RANK];
    int rank = parameter_dims(w, l.weight, dims);
    const char *q = constant_own(w, "weights", ONNX_INT8, rank, dims, l.weights, n * (size_t)l.each);
    const char *scales = constant_own(w, "scales", ONNX_FLOAT, 1, &l.outputs, l.scales, n * sizeof *l.scales);
    const char *zeros = constant_own(w, "zeros", ONNX_INT8, 1, &l.outputs, l.zeros, n);
    const char *biases = constant_own(w, "biases", ONNX_INT32, 1, &l.outputs, l.biases, n * sizeof *l.biases);
    const char *units = constant_own(w, "units", ONNX_FLOAT, 1, &l.outputs, l.bias_scales, n * sizeof *l.bias_scales);
    names[0] = integers_write(w, op, "weights", q, scales, zeros);
    names[1] = integers_write(w, op, "biases", biases, units, NULL);
    return w->status;
}
