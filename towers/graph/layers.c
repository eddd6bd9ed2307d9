/* Layers over the op list; see layers.h. A training and an evaluation graph make the same parameters and running statistics, under
 * the same names and in the same order: only the ops between them differ. */
#include "towers/graph/layers.h"
#include "towers/graph/list.h"
#include "towers/graph/rules.h"

static const float default_epsilon = 1e-3f;
static const Init he_normal = {.kind = INIT_HE_NORMAL};

void layer_style(Graph *g, LayerStyle style)
{
    g->style = style;
}

/* "<layer>.<part>"; params and ops prepend the scope. */
static const char *part(Graph *g, const char *layer, const char *name)
{
    return list_text(g, "%s.%s", layer, name);
}

static Window window_of(int32_t kh, int32_t kw, Fit fit)
{
    bool half = fit == HALVE || fit == HALVE_SAME || fit == HALVE_CEIL;
    bool padded = fit == SAME || fit == HALVE_SAME;
    int32_t stride = half ? 2 : 1;
    return (Window){.kh = kh,
                    .kw = kw,
                    .stride_h = stride,
                    .stride_w = stride,
                    .pad_h = padded ? (kh - 1) / 2 : 0,
                    .pad_w = padded ? (kw - 1) / 2 : 0,
                    .ceil = fit == HALVE_CEIL};
}

/* What a side lacks for windows over all of its pixels. */
static int32_t padding_of(int32_t side, int32_t k, int32_t stride)
{
    int32_t lacks = (side - 1) / stride * stride + k - side;
    return lacks > 0 ? lacks : 0;
}

Window window_same(Shape x, int32_t k, int32_t stride)
{
    int32_t h = padding_of(x.h, k, stride), w = padding_of(x.w, k, stride);
    return (Window){.kh = k,
                    .kw = k,
                    .stride_h = stride,
                    .stride_w = stride,
                    .pad_h = h / 2,
                    .pad_w = w / 2,
                    .more_h = h % 2,
                    .more_w = w % 2};
}

static Value unary(Graph *g, OpKind kind, Value x, const OpAttr *attr)
{
    return graph_op(g, kind, NULL, &x, 1, attr, NULL);
}

/* ---- convolution units */

static bool is_frozen(const Graph *g, Value param)
{
    return !param.id || names_match(g->options.freeze, graph_value(g, param)->name);
}

Value batch_norm_by_names(Graph *g, Value x, const char *name, const NormNames *names, float epsilon, bool relu)
{
    Shape vector = shape_vector(graph_shape(g, x).c);
    OpAttr attr = {.norm = {.epsilon = epsilon, .relu = relu}};
    Value gamma = {0};
    if (names->gamma) gamma = graph_param(g, names->gamma, vector, (Init){INIT_CONSTANT, 1}, false);
    Value beta = graph_param(g, names->beta, vector, (Init){INIT_ZERO}, false);
    Value mean = graph_running(g, names->mean, vector, 0);
    Value var = graph_running(g, names->var, vector, 1);
    bool frozen = g->options.freeze && is_frozen(g, beta) && is_frozen(g, gamma);
    if (!g->options.training || frozen)
        return graph_op(g, OP_BATCHNORM_APPLY, name, OPERANDS(x, beta, mean, var, gamma), &attr, NULL);
    Value y = graph_op(g, OP_BATCHNORM, name, OPERANDS(x, beta, gamma), &attr, NULL);
    int64_t values = shape_pixels(graph_shape(g, x));
    graph_batch_statistic(g, graph_output(g, y, 1), mean, values, false);
    graph_batch_statistic(g, graph_output(g, y, 2), var, values, !g->style.bn_biased);
    return y;
}

Value batch_norm_named(Graph *g, Value x, const char *name, bool relu)
{
    const NormNames names = {g->style.bn_no_gamma ? NULL : part(g, name, "weight"), part(g, name, "bias"),
                             part(g, name, "running_mean"), part(g, name, "running_var")};
    return batch_norm_by_names(g, x, name, &names, g->style.bn_epsilon > 0 ? g->style.bn_epsilon : default_epsilon,
                               relu);
}

