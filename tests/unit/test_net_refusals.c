/* What nodes of ONNX files are refused for: each by its name, once, with the reason that is true of it; and what lies beside it, which is
 * taken. */

#include "tests/support/made_network.h"

/* A node of two values, or of one, "x" or "c", a convolution of 3 channels; its result is the image "y". */
static OnnxMaker *behind_conv(const char *type, const char *inputs)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "c");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, type, inputs, "y");
    return m;
}

/* Refused for this node alone. */
static void refused_once(OnnxMaker *m, const char *why)
{
    char wanted[300];
    snprintf(wanted, sizeof wanted, "'net.onnx' has nodes that this program cannot train:\n  %s", why);
    assert_int_equal(parsed(m), ERR_ARG);
    assert_string_equal(status_message(), wanted);
}

static void taken(OnnxMaker *m)
{
    good(m);
    net_file_close(made);
}

/* ---- axes */

static OnnxMaker *with_axis(const char *type, const char *inputs, int64_t axis)
{
    OnnxMaker *m = behind_conv(type, inputs);
    maker_int(m, "axis", axis);
    return m;
}

static OnnxMaker *with_axes(const char *type, int count, const int64_t *axes)
{
    OnnxMaker *m = behind_conv(type, "c");
    maker_ints(m, !strcmp(type, "Transpose") ? "perm" : "axes", count, axes);
    return m;
}

static OnnxMaker *sliced(int count, const int64_t *axes, int64_t start, int64_t end)
{
    OnnxMaker *m = behind_conv("Slice", "c start end axes");
    const int64_t starts[] = {start, start}, ends[] = {end, end};
    maker_whole(m, "start", count, starts);
    maker_whole(m, "end", count, ends);
    maker_whole(m, "axes", count, axes);
    return m;
}

#define OF_FOUR(axis) "it has the axis " axis " of a value with 4 axes, the first 0 and the last -1"

TEST(test_one_axis)
{
    static const int64_t outside[] = {4, -5, INT64_C(1) << 32 | 1, INT64_MIN};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        refused(ended(with_axis("Concat", "c x", outside[i]), 6), ERR_ARG, "Concat 'y': it has the axis ");
        refused(ended(with_axis("Softmax", "c", outside[i]), 3), ERR_ARG, "Softmax 'y': it has the axis ");
        refused(ended(with_axis("Split", "c", outside[i]), 3), ERR_ARG, "Split 'y': it has the axis ");
    }
    refused_once(ended(with_axis("Concat", "c x", 7), 6), "Concat 'y': " OF_FOUR("7"));
    refused_once(ended(with_axis("Flatten", "c", 5), 3), "Flatten 'y': " OF_FOUR("5"));
    refused_once(ended(with_axis("Split", "c", -5), 3), "Split 'y': " OF_FOUR("-5"));
    OnnxMaker *m = with_axis("Gather", "c all", 5);
    maker_whole(m, "all", 3, SIZES(0, 1, 2));
    refused_once(ended(m, 3), "Gather 'y': " OF_FOUR("5"));
    m = with_axis("LayerNormalization", "c norm.weight norm.bias", 4);
    maker_floats(m, "norm.weight", 1, SIZES(8));
    maker_floats(m, "norm.bias", 1, SIZES(8));
    refused_once(ended(m, 3), "LayerNormalization 'y': " OF_FOUR("4"));
    m = with_axis("SplitToSequence", "c sizes", 4);
    m->node[1].output[0] = (char *)"s";
    maker_whole(m, "sizes", 2, SIZES(1, 2));
    maker_node(m, "SequenceAt", "s first", "y");
    maker_whole_of(m, "first", 0, NULL, SIZES(0));
    refused_once(ended(m, 1), "SequenceAt 'y': " OF_FOUR("4"));
    taken(ended(with_axis("Concat", "c x", -3), 6));
    taken(ended(with_axis("Split", "c", 1), 3));
}

