/* Networks from ONNX files whose layers are more than convolutions, norms and pools of an image: attention to channels and to pixels,
 * blurs, norms of groups, standardized weights. Each is read as the ops whose gradients train it, and refused where it is another. */

#include "tests/support/interpret.h"
#include "tests/support/made_network.h"
#include "tests/support/scratch.h"
#include "towers/graph/program.h"
#include "towers/store/onnx.h"
#include "towers/store/pretrained.h"

TESTS_WITH(scratch_make, scratch_drop)

/* ---- gradients, in double precision */

enum { PARAMETERS = 8 };

static double loss_of(Interpreter *it, Value loss, double *element, double value)
{
    double old = *element;
    *element = value;
    interpreter_run(it);
    *element = old;
    return *interpreter_data(it, loss);
}

/* Each element's gradient, but for one that is some 7 elements away from the last, beside the slope between two values of it. */
static void has_slopes(Interpreter *it, Value loss, Value parameter, Value gradient)
{
    const double h = 1e-5;
    const char *name = graph_value(it->graph, parameter)->name;
    int64_t count = shape_count(graph_shape(it->graph, parameter));
    for (int64_t i = 0; i<count; i += count> 50 ? 7 : 1) {
        double *element = interpreter_data(it, parameter) + i, at = *element;
        double slope = (loss_of(it, loss, element, at + h) - loss_of(it, loss, element, at - h)) / (2 * h);
        loss_of(it, loss, element, at);
        double found = interpreter_data(it, gradient)[i];
        if (!(fabs(found - slope) <= 1e-6 * (1 + fabs(slope))))
            fail_msg("%s[%" PRId64 "]: the gradient is %g, the slope %g", name, i, found, slope);
    }
}

/* The network's parameters have the gradients of what it computes. */
static void trains(int parameters)
{
    Graph *g = new_graph(true, DTYPE_F32);
    const Model *model = net_file_model(made);
    Value x = new_input(g, "image", 2, 3, 8, 8), one = new_input(g, "one", 1, 1, 1, 1);
    ModelOptions options = {.classes = model->classes, .side = 8};
    ModelHeads heads = {{0}};
    Value wrt[PARAMETERS], gradient[PARAMETERS];
    int count = 0;
    model->build(g, &options, model->networks, x, &heads);
    Value loss = total(g, mul(g, heads.logits, heads.logits));
    for (int id = 1; id <= graph_value_count(g); id++)
        if (graph_value(g, (Value){id})->role == ROLE_PARAM && count < PARAMETERS) wrt[count++] = (Value){id};
    assert_int_equal(count, parameters);
    graph_grad(g, loss, one, wrt, count, gradient);
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    Interpreter it = interpreter_create(g);
    for (int id = 1; id <= it.count; id++)
        if (graph_value(g, (Value){id})->op < 0)
            fill_uniform(it.values[id].data, shape_count(graph_shape(g, (Value){id})), (uint64_t)id, -1, 1);
    *interpreter_data(&it, one) = 1;
    for (int k = 0; k < count; k++) has_slopes(&it, loss, wrt[k], gradient[k]);
    interpreter_destroy(&it);
    graph_destroy(g);
}

/* ---- attention */

/* One number for each channel, the 1-d convolution along them, and the factors. */
static OnnxMaker *channel_attention(int64_t pad, int64_t outputs, float bias)
{
    OnnxMaker *m = started();
    maker_node(m, "ReduceMean", "x", "mean");
    maker_ints(m, "axes", 2, SIZES(2, 3));
    maker_int(m, "keepdims", 0);
    maker_node(m, "Reshape", "mean row", "a");
    maker_whole(m, "row", 3, SIZES(0, 1, -1));
    maker_node(m, "Expand", "nothing line", "zeros"); /* as an exporter writes what is not there */
    maker_value(m, "nothing", bias);
    maker_whole(m, "line", 1, SIZES(1));
    maker_node(m, "Conv", "a eca.weight zeros", "b");
    maker_ints(m, "pads", 2, SIZES(pad, 1));
    maker_floats(m, "eca.weight", 3, SIZES(outputs, 1, 3));
    maker_node(m, "Sigmoid", "b", "c");
    maker_node(m, "Reshape", "c column", "d");
    maker_whole(m, "column", 4, SIZES(0, -1, 1, 1));
    maker_node(m, "Shape", "x", "s");
    maker_node(m, "Expand", "d s", "e");
    maker_node(m, "Mul", "x e", "y");
    return ended(m, 3);
}

TEST(test_attention_to_channels)
{
    good(channel_attention(1, 1, 0));
    trains(3);
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = reshape(%0) -> 1x1x1x3 f32 (reshape)\n"
               "%2 = conv(%1, eca.weight) 1x3+0x1 -> 1x1x1x3 f32 (eca)\n"
               "%3 = reshape(%2) -> 1x3x1x1 f32 (reshape)\n"
               "%4 = sigmoid(%3) -> 1x3x1x1 f32 (sigmoid)\n"
               "%5 = mul(image, %4) -> 1x3x8x8 f32 (mul)\n"
               "%6 = avg_pool(%5) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(channel_attention(0, 1, 0), ERR_ARG, "Conv 'b': expected an image of four axes");
    refused(channel_attention(1, 2, 0), ERR_ARG, "Conv 'b': expected an image of four axes");
    refused(channel_attention(1, 1, 1), ERR_ARG, "Conv 'b': expected an image of four axes");
}

/* StarReLU (Yu et al. 2022, arXiv:2210.13452): the square of what a ReLU leaves, by two numbers that are trained. */
TEST(test_square_of_relu)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Relu", "a", "b");
    maker_node(m, "Pow", "b two", "c");
    maker_value(m, "two", 2);
    maker_node(m, "Mul", "c act.scale", "d");
    maker_value(m, "act.scale", 0.5f);
    maker_node(m, "Relu", "d", "e");
    maker_node(m, "Pow", "e two", "y");
    good(ended(m, 3));
    trains(4);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 relu -> 1x3x8x8 f32 (conv)\n"
               "%1 = mul(%0, %0) -> 1x3x8x8 f32 (mul)\n"
               "%2 = spread_to(act.scale) -> 1x3x1x1 f32 (spread_to)\n"
               "%3 = mul(%1, %2) -> 1x3x8x8 f32 (d)\n"
               "%4 = relu(%3) -> 1x3x8x8 f32 (relu)\n"
               "%5 = mul(%4, %4) -> 1x3x8x8 f32 (mul)\n"
               "%6 = avg_pool(%5) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* A number for each channel times one for each pixel (Yang et al. 2022, arXiv:2203.11926), and what fits together in no such way. */
static OnnxMaker *map_times_row(const char *type, bool fits)
{
    OnnxMaker *m = started();
    maker_node(m, "GlobalAveragePool", "x", "row");
    maker_node(m, "Conv", "x gate.weight", "map");
    maker_floats(m, "gate.weight", 4, SIZES(fits ? 1 : 2, 3, 1, 1));
    maker_node(m, type, "row map", "y");
    return ended(m, 3);
}

TEST(test_map_times_row)
{
    good(map_times_row("Mul", true));
    trains(3);
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = conv(image, gate.weight) 1x1 -> 1x1x8x8 f32 (gate)\n"
               "%2 = spread_to(%0) -> 1x3x8x8 f32 (spread_to)\n"
               "%3 = spread_to(%1) -> 1x3x8x8 f32 (spread_to)\n"
               "%4 = mul(%2, %3) -> 1x3x8x8 f32 (mul)\n"
               "%5 = avg_pool(%4) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%6 = dense(%5, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(map_times_row("Max", true), ERR_ARG, "its operands have axes that do not lie alike in memory");
    refused(map_times_row("Mul", false), ERR_ARG, "its operands have axes that do not lie alike in memory");
}

/* One number for each channel all over the image, and a value that has no other reader but this. */
TEST(test_expanded)
{
    OnnxMaker *m = started();
    maker_node(m, "GlobalAveragePool", "x", "a");
    maker_node(m, "Expand", "a sizes", "b");
    maker_whole(m, "sizes", 4, SIZES(1, 3, 8, 8));
    maker_node(m, "Relu", "b", "y");
    good(ended(m, 3));
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = spread_to(%0) -> 1x3x8x8 f32 (spread_to)\n"
               "%2 = relu(%1) -> 1x3x8x8 f32 (relu)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    m = started();
    maker_node(m, "Expand", "x sizes", "y");
    maker_whole(m, "sizes", 4, SIZES(1, 3, 16, 8));
    refused(ended(m, 3), ERR_ARG, "Expand 'y': expected one number for each channel");
}

/* The weights of pixels that sum to 1, and the sum of the image by them; `turned`: of the image, its columns one after another. */
static OnnxMaker *pixel_attention(int64_t axis, int64_t maps, bool turned)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x attn.weight", "a");
    maker_floats(m, "attn.weight", 4, SIZES(maps, 3, 1, 1));
    maker_node(m, "Reshape", "a line", "b");
    maker_whole(m, "line", 3, SIZES(0, maps, 64));
    maker_node(m, "Softmax", "b", "c");
    maker_int(m, "axis", axis);
    maker_node(m, "Reshape", "c column", "d");
    maker_whole(m, "column", 4, SIZES(0, maps, 64, 1));
    if (turned) {
        maker_node(m, "Transpose", "x", "t");
        maker_ints(m, "perm", 4, SIZES(0, 1, 3, 2));
    }
    maker_node(m, "Reshape", turned ? "t pixels" : "x pixels", "e");
    maker_whole(m, "pixels", 4, SIZES(0, 1, 3, 64));
    maker_node(m, "MatMul", "e d", "f");
    maker_node(m, "Reshape", "f image", "y");
    maker_whole(m, "image", 4, SIZES(0, 3, 1, 1));
    return ended(m, 3);
}