Value batch_norm(Graph *g, Value x, const char *name, bool relu)
{
    return batch_norm_named(g, x, part(g, name, "bn"), relu);
}

Value conv_bn_relu(Graph *g, Value x, ConvUnit unit)
{
    Init style = g->style.conv_init.kind == INIT_ZERO ? he_normal : g->style.conv_init;
    Init init = unit.init.kind == INIT_ZERO ? style : unit.init;
    Shape shape = {unit.out, graph_shape(g, x).c, unit.kh, unit.kw};
    OpAttr attr = {.conv.window = window_of(unit.kh, unit.kw, unit.fit)};
    Value w = graph_param(g, part(g, unit.name, "conv.weight"), shape, init, true);
    Value y = graph_op(g, OP_CONV, part(g, unit.name, "conv"), OPERANDS(x, w), &attr, NULL);
    return batch_norm(g, y, unit.name, true);
}

Value conv_chain(Graph *g, Value x, const ConvUnit *units, int count)
{
    for (int i = 0; i < count; i++) x = conv_bn_relu(g, x, units[i]);
    return x;
}

Value conv_bias(Graph *g, Value x, const char *name, int32_t out, int32_t k, Fit fit, bool relu, Init init)
{
    return conv_window_bias(g, x, name, out, window_of(k, k, fit), relu, init);
}

static Value conv_weight(Graph *g, const char *name, int32_t out, int32_t in, Window window, Init init)
{
    return graph_param(g, part(g, name, "weight"), (Shape){out, in, window.kh, window.kw}, init, true);
}

/* x * w + b, with a parameter b of its own. */
static Value conv_add_bias(Graph *g, Value x, Value w, const char *name, Window window, bool relu)
{
    OpAttr attr = {.conv = {.window = window, .relu = relu}};
    Value b = graph_param(g, part(g, name, "bias"), shape_vector(graph_shape(g, w).n), (Init){INIT_ZERO}, false);
    return graph_op(g, OP_CONV, name, OPERANDS(x, w, b), &attr, NULL);
}

Value conv_window_bias(Graph *g, Value x, const char *name, int32_t out, Window window, bool relu, Init init)
{
    Value w = conv_weight(g, name, out, graph_shape(g, x).c, window, init);
    return conv_add_bias(g, x, w, name, window, relu);
}

Value conv_window(Graph *g, Value x, const char *name, int32_t out, Window window, Init init)
{
    OpAttr attr = {.conv.window = window};
    Value w = conv_weight(g, name, out, graph_shape(g, x).c, window, init);
    return graph_op(g, OP_CONV, name, OPERANDS(x, w), &attr, NULL);
}

Value depthwise_times(Graph *g, Value x, const char *name, int32_t times, Window window, Init init)
{
    OpAttr attr = {.conv.window = window};
    Value w = conv_weight(g, name, times * graph_shape(g, x).c, 1, window, init);
    return graph_op(g, OP_CONV, name, OPERANDS(x, w), &attr, NULL);
}

Value depthwise(Graph *g, Value x, const char *name, Window window, Init init)
{
    return depthwise_times(g, x, name, 1, window, init);
}

Value depthwise_bias(Graph *g, Value x, const char *name, Window window, Init init)
{
    Value w = conv_weight(g, name, graph_shape(g, x).c, 1, window, init);
    return conv_add_bias(g, x, w, name, window, false);
}

Value pixel_dense(Graph *g, Value x, const char *name, int32_t out, Init init)
{
    const Window point = {.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1};
    Value w = conv_weight(g, name, out, graph_shape(g, x).c, point, init);
    graph_rank(g, w, 2);
    return conv_add_bias(g, x, w, name, point, false);
}

Value layer_norm(Graph *g, Value x, const char *name, float epsilon)
{
    Shape vector = shape_vector(graph_shape(g, x).c);
    OpAttr attr = {.norm.epsilon = epsilon};
    Value gamma = graph_param(g, part(g, name, "weight"), vector, (Init){INIT_CONSTANT, 1}, false);
    Value beta = graph_param(g, part(g, name, "bias"), vector, (Init){INIT_ZERO}, false);
    return graph_op(g, OP_LAYERNORM, name, OPERANDS(x, beta, gamma), &attr, NULL);
}