TEST(test_lists_of_axes)
{
    refused_once(ended(with_axes("ReduceMean", 1, SIZES(9)), 3), "ReduceMean 'y': " OF_FOUR("9"));
    refused_once(ended(with_axes("ReduceMean", 2, SIZES(2, 9)), 3), "ReduceMean 'y': " OF_FOUR("9"));
    refused_once(ended(with_axes("ReduceSum", 2, SIZES(3, -1)), 3), "ReduceSum 'y': it has the axis 3 twice");
    refused_once(ended(with_axes("Squeeze", 1, SIZES(9)), 3), "Squeeze 'y': " OF_FOUR("9"));
    refused_once(ended(with_axes("Squeeze", 1, SIZES(1)), 3),
                 "Squeeze 'y': it takes away axis 1, which has more than one place");
    refused_once(ended(with_axes("Unsqueeze", 1, SIZES(9)), 3),
                 "Unsqueeze 'y': it has the axis 9 of a value with 5 axes, the first 0 and the last -1");
    refused_once(ended(with_axes("Unsqueeze", 2, SIZES(1, -5)), 3), "Unsqueeze 'y': it has the axis 1 twice");
    refused_once(ended(sliced(1, SIZES(4), 0, 1), 3), "Slice 'y': " OF_FOUR("4"));
    refused_once(ended(sliced(2, SIZES(2, -2), 0, 1), 3), "Slice 'y': it has the axis 2 twice");
    refused_once(ended(sliced(2, SIZES(1, 2), 0, 1), 1),
                 "Slice 'y': it takes a part of the channels and of another axis; expected one of both");
    refused_once(ended(sliced(1, SIZES(1), 2, 2), 1), "Slice 'y': it leaves nothing of an axis");
    static const int64_t wrong[][4] = {{0, 1, 1, 3}, {0, 1, 2, -1}, {0, 1, 2, 4}};
    for (int i = 0; i < 3; i++)
        refused_once(ended(with_axes("Transpose", 4, wrong[i]), 3),
                     "Transpose 'y': expected each of its operand's 4 axes once");
    refused_once(ended(with_axes("Transpose", 3, SIZES(0, 1, 2)), 3),
                 "Transpose 'y': expected each of its operand's 4 axes once");
    taken(ended(with_axes("ReduceMean", 2, SIZES(-1, -2)), 3));
    taken(ended(sliced(1, SIZES(-2), 1, 7), 3));
}

/* The same of nodes that are computed before the network runs; the shape that comes of them is {0, 3, 8, 8}. */
static OnnxMaker *shaped(const char *type, const char *inputs)
{
    OnnxMaker *m = started();
    maker_whole(m, "sizes", 4, SIZES(0, 3, 8, 8));
    maker_whole_of(m, "matrix", 2, SIZES(1, 4), SIZES(0, 3, 8, 8));
    maker_whole(m, "left", 2, SIZES(0, 3));
    maker_whole(m, "right", 2, SIZES(8, 8));
    maker_node(m, type, inputs, "shape");
    return m;
}

static void refused_shape(OnnxMaker *m, const char *why)
{
    maker_node(m, "Reshape", "x shape", "r");
    maker_node(m, "Relu", "r", "y");
    refused_once(ended(m, 3), why);
}