TEST(test_attention_to_pixels)
{
    good(pixel_attention(2, 1, false));
    trains(3);
    has_ops(0, "%0 = conv(image, attn.weight) 1x1 -> 1x1x8x8 f32 (attn)\n"
               "%1 = max_pool(%0) 8x8 -> 1x1x1x1 f32 (max_pool)\n"
               "%2 = affine(%1) scale -1 shift 0 -> 1x1x1x1 f32 (affine)\n"
               "%3 = spread_to(%2) -> 1x1x8x8 f32 (spread_to)\n"
               "%4 = add(%0, %3) -> 1x1x8x8 f32 (add)\n"
               "%5 = sigmoid(%4) -> 1x1x8x8 f32 (sigmoid)\n"
               "%6 = affine(%4) scale -1 shift 0 -> 1x1x8x8 f32 (affine)\n"
               "%7 = sigmoid(%6) -> 1x1x8x8 f32 (sigmoid)\n"
               "%8 = power(%7) exponent -1 -> 1x1x8x8 f32 (power)\n"
               "%9 = mul(%5, %8) -> 1x1x8x8 f32 (mul)\n"
               "%10 = sum_to(%9) -> 1x1x1x1 f32 (sum_to)\n"
               "%11 = power(%10) exponent -1 -> 1x1x1x1 f32 (power)\n"
               "%12 = mul(%9, %11) -> 1x1x8x8 f32 (mul)\n"
               "%13 = spread_to(%12) -> 1x3x8x8 f32 (spread_to)\n"
               "%14 = mul(image, %13) -> 1x3x8x8 f32 (mul)\n"
               "%15 = sum_to(%14) -> 1x3x1x1 f32 (sum_to)\n"
               "%16 = dense(%15, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(pixel_attention(1, 2, false), ERR_ARG, "Softmax 'c': it is neither over the classes");
    refused(pixel_attention(2, 2, false), ERR_ARG, "MatMul 'f': expected a matrix of the file");
    refused(pixel_attention(2, 1, true), ERR_ARG, "MatMul 'f': expected a matrix of the file");
}

/* The length of each channel beside their mean, as ConvNeXt V2 has it, with the channels last. */
static OnnxMaker *response(float factor)
{
    OnnxMaker *m = started();
    maker_node(m, "Transpose", "x", "t");
    maker_ints(m, "perm", 4, SIZES(0, 2, 3, 1));
    maker_node(m, "ReduceL2", "t", "length");
    maker_ints(m, "axes", 2, SIZES(1, 2));
    maker_node(m, "ReduceMean", "length", "mean");
    maker_ints(m, "axes", 1, SIZES(-1));
    maker_node(m, "Add", "mean eps", "a");
    maker_value(m, "eps", 0.5f);
    maker_node(m, "Div", "length a", "b");
    maker_node(m, "Mul", "t b", "c");
    maker_node(m, "Expand", "one line", "ones");
    maker_value(m, "one", factor);
    maker_whole(m, "line", 1, SIZES(1));
    maker_node(m, "Mul", "grn.weight ones", "times"); /* still a parameter */
    maker_floats(m, "grn.weight", 1, SIZES(3));
    maker_node(m, "Mul", "c times", "e");
    maker_node(m, "Add", "t e", "d");
    maker_node(m, "Transpose", "d", "y");
    maker_ints(m, "perm", 4, SIZES(0, 3, 1, 2));
    return ended(m, 3);
}

TEST(test_response)
{
    good(response(1));
    trains(3);
    assert_int_equal(net_file_model(made)->residuals, 0); /* no residual block */
    has_ops(0, "%0 = mul(image, image) -> 1x3x8x8 f32 (mul)\n"
               "%1 = avg_pool(%0) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%2 = affine(%1) scale 64 shift 1e-30 -> 1x3x1x1 f32 (affine)\n"
               "%3 = power(%2) exponent 0.5 -> 1x3x1x1 f32 (power)\n"
               "%4 = sum_to(%3) -> 1x1x1x1 f32 (sum_to)\n"
               "%5 = affine(%4) scale 0.333333 shift 0 -> 1x1x1x1 f32 (affine)\n"
               "%6 = affine(%5) scale 1 shift 0.5 -> 1x1x1x1 f32 (affine)\n"
               "%7 = power(%6) exponent -1 -> 1x1x1x1 f32 (power)\n"
               "%8 = spread_to(%7) -> 1x3x1x1 f32 (spread_to)\n"
               "%9 = mul(%3, %8) -> 1x3x1x1 f32 (mul)\n"
               "%10 = mul(image, %9) -> 1x3x8x8 f32 (mul)\n"
               "%11 = mul(%10, grn.weight) -> 1x3x8x8 f32 (e)\n"
               "%12 = add(image, %11) -> 1x3x8x8 f32 (add)\n"
               "%13 = avg_pool(%12) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%14 = dense(%13, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(response(2), ERR_ARG, "Mul 'e': its weights are computed by other nodes");
}

/* ---- sums */

static OnnxMaker *summed(const char *type, const int64_t *axes, int count)
{
    OnnxMaker *m = started();
    maker_node(m, type, "x", "a");
    maker_ints(m, "axes", count, axes);
    maker_node(m, "Mul", "x a", "y");
    return ended(m, 3);
}

TEST(test_sums)
{
    good(summed("ReduceSum", SIZES(2, 3), 2));
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = affine(%0) scale 64 shift 0 -> 1x3x1x1 f32 (affine)\n"
               "%2 = mul(image, %1) -> 1x3x8x8 f32 (mul)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(summed("ReduceMax", SIZES(2, 3), 2));
    has_ops(0, "%0 = max_pool(image) 8x8 -> 1x3x1x1 f32 (max_pool)\n"
               "%1 = mul(image, %0) -> 1x3x8x8 f32 (mul)\n"
               "%2 = avg_pool(%1) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%3 = dense(%2, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(summed("ReduceMax", SIZES(1), 1)); /* the channels of a pixel beside each other in memory, as columns */
    has_ops(0, "%0 = reshape(image) -> 1x1x64x3 f32 (reshape)\n"
               "%1 = max_pool(%0) 1x3 -> 1x1x64x1 f32 (max_pool)\n"
               "%2 = reshape(%1) -> 1x1x8x8 f32 (reshape)\n"
               "%3 = spread_to(%2) -> 1x3x8x8 f32 (spread_to)\n"
               "%4 = mul(image, %3) -> 1x3x8x8 f32 (mul)\n"
               "%5 = avg_pool(%4) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%6 = dense(%5, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(summed("ReduceMax", SIZES(3), 1));
    has_ops(0, "%0 = max_pool(image) 1x8 -> 1x3x8x1 f32 (max_pool)\n"
               "%1 = spread_to(%0) -> 1x3x8x8 f32 (spread_to)\n"
               "%2 = mul(image, %1) -> 1x3x8x8 f32 (mul)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(summed("ReduceSum", SIZES(1), 1));
    has_ops(0, "%0 = sum_to(image) -> 1x1x8x8 f32 (sum_to)\n"
               "%1 = spread_to(%0) -> 1x3x8x8 f32 (spread_to)\n"
               "%2 = mul(image, %1) -> 1x3x8x8 f32 (mul)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(summed("ReduceMean", SIZES(3), 1));
    has_ops(0, "%0 = sum_to(image) -> 1x3x8x1 f32 (sum_to)\n"
               "%1 = affine(%0) scale 0.125 shift 0 -> 1x3x8x1 f32 (affine)\n"
               "%2 = spread_to(%1) -> 1x3x8x8 f32 (spread_to)\n"
               "%3 = mul(image, %2) -> 1x3x8x8 f32 (mul)\n"
               "%4 = avg_pool(%3) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(summed("ReduceSum", SIZES(0), 1), ERR_ARG, "ReduceSum 'a': expected all rows");
    OnnxMaker *m = started();
    maker_node(m, "ReduceSum", "x", "y");
    refused(ended(m, 3), ERR_ARG, "ReduceSum 'y': expected axes, known");
}

/* A maximum is found among 256 numbers at most; of a prime number more by windows that overlap. */
TEST(test_largest_of_a_prime)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x wide.weight", "a");
    maker_floats(m, "wide.weight", 4, SIZES(257, 3, 1, 1));
    maker_node(m, "ReduceMax", "a", "most");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_node(m, "Mul", "x most", "y");
    good(ended(m, 3));
    trains(3);
    has_ops(0, "%0 = conv(image, wide.weight) 1x1 -> 1x257x8x8 f32 (wide)\n"
               "%1 = reshape(%0) -> 1x1x64x257 f32 (reshape)\n"
               "%2 = max_pool(%1) 1x129/1x128 -> 1x1x64x2 f32 (max_pool)\n"
               "%3 = max_pool(%2) 1x2 -> 1x1x64x1 f32 (max_pool)\n"
               "%4 = reshape(%3) -> 1x1x8x8 f32 (reshape)\n"
               "%5 = spread_to(%4) -> 1x3x8x8 f32 (spread_to)\n"
               "%6 = mul(image, %5) -> 1x3x8x8 f32 (mul)\n"
               "%7 = avg_pool(%6) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%8 = dense(%7, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* ---- blurs */

/* A border of this mode around the image, and a filter of each channel, of which the first number is `first`. */
static OnnxMaker *blurred(const char *mode, int64_t border, float first)
{
    static const float side[] = {0.25f, 0.5f, 0.25f};
    OnnxMaker *m = started();
    maker_node(m, "Pad", "x pads", "p");
    maker_text(m, "mode", mode);
    maker_whole(m, "pads", 8, SIZES(0, 0, border, border, 0, 0, border, border));
    maker_node(m, "Conv", "p filt", "y");
    maker_ints(m, "strides", 2, SIZES(2, 2));
    maker_int(m, "group", 3);
    float *filter = (float *)maker_floats(m, "filt", 4, SIZES(3, 1, 3, 3))->raw_data.data;
    for (int i = 0; i < 27; i++) filter[i] = side[i / 3 % 3] * side[i % 3];
    filter[0] = first;
    return ended(m, 3);
}

TEST(test_blurs)
{
    int count;
    good(blurred("reflect", 1, 0.0625f));
    trains(2);
    net_file_tensors(made, &count);
    assert_int_equal(count, 2); /* the filter is none of what is trained */
    has_ops(0, "%0 = avg_pool(image) 2x2 -> 1x3x7x7 f32 (avg_pool)\n"
               "%1 = avg_pool(%0) 2x2/2+1 -> 1x3x4x4 f32 (avg_pool)\n"
               "%2 = avg_pool(%1) 4x4 -> 1x3x1x1 f32 (avg_pool)\n"
               "%3 = dense(%2, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(blurred("constant", 1, 0.0625f)); /* any filter is trained */
    has_ops(0, "%0 = conv(image, filt) 3x3/2+1 -> 1x3x4x4 f32 (y)\n"
               "%1 = avg_pool(%0) 4x4 -> 1x3x1x1 f32 (avg_pool)\n"
               "%2 = dense(%1, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(blurred("reflect", 1, 0.06f), ERR_ARG, "Pad 'p': it mirrors the image");
    refused(blurred("reflect", 2, 0.0625f), ERR_ARG, "Pad 'p': it mirrors the image");
    refused(blurred("edge", 1, 0.0625f), ERR_ARG, "Pad 'p': it pads in the mode 'edge'; expected constant, or reflect");
}

/* ---- parts of the image: some of its rows and columns, channels in another order, channels of zeros, the larger of two values */

/* A convolution, whose result is `c`, and behind it the node that a test adds. */
static OnnxMaker *behind(const char *type, const char *operands)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "c");
    maker_floats(m, "conv.weight", 4, SIZES(6, 3, 1, 1));
    maker_node(m, type, operands, "y");
    return m;
}

/* c[:, :, 1::3, ::2] in Python, of which one axis may be another. */
static OnnxMaker *thinned(int64_t axis, int64_t step)
{
    OnnxMaker *m = behind("Slice", "c starts ends axes steps");
    maker_whole(m, "starts", 2, SIZES(1, 0));
    maker_whole(m, "ends", 2, SIZES(INT64_MAX, INT64_MAX));
    maker_whole(m, "axes", 2, SIZES(axis, 3));
    maker_whole(m, "steps", 2, SIZES(step, 2));
    return ended(m, 6);
}

TEST(test_every_other_pixel)
{
    good(thinned(2, 3));
    trains(3);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = pad(%0) top -1 bottom 0 left 0 right 0 -> 1x6x7x8 f32 (pad)\n"
               "%2 = avg_pool(%1) 1x1/3x2 -> 1x6x3x4 f32 (avg_pool)\n"
               "%3 = avg_pool(%2) 3x4 -> 1x6x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(thinned(2, 7)); /* a single row is left */
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = pad(%0) top -1 bottom 0 left 0 right 0 -> 1x6x7x8 f32 (pad)\n"
               "%2 = avg_pool(%1) 1x1/7x2 -> 1x6x1x4 f32 (avg_pool)\n"
               "%3 = avg_pool(%2) 1x4 -> 1x6x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(thinned(1, 3), ERR_ARG, "Slice 'y': it leaves out every so many of another axis than rows and columns");
    refused(thinned(2, -1), ERR_ARG, "Slice 'y': expected a range, forwards");
    refused(thinned(2, 0), ERR_ARG, "Slice 'y': expected a range, forwards");
}

/* The shortcut of ResNets for CIFAR (He et al. 2016, arXiv:1512.03385, option A): channels of zeros instead of a convolution. */
static OnnxMaker *widened(int64_t batch, int64_t before, int64_t after, float value)
{
    OnnxMaker *m = behind("Pad", "c pads value");
    maker_whole(m, "pads", 8, SIZES(batch, before, 0, 1, 0, after, 0, 0));
    maker_value(m, "value", value);
    return ended(m, 6 + before + after);
}

TEST(test_channels_of_zeros)
{
    good(widened(0, 1, 2, 0));
    trains(3);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = reshape(%0) -> 1x1x64x6 f32 (reshape)\n"
               "%2 = pad(%1) top 0 bottom 0 left 1 right 2 -> 1x1x64x9 f32 (pad)\n"
               "%3 = reshape(%2) -> 1x9x8x8 f32 (reshape)\n"
               "%4 = pad(%3) top 0 bottom 0 left 1 right 0 -> 1x9x8x9 f32 (pad)\n"
               "%5 = avg_pool(%4) 8x9 -> 1x9x1x1 f32 (avg_pool)\n"
               "%6 = dense(%5, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(widened(1, 1, 2, 0), ERR_ARG, "Pad 'y': it pads another axis than rows, columns and channels");
    refused(widened(0, 1, 2, 1), ERR_ARG, "Pad 'y': it pads another axis than rows, columns and channels");
    refused(widened(0, -1, 2, 0), ERR_ARG, "Pad 'y': it pads another axis than rows, columns and channels");
}

static OnnxMaker *listed(int count, const int64_t *places, int64_t axis)
{
    OnnxMaker *m = behind("Gather", "c places");
    maker_int(m, "axis", axis);
    maker_whole(m, "places", count, places);
    return ended(m, count);
}

TEST(test_listed_channels)
{
    good(listed(6, SIZES(-1, 1, 2, 3, 2, 0), 1));
    trains(3);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = slice(%0) from 5 -> 1x1x8x8 f32 (slice)\n"
               "%2 = slice(%0) from 1 -> 1x3x8x8 f32 (slice)\n"
               "%3 = slice(%0) from 2 -> 1x1x8x8 f32 (slice)\n"
               "%4 = slice(%0) from 0 -> 1x1x8x8 f32 (slice)\n"
               "%5 = concat(%1, %2, %3, %4) -> 1x6x8x8 f32 (concat)\n"
               "%6 = avg_pool(%5) 8x8 -> 1x6x1x1 f32 (avg_pool)\n"
               "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(listed(2, SIZES(0, 6), 1), ERR_ARG, "Gather 'y': expected one place");
    refused(listed(2, SIZES(1, 0), 2), ERR_ARG, "Gather 'y': expected one place");
}

/* The second node was added before what it reads. */
static void nodes_swap(OnnxMaker *m)
{
    Onnx__NodeProto second = m->node[1];
    m->node[1] = m->node[2], m->node[2] = second;
}

static OnnxMaker *two_of(const char *type)
{
    OnnxMaker *m = behind(type, "c d");
    maker_node(m, "Conv", "x other.weight", "d");
    maker_floats(m, "other.weight", 4, SIZES(6, 3, 1, 1));
    nodes_swap(m);
    return ended(m, 6);
}

TEST(test_larger_of_two)
{
    good(two_of("Max"));
    trains(4);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = conv(image, other.weight) 1x1 -> 1x6x8x8 f32 (other)\n"
               "%2 = concat(%0, %1) -> 1x12x8x8 f32 (concat)\n"
               "%3 = reshape(%2) -> 1x6x64x2 f32 (reshape)\n"
               "%4 = max_pool(%3) 1x2 -> 1x6x64x1 f32 (max_pool)\n"
               "%5 = reshape(%4) -> 1x6x8x8 f32 (reshape)\n"
               "%6 = avg_pool(%5) 8x8 -> 1x6x1x1 f32 (avg_pool)\n"
               "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(two_of("Min"), ERR_ARG, "Min 'y': it has no counterpart for two values that the network computes");
}

/* Of more numbers than a window has the largest is that of the largest of its parts. */
static OnnxMaker *largest_of_many(const char *type)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "c");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Resize", "c none scales", "d");
    maker_text(m, "coordinate_transformation_mode", "asymmetric");
    maker_text(m, "nearest_mode", "floor");
    maker_floats(m, "none", 1, SIZES(0));
    float *scale = (float *)maker_floats(m, "scales", 1, SIZES(4))->raw_data.data;
    scale[0] = scale[1] = 1, scale[2] = scale[3] = 3;
    maker_node(m, type, "d", "y");
    if (!strcmp(type, "MaxPool")) maker_ints(m, "kernel_shape", 2, SIZES(24, 24));
    return ended(m, 3);
}

TEST(test_largest_of_many)
{
    static const char *const types[] = {"GlobalMaxPool", "MaxPool"};
    for (int i = 0; i < 2; i++) {
        good(largest_of_many(types[i]));
        trains(3);
        has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
                   "%1 = avg_pool_dx(%0) 3x3/3 -> 1x3x24x24 f32 (avg_pool_dx)\n"
                   "%2 = affine(%1) scale 9 shift 0 -> 1x3x24x24 f32 (affine)\n"
                   "%3 = max_pool(%2) 24x8/1x8 -> 1x3x1x3 f32 (max_pool)\n"
                   "%4 = max_pool(%3) 1x3 -> 1x3x1x1 f32 (max_pool)\n"
                   "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    }
}

/* Maps of one channel, as the mean and the largest of all channels, are put together (Woo et al. 2018, arXiv:1807.06521). */
TEST(test_maps_together)
{
    OnnxMaker *m = started();
    maker_node(m, "ReduceMean", "x", "mean");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_node(m, "ReduceMax", "x", "most");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_node(m, "Concat", "mean most", "maps");
    maker_int(m, "axis", 1);
    maker_node(m, "Conv", "maps spatial.weight", "a");
    maker_floats(m, "spatial.weight", 4, SIZES(1, 2, 3, 3));
    maker_ints(m, "pads", 4, SIZES(1, 1, 1, 1));
    maker_node(m, "Sigmoid", "a", "b");
    maker_node(m, "Mul", "x b", "y");
    good(ended(m, 3));
    trains(3);
    has_ops(0, "%0 = sum_to(image) -> 1x1x8x8 f32 (sum_to)\n"
               "%1 = affine(%0) scale 0.333333 shift 0 -> 1x1x8x8 f32 (affine)\n"
               "%2 = reshape(image) -> 1x1x64x3 f32 (reshape)\n"
               "%3 = max_pool(%2) 1x3 -> 1x1x64x1 f32 (max_pool)\n"
               "%4 = reshape(%3) -> 1x1x8x8 f32 (reshape)\n"
               "%5 = concat(%1, %4) -> 1x2x8x8 f32 (concat)\n"
               "%6 = conv(%5, spatial.weight) 3x3+1 -> 1x1x8x8 f32 (spatial)\n"
               "%7 = sigmoid(%6) -> 1x1x8x8 f32 (sigmoid)\n"
               "%8 = spread_to(%7) -> 1x3x8x8 f32 (spread_to)\n"
               "%9 = mul(image, %8) -> 1x3x8x8 f32 (mul)\n"
               "%10 = avg_pool(%9) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%11 = dense(%10, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* ---- groups of channels */

/* Two branches on an axis of their own, weighed by numbers of which two sum to 1, as selective kernels have it. */
static OnnxMaker *selected(int64_t axis, int64_t branches)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x a.weight", "a");
    maker_floats(m, "a.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Unsqueeze", "x", "x1");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_node(m, "Unsqueeze", "a", "a1");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_node(m, "Concat", branches == 2 ? "x1 a1" : "x1 a1 x1", "stack");
    maker_int(m, "axis", 1);
    maker_node(m, "ReduceSum", "stack", "sum");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_int(m, "keepdims", 0);
    maker_node(m, "GlobalAveragePool", "sum", "mean");
    maker_node(m, "Conv", "mean select.weight", "b");
    maker_floats(m, "select.weight", 4, SIZES(3 * branches, 3, 1, 1));
    maker_node(m, "Reshape", "b apart", "c");
    maker_whole(m, "apart", 5, SIZES(0, branches, 3, 1, 1));
    maker_node(m, "Softmax", "c", "d");
    maker_int(m, "axis", axis);
    maker_node(m, "Mul", "stack d", "e");
    maker_node(m, "ReduceMean", "e", "f");
    maker_ints(m, "axes", 1, SIZES(-4));
    maker_node(m, "Reshape", "f image", "y");
    maker_whole(m, "image", 4, SIZES(0, 3, 8, 8));
    return ended(m, 3);
}

TEST(test_selected_branches)
{
    good(selected(1, 2));
    trains(4);
    has_ops(0, "%0 = conv(image, a.weight) 1x1 -> 1x3x8x8 f32 (a)\n"
               "%1 = concat(image, %0) -> 1x6x8x8 f32 (concat)\n"
               "%2 = slice(%1) from 0 -> 1x3x8x8 f32 (slice)\n"
               "%3 = slice(%1) from 3 -> 1x3x8x8 f32 (slice)\n"
               "%4 = add(%2, %3) -> 1x3x8x8 f32 (sum)\n"
               "%5 = avg_pool(%4) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%6 = conv(%5, select.weight) 1x1 -> 1x6x1x1 f32 (select)\n"
               "%7 = slice(%6) from 0 -> 1x3x1x1 f32 (slice)\n"
               "%8 = slice(%6) from 3 -> 1x3x1x1 f32 (slice)\n"
               "%9 = affine(%8) scale -1 shift 0 -> 1x3x1x1 f32 (affine)\n"
               "%10 = add(%7, %9) -> 1x3x1x1 f32 (add)\n"
               "%11 = sigmoid(%10) -> 1x3x1x1 f32 (sigmoid)\n"
               "%12 = affine(%10) scale -1 shift 0 -> 1x3x1x1 f32 (affine)\n"
               "%13 = sigmoid(%12) -> 1x3x1x1 f32 (sigmoid)\n"
               "%14 = concat(%11, %13) -> 1x6x1x1 f32 (concat)\n"
               "%15 = mul(%1, %14) -> 1x6x8x8 f32 (mul)\n"
               "%16 = slice(%15) from 0 -> 1x3x8x8 f32 (slice)\n"
               "%17 = slice(%15) from 3 -> 1x3x8x8 f32 (slice)\n"
               "%18 = add(%16, %17) -> 1x3x8x8 f32 (f)\n"
               "%19 = affine(%18) scale 0.5 shift 0 -> 1x3x8x8 f32 (affine)\n"
               "%20 = avg_pool(%19) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%21 = dense(%20, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(selected(2, 2), ERR_ARG, "Softmax 'd': it is neither over the classes");
    refused(selected(1, 3), ERR_ARG, "Softmax 'd': it is neither over the classes");
}

/* Blocks of 2 x 4 pixels become channels. */
static OnnxMaker *blocks(const int64_t permutation[6], int64_t channels)
{
    OnnxMaker *m = started();
    maker_node(m, "Reshape", "x apart", "a");
    maker_whole(m, "apart", 6, SIZES(0, 3, 4, 2, 2, 4));
    maker_node(m, "Transpose", "a", "b");
    maker_ints(m, "perm", 6, permutation);
    maker_node(m, "Reshape", "b image", "c");
    maker_whole(m, "image", 4, SIZES(0, channels, 4, 2));
    maker_node(m, "Conv", "c conv.weight", "y");
    maker_floats(m, "conv.weight", 4, SIZES(4, 24, 1, 1));
    return ended(m, 4);
}

TEST(test_blocks_of_pixels)
{
    good(blocks(SIZES(0, 3, 5, 1, 2, 4), 24));
    trains(3);
    has_ops(0, "%0 = reshape(image) -> 1x48x4x1 f32 (reshape)\n"
               "%1 = shuffle(%0) groups 2 -> 1x48x4x1 f32 (shuffle)\n"
               "%2 = reshape(%1) -> 1x24x4x2 f32 (reshape)\n"
               "%3 = shuffle(%2) groups 12 -> 1x24x4x2 f32 (shuffle)\n"
               "%4 = conv(%3, conv.weight) 1x1 -> 1x4x4x2 f32 (conv)\n"
               "%5 = avg_pool(%4) 4x2 -> 1x4x1x1 f32 (avg_pool)\n"
               "%6 = dense(%5, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(blocks(SIZES(0, 5, 3, 1, 2, 4), 24), ERR_ARG, "its operand's axes do not lie so in memory");
    refused(blocks(SIZES(0, 1, 3, 5, 2, 4), 24), ERR_ARG, "its operand's axes do not lie so in memory");
    OnnxMaker *m = started(); /* rows in three parts, of which the middle one becomes channels */
    maker_node(m, "Reshape", "x apart", "a");
    maker_whole(m, "apart", 7, SIZES(0, 3, 2, 2, 2, 4, 2));
    maker_node(m, "Transpose", "a", "b");
    maker_ints(m, "perm", 7, SIZES(0, 3, 6, 1, 2, 4, 5));
    maker_node(m, "Reshape", "b image", "c");
    maker_whole(m, "image", 4, SIZES(0, 12, 4, 4));
    maker_node(m, "Conv", "c conv.weight", "y");
    maker_floats(m, "conv.weight", 4, SIZES(4, 12, 1, 1));
    refused(ended(m, 4), ERR_ARG, "its operand's axes do not lie so in memory");
}

/* Two groups of channels, seen as the second axis, with a scale of each; `again`: which another norm trains. */
static OnnxMaker *grouped_twice(float scale, bool again)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight conv.bias", "a");
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 1, 1));
    maker_floats(m, "conv.bias", 1, SIZES(4));
    maker_node(m, "Reshape", "a apart", "b");
    maker_whole(m, "apart", 3, SIZES(0, 2, -1));
    maker_node(m, "InstanceNormalization", "b scale shift", "c");
    maker_float(m, "epsilon", 0.5f);
    const char *const vectors[] = {"scale", "shift"};
    for (int i = 0; i < 2; i++) {
        float *values = (float *)maker_floats(m, vectors[i], 1, SIZES(2))->raw_data.data;
        values[0] = values[1] = i ? 0 : scale;
    }
    maker_node(m, "Reshape", "c image", again ? "d" : "y");
    maker_whole(m, "image", 4, SIZES(0, 4, 8, 8));
    if (!again) return ended(m, 4);
    maker_node(m, "Conv", "d two.weight", "e");
    maker_floats(m, "two.weight", 4, SIZES(2, 4, 1, 1));
    maker_node(m, "InstanceNormalization", "e scale two.bias", "y");
    maker_floats(m, "two.bias", 1, SIZES(2));
    return ended(m, 2);
}

static OnnxMaker *grouped(float scale)
{
    return grouped_twice(scale, false);
}

TEST(test_norms_of_groups)
{
    NetFile *again;
    good(grouped(1));
    trains(4);
    assert_int_equal(net_file_restore(made, &again), OK);
    assert_int_equal(net_file_facts(again).restored, 0); /* the convolution has a norm */
    net_file_close(again);
    has_ops(0, "%0 = conv(image, conv.weight, conv.bias) 1x1 -> 1x4x8x8 f32 (conv)\n"
               "%1 = avg_pool(%0) 8x8 -> 1x4x1x1 f32 (avg_pool)\n"
               "%2 = reshape(%1) -> 1x2x2x1 f32 (reshape)\n"
               "%3 = sum_to(%2) -> 1x1x2x1 f32 (sum_to)\n"
               "%4 = affine(%3) scale 0.5 shift 0 -> 1x1x2x1 f32 (affine)\n"
               "%5 = spread_to(%4) -> 1x2x2x1 f32 (spread_to)\n"
               "%6 = reshape(%5) -> 1x4x1x1 f32 (reshape)\n"
               "%7 = affine(%6) scale -1 shift 0 -> 1x4x1x1 f32 (affine)\n"
               "%8 = spread_to(%7) -> 1x4x8x8 f32 (spread_to)\n"
               "%9 = add(%0, %8) -> 1x4x8x8 f32 (add)\n"
               "%10 = mul(%9, %9) -> 1x4x8x8 f32 (mul)\n"
               "%11 = avg_pool(%10) 8x8 -> 1x4x1x1 f32 (avg_pool)\n"
               "%12 = reshape(%11) -> 1x2x2x1 f32 (reshape)\n"
               "%13 = sum_to(%12) -> 1x1x2x1 f32 (sum_to)\n"
               "%14 = affine(%13) scale 0.5 shift 0 -> 1x1x2x1 f32 (affine)\n"
               "%15 = spread_to(%14) -> 1x2x2x1 f32 (spread_to)\n"
               "%16 = reshape(%15) -> 1x4x1x1 f32 (reshape)\n"
               "%17 = affine(%16) scale 1 shift 0.5 -> 1x4x1x1 f32 (affine)\n"
               "%18 = power(%17) exponent -0.5 -> 1x4x1x1 f32 (power)\n"
               "%19 = mul(%9, %18) -> 1x4x8x8 f32 (mul)\n"
               "%20 = avg_pool(%19) 8x8 -> 1x4x1x1 f32 (avg_pool)\n"
               "%21 = dense(%20, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    refused(grouped(2), ERR_ARG, "InstanceNormalization 'c': expected a scale and a bias for each channel");
    refused(grouped_twice(1, true), ERR_ARG,
            "InstanceNormalization 'y': its weights 'scale' are constants of another node");
    OnnxMaker *m = started();
    maker_node(m, "InstanceNormalization", "x norm.weight norm.bias", "y");
    maker_floats(m, "norm.weight", 1, SIZES(3));
    maker_floats(m, "norm.bias", 1, SIZES(3));
    good(ended(m, 3));
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = affine(%0) scale -1 shift 0 -> 1x3x1x1 f32 (affine)\n"
               "%2 = spread_to(%1) -> 1x3x8x8 f32 (spread_to)\n"
               "%3 = add(image, %2) -> 1x3x8x8 f32 (add)\n"
               "%4 = mul(%3, %3) -> 1x3x8x8 f32 (mul)\n"
               "%5 = avg_pool(%4) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%6 = affine(%5) scale 1 shift 1e-05 -> 1x3x1x1 f32 (affine)\n"
               "%7 = power(%6) exponent -0.5 -> 1x3x1x1 f32 (power)\n"
               "%8 = mul(%3, %7) -> 1x3x8x8 f32 (mul)\n"
               "%9 = channel_spread(norm.bias) -> 1x3x8x8 f32 (y)\n"
               "%10 = mul(%8, norm.weight) -> 1x3x8x8 f32 (mul)\n"
               "%11 = add(%10, %9) -> 1x3x8x8 f32 (add)\n"
               "%12 = avg_pool(%11) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%13 = dense(%12, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    m = started();
    maker_node(m, "GroupNormalization", "x norm.weight norm.bias", "y");
    maker_int(m, "num_groups", 1);
    maker_floats(m, "norm.weight", 1, SIZES(3));
    maker_floats(m, "norm.bias", 1, SIZES(3));
    good(ended(m, 3));
    int count;
    net_file_tensors(made, &count);
    assert_int_equal(count, 4);
    trains(4);
    net_file_close(made);
    m = started();
    maker_node(m, "GroupNormalization", "x norm.weight norm.bias", "y");
    maker_int(m, "num_groups", 2);
    maker_floats(m, "norm.weight", 1, SIZES(3));
    maker_floats(m, "norm.bias", 1, SIZES(3));
    refused(ended(m, 3), ERR_ARG, "GroupNormalization 'y': expected channels, or groups of them");
}

/* ---- standardized weights */

/* What of the nodes is otherwise. */
typedef enum Odd { ODD_NOTHING, ODD_AXES, ODD_VARIANCE, ODD_SHIFT, ODD_SHAPE, ODD_READER } Odd;

static OnnxMaker *standardized_conv(bool turned, bool gain, Odd odd)
{
    OnnxMaker *m = started();
    const char *seen = turned ? "turned" : "rows";
    char sub[32];
    maker_node(m, "Reshape", "conv.weight view", "rows");
    maker_whole(m, "view", 3, SIZES(1, 4, -1));
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 3, 3));
    if (turned) {
        maker_node(m, "Transpose", "rows", "turned");
        maker_ints(m, "perm", 3, SIZES(0, 2, 1));
    }
    const int64_t axes[] = {0, turned == (odd == ODD_AXES) ? 2 : 1};
    for (int keeps = 0; keeps < 2; keeps++) {
        maker_node(m, "ReduceMean", seen, keeps ? "kept" : "mean");
        maker_ints(m, "axes", 2, axes);
        maker_int(m, "keepdims", keeps);
    }
    snprintf(sub, sizeof sub, "%s kept", seen);
    maker_node(m, "Sub", sub, "apart");
    maker_node(m, "Mul", odd == ODD_VARIANCE ? "apart turned" : "apart apart", "square");
    maker_node(m, "ReduceMean", "square", "var");
    maker_ints(m, "axes", 2, axes);
    maker_int(m, "keepdims", 0);
    if (gain) {
        maker_node(m, "Mul", "conv.gain half", "times");
        maker_floats(m, "conv.gain", 4, SIZES(4, 1, 1, 1));
        maker_value(m, "half", 0.5f);
        maker_node(m, "Reshape", "times line", "scale");
        maker_whole(m, "line", 1, SIZES(-1));
    } else {
        maker_node(m, "Expand", "one four", "scale");
        maker_value(m, "one", 1);
        maker_whole(m, "four", 1, SIZES(4));
    }
    float *shift = (float *)maker_floats(m, "shift", 1, SIZES(4))->raw_data.data;
    memset(shift, 0, 4 * sizeof *shift);
    shift[3] = odd == ODD_SHIFT;
    maker_node(m, "BatchNormalization", "rows scale shift mean var", "normed");
    maker_float(m, "epsilon", 0.25f);
    maker_node(m, "Reshape", "normed whole", "w");
    if (odd == ODD_SHAPE)
        maker_whole(m, "whole", 4, SIZES(2, 6, 3, 3));
    else
        maker_whole(m, "whole", 4, SIZES(4, 3, 3, 3));
    maker_node(m, "Shape", "w", "sizes");
    maker_int(m, "end", 1);
    maker_node(m, "Expand", "nothing sizes", "zeros"); /* as an exporter writes what is not there */
    maker_value(m, "nothing", 0);
    maker_node(m, odd == ODD_READER ? "Add" : "Conv", odd == ODD_READER ? "x w" : "x w zeros", "y");
    return m;
}

static OnnxMaker *standardized(bool turned, bool gain, Odd odd)
{
    return ended(standardized_conv(turned, gain, odd), 4);
}

TEST(test_standardized_weights)
{
    int count;
    good(standardized(true, true, ODD_NOTHING));
    trains(4);
    const NetTensor *t = net_file_tensors(made, &count);
    assert_int_equal(count, 4);
    assert_string_equal(t[0].name, "conv.weight");
    assert_string_equal(t[1].name, "conv.gain");
    assert_int_equal(t[1].dims[0], 4);
    has_ops(0, "%0 = reshape(conv.weight) -> 4x27x1x1 f32 (reshape)\n"
               "%1 = reshape(%0) -> 1x108x1x1 f32 (reshape)\n"
               "%2 = slice(%1) from 0 -> 1x27x1x1 f32 (slice)\n"
               "%3 = pad(%2) top -1 bottom 1 left 0 right 0 -> 1x27x1x1 f32 (pad)\n"
               "%4 = affine(%3) scale 0 shift 1 -> 1x27x1x1 f32 (affine)\n"
               "%5 = affine(%3) scale 0 shift 0 -> 1x27x1x1 f32 (affine)\n"
               "%6 = layernorm(%0, %5, %4) eps 0.25 -> 4x27x1x1 f32 (conv)\n"
               "%7 = affine(conv.gain) scale 0.5 shift 0 -> 4x1x1x1 f32 (affine)\n"
               "%8 = spread_to(%7) -> 4x27x1x1 f32 (spread_to)\n"
               "%9 = mul(%6, %8) -> 4x27x1x1 f32 (mul)\n"
               "%10 = reshape(%9) -> 4x3x3x3 f32 (reshape)\n"
               "%11 = conv(image, %10) 3x3 -> 1x4x6x6 f32 (conv)\n"
               "%12 = avg_pool(%11) 6x6 -> 1x4x1x1 f32 (avg_pool)\n"
               "%13 = dense(%12, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(standardized(false, false, ODD_NOTHING));
    trains(3);
    has_ops(0, "%0 = reshape(conv.weight) -> 4x27x1x1 f32 (reshape)\n"
               "%1 = reshape(%0) -> 1x108x1x1 f32 (reshape)\n"
               "%2 = slice(%1) from 0 -> 1x27x1x1 f32 (slice)\n"
               "%3 = pad(%2) top -1 bottom 1 left 0 right 0 -> 1x27x1x1 f32 (pad)\n"
               "%4 = affine(%3) scale 0 shift 1 -> 1x27x1x1 f32 (affine)\n"
               "%5 = affine(%3) scale 0 shift 0 -> 1x27x1x1 f32 (affine)\n"
               "%6 = layernorm(%0, %5, %4) eps 0.25 -> 4x27x1x1 f32 (conv)\n"
               "%7 = reshape(%6) -> 4x3x3x3 f32 (reshape)\n"
               "%8 = conv(image, %7) 3x3 -> 1x4x6x6 f32 (conv)\n"
               "%9 = avg_pool(%8) 6x6 -> 1x4x1x1 f32 (avg_pool)\n"
               "%10 = dense(%9, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* A weight that is not finite any more spoils its own output, and none else. */
TEST(test_standardized_beside_the_infinite)
{
    good(standardized(true, true, ODD_NOTHING));
    const Model *model = net_file_model(made);
    Graph *g = new_graph(true, DTYPE_F32);
    ModelOptions options = {.classes = model->classes, .side = 8};
    ModelHeads heads = {{0}};
    Value y = {0};
    model->build(g, &options, model->networks, new_input(g, "image", 1, 3, 8, 8), &heads);
    graph_result(g, heads.logits, "logits");
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    Interpreter it = interpreter_create(g);
    for (int id = 1; id <= it.count; id++)
        if (graph_value(g, (Value){id})->op < 0)
            fill_uniform(it.values[id].data, shape_count(graph_shape(g, (Value){id})), (uint64_t)id, -1, 1);
    interpreter_data(&it, graph_find(g, "conv.weight"))[0] = INFINITY;
    interpreter_run(&it);
    for (int i = 0; i < graph_op_count(g); i++)
        if (graph_op_at(g, i)->kind == OP_CONV) y = graph_op_at(g, i)->out[0];
    const double *out = interpreter_data(&it, y);
    for (int64_t i = 0; i < shape_count(graph_shape(g, y)); i++) assert_int_equal(isfinite(out[i]) != 0, i % 4 != 0);
    interpreter_destroy(&it);
    graph_destroy(g);
    net_file_close(made);
}

/* What is not recognized is refused by the first node that cannot be computed. */
TEST(test_standardized_otherwise)
{
    for (Odd odd = ODD_AXES; odd <= ODD_READER; odd++)
        refused(standardized(true, true, odd), ERR_ARG, "Transpose 'turned': this constant cannot be computed");
}

/* The structure that a run keeps has neither weights nor gains, and is read as the same network. */
TEST(test_standardized_structure)
{
    NetFile *again;
    char path[PATH_BYTES];
    good(standardized(true, true, ODD_NOTHING));
    scratch_path(path, "structure.onnx");
    assert_int_equal(net_file_structure_write(made, path), OK);
    assert_int_equal(net_file_open(path, &again), OK);
    assert_string_equal(net_file_digest(again), net_file_digest(made));
    net_file_close(again);
    net_file_close(made);
}

/* The classes come from standardized weights, then divided by a temperature; all of them are the classifier. */
static void has_head(bool gain)
{
    HeadNames heads;
    OnnxMaker *m = standardized_conv(true, gain, ODD_NOTHING);
    maker_node(m, "GlobalAveragePool", "y", "pooled");
    maker_node(m, "Flatten", "pooled", "flat");
    maker_node(m, "Div", "flat temperature", "logits");
    maker_value(m, "temperature", 2);
    good(m);
    Model model = *net_file_model(made);
    model.file = "net.onnx";
    ProgramConfig config = {.model = &model,
                            .options = {.classes = 7, .channels = 3, .dropout = -1, .drop_path = -1},
                            .data_channels = 3,
                            .compute = DTYPE_F32};
    if (head_names(&config, &heads) != OK) fail_msg("%s", status_message());
    assert_int_equal(heads.count, 1);
    assert_string_equal(heads.weight[0], "conv.weight");
    assert_string_equal(heads.gain[0], gain ? "conv.gain" : "");
    assert_string_equal(heads.bias[0], "");
    assert_true(net_file_is_head(made, "conv.weight") && net_file_is_head(made, "conv.gain") == gain);
    net_file_close(made);
}

TEST(test_standardized_head)
{
    has_head(true);
    has_head(false);
}

static void has_names(NetNames found, int count, const char *list)
{
    assert_int_equal(found.count, count);
    assert_string_equal(found.list, list);
}

/* ---- layer norms without a scale or a bias */

/* `scale`, `bias`: 0: there is none (of the scale ones, which an operand must be), 1: a parameter, 2: a node of numbers that change
 * nothing, 3: computed ones or zeros. */
static OnnxMaker *bare_norm(int scale, int bias)
{
    static const char *const scales[] = {"one", "n.weight", "one", "ones"}, *const biases[] = {"", "n.bias", "zero",
                                                                                               "zeros"};
    char operands[80];
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_constant(m, "one", 1), maker_constant(m, "zero", 0);
    for (int k = 0; k < 2; k++) { /* of three numbers */
        Onnx__TensorProto *t = maker_floats(m, k ? "unread_zeros" : "unread_ones", 1, SIZES(3));
        for (int i = 0; i < 3; i++) ((float *)t->raw_data.data)[i] = k ? 0 : 1;
        m->attribute[k].t = t;
    }
    maker_node(m, "Expand", "one three", "ones");
    maker_node(m, "Expand", "zero three", "zeros");
    maker_whole(m, "three", 1, SIZES(3));
    maker_floats(m, "n.weight", 1, SIZES(3)), maker_floats(m, "n.bias", 1, SIZES(3));
    maker_node(m, "Transpose", "a", "b");
    maker_ints(m, "perm", 4, SIZES(0, 2, 3, 1));
    snprintf(operands, sizeof operands, "b %s %s", scales[scale], biases[bias]);
    maker_node(m, "LayerNormalization", operands, "c");
    maker_node(m, "Transpose", "c", "y");
    maker_ints(m, "perm", 4, SIZES(0, 3, 1, 2));
    return ended(m, 3);
}

/* What is no parameter is not trained, and there is no other one. */
TEST(test_bare_norms)
{
    for (int scale = 1; scale < 4; scale++)
        for (int bias = 0; bias < 4; bias++) {
            good(bare_norm(scale, bias));
            trains(3 + (scale == 1) + (bias == 1));
            assert_true(net_file_facts(made).norms);
            net_file_close(made);
        }
    good(bare_norm(2, 0));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
               "%1 = sum_to(%0) -> 1x1x8x8 f32 (sum_to)\n"
               "%2 = affine(%1) scale -0.333333 shift 0 -> 1x1x8x8 f32 (affine)\n"
               "%3 = spread_to(%2) -> 1x3x8x8 f32 (spread_to)\n"
               "%4 = add(%0, %3) -> 1x3x8x8 f32 (add)\n"
               "%5 = mul(%4, %4) -> 1x3x8x8 f32 (mul)\n"
               "%6 = sum_to(%5) -> 1x1x8x8 f32 (sum_to)\n"
               "%7 = affine(%6) scale 0.333333 shift 1e-05 -> 1x1x8x8 f32 (affine)\n"
               "%8 = power(%7) exponent -0.5 -> 1x1x8x8 f32 (power)\n"
               "%9 = spread_to(%8) -> 1x3x8x8 f32 (spread_to)\n"
               "%10 = mul(%4, %9) -> 1x3x8x8 f32 (mul)\n"
               "%11 = avg_pool(%10) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%12 = dense(%11, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* A batch norm has both: what an exporter writes for one without is trained, and said. */
TEST(test_filled_norms)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_constant(m, "one", 1), maker_constant(m, "zero", 0);
    for (int k = 0; k < 2; k++) {
        Onnx__TensorProto *t = maker_floats(m, k ? "unread_zeros" : "unread_ones", 1, SIZES(3));
        for (int i = 0; i < 3; i++) ((float *)t->raw_data.data)[i] = k ? 0 : 1;
        m->attribute[k].t = t;
    }
    maker_node(m, "BatchNormalization", "a one zero bn.running_mean bn.running_var", "y");
    maker_floats(m, "bn.running_mean", 1, SIZES(3)), maker_floats(m, "bn.running_var", 1, SIZES(3));
    good(ended(m, 3));
    has_names(net_file_facts(made).filled, 2, "one, zero");
    net_file_close(made);
}

/* Numbers that a formula has for the channels are parameters as any others, and named. */
TEST(test_filled_factors)
{
    OnnxMaker *m = behind("Mul", "c three");
    Onnx__TensorProto *three = maker_floats(m, "unread", 4, SIZES(1, 6, 1, 1));
    maker_constant(m, "three", 1);
    m->attribute[0].t = three;
    nodes_swap(m);
    good(ended(m, 6));
    has_names(net_file_facts(made).filled, 1, "three");
    net_file_close(made);
}

/* ---- functions of one number that are several ops */

typedef struct Activation {
    const char *type, *operands;
    double (*f)(double x);
    float alpha;       /* an attribute; 0: none */
    int64_t slopes[3]; /* a parameter of these sizes; 0: none */
} Activation;

static double elu_of(double x, double alpha)
{
    return x > 0 ? x : alpha * expm1(x);
}
static double f_elu(double x)
{
    return elu_of(x, 1);
}
static double f_low_elu(double x)
{
    return elu_of(x, 0.25);
}
static double f_selu(double x)
{
    return 1.05070102214813232421875 * elu_of(x, 1.67326319217681884765625);
}
static double f_mish(double x)
{
    return x * tanh(log1p(exp(x)));
}
static double f_prelu(double x)
{
    return x > 0 ? x : -0.75 * x;
}
static double f_reciprocal(double x)
{
    return 1 / x;
}

static OnnxMaker *activated(const Activation *a)
{
    OnnxMaker *m = started();
    maker_node(m, "MaxPool", "x", "p");
    maker_ints(m, "kernel_shape", 2, SIZES(1, 1));
    maker_node(m, a->type, a->operands, "y");
    if (a->alpha != 0) maker_float(m, "alpha", a->alpha);
    if (a->slopes[0]) {
        float *to = (float *)maker_floats(m, "act.weight", 3, a->slopes)->raw_data.data;
        for (int64_t i = 0; i < a->slopes[0]; i++) to[i] = -0.75f;
    }
    return ended(m, 3);
}

/* What enters the mean over the image is f of each pixel. */
static void computes(const Activation *a)
{
    const Model *model = net_file_model(made);
    Graph *g = new_graph(true, DTYPE_F32);
    ModelOptions options = {.classes = model->classes, .side = 8};
    ModelHeads heads = {{0}};
    Value x = new_input(g, "image", 1, 3, 8, 8), y = {0}, slopes;
    model->build(g, &options, model->networks, x, &heads);
    graph_result(g, heads.logits, "logits");
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    Interpreter it = interpreter_create(g);
    fill_uniform(it.values[x.id].data, 3 * 64, 1, -9, 9);
    slopes = graph_find(g, "act.weight");
    for (int64_t i = 0; slopes.id && i < shape_count(graph_shape(g, slopes)); i++)
        interpreter_data(&it, slopes)[i] = -0.75;
    interpreter_run(&it);
    for (int i = 0; i < graph_op_count(g); i++)
        if (graph_op_at(g, i)->kind == OP_AVG_POOL) y = graph_op_at(g, i)->in[0];
    const double *in = interpreter_data(&it, x), *out = interpreter_data(&it, y);
    for (int i = 0; i < 3 * 64; i++)
        if (!(fabs(out[i] - a->f(in[i])) <= 1e-6 * (1 + fabs(out[i]))))
            fail_msg("%s of %g is %g", a->type, in[i], out[i]);
    interpreter_destroy(&it);
    graph_destroy(g);
}

TEST(test_activations)
{
    static const Activation all[] = {{"Mish", "p", f_mish, 0, {0}},
                                     {"Elu", "p", f_elu, 0, {0}},
                                     {"Elu", "p", f_low_elu, 0.25f, {0}},
                                     {"Selu", "p", f_selu, 0, {0}},
                                     {"Reciprocal", "p", f_reciprocal, 0, {0}},
                                     {"PRelu", "p act.weight", f_prelu, 0, {1, 1, 1}},
                                     {"PRelu", "p act.weight", f_prelu, 0, {3, 1, 1}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        good(activated(&all[i]));
        computes(&all[i]);
        if (all[i].f != f_reciprocal) trains(all[i].slopes[0] ? 3 : 2);
        net_file_close(made);
    }
    refused(activated(&(Activation){"PRelu", "p act.weight", f_prelu, 0, {1, 8, 1}}), ERR_ARG,
            "PRelu 'y': expected a slope of the file, one or one for each channel");
    OnnxMaker *m = started(); /* of a function that the graph has not, no other is trained in its place */
    maker_node(m, "MaxPool", "x", "p");
    maker_ints(m, "kernel_shape", 2, SIZES(1, 1));
    maker_node(m, "Exp", "act.weight", "s");
    maker_node(m, "PRelu", "p s", "y");
    *(float *)maker_floats(m, "act.weight", 3, SIZES(1, 1, 1))->raw_data.data = -0.75f;
    refused(ended(m, 4), ERR_ARG, "PRelu 'y': expected a slope of the file, one or one for each channel");
}

/* Powers that are no function of the list, of what is above 0: behind others, and in a graph of this program's own. */
TEST(test_powers)
{
    static const struct {
        const char *type, *operands;
        float exponent;
    } rows[] = {{"Pow", "b exponent", 3}, {"Pow", "b exponent", -0.5f}, {"Sqrt", "b", 0.5f}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char wanted[600];
        OnnxMaker *m = started();
        maker_constant(m, "one", 1), maker_constant(m, "exponent", rows[i].exponent);
        maker_node(m, "Sigmoid", "x", "a");
        maker_node(m, "Add", "a one", "b");
        maker_node(m, rows[i].type, rows[i].operands, "y");
        good(ended(m, 3));
        trains(2);
        snprintf(wanted, sizeof wanted,
                 "%%0 = sigmoid(image) -> 1x3x8x8 f32 (sigmoid)\n"
                 "%%1 = affine(%%0) scale 1 shift 1 -> 1x3x8x8 f32 (affine)\n"
                 "%%2 = power(%%1) exponent %g -> 1x3x8x8 f32 (power)\n"
                 "%%3 = avg_pool(%%2) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
                 "%%4 = dense(%%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n",
                 (double)rows[i].exponent);
        has_ops(0, wanted);
    }
}

/* One place of an axis: the only row and column of a mean, and a channel. */
TEST(test_places)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(6, 3, 1, 1));
    maker_node(m, "Gather", "a third", "b"); /* {n, 8, 8} */
    maker_int(m, "axis", 1);
    maker_whole_of(m, "third", 0, NULL, SIZES(-4));
    maker_node(m, "Unsqueeze", "b one", "c");
    maker_whole(m, "one", 1, SIZES(1));
    maker_node(m, "Mul", "a c", "d");
    maker_node(m, "GlobalAveragePool", "d", "e");
    maker_node(m, "Gather", "e first", "f");
    maker_int(m, "axis", 3);
    maker_whole_of(m, "first", 0, NULL, SIZES(0));
    maker_node(m, "Gather", "f last", "pooled");
    maker_int(m, "axis", -1);
    maker_whole_of(m, "last", 0, NULL, SIZES(-1));
    maker_node(m, "Gemm", "pooled fc.weight fc.bias", "logits");
    maker_int(m, "transB", 1);
    maker_floats(m, "fc.weight", 2, SIZES(5, 6));
    maker_floats(m, "fc.bias", 1, SIZES(5));
    good(m);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = slice(%0) from 2 -> 1x1x8x8 f32 (slice)\n"
               "%2 = spread_to(%1) -> 1x6x8x8 f32 (spread_to)\n"
               "%3 = mul(%0, %2) -> 1x6x8x8 f32 (mul)\n"
               "%4 = avg_pool(%3) 8x8 -> 1x6x1x1 f32 (avg_pool)\n"
               "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* ---- single numbers */

static const int64_t ones[] = {1, 1, 1, 1, 1};

/* A convolution's result and a single number of the file, which comes first or second; of 3 channels, or of one. */
static OnnxMaker *with_number(const char *type, const char *name, int rank, bool first, int64_t channels)
{
    OnnxMaker *m = started();
    char operands[80];
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(channels, 3, 1, 1));
    snprintf(operands, sizeof operands, first ? "%s a" : "a %s", name);
    maker_node(m, type, operands, "y");
    *(float *)maker_floats(m, name, rank, ones)->raw_data.data = 0;
    return ended(m, channels);
}

/* One parameter, spread to the channels, whose gradient is that of all of them together. */
TEST(test_trained_numbers)
{
    static const char *const types[] = {"Mul", "Div", "Add", "Sub"};
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 8; i++) {
            int rank = i & 1 ? 4 : 0, count;
            good(with_number(types[k], "block.0.skipinit_gain", rank, i & 2, i & 4 ? 1 : 3));
            if (k != 1 || !(i & 2)) trains(4); /* the slope of 1 / x has no limit */
            const NetTensor *t = net_file_tensors(made, &count);
            assert_int_equal(count, 4);
            assert_string_equal(t[1].name, "block.0.skipinit_gain");
            assert_int_equal(t[1].rank, rank ? 4 : 1);
            assert_int_equal(t[1].dims[0], 1);
            assert_true(t[1].data[0] == 0);
            has_names(net_file_facts(made).scalars, 1, "block.0.skipinit_gain");
            has_names(net_file_facts(made).held, 0, "");
            net_file_close(made);
        }
    good(with_number("Mul", "alpha", 1, false, 3));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
               "%1 = spread_to(alpha) -> 1x3x1x1 f32 (spread_to)\n"
               "%2 = mul(%0, %1) -> 1x3x8x8 f32 (y)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(with_number("Div", "alpha", 0, true, 3));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
               "%1 = spread_to(alpha) -> 1x3x1x1 f32 (spread_to)\n"
               "%2 = power(%0) exponent -1 -> 1x3x8x8 f32 (power)\n"
               "%3 = mul(%2, %1) -> 1x3x8x8 f32 (y)\n"
               "%4 = avg_pool(%3) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* What the node makes of a and the number. */
TEST(test_orders_of_numbers)
{
    good(with_number("Div", "alpha", 1, false, 1));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x1x8x8 f32 (conv)\n"
               "%1 = power(alpha) exponent -1 -> 1x1x1x1 f32 (power)\n"
               "%2 = mul(%0, %1) -> 1x1x8x8 f32 (y)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x1x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(with_number("Sub", "alpha", 1, false, 1));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x1x8x8 f32 (conv)\n"
               "%1 = affine(alpha) scale -1 shift 0 -> 1x1x1x1 f32 (affine)\n"
               "%2 = channel_spread(%1) -> 1x1x8x8 f32 (y)\n"
               "%3 = add(%0, %2) -> 1x1x8x8 f32 (y)\n"
               "%4 = avg_pool(%3) 8x8 -> 1x1x1x1 f32 (avg_pool)\n"
               "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(with_number("Sub", "alpha", 1, true, 1));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x1x8x8 f32 (conv)\n"
               "%1 = affine(%0) scale -1 shift 0 -> 1x1x8x8 f32 (affine)\n"
               "%2 = channel_spread(alpha) -> 1x1x8x8 f32 (y)\n"
               "%3 = add(%1, %2) -> 1x1x8x8 f32 (y)\n"
               "%4 = avg_pool(%3) 8x8 -> 1x1x1x1 f32 (avg_pool)\n"
               "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* The file says so by what it calls a number, and by where it has it. */
TEST(test_names_of_numbers)
{
    static const char *const trained[] = {"stages.0.1.skipinit_gain",
                                          "gain.0",
                                          "alpha",
                                          "layer_scale_2",
                                          "net/rezero/alpha:0",
                                          "net/alpha/read:0",
                                          "StatefulPartitionedCall/mul/ReadVariableOp:0",
                                          "block.gain__2",
                                          "logit_temperature"};
    static const char *const constant[] = {"val_12",
                                           "lifted_tensor_0",
                                           "onnx::Mul_7",
                                           "const_fold_opt__9",
                                           "model/scale/mul/y:0",
                                           "model/relu.2/Relu6_max__194",
                                           "/block/Constant_output_0"};
    static const char *const unknown[] = {"two", "scaled", "fill_1.tmp_0", "number_3", "net/gamma__7"};
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        good(with_number("Add", trained[i], 0, false, 3));
        has_names(net_file_facts(made).scalars, 1, trained[i]);
        has_names(net_file_facts(made).held, 0, "");
        net_file_close(made);
    }
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++) {
        good(with_number("Add", constant[i], 0, false, 3));
        has_names(net_file_facts(made).scalars, 0, "");
        has_names(net_file_facts(made).held, 0, "");
        net_file_close(made);
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        good(with_number("Add", unknown[i], 0, false, 3));
        has_names(net_file_facts(made).scalars, 0, "");
        has_names(net_file_facts(made).held, 1, unknown[i]);
        net_file_close(made);
    }
}

/* A structure whose run has trained a number that is called as a constant: a parameter there, and one of the same file, which has it. */
TEST(test_number_of_an_earlier_run)
{
    static const char *const names[] = {"net/gamma__7", "net/number__7", "net/other__7"};
    Onnx__StringStringEntryProto mark = ONNX__STRING_STRING_ENTRY_PROTO__INIT, *marks[] = {&mark};
    mark.key = (char *)"towers_structure", mark.value = (char *)"";
    for (int i = 0; i < 3; i++) {
        NetFile *file;
        bool same;
        good(with_number("Add", names[i], 1, false, 3));
        file = made;
        OnnxMaker *m = with_number("Add", names[i > 1 ? 0 : i], 1, false, 3);
        for (size_t k = 0; k < m->graph.n_initializer; k++) m->graph.initializer[k]->has_raw_data = false;
        m->model.n_metadata_props = 1, m->model.metadata_props = marks;
        good(m);
        has_names(net_file_facts(file).scalars, 0, "");
        has_names(net_file_facts(made).scalars, 1, names[i > 1 ? 0 : i]);
        assert_int_equal(net_file_is_kept(file, made, &same), OK);
        assert_int_equal(same, i < 2);
        net_file_close(made);
        net_file_close(file);
    }
}

/* A factor in a graph that this program wrote, and parameters in one: with a constant whose name says so, no other name does. */
static void own_number(const char *name, bool marked, bool trained)
{
    OnnxMaker *m = with_number("Add", name, 1, false, 3);
    m->model.producer_name = (char *)"towers";
    if (marked) maker_value(m, ONNX_CONSTANT "white_1", 255);
    good(m);
    has_names(net_file_facts(made).scalars, trained, trained ? name : "");
    has_names(net_file_facts(made).held, 0, "");
    net_file_close(made);
}

TEST(test_own_numbers)
{
    static const char *const names[] = {"scale_7", "_scale_7", "temperature_3", "layer_scale_7", "alpha_1"};
    for (int i = 0; i < 5; i++) {
        own_number(names[i], false, i > 2);
        own_number(names[i], true, true);
    }
    own_number(ONNX_CONSTANT "scale_7", false, false);
    own_number("root_3", false, false);
}

/* A node that makes the number, of the type Constant or another one. */
static OnnxMaker *with_made_number(bool is_constant)
{
    OnnxMaker *m = started();
    if (is_constant) {
        maker_constant(m, "block.alpha", 0.5f);
    } else {
        maker_node(m, "Exp", "logit_scale", "block.alpha");
        maker_value(m, "logit_scale", 0.5f);
    }
    maker_node(m, "Mul", "x block.alpha", "a");
    maker_node(m, "Relu", "x", "b");
    maker_node(m, "Add", "a b", "y");
    return ended(m, 3);
}

TEST(test_numbers_that_stay)
{
    good(with_made_number(true));
    has_names(net_file_facts(made).held, 0, "");
    has_names(net_file_facts(made).scalars, 0, "");
    net_file_close(made);
    good(with_made_number(false)); /* what is trained is another number */
    has_names(net_file_facts(made).held, 1, "logit_scale");
    net_file_close(made);
    OnnxMaker *m = started();
    maker_node(m, "Clip", "x - net.limit", "a");
    *(float *)maker_floats(m, "net.limit", 0, ones)->raw_data.data = 6;
    maker_node(m, "Relu", "a", "y");
    good(ended(m, 3));
    has_names(net_file_facts(made).held, 1, "net.limit");
    net_file_close(made);
    m = started(); /* several, the first four of which are named */
    maker_node(m, "Conv", "x conv.weight", "v0");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    for (int i = 0; i < 6; i++) {
        char operands[40], name[20], made_here[16];
        snprintf(name, sizeof name, i < 5 ? "b.gain%d" : "odd%d", i);
        snprintf(operands, sizeof operands, "v%d %s", i, name);
        snprintf(made_here, sizeof made_here, i < 5 ? "v%d" : "y", i + 1);
        maker_node(m, "Mul", operands, made_here);
        maker_value(m, name, 0.5f);
    }
    good(ended(m, 3));
    has_names(net_file_facts(made).scalars, 5, "b.gain0, b.gain1, b.gain2, b.gain3, ...");
    has_names(net_file_facts(made).held, 1, "odd5");
    net_file_close(made);
    m = started(); /* one that is both */
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Mul", "a b.gain", "b");
    maker_value(m, "b.gain", 2);
    maker_node(m, "Max", "b b.gain", "y");
    refused(ended(m, 3), ERR_ARG, "Max 'y': its numbers 'b.gain' are trained by another node: export with");
    assert_null(strstr(status_message(), "neither"));
}

/* The structure that a run keeps has the parameter without its value, and is read as the same network. */
TEST(test_structure_of_numbers)
{
    NetFile *again;
    char path[PATH_BYTES];
    good(with_number("Mul", "block.0.alpha", 0, false, 3));
    scratch_path(path, "structure.onnx");
    assert_int_equal(net_file_structure_write(made, path), OK);
    assert_int_equal(net_file_open(path, &again), OK);
    assert_string_equal(net_file_digest(again), net_file_digest(made));
    has_names(net_file_facts(again).scalars, 1, "block.0.alpha");
    net_file_close(again);
    net_file_close(made);
}

/* A run of a version that trained no single numbers: the structure that it keeps has their values, which stay. */
TEST(test_numbers_of_older_runs)
{
    static const char *const names[] = {"block.0.alpha", "net/alpha/ReadVariableOp:0"};
    Onnx__StringStringEntryProto mark = ONNX__STRING_STRING_ENTRY_PROTO__INIT, *list[] = {&mark};
    mark.key = (char *)"towers_structure";
    mark.value = (char *)"1";
    for (int i = 0; i < 2; i++) {
        OnnxMaker *m = with_number("Add", names[i], 0, false, 3);
        m->model.metadata_props = list;
        m->model.n_metadata_props = 1;
        good(m);
        has_names(net_file_facts(made).scalars, 0, "");
        has_names(net_file_facts(made).held, 1, names[i]);
        net_file_close(made);
    }
}

/* a, a convolution's result, times the number, and a ReLU of it times what `type` makes of the number; NULL: of 1 and the number. */
static OnnxMaker *with_computed_number(const char *type, bool before)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    if (!before) maker_node(m, "Mul", "a b.alpha", "b");
    maker_value(m, "b.alpha", 0.75f);
    maker_constant(m, "one", 1);
    maker_node(m, type ? type : "Sub", type ? "b.alpha" : "one b.alpha", "rest");
    maker_node(m, "Relu", "a", "c");
    maker_node(m, "Mul", "rest c", "d");
    if (before) maker_node(m, "Mul", "a b.alpha", "b");
    maker_node(m, "Add", "b d", "y");
    return ended(m, 3);
}

/* The structure that a run keeps, in which no number of a trained parameter is: read as the same network. */
static void structure_is_read(void)
{
    NetFile *again;
    char path[PATH_BYTES];
    scratch_path(path, "structure.onnx");
    assert_int_equal(net_file_structure_write(made, path), OK);
    if (net_file_open(path, &again) != OK) fail_msg("%s", status_message());
    assert_string_equal(net_file_digest(again), net_file_digest(made));
    has_names(net_file_facts(again).scalars, 1, "b.alpha");
    has_names(net_file_facts(again).held, 0, "");
    net_file_close(again);
}

/* What nodes compute of a number that is trained follows it. */
TEST(test_computed_of_trained)
{
    static const char *const types[] = {NULL, "Neg", "Sigmoid", "Tanh", "Relu", "HardSwish", "Reciprocal"};
    for (int i = 0; i < 14; i++) {
        good(with_computed_number(types[i / 2], i % 2));
        if (i < 12) trains(4); /* the slope of 1 / x has no limit */
        has_names(net_file_facts(made).scalars, 1, "b.alpha");
        has_names(net_file_facts(made).held, 0, "");
        structure_is_read();
        net_file_close(made);
    }
    good(with_computed_number(NULL, false));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
               "%1 = spread_to(b.alpha) -> 1x3x1x1 f32 (spread_to)\n"
               "%2 = mul(%0, %1) -> 1x3x8x8 f32 (b)\n"
               "%3 = relu(%0) -> 1x3x8x8 f32 (relu)\n"
               "%4 = spread_to(b.alpha) -> 1x3x1x1 f32 (spread_to)\n"
               "%5 = affine(%4) scale -1 shift 1 -> 1x3x1x1 f32 (affine)\n"
               "%6 = mul(%3, %5) -> 1x3x8x8 f32 (d)\n"
               "%7 = add(%2, %6) -> 1x3x8x8 f32 (add)\n"
               "%8 = avg_pool(%7) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%9 = dense(%8, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* A function that the graph has not cannot follow the number: it must stay, or is refused if another node trains it. */
TEST(test_computed_and_trained)
{
    refused(with_computed_number("Exp", false), ERR_ARG, "its numbers 'b.alpha' are trained by another node");
    refused(with_computed_number("Exp", true), ERR_ARG, "its weights 'b.alpha' are constants of another node");
    for (int i = 0; i < 2; i++) { /* nor one of two */
        OnnxMaker *m = started();
        maker_node(m, "Conv", "x conv.weight", "a");
        maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
        maker_node(m, "Mul", i ? "a b.beta" : "a b.alpha", "b");
        maker_node(m, "Mul", "b.alpha b.beta", "both");
        maker_value(m, "b.alpha", 2), maker_value(m, "b.beta", 3);
        maker_node(m, "Mul", "b both", "y");
        refused(ended(m, 3), ERR_ARG, "' are trained by another node");
    }
}

/* A factor of a convolution's result that is computed of two numbers, or is one of several. */
TEST(test_numbers_of_several)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Mul", "b.alpha b.beta", "both");
    maker_value(m, "b.alpha", 2), maker_value(m, "b.beta", 3);
    maker_node(m, "Mul", "a both", "b");
    maker_node(m, "Gather", "net.gains second", "gain");
    maker_floats(m, "net.gains", 1, SIZES(3));
    maker_whole_of(m, "second", 0, NULL, SIZES(1));
    maker_node(m, "Mul", "b gain", "c");
    maker_node(m, "Mul", "c t", "d");
    maker_value(m, "t", 2);
    maker_node(m, "Sigmoid", "g", "gate");
    maker_value(m, "g", 1);
    maker_node(m, "Mul", "d gate", "y");
    good(ended(m, 3));
    has_names(net_file_facts(made).scalars, 0, "");
    has_names(net_file_facts(made).held, 5, "b.beta, b.alpha, net.gains, t, ...");
    net_file_close(made);
    m = started(); /* of one that is trained, and of one that may be */
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Mul", "b.alpha t", "both");
    maker_value(m, "b.alpha", 2), maker_value(m, "t", 3);
    maker_node(m, "Mul", "a both", "y");
    good(ended(m, 3));
    has_names(net_file_facts(made).scalars, 1, "b.alpha");
    has_names(net_file_facts(made).held, 1, "t");
    net_file_close(made);
}

/* In a graph of this program's own each is one number still, so that who reads the file trains it as one. */
TEST(test_numbers_come_back)
{
    static const char *const types[] = {"Mul", "Div", "Add", "Sub"};
    for (int i = 0; i < 16; i++) {
        char path[PATH_BYTES];
        Program program = {0};
        int count;
        good(with_number(types[i / 4], "block.0.gain", 0, i & 1, i & 2 ? 1 : 3));
        ProgramConfig config = {.model = net_file_model(made),
                                .options = {.classes = 5, .side = 8, .channels = 3, .dropout = -1, .drop_path = -1},
                                .data_channels = 3,
                                .canvas = 8};
        const NetTensor *from = net_file_tensors(made, &count);
        StTensor to[8] = {{0}};
        assert_int_equal(count, 4);
        for (int k = 0; k < count; k++) {
            to[k] = (StTensor){.name = from[k].name, .dtype = ST_F32, .rank = from[k].rank, .data = from[k].data};
            to[k].bytes = sizeof(float);
            for (int d = 0; d < from[k].rank; d++) to[k].bytes *= (size_t)(to[k].dims[d] = from[k].dims[d]);
        }
        WeightList list = {.tensor = to, .count = count};
        assert_int_equal(program_graph(&config, 2, &program), OK);
        scratch_path(path, "written.onnx");
        assert_int_equal(onnx_write(path, "net", program.graph, &list, NULL, 0, NULL, NULL, NULL), OK);
        program_destroy(&program);
        net_file_close(made);
        if (net_file_open(path, &made) != OK) fail_msg("%s: %s", types[i / 4], status_message());
        has_names(net_file_facts(made).scalars, 1, "block.0.gain");
        has_names(net_file_facts(made).held, 0, "");
        net_file_close(made);
    }
}

/* A number for each channel, which comes first or second. */
TEST(test_numbers_of_channels)
{
    static const char *const types[] = {"Mul", "Div", "Add", "Sub"};
    for (int i = 0; i < 8; i++) {
        OnnxMaker *m = started();
        maker_node(m, "Conv", "x conv.weight", "a");
        maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
        maker_node(m, types[i / 2], i % 2 ? "b.gain a" : "a b.gain", "y");
        maker_floats(m, "b.gain", 3, SIZES(3, 1, 1));
        good(ended(m, 3));
        if (i / 2 != 1) trains(4); /* the slope of 1 / x has no limit */
        net_file_close(made);
    }
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Sub", "a b.gain", "b");
    maker_floats(m, "b.gain", 3, SIZES(3, 1, 1));
    maker_node(m, "Div", "b b.times", "y");
    maker_floats(m, "b.times", 3, SIZES(3, 1, 1));
    good(ended(m, 3));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
               "%1 = affine(b.gain) scale -1 shift 0 -> 1x3x1x1 f32 (affine)\n"
               "%2 = channel_spread(%1) -> 1x3x8x8 f32 (b)\n"
               "%3 = add(%0, %2) -> 1x3x8x8 f32 (b)\n"
               "%4 = power(b.times) exponent -1 -> 1x3x1x1 f32 (power)\n"
               "%5 = mul(%3, %4) -> 1x3x8x8 f32 (y)\n"
               "%6 = avg_pool(%5) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* Of a run's file the mean could not be read. */
TEST(test_mean_that_is_trained)
{
    OnnxMaker *m = started();
    maker_node(m, "Sub", "x net.gain", "a");
    maker_value(m, "net.gain", 0.5f);
    maker_node(m, "Conv", "a conv.weight", "b");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Mul", "b net.gain", "y");
    refused(ended(m, 3), ERR_ARG, "Mul 'y': its weights 'net.gain' are constants of another node: export with");
}