Value layer_scale(Graph *g, Value x, const char *name, float start)
{
    Value scale = graph_param(g, name, shape_vector(graph_shape(g, x).c), (Init){INIT_CONSTANT, start}, false);
    graph_rank(g, scale, 3);
    return graph_op(g, OP_MUL, name, OPERANDS(x, scale), NULL, NULL);
}

Value conv_transposed(Graph *g, Value x, const char *name, int32_t out, int32_t side, Window window, Init init)
{
    OpAttr attr = {.conv.window = window};
    Shape from = graph_shape(g, x), to = {from.n, out, side, side};
    Value w = conv_weight(g, name, from.c, out, window, init);
    return graph_op(g, OP_CONV_DX, name, OPERANDS(x, w), &attr, &to);
}

Value dense_plain(Graph *g, Value x, const char *name, int32_t out, Init init)
{
    Shape in = graph_shape(g, x);
    Value w = graph_param(g, part(g, name, "weight"), (Shape){out, in.c, in.h, in.w}, init, true);
    return graph_op(g, OP_DENSE, name, OPERANDS(x, w), NULL, NULL);
}

Value dense(Graph *g, Value x, const char *name, int32_t out, bool relu, Init init)
{
    Shape in = graph_shape(g, x);
    OpAttr attr = {.dense.relu = relu};
    Value w = graph_param(g, part(g, name, "weight"), (Shape){out, in.c, in.h, in.w}, init, true);
    Value b = graph_param(g, part(g, name, "bias"), shape_vector(out), (Init){INIT_ZERO}, false);
    return graph_op(g, OP_DENSE, name, OPERANDS(x, w, b), &attr, NULL);
}

Value bias(Graph *g, Value x, const char *name, bool relu)
{
    OpAttr attr = {.add.relu = relu};
    Shape shape = graph_shape(g, x);
    Value b = graph_param(g, part(g, name, "bias"), shape_vector(shape.c), (Init){INIT_ZERO}, false);
    Value wide = graph_op(g, OP_CHANNEL_SPREAD, name, &b, 1, NULL, &shape);
    return graph_op(g, OP_ADD, name, OPERANDS(x, wide), &attr, NULL);
}

/* ---- borders, sizes and pooling */

Value pad(Graph *g, Value x, int32_t top, int32_t bottom, int32_t left, int32_t right)
{
    OpAttr attr = {.pad = {top, bottom, left, right}};
    return top || bottom || left || right ? unary(g, OP_PAD, x, &attr) : x;
}

/* The gradient of an average, which divides by the number of pixels. */
Value upsample(Graph *g, Value x, int32_t times)
{
    Shape from = graph_shape(g, x), to = {from.n, from.c, from.h * times, from.w * times};
    OpAttr attr = {.pool.window = {.kh = times, .kw = times, .stride_h = times, .stride_w = times}};
    Value spread = graph_op(g, OP_AVG_POOL_DX, NULL, &x, 1, &attr, &to);
    return affine(g, spread, (float)(times * times), 0);
}

Value max_pool_window(Graph *g, Value x, Window window)
{
    OpAttr attr = {.pool.window = window};
    return unary(g, OP_MAX_POOL, x, &attr);
}

Value max_pool(Graph *g, Value x, int32_t k, Fit fit)
{
    return max_pool_window(g, x, window_of(k, k, fit));
}

Value avg_pool_window(Graph *g, Value x, Window window, bool include_pad)
{
    OpAttr attr = {.pool = {.window = window, .include_pad = include_pad}};
    return unary(g, OP_AVG_POOL, x, &attr);
}

Value avg_pool(Graph *g, Value x, int32_t k, Fit fit)
{
    return avg_pool_window(g, x, window_of(k, k, fit), g->style.include_pad);
}

Value global_avg_pool(Graph *g, Value x)
{
    Shape s = graph_shape(g, x);
    return s.h == 1 && s.w == 1 ? x : avg_pool_window(g, x, window_of(s.h, s.w, VALID), false);
}