TEST(test_axes_of_constants)
{
#define OF_ONE(axis) "it has the axis " axis " of a value with 1 axes, the first 0 and the last -1"
    OnnxMaker *m = shaped("Concat", "left right");
    maker_int(m, "axis", 1);
    refused_shape(m, "Concat 'shape': " OF_ONE("1"));
    m = shaped("Gather", "sizes order");
    maker_whole(m, "order", 4, SIZES(0, 1, 2, 3));
    maker_int(m, "axis", -2);
    refused_shape(m, "Gather 'shape': " OF_ONE("-2"));
    m = shaped("Slice", "sizes first end axis");
    maker_whole(m, "first", 1, SIZES(0));
    maker_whole(m, "end", 1, SIZES(4));
    maker_whole(m, "axis", 1, SIZES(1));
    refused_shape(m, "Slice 'shape': " OF_ONE("1"));
    m = shaped("Squeeze", "matrix");
    maker_ints(m, "axes", 1, SIZES(2));
    refused_shape(m, "Squeeze 'shape': it has the axis 2 of a value with 2 axes, the first 0 and the last -1");
    m = shaped("Transpose", "matrix");
    maker_ints(m, "perm", 2, SIZES(0, 0));
    refused_shape(m, "Transpose 'shape': expected each of its operand's 2 axes once");
    m = shaped("ReduceProd", "sizes");
    maker_ints(m, "axes", 1, SIZES(1));
    refused_shape(m, "ReduceProd 'shape': " OF_ONE("1"));
    m = shaped("Squeeze", "matrix");
    maker_ints(m, "axes", 1, SIZES(-2));
    maker_node(m, "Reshape", "x shape", "r");
    maker_node(m, "Relu", "r", "y");
    taken(ended(m, 3));
}

/* ---- numbers that leave nothing */

static OnnxMaker *normed(const char *type, const char *inputs, float epsilon)
{
    static const char *const vectors[] = {"norm.weight", "norm.bias", "norm.mean", "norm.var"};
    OnnxMaker *m = behind_conv(type, inputs);
    maker_float(m, "epsilon", epsilon);
    if (!strcmp(type, "GroupNormalization")) maker_int(m, "num_groups", 3);
    for (int i = 0; i < 4; i++) maker_floats(m, vectors[i], 1, SIZES(3));
    return ended(m, 3);
}

TEST(test_epsilon)
{
    static const char *const types[] = {"BatchNormalization", "InstanceNormalization", "GroupNormalization"};
    static const float wrong[] = {0, -1, NAN, INFINITY};
    for (int k = 0; k < 3; k++) {
        const char *inputs = k ? "c norm.weight norm.bias" : "c norm.weight norm.bias norm.mean norm.var";
        char why[160];
        for (int i = 0; i < 4; i++) {
            snprintf(why, sizeof why,
                     "%s 'y': its epsilon is %g; expected one above 0, without which equal numbers are divided by 0",
                     types[k], (double)wrong[i]);
            refused_once(normed(types[k], inputs, wrong[i]), why);
        }
        taken(normed(types[k], inputs, 1e-6f));
    }
    OnnxMaker *m = behind_conv("Transpose", "c");
    maker_ints(m, "perm", 4, SIZES(0, 2, 3, 1));
    maker_node(m, "LayerNormalization", "y norm.weight norm.bias", "n");
    maker_float(m, "epsilon", 0);
    maker_floats(m, "norm.weight", 1, SIZES(3));
    maker_floats(m, "norm.bias", 1, SIZES(3));
    maker_node(m, "Transpose", "n", "t");
    maker_ints(m, "perm", 4, SIZES(0, 3, 1, 2));
    maker_node(m, "GlobalAveragePool", "t", "logits");
    refused(m, ERR_ARG, "LayerNormalization 'n': its epsilon is 0; expected");
}