Value adaptive_avg_pool(Graph *g, Value x, int32_t side)
{
    OpAttr attr = {.pool.adaptive = true};
    Shape s = graph_shape(g, x), shape = {s.n, s.c, side, side};
    return graph_op(g, OP_AVG_POOL, NULL, &x, 1, &attr, &shape);
}

/* ---- elementwise and channels */

Value concat(Graph *g, const Value *x, int count)
{
    return graph_op(g, OP_CONCAT, NULL, x, count, NULL, NULL);
}

Value slice(Graph *g, Value x, int32_t first, int32_t c)
{
    OpAttr attr = {.slice.first = first};
    Shape shape = graph_shape(g, x);
    shape.c = c;
    return graph_op(g, OP_SLICE, NULL, &x, 1, &attr, &shape);
}

Value shuffle(Graph *g, Value x, int32_t groups)
{
    OpAttr attr = {.shuffle.groups = groups};
    return unary(g, OP_SHUFFLE, x, &attr);
}

Value relu(Graph *g, Value x)
{
    return unary(g, OP_RELU, x, NULL);
}

Value leaky_relu(Graph *g, Value x, float alpha)
{
    OpAttr attr = {.leaky.alpha = alpha};
    return unary(g, OP_LEAKY_RELU, x, &attr);
}

Value add(Graph *g, Value a, Value b)
{
    return graph_op(g, OP_ADD, NULL, OPERANDS(a, b), NULL, NULL);
}

Value add_relu(Graph *g, Value a, Value b)
{
    OpAttr attr = {.add.relu = true};
    return graph_op(g, OP_ADD, NULL, OPERANDS(a, b), &attr, NULL);
}

Value hard_sigmoid(Graph *g, Value x)
{
    return unary(g, OP_HARD_SIGMOID, x, NULL);
}

Value hard_swish(Graph *g, Value x)
{
    return unary(g, OP_HARD_SWISH, x, NULL);
}

Value relu6(Graph *g, Value x)
{
    return unary(g, OP_RELU6, x, NULL);
}

Value silu(Graph *g, Value x)
{
    return unary(g, OP_SILU, x, NULL);
}

Value gelu(Graph *g, Value x)
{
    return unary(g, OP_GELU, x, NULL);
}

Value gelu_tanh(Graph *g, Value x)
{
    return unary(g, OP_GELU_TANH, x, NULL);
}

Value tanh_of(Graph *g, Value x)
{
    return unary(g, OP_TANH, x, NULL);
}

Value sigmoid(Graph *g, Value x)
{
    return unary(g, OP_SIGMOID, x, NULL);
}

Value affine(Graph *g, Value x, float scale, float shift)
{
    OpAttr attr = {.affine = {.scale = scale, .shift = shift}};
    return unary(g, OP_AFFINE, x, &attr);
}

Value mul(Graph *g, Value a, Value b)
{
    return graph_op(g, OP_MUL, NULL, OPERANDS(a, b), NULL, NULL);
}

Value sub(Graph *g, Value a, Value b)
{
    return add(g, a, affine(g, b, -1, 0));
}

Value power(Graph *g, Value x, float exponent)
{
    OpAttr attr = {.power.exponent = exponent};
    return unary(g, OP_POWER, x, &attr);
}

Value reshape(Graph *g, Value x, Shape shape)
{
    return graph_op(g, OP_RESHAPE, NULL, &x, 1, NULL, &shape);
}

Value unfold(Graph *g, Value x, const char *name, Shape shape)
{
    graph_unfold(g, x, name, shape.h * shape.w);
    return reshape(g, x, shape);
}

Value sum_to(Graph *g, Value x, Shape shape)
{
    return graph_op(g, OP_SUM_TO, NULL, &x, 1, NULL, &shape);
}

Value spread_to(Graph *g, Value x, Shape shape)
{
    return graph_op(g, OP_SPREAD_TO, NULL, &x, 1, NULL, &shape);
}

Value total(Graph *g, Value x)
{
    return sum_to(g, x, (Shape){1, 1, 1, 1});
}

/* ---- random */