/* Nothing is left of the operand, which the node that does it says; the one behind it says nothing. */
TEST(test_factors_of_nothing)
{
    static const struct {
        const char *type, *why;
        float number;
    } rows[] = {
        {"Mul", "it makes 0 of every number, as a factor of 0 does: nothing in front of it could be trained", 0},
        {"Pow", "it makes 1 of every number, as a factor of 0 does: nothing in front of it could be trained", 0},
        {"Div", "it makes no finite number of any, as a division by 0 does", 0},
        {"Mul", "it makes no finite number of any, as a division by 0 does", NAN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[160];
        OnnxMaker *m = behind_conv(rows[i].type, "c number");
        m->node[1].output[0] = (char *)"d";
        maker_value(m, "number", rows[i].number);
        maker_node(m, "Relu", "d", "y");
        snprintf(why, sizeof why, "%s 'd': %s", rows[i].type, rows[i].why);
        refused_once(ended(m, 3), why);
    }
    refused_once(ended(behind_conv("Log", "c"), 3),
                 "Log 'y': this function of one number has no counterpart among the operations here");
}

/* A file that leaves the side open is tried with one, which is said. */
TEST(test_open_side)
{
    OnnxMaker *m = maker_start(SIZES(0, 3, 0, 0), "logits");
    maker_node(m, "Flatten", "x", "flat");
    maker_node(m, "Gemm", "flat fc.weight", "logits");
    maker_int(m, "transB", 1);
    maker_floats(m, "fc.weight", 2, SIZES(5, 48));
    refused_once(
        m, "Gemm 'logits': 150528 numbers enter it; its weights are for 48\n  the file leaves the side of its image "
           "open, and 224 was tried: if its layers are for another one, export it with that");
}

/* An If whose condition is a constant, in front of the logits and further ahead: it is named, not what reads it. */
TEST(test_nodes_with_graphs)
{
    static const char why[] =
        "If 'chosen': it chooses or repeats nodes while the network runs; PyTorch writes an If for "
        "squeeze(): use flatten(1), or export with dynamo=True";
    OnnxMaker *m = behind_conv("Relu", "c");
    maker_node(m, "If", "condition", "chosen");
    maker_value(m, "condition", 1);
    maker_node(m, "Add", "y chosen", "z");
    m = ended(m, 3);
    m->node[m->graph.n_node - 1].output[0] = (char *)"unused";
    maker_node(m, "Gemm", "chosen fc.weight fc.bias", "logits");
    refused_once(m, why);
}

/* ---- two values, one spread over the other */

static OnnxMaker *spread(const char *type, const char *operands, bool expanded)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "c");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "ReduceMean", "c", expanded ? "few" : "d");
    maker_ints(m, "axes", 1, SIZES(1));
    if (expanded) {
        maker_node(m, "Shape", "c", "sizes");
        maker_node(m, "Expand", "few sizes", "d");
    }
    maker_node(m, type, operands, "y");
    return ended(m, 3);
}

TEST(test_spread_divisors)
{
    for (int expanded = 0; expanded < 2; expanded++) {
        good(spread("Div", "c d", expanded));
        has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
                   "%1 = sum_to(%0) -> 1x1x8x8 f32 (sum_to)\n"
                   "%2 = affine(%1) scale 0.333333 shift 0 -> 1x1x8x8 f32 (affine)\n"
                   "%3 = power(%2) exponent -1 -> 1x1x8x8 f32 (power)\n"
                   "%4 = spread_to(%3) -> 1x3x8x8 f32 (spread_to)\n"
                   "%5 = mul(%0, %4) -> 1x3x8x8 f32 (mul)\n"
                   "%6 = avg_pool(%5) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
                   "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
        good(spread("Div", "d c", expanded));
        has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
                   "%1 = sum_to(%0) -> 1x1x8x8 f32 (sum_to)\n"
                   "%2 = affine(%1) scale 0.333333 shift 0 -> 1x1x8x8 f32 (affine)\n"
                   "%3 = power(%0) exponent -1 -> 1x3x8x8 f32 (power)\n"
                   "%4 = spread_to(%2) -> 1x3x8x8 f32 (spread_to)\n"
                   "%5 = mul(%3, %4) -> 1x3x8x8 f32 (mul)\n"
                   "%6 = avg_pool(%5) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
                   "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
        good(spread("Sub", "d c", expanded));
        has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
                   "%1 = sum_to(%0) -> 1x1x8x8 f32 (sum_to)\n"
                   "%2 = affine(%1) scale 0.333333 shift 0 -> 1x1x8x8 f32 (affine)\n"
                   "%3 = affine(%0) scale -1 shift 0 -> 1x3x8x8 f32 (affine)\n"
                   "%4 = spread_to(%2) -> 1x3x8x8 f32 (spread_to)\n"
                   "%5 = add(%3, %4) -> 1x3x8x8 f32 (add)\n"
                   "%6 = avg_pool(%5) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
                   "%7 = dense(%6, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    }
    refused_once(spread("Pow", "c d", false),
                 "Pow 'y': it has no counterpart for two values that the network computes");
}

/* ---- borders, parts, stacks */

static OnnxMaker *padded(const char *mode, int64_t channels)
{
    OnnxMaker *m = behind_conv("Pad", "c pads");
    m->node[1].output[0] = (char *)"p";
    maker_text(m, "mode", mode);
    maker_whole(m, "pads", 8, SIZES(0, channels, 1, 1, 0, channels, 1, 1));
    return m;
}

TEST(test_huge_borders)
{
    for (int i = 0; i < 2; i++) {
        OnnxMaker *m = padded("constant", i ? INT64_MAX : INT64_MIN);
        maker_node(m, "Relu", "p", "y");
        refused_once(ended(m, 3),
                     "Pad 'p': it pads another axis than rows, columns and channels, or by more than 32767");
    }
}

TEST(test_modes_of_borders)
{
    static const char *const modes[] = {"edge", "wrap", "a mode whose name is longer than any that there is"};
    for (int i = 0; i < 3; i++) {
        char why[160];
        OnnxMaker *m = padded(modes[i], 0);
        maker_node(m, "Relu", "p", "y");
        snprintf(why, sizeof why,
                 "Pad 'p': it pads in the mode '%.32s'; expected constant, or reflect in front of a binomial filter of "
                 "3 x 3",
                 modes[i]);
        refused_once(ended(m, 3), why);
    }
    static const char *const readers[] = {"Relu", "Sigmoid", "GlobalAveragePool"};
    for (int i = 0; i < 3; i++) { /* what reads a border says nothing more of it */
        OnnxMaker *m = padded("reflect", 0);
        maker_node(m, readers[i], "p", "y");
        refused_once(ended(m, 3),
                     "Pad 'p': it mirrors the image at its border; expected a binomial filter of 3 x 3 behind it");
    }
    OnnxMaker *m = padded("reflect", 1);
    maker_node(m, "Relu", "p", "y");
    refused_once(ended(m, 5), "Pad 'p': it pads another axis than rows, columns and channels, or by more than 32767");
}

TEST(test_parts_of_channels)
{
    OnnxMaker *m = with_axis("Split", "c sizes", 1);
    maker_whole(m, "sizes", 1, SIZES(2));
    refused_once(ended(m, 2), "Split 'y': expected parts that are together the 3 channels of its operand");
    taken(ended(sliced(1, SIZES(1), 0, 2), 2)); /* the last channel is read by nothing, and has the gradient 0 */
}

TEST(test_stacks)
{
    for (int count = 8; count < 10; count++) {
        OnnxMaker *m = behind_conv("Unsqueeze", "c");
        m->node[1].output[0] = (char *)"u";
        maker_ints(m, "axes", 1, SIZES(1));
        maker_node(m, "Concat", count == 8 ? "u u u u u u u u" : "u u u u u u u u u", "s");
        maker_int(m, "axis", 1);
        maker_node(m, "ReduceSum", "s", "y");
        maker_ints(m, "axes", 1, SIZES(1));
        maker_int(m, "keepdims", 0);
        if (count == 8)
            taken(ended(m, 3));
        else
            refused_once(ended(m, 3), "Concat 's': it puts 9 values on an axis of their own; expected at most 8");
    }
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "c");
    maker_floats(m, "conv.weight", 4, SIZES(27, 3, 1, 1));
    maker_node(m, "Reshape", "c apart", "s");
    maker_whole(m, "apart", 5, SIZES(0, 9, 3, 8, 8));
    maker_node(m, "ReduceSum", "s", "y");
    maker_ints(m, "axes", 1, SIZES(1));
    maker_int(m, "keepdims", 0);
    refused_once(ended(m, 3), "ReduceSum 'y': it sums 9 groups of channels; expected at most 8");
}