static Value random_values(Graph *g, Value counter, Shape shape, bool normal)
{
    OpAttr attr = {.random = {.normal = normal, .stream = graph_next_stream(g)}};
    return graph_op(g, OP_RANDOM, NULL, &counter, 1, &attr, &shape);
}

Value random_normal(Graph *g, Value counter, Shape shape)
{
    return random_values(g, counter, shape, true);
}

Value random_uniform(Graph *g, Value counter, Shape shape)
{
    return random_values(g, counter, shape, false);
}

/* `title` is for the message. */
static Value kept(Graph *g, OpKind kind, const char *title, Value x, float rate)
{
    if (!(rate >= 0 && rate < 1))
        return graph_fail(g, ERR_ARG, "%s: expected a rate of at least 0 and below 1, found %g", title, (double)rate);
    if (!g->options.training || rate == 0) return x;
    Value counter = graph_find(g, "counter");
    if (!counter.id) counter = graph_input(g, "counter", shape_vector(4), DTYPE_I32);
    OpAttr attr = {.dropout = {.keep = 1 - rate, .stream = graph_next_stream(g)}};
    return graph_op(g, kind, NULL, OPERANDS(x, counter), &attr, NULL);
}

Value dropout(Graph *g, Value x, float rate)
{
    return kept(g, OP_DROPOUT, "dropout", x, rate);
}

Value stochastic_depth(Graph *g, Value x, float rate)
{
    return kept(g, OP_STOCHASTIC_DEPTH, "stochastic depth", x, rate);
}

/* ---- both ends */

Value image(Graph *g, Value pixels, Value augment, int32_t channels, int32_t side, const float mean[3],
            const float std[3])
{
    return images_mixed(g, graph_shape(g, pixels).n, pixels, augment, channels, side, mean, std);
}

Value images_mixed(Graph *g, int32_t n, Value pixels, Value augment, int32_t channels, int32_t side,
                   const float mean[3], const float std[3])
{
    if (channels < 1 || channels > 3)
        return graph_fail(g, ERR_ARG, "image: expected 1 to 3 channels, found %d", channels);
    OpAttr attr = {.image = {.std = {1, 1, 1, 1}}};
    for (int c = 0; c < channels; c++) {
        attr.image.mean[c] = mean[c];
        attr.image.std[c] = std[c];
        if (!(isfinite(mean[c]) && isfinite(std[c]) && std[c] > 0))
            return graph_fail(
                g, ERR_ARG,
                "image: mean %g and deviation %g of channel %d: expected finite numbers, the deviation above 0",
                (double)mean[c], (double)std[c], c);
    }
    Shape shape = {n, channels, side, side};
    return graph_op(g, OP_IMAGE, NULL, OPERANDS(pixels, augment), &attr, &shape);
}

Value softmax_loss(Graph *g, Value logits, Value labels, float smoothing, Value *prob, Value *correct)
{
    OpAttr attr = {.loss.smoothing = smoothing};
    Value loss = graph_op(g, OP_SOFTMAX_LOSS, NULL, OPERANDS(logits, labels), &attr, NULL);
    if (prob) *prob = graph_output(g, loss, 1);
    if (correct) *correct = graph_output(g, loss, 2);
    return loss;
}

Value softmax_target_loss(Graph *g, Value logits, Value labels, Value targets, Value *correct)
{
    Value loss = graph_op(g, OP_SOFTMAX_LOSS, NULL, OPERANDS(logits, labels, targets), NULL, NULL);
    if (correct) *correct = graph_output(g, loss, 2);
    return loss;
}

Value sigmoid_loss(Graph *g, Value logits, Value labels, Value targets, Value weights, bool multi_label, Value *prob,
                   Value *correct)
{
    OpAttr attr = {.loss.multi_label = multi_label};
    const Value in[] = {logits, labels, targets, weights};
    Value loss = graph_op(g, OP_SIGMOID_LOSS, NULL, in, weights.id ? 4 : 3, &attr, NULL);
    if (prob) *prob = graph_output(g, loss, 1);
    if (correct) *correct = graph_output(g, loss, 2);
    return loss;
}
