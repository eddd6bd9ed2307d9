/* Networks from ONNX files: the ops that nodes become, what is refused, files that claim too much, and what is written again. */

#include "inception/networks/onnx_read.h"
#include "tests/support/made_network.h"
#include "tests/support/scratch.h"
#include "towers/store/onnx.h"

#include <time.h>

TESTS_WITH(scratch_make, scratch_drop)

/* The nodes from "x" to "y" stand between an image and its mean. */
static OnnxMaker *small(void)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_ints(m, "pads", 4, SIZES(1, 1, 1, 1));
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 3, 3));
    maker_node(m, "BatchNormalization", "a bn.weight bn.bias bn.running_mean bn.running_var", "b");
    const char *const vectors[] = {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"};
    for (int i = 0; i < 4; i++) maker_floats(m, vectors[i], 1, SIZES(4));
    maker_node(m, "Relu", "b", "c");
    maker_node(m, "MaxPool", "c", "y");
    maker_ints(m, "kernel_shape", 2, SIZES(2, 2));
    maker_ints(m, "strides", 2, SIZES(2, 2));
    return ended(m, 4);
}

TEST(test_names_and_layers)
{
    good(small());
    int count;
    const NetTensor *t = net_file_tensors(made, &count);
    assert_int_equal(count, 7);
    assert_string_equal(t[0].name, "conv.weight");
    assert_int_equal(t[0].dims[3], 3);
    assert_true(net_file_is_head(made, "fc.bias") && !net_file_is_head(made, "conv.weight"));
    const Model *model = net_file_model(made);
    assert_int_equal(model->classes, 5);
    assert_int_equal(model->min_side, 2);
    assert_string_equal(model->name, "net");
    has_ops(7, "%0 = conv(image, conv.weight) 3x3+1 -> 1x4x8x8 f32 (conv)\n"
               "%1 = batchnorm_apply(%0, bn.bias, bn.running_mean, bn.running_var, bn.weight) eps 1e-05 relu -> "
               "1x4x8x8 f32 (bn)\n"
               "%2 = max_pool(%1) 2x2/2 -> 1x4x4x4 f32 (max_pool)\n"
               "%3 = avg_pool(%2) 4x4 -> 1x4x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x7x1x1 f32 (fc)\n");
}

/* A function of "p" by these nodes. */
static OnnxMaker *function(const char *nodes)
{
    char text[512], *rest = text, *line;
    OnnxMaker *m = started();
    snprintf(text, sizeof text, "%s", nodes);
    maker_value(m, "half", 0.5f);
    maker_value(m, "one", 1);
    maker_value(m, "three", 3);
    maker_value(m, "six", 6);
    maker_value(m, "zero", 0);
    maker_value(m, "root", 1.41421356f);
    maker_value(m, "most", 20);
    maker_value(m, "low", -6000);
    maker_value(m, "high", 6000);
    maker_node(m, "MaxPool", "x", "p");
    maker_ints(m, "kernel_shape", 2, SIZES(1, 1));
    while ((line = strsep(&rest, ";"))) {
        char *type = strsep(&line, " "), *out = strsep(&line, " ");
        maker_node(m, type, line, out);
    }
    return ended(m, 3);
}

/* Functions as exporters write them, each of which is one op. */
static void is_function(const char *nodes, const char *op)
{
    char wanted[512];
    good(function(nodes));
    snprintf(wanted, sizeof wanted,
             "%%0 = max_pool(image) 1x1 -> 1x3x8x8 f32 (max_pool)\n%%1 = %s(%%0) -> 1x3x8x8 f32 (%s)\n"
             "%%2 = avg_pool(%%1) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
             "%%3 = dense(%%2, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n",
             op, op);
    has_ops(0, wanted);
}

TEST(test_functions)
{
    is_function("Sigmoid s p;Mul y p s", "silu");
    is_function("Neg n p;Exp e n;Add d e one;Div y p d", "silu");
    is_function("Add a p three;Clip c a zero six;Mul m p c;Div y m six", "hard_swish");
    is_function("HardSwish y p", "hard_swish");
    is_function("Clip y p zero six", "relu6");
    is_function("Div d p root;Erf e d;Add a e one;Mul m p a;Mul y m half", "gelu");
    is_function("Mul h p half;Div d p root;Erf e d;Add a e one;Mul y h a", "gelu");
    is_function("Add a p three;Clip c a zero six;Div y c six", "hard_sigmoid");
}

/* Lines between two limits, which are computed from where they are near 0, so that a limit far away rounds nothing. */
TEST(test_limits)
{
    static const char first[] = "%0 = max_pool(image) 1x1 -> 1x3x8x8 f32 (max_pool)\n", shape[] = "1x3x8x8 f32";
    static const char *const wanted[][2] = {
        {"Min y p half", "affine(%0) scale -1 shift 0.5;relu(%1);affine(%2) scale -1 shift 0.5"},
        {"Neg n p;Relu r n;Neg y r", "affine(%0) scale -1 shift 0;relu(%1);affine(%2) scale -1 shift 0"},
        {"Clip y p low high", "affine(%0) scale 0.001 shift 0;relu6(%1);affine(%2) scale 1000 shift 0;affine(%0) scale "
                              "-0.001 shift 0;relu6(%4);affine(%5) scale -1000 shift 0;"
                              "add(%3, %6)"}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char all[2048], ops[512], *rest = ops, *op;
        int length = snprintf(all, sizeof all, "%s", first), count = 1;
        snprintf(ops, sizeof ops, "%s", wanted[i][1]);
        while ((op = strsep(&rest, ";")))
            length += snprintf(all + length, sizeof all - (size_t)length, "%%%d = %s -> %s (%.*s)\n", count++, op,
                               shape, (int)strcspn(op, "("), op);
        snprintf(all + length, sizeof all - (size_t)length,
                 "%%%d = avg_pool(%%%d) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
                 "%%%d = dense(%%%d, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n",
                 count, count - 1, count + 1, count);
        good(function(wanted[i][0]));
        has_ops(0, all);
    }
}

/* NHWC, as tf2onnx writes it: transposes cost nothing. */
TEST(test_transposes)
{
    OnnxMaker *m = maker_start(SIZES(0, 8, 8, 3), "logits");
    maker_node(m, "Transpose", "x", "t");
    maker_ints(m, "perm", 4, SIZES(0, 3, 1, 2));
    maker_node(m, "Conv", "t conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 1, 1));
    maker_node(m, "Transpose", "a", "last");
    maker_ints(m, "perm", 4, SIZES(0, 2, 3, 1));
    maker_node(m, "LayerNormalization", "last g b", "n");
    maker_floats(m, "g", 1, SIZES(4));
    maker_floats(m, "b", 1, SIZES(4));
    maker_node(m, "MatMul", "n mlp.weight", "p");
    maker_floats(m, "mlp.weight", 2, SIZES(4, 6));
    maker_node(m, "Add", "mlp.bias p", "q");
    maker_floats(m, "mlp.bias", 1, SIZES(6));
    maker_node(m, "Transpose", "q", "y");
    maker_ints(m, "perm", 4, SIZES(0, 3, 1, 2));
    float second = ((const float *)m->tensor[3].raw_data.data)[6]; /* of {in, out} */
    assert_string_equal(m->tensor[3].name, "mlp.weight");
    good(ended(m, 6));
    int count;
    const NetTensor *tensors = net_file_tensors(made, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(tensors[i].name, "mlp.weight")) {
            assert_true(tensors[i].dims[0] == 6 && tensors[i].dims[1] == 4);
            assert_true(tensors[i].data[1] == second);
        }
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x4x8x8 f32 (conv)\n"
               "%1 = layernorm(%0, b, g) eps 1e-05 -> 1x4x8x8 f32 (n)\n"
               "%2 = conv(%1, mlp.weight, mlp.bias) 1x1 -> 1x6x8x8 f32 (mlp)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x6x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* Groups of channels that change places are one op, and chunks are slices, of a Split or of a sequence. */
TEST(test_shuffle)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(6, 3, 1, 1));
    maker_node(m, "Reshape", "a apart", "b");
    maker_whole(m, "apart", 5, SIZES(-1, 2, 3, 8, 8));
    maker_node(m, "Transpose", "b", "c");
    maker_ints(m, "perm", 5, SIZES(0, 2, 1, 3, 4));
    maker_node(m, "Reshape", "c together", "d");
    maker_whole(m, "together", 4, SIZES(0, 6, 8, 8));
    maker_node(m, "SplitToSequence", "d half", "e");
    maker_int(m, "axis", 1);
    maker_whole(m, "half", 2, SIZES(2, 4));
    maker_node(m, "SequenceAt", "e last", "f");
    maker_whole(m, "last", 1, SIZES(-1));
    maker_node(m, "Split", "f", "g y");
    maker_int(m, "axis", 1);
    good(ended(m, 2));
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x6x8x8 f32 (conv)\n"
               "%1 = shuffle(%0) groups 2 -> 1x6x8x8 f32 (shuffle)\n"
               "%2 = slice(%1) from 2 -> 1x4x8x8 f32 (slice)\n"
               "%3 = slice(%2) from 0 -> 1x2x8x8 f32 (slice)\n"
               "%4 = slice(%2) from 2 -> 1x2x8x8 f32 (slice)\n"
               "%5 = avg_pool(%4) 8x8 -> 1x2x1x1 f32 (avg_pool)\n"
               "%6 = dense(%5, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* A border of zeros is part of the window behind it; rows and columns that are doubled. */
TEST(test_borders)
{
    OnnxMaker *m = started();
    maker_node(m, "Resize", "x - scales", "r");
    Onnx__TensorProto *scales = maker_floats(m, "scales", 1, SIZES(4));
    float *times = (float *)scales->raw_data.data;
    times[0] = times[1] = 1, times[2] = times[3] = 2;
    maker_node(m, "Clip", "open least", "pads"); /* as a file computes it from the sides */
    maker_whole(m, "open", 8, SIZES(0, 0, -1, -3, 0, 0, 1, 1));
    maker_whole(m, "least", 1, SIZES(0));
    maker_node(m, "Pad", "r pads", "p");
    maker_node(m, "Conv", "p conv.weight", "y");
    maker_ints(m, "strides", 2, SIZES(2, 2));
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 3, 3));
    good(ended(m, 4));
    has_ops(0, "%0 = avg_pool_dx(image) 2x2/2 -> 1x3x16x16 f32 (avg_pool_dx)\n"
               "%1 = affine(%0) scale 4 shift 0 -> 1x3x16x16 f32 (affine)\n"
               "%2 = conv(%1, conv.weight) 3x3/2+0:1x0:1 -> 1x4x8x8 f32 (conv)\n"
               "%3 = avg_pool(%2) 8x8 -> 1x4x1x1 f32 (avg_pool)\n"
               "%4 = dense(%3, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* A chain of shapes, of which the first size is the batch. */
TEST(test_shapes)
{
    OnnxMaker *m = started();
    maker_node(m, "Shape", "x", "s");
    maker_node(m, "Gather", "s zero", "n");
    maker_whole(m, "zero", 1, SIZES(0));
    maker_node(m, "Concat", "n rest", "to");
    maker_int(m, "axis", 0);
    maker_whole(m, "rest", 1, SIZES(-1));
    maker_node(m, "Reshape", "x to", "flat");
    maker_node(m, "Gemm", "flat fc.weight", "logits");
    maker_floats(m, "fc.weight", 2, SIZES(192, 5));
    good(m);
    has_ops(0, "%0 = dense(image, fc.weight) -> 1x5x1x1 f32 (fc)\n");
}

/* The mean of two images, seen through a list of all its elements as PyTorch's as_strided is written. */
static OnnxMaker *strided(const int64_t *indices)
{
    OnnxMaker *m = maker_start(SIZES(2, 3, 8, 8), "logits");
    maker_node(m, "GlobalAveragePool", "x", "mean");
    maker_node(m, "Reshape", "mean all", "line");
    maker_whole(m, "all", 1, SIZES(-1));
    maker_node(m, "Gather", "line indices", "view");
    maker_whole_of(m, "indices", 4, SIZES(2, 3, 1, 1), indices);
    maker_node(m, "Flatten", "view", "flat");
    maker_node(m, "Gemm", "flat fc.weight", "logits");
    maker_floats(m, "fc.weight", 2, SIZES(3, 5));
    return m;
}

TEST(test_strided_view)
{
    good(strided(SIZES(0, 1, 2, 3, 4, 5)));
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = dense(%0, fc.weight) -> 1x5x1x1 f32 (fc)\n");
    refused(strided(SIZES(0, 1, 2, 3, 5, 4)), ERR_ARG, "all elements of its operand in their order");
    refused(strided(SIZES(3, 4, 5, 0, 1, 2)), ERR_ARG, "all elements of its operand in their order");
}

/* The same with a batch that is open; `count` is made of a Range over the images: the place of image i is `apart` * i, of each of its numbers `inner` and `start` more. */
static OnnxMaker *strided_open(int64_t apart, int64_t inner, int64_t start, int type)
{
    OnnxMaker *m = maker_start(SIZES(-1, 3, 8, 8), "logits");
    maker_node(m, "GlobalAveragePool", "x", "mean");
    maker_node(m, "Reshape", "mean all", "line");
    maker_whole(m, "all", 1, SIZES(-1));
    maker_node(m, "Shape", "x", "s");
    maker_node(m, "Gather", "s zero", "images");
    maker_whole_of(m, "zero", 0, NULL, SIZES(0));
    maker_whole_of(m, "one", 0, NULL, SIZES(1));
    maker_node(m, "Range", "zero images one", "i");
    maker_whole_of(m, "apart", 0, NULL, SIZES(apart));
    maker_node(m, "Cast", "i", "count");
    maker_int(m, "to", type);
    maker_node(m, "Mul", "count apart", "at");
    maker_node(m, "Unsqueeze", "at behind", "wide");
    maker_whole(m, "behind", 3, SIZES(1, 2, 3));
    maker_whole_of(m, "c", 4, SIZES(1, 3, 1, 1), SIZES(start, start + inner, start + 2 * inner));
    maker_node(m, "Add", "wide c", "indices");
    maker_node(m, "Gather", "line indices", "view");
    maker_node(m, "Flatten", "view", "flat");
    maker_node(m, "Gemm", "flat fc.weight", "logits");
    maker_floats(m, "fc.weight", 2, SIZES(3, 5));
    return m;
}

/* x[:] += y: a count of the images, `column` beside it, says where y goes. */
static OnnxMaker *scattered(const char *data, const char *start, const char *reduction)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x w", "a");
    maker_floats(m, "w", 4, SIZES(4, 3, 1, 1));
    maker_node(m, "Conv", "x v", "b");
    maker_floats(m, "v", 4, SIZES(4, 3, 1, 1));
    maker_node(m, "Shape", "x", "s");
    maker_node(m, "Gather", "s zero", "images");
    maker_whole_of(m, "zero", 0, NULL, SIZES(0));
    maker_whole_of(m, "one", 0, NULL, SIZES(1));
    maker_node(m, "Range", "zero images one", "i");
    for (int i = 0; i < 4; i++)
        maker_whole(m, (const char *[]){"first", "second", "end", "step"}[i], 1,
                    SIZES((int64_t[]){0, 1, INT64_MAX, 1}[i]));
    maker_node(m, "Slice", start, "those");
    maker_node(m, "Unsqueeze", "those behind", "places");
    maker_whole(m, "behind", 1, SIZES(-1));
    maker_node(m, "ScatterND", data, "y");
    maker_text(m, "reduction", reduction);
    return ended(m, 4);
}

TEST(test_views_of_an_open_batch)
{
    good(strided_open(3, 1, 0, 7));
    has_ops(0, "%0 = avg_pool(image) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%1 = dense(%0, fc.weight) -> 1x5x1x1 f32 (fc)\n");
    refused(strided_open(4, 1, 0, 7), ERR_ARG, "all elements of its operand in their order");
    refused(strided_open(3, 2, 0, 7), ERR_ARG, "all elements of its operand in their order");
    refused(strided_open(3, 1, 3, 7), ERR_ARG, "all elements of its operand in their order");
    good(strided_open(3, 1, 0, 6));
    net_file_close(made);
    refused(strided_open(3, 1, 0, 9), ERR_ARG, "a count of the images is known in"); /* a truth, and a byte */
    refused(strided_open(3, 1, 0, 2), ERR_ARG, "a count of the images is known in");
    good(scattered("a places b", "i first end first step", "none"));
    net_file_close(made);
    static const char *const others[][3] = {{"a places b", "i second end first step", "none"},
                                            {"a places b", "i first end first step", "add"},
                                            {"a places x", "i first end first step", "none"},
                                            {"i places b", "i first end first step", "none"}};
    for (int i = 0; i < 4; i++)
        refused(scattered(others[i][0], others[i][1], others[i][2]), ERR_ARG, "a count of the images is known in");
}

/* Everything that has no counterpart, at once. */
TEST(test_refusals)
{
    OnnxMaker *m = started();
    maker_node(m, "Einsum", "x", "a");
    maker_node(m, "Softmax", "x", "b");
    maker_node(m, "Add", "a b", "c");
    maker_node(m, "Einsum", "x", "d");
    maker_node(m, "Add", "c d", "y");
    refused(ended(m, 3), ERR_ARG, "Einsum 'a' and 1 more: it has no counterpart");
    m = started();
    maker_node(m, "Einsum", "x", "a");
    maker_node(m, "Softmax", "a", "y");
    refused(ended(m, 3), ERR_ARG, "Einsum");
    assert_null(strstr(status_message(), "Softmax")); /* it only reads what is lost */
    m = started();
    maker_node(m, "Relu", "x", "y");
    maker_int(m, "unheard_of", 1);
    refused(ended(m, 3), ERR_ARG, "attribute 'unheard_of'");
    for (int i = 0; i < 2; i++) {
        m = started();
        maker_node(m, "Pad", "x", "y");
        maker_int(m, i ? "" : "mode pads", 1); /* as two that Pad has, one behind the other */
        refused(ended(m, 3), ERR_ARG, i ? "attribute ''" : "attribute 'mode pads'");
    }
    m = started();
    maker_node(m, "Dropout", "x", "a mask"); /* which is none of the values here */
    maker_node(m, "Relu", "mask", "y");
    refused(ended(m, 3), ERR_ARG, "Relu 'y': it reads 'mask'");
    m = started();
    maker_node(m, "Shape", "", "a");
    maker_node(m, "Reshape", "x a", "y");
    refused(ended(m, 3), ERR_ARG, "Shape 'a': this constant cannot be computed");
    m = started();
    maker_node(m, "SequenceAt", "x zero", "y"); /* the image is no sequence */
    maker_whole(m, "zero", 1, SIZES(0));
    refused(ended(m, 3), ERR_ARG, "SequenceAt 'y': expected a part of the channels");
    m = started();
    maker_node(m, "SplitToSequence", "x sizes", "parts");
    maker_int(m, "axis", 1);
    maker_whole(m, "sizes", 3, SIZES(INT64_MAX, INT64_MAX, 1));
    maker_node(m, "SequenceAt", "parts two", "y");
    maker_whole(m, "two", 1, SIZES(2));
    refused(ended(m, 3), ERR_ARG, "a part that there is not");
    m = started();
    maker_node(m, "Conv", "x counter", "y");
    maker_floats(m, "counter", 4, SIZES(4, 3, 1, 1));
    refused(ended(m, 4), ERR_ARG, "named 'counter'");
    m = started();
    maker_node(m, "Add", "c c", "logits");
    maker_floats(m, "c", 2, SIZES(1, 5));
    refused(m, ERR_ARG, "output 'logits' does not depend on the image");
    m = started();
    maker_node(m, "Sub", "x -", "y"); /* its second operand is left out */
    refused(ended(m, 3), ERR_ARG, "expected two operands");
    m = started();
    maker_node(m, "LeakyRelu", "x", "y");
    maker_float(m, "", 1);
    refused(ended(m, 3), ERR_ARG, "attribute ''");
    m = started();
    maker_node(m, "LeakyRelu", "x", "y");
    maker_float(m, "pha", 1);
    refused(ended(m, 3), ERR_ARG, "attribute 'pha'");
    m = started();
    maker_node(m, "Softplus", "x", "y");
    refused(ended(m, 3), ERR_ARG, "function of one number");
    m = small();
    m->opset.version = 99;
    refused(m, ERR_ARG, "version 99");
}

/* Weights and biases that lie otherwise than they seem to at first. */
TEST(test_layouts)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(8, 3, 1, 1));
    maker_node(m, "Add", "a row", "y"); /* along the width, of as many pixels as channels */
    maker_floats(m, "row", 1, SIZES(8));
    refused(ended(m, 8), ERR_ARG, "neither one number nor one for each channel");
    m = started();
    maker_node(m, "Conv", "x conv.weight", "y");
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 1, 1));
    maker_ints(m, "kernel_shape", 2, SIZES(3, 3));
    refused(ended(m, 4), ERR_ARG, "that of its weights");
    m = started();
    maker_node(m, "Conv", "x conv.weight", "y");
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 1, 1));
    maker_int(m, "group", INT64_MAX);
    refused(ended(m, 4), ERR_ARG, "groups, and 4 outputs");
    m = started();
    maker_node(m, "GlobalAveragePool", "x", "pooled");
    maker_node(m, "Flatten", "pooled", "flat");
    maker_node(m, "Gemm", "flat w", "a");
    maker_node(m, "Gemm", "a w", "logits");
    maker_int(m, "transB", 1);
    maker_floats(m, "w", 2, SIZES(3, 3));
    refused(m, ERR_ARG, "in another layout");
    m = started();
    maker_node(m, "GlobalAveragePool", "x", "pooled");
    maker_node(m, "Flatten", "pooled", "flat");
    maker_node(m, "Reshape", "long shape", "w");
    maker_node(m, "MatMul", "flat w", "logits");
    maker_whole(m, "shape", 2, SIZES(3, 5));
    float in_file[15];
    memcpy(in_file, maker_floats(m, "long", 1, SIZES(15))->raw_data.data, sizeof in_file);
    good(m);
    int count;
    const NetTensor *t = net_file_tensors(made, &count);
    assert_true(count == 1 && t->rank == 2 && t->dims[0] == 5 && t->dims[1] == 3);
    for (int i = 0; i < 15; i++) assert_true(t->data[i] == in_file[i % 3 * 5 + i / 3]);
    net_file_close(made);
}

/* How much of their old value the running averages keep becomes a setting of the model. */
TEST(test_momentum)
{
    static const float given[] = {0.75f, 0, 1, NAN};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        OnnxMaker *m = started();
        maker_node(m, "BatchNormalization", "x g b mean var", "y");
        maker_float(m, "momentum", given[i]);
        maker_floats(m, "g", 1, SIZES(3));
        maker_floats(m, "b", 1, SIZES(3));
        maker_floats(m, "mean", 1, SIZES(3));
        maker_floats(m, "var", 1, SIZES(3));
        if (i > 1) {
            refused(ended(m, 3), ERR_ARG, "expected 0 to less than 1");
            continue;
        }
        good(ended(m, 3));
        assert_string_equal(net_file_model(made)->defaults, i ? "bn-decay: 0\n" : "bn-decay: 0.75\n");
        net_file_close(made);
    }
}

/* What a file says in an unusual way is followed, or refused. */
TEST(test_axes)
{
    OnnxMaker *m = started();
    maker_node(m, "GlobalAveragePool", "x", "pooled");
    maker_node(m, "Softmax", "pooled", "logits"); /* over a single column */
    refused(m, ERR_ARG, "neither over the classes");
    m = started();
    maker_node(m, "Reshape", "x split", "rows"); /* 8 rows as 4 pairs */
    maker_whole(m, "split", 5, SIZES(0, 3, 4, 2, 8));
    maker_node(m, "Slice", "rows zero one two", "part");
    maker_whole(m, "zero", 1, SIZES(0));
    maker_whole(m, "one", 1, SIZES(1));
    maker_whole(m, "two", 1, SIZES(2));
    maker_node(m, "Squeeze", "part two", "y");
    refused(ended(m, 3), ERR_ARG, "does not lie so in memory");
    m = started();
    maker_node(m, "Slice", "x zero one two two_steps", "y");
    maker_whole(m, "zero", 1, SIZES(0));
    maker_whole(m, "one", 1, SIZES(1));
    maker_whole(m, "two", 1, SIZES(2));
    maker_whole(m, "two_steps", 2, SIZES(1, 1));
    refused(ended(m, 3), ERR_ARG, "expected a range, forwards");
    m = started();
    maker_node(m, "Pad", "x pads", "y");
    maker_whole(m, "pads", 8, SIZES(0, 0, INT64_MAX, 0, 0, 0, INT64_MAX, 0));
    refused(ended(m, 3), ERR_ARG, "it pads another axis");
    m = started();
    maker_node(m, "Shape", "x", "s");
    maker_node(m, "Gather", "s zero", "n");
    maker_whole(m, "zero", 1, SIZES(0));
    maker_node(m, "Cast", "n", "batch");
    maker_int(m, "to", 1);
    maker_node(m, "Relu", "x", "a");
    maker_node(m, "Div", "a batch", "y");
    refused(ended(m, 3), ERR_ARG, "Div 'y': its constant");
    m = started();
    maker_node(m, "Conv", "x conv.weight", "a");
    maker_floats(m, "conv.weight", 4, SIZES(4, 3, 1, 1));
    maker_node(m, "BatchNormalization", "a g b b g", "y");
    maker_floats(m, "g", 1, SIZES(4));
    maker_floats(m, "b", 1, SIZES(4));
    refused(ended(m, 4), ERR_ARG, "of its own");
}

/* A file whose network begins with so many nodes of one type, each with numbers of its own if it is Mul: a single one, or one for each
 * channel. Returns the processor time that reading it takes, in seconds. */
static double chain_read(int count, const char *type, bool single, Status code, const char *why)
{
    OnnxMaker *m = small();
    const size_t nodes = m->graph.n_node, tensors = m->graph.n_initializer;
    struct {
        Onnx__NodeProto node;
        Onnx__TensorProto tensor;
        char out[16], weights[16], *in[2], *name;
    } *link = calloc((size_t)count, sizeof *link);
    Onnx__NodeProto **node = calloc((size_t)count + nodes, sizeof(*node));
    Onnx__TensorProto **tensor = calloc((size_t)count + tensors, sizeof(*tensor));
    int64_t dims[] = {3, 1, 1};
    float values[] = {1, 1, 1};
    assert_true(link && node && tensor);
    bool weighs = !strcmp(type, "Mul");
    for (int i = 0; i < count; i++) {
        onnx__node_proto__init(node[i] = &link[i].node);
        onnx__tensor_proto__init(tensor[i] = &link[i].tensor);
        snprintf(link[i].out, sizeof link[i].out, "%d", i);
        snprintf(link[i].weights, sizeof link[i].weights, "w%d", i);
        link[i].in[0] = i ? link[i - 1].out : (char *)"x", link[i].in[1] = tensor[i]->name = link[i].weights;
        link[i].name = link[i].out;
        node[i]->op_type =
            weighs && !i ? (char *)"Relu" : (char *)type; /* else it would be the normalization of the image */
        node[i]->n_input = weighs && i ? 2 : 1, node[i]->input = link[i].in;
        node[i]->n_output = 1, node[i]->output = &link[i].name;
        tensor[i]->n_dims = single ? 0 : 3, tensor[i]->dims = dims;
        tensor[i]->has_data_type = true, tensor[i]->data_type = 1;
        tensor[i]->n_float_data = single ? 1 : 3, tensor[i]->float_data = values;
    }
    memcpy(node + count, m->graph.node, nodes * sizeof(*node));
    memcpy(tensor + count, m->graph.initializer, tensors * sizeof(*tensor));
    m->node[0].input[0] = link[count - 1].out;
    m->graph.node = node, m->graph.n_node = (size_t)count + nodes;
    if (weighs) m->graph.initializer = tensor, m->graph.n_initializer = (size_t)count + tensors;
    clock_t began = clock();
    if (code == OK)
        good(m);
    else
        refused(m, code, why);
    double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    net_file_close(made);
    free(link), free(node), free(tensor);
    return seconds;
}

TEST(test_chains)
{
    chain_read(20000, "Softplus", false, ERR_ARG,
               "Softplus"); /* each of them would be computed only when the last one is */
    chain_read(5000, "Mul", false, ERR_ARG, "more than 4096 parameters");
}

/* Ten times as many single numbers take about ten times as long, not a hundred times. */
TEST(test_chain_of_single_numbers)
{
    double few = chain_read(4000, "Mul", true, OK, NULL), many = chain_read(40000, "Mul", true, OK, NULL);
    if (many > 30 * few + 1) fail_msg("4000 nodes take %.2f s, 40000 take %.2f s", few, many);
}

/* Of bytes, or of pixels from 0 to 1: what the first nodes subtract and divide by says which. */
static void is_normalized(float minus, float by, float mean, float std)
{
    OnnxMaker *m = started();
    maker_node(m, "Sub", "x minus", "a");
    maker_value(m, "minus", minus);
    maker_node(m, "Div", "a by", "b");
    maker_value(m, "by", by);
    maker_node(m, "MaxPool", "b", "y");
    maker_ints(m, "kernel_shape", 2, SIZES(2, 2));
    good(ended(m, 3));
    const Model *model = net_file_model(made);
    if (fabsf(model->mean[0] - mean) > 1e-6f || fabsf(model->std[2] - std) > 1e-6f)
        fail_msg("(x - %g) / %g: %g, %g", minus, by, model->mean[0], model->std[2]);
    net_file_close(made);
}

TEST(test_normalization)
{
    is_normalized(0.5f, 0.25f, 0.5f, 0.25f);
    is_normalized(127.5f, 127.5f, 0.5f, 0.5f);
    is_normalized(102, 1, 0.4f, 1 / 255.f);
    static const float wrong[] = {0, 4, -1, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        OnnxMaker *m = started();
        maker_node(m, "Div", "x by", "a");
        maker_value(m, "by", wrong[i]);
        maker_node(m, "MaxPool", "a", "y");
        maker_ints(m, "kernel_shape", 2, SIZES(2, 2));
        refused(ended(m, 3), ERR_ARG, "expected a mean and a deviation");
    }
    OnnxMaker *m = started();
    m->kind.has_elem_type = true, m->kind.elem_type = 2;
    maker_node(m, "Cast", "x", "a");
    maker_int(m, "to", 1);
    maker_node(m, "MaxPool", "a", "y");
    maker_ints(m, "kernel_shape", 2, SIZES(2, 2));
    good(ended(m, 3));
    assert_true(net_file_facts(made).normalizes && net_file_model(made)->mean[0] == 0);
    assert_true(net_file_model(made)->std[0] == 1 / 255.f);
    net_file_close(made);
    m = started();
    m->kind.has_elem_type = true, m->kind.elem_type = 7;
    maker_node(m, "Cast", "x", "y");
    maker_int(m, "to", 1);
    refused(ended(m, 3), ERR_ARG, "floating-point numbers, or bytes");
}

/* PyTorch's exporter asks for the sizes of the image, and for its type, beside the normalization; another node may read its pixels, too. */
static OnnxMaker *divided(bool others)
{
    OnnxMaker *m = started();
    maker_value(m, "number", 255);
    maker_node(m, "CastLike", "number x", "by");
    maker_node(m, "Div", "x by", "a");
    maker_node(m, "Conv", "a conv.weight", "c");
    maker_floats(m, "conv.weight", 4, SIZES(3, 3, 1, 1));
    maker_node(m, "Shape", "x", "s");
    maker_node(m, "Reshape", "c s", others ? "r" : "y");
    if (others) maker_node(m, "Add", "r x", "y");
    return ended(m, 3);
}

TEST(test_readers_beside_the_normalization)
{
    good(divided(false));
    assert_true(net_file_facts(made).normalizes && fabsf(net_file_model(made)->std[0] - 1) < 1e-6f);
    has_ops(0, "%0 = conv(image, conv.weight) 1x1 -> 1x3x8x8 f32 (conv)\n"
               "%1 = avg_pool(%0) 8x8 -> 1x3x1x1 f32 (avg_pool)\n"
               "%2 = dense(%1, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    good(divided(true));
    assert_false(net_file_facts(made).normalizes);
    net_file_close(made);
}

/* Runs of a program that took such a normalization for a layer go on with it as one: the mark of their structure is another. */
TEST(test_structure_of_hidden_normalization)
{
    char path[PATH_BYTES], *text;
    size_t bytes;
    NetFile *again;
    scratch_path(path, "structure.onnx");
    good(divided(false));
    assert_int_equal(net_file_structure_write(made, path), OK);
    net_file_close(made);
    for (int older = 0; older < 2; older++) {
        assert_int_equal(net_file_open(path, &again), OK);
        assert_int_equal(net_file_facts(again).normalizes, !older);
        net_file_close(again);
        assert_int_equal(file_read(path, 1 << 20, &text, &bytes), OK);
        char *mark = memmem(text, bytes, "2: its trained", strlen("2: its trained"));
        assert_int_equal(mark != NULL, !older);
        if (mark) *mark = '1';
        assert_int_equal(file_replace(path, text, bytes), OK);
        free(text);
    }
}

TEST(test_circles_and_names)
{
    OnnxMaker *m = started();
    maker_node(m, "Add", "x b", "a");
    maker_node(m, "Relu", "a", "b");
    maker_node(m, "Relu", "b", "y");
    refused(ended(m, 3), ERR_FORMAT, "in a circle");
    m = started();
    maker_node(m, "Relu", "x", "y");
    maker_node(m, "Tanh", "x", "y");
    refused(ended(m, 3), ERR_FORMAT, "'y' is given twice");
    m = started();
    maker_node(m, "Relu", "x", "fc.bias");
    maker_node(m, "Tanh", "x", "y");
    refused(ended(m, 3), ERR_FORMAT, "'fc.bias' is given twice");
}

TEST(test_sizes_that_lie)
{
    OnnxMaker *m = small();
    m->tensor[0].dims[0] = INT64_C(1) << 40;
    refused(m, ERR_FORMAT, "more elements than a file holds");
    m = small();
    m->tensor[0].dims[0] = m->tensor[0].dims[1] = INT32_MAX;
    refused(m, ERR_FORMAT, "more elements than a file holds");
    m = small();
    m->tensor[0].dims[0] = -4;
    refused(m, ERR_FORMAT, "negative size");
    m = small();
    m->tensor[0].dims[0] = 5;
    refused(m, ERR_FORMAT, "dimensions for 135 elements and data for 108");
    m = started();
    maker_node(m, "Expand", "one huge", "c");
    maker_value(m, "one", 1);
    maker_whole(m, "huge", 2, SIZES(1 << 30, 1 << 30));
    maker_node(m, "Add", "x c", "y");
    refused(ended(m, 3), ERR_ARG, "a constant of more than");
}

/* Two bytes a node become a hundred of memory. */
TEST(test_bomb)
{
    enum { NODES = 12 << 20 };
    const size_t count = 2 * (size_t)NODES + 16;
    unsigned char *bytes = malloc(count);
    assert_non_null(bytes);
    const unsigned char graph[] = {0x42, 0x00, 0x3a}; /* opset_import, then graph, whose length follows */
    memcpy(bytes, graph, sizeof graph);
    size_t at = sizeof graph;
    for (size_t rest = 2 * (size_t)NODES; rest; rest >>= 7)
        bytes[at++] = (unsigned char)((rest & 127) | (rest > 127 ? 128 : 0));
    for (int i = 0; i < NODES; i++) bytes[at++] = 0x0a, bytes[at++] = 0;
    assert_int_equal(net_file_parse(bytes, at, "bomb.onnx", &made), ERR_FORMAT);
    assert_non_null(strstr(status_message(), "bytes of memory"));
    free(bytes);
}

/* ---- data in other files */

/* The small network whose first weights are said to be there. */
static Status opened_with(const char *location, const char *offset)
{
    char path[PATH_BYTES];
    Onnx__StringStringEntryProto pair[2] = {ONNX__STRING_STRING_ENTRY_PROTO__INIT,
                                            ONNX__STRING_STRING_ENTRY_PROTO__INIT};
    Onnx__StringStringEntryProto *pairs[] = {&pair[0], &pair[1]};
    OnnxMaker *m = small();
    pair[0].key = (char *)"location", pair[0].value = (char *)location;
    pair[1].key = (char *)"offset", pair[1].value = (char *)offset;
    m->tensor[0].has_raw_data = false;
    m->tensor[0].has_data_location = true, m->tensor[0].data_location = 1;
    m->tensor[0].n_external_data = 2, m->tensor[0].external_data = pairs;
    size_t count;
    unsigned char *bytes = maker_bytes(m, &count);
    scratch_path(path, "net.onnx");
    assert_int_equal(file_replace(path, bytes, count), OK);
    free(bytes);
    maker_end(m);
    made = NULL;
    return net_file_open(path, &made);
}

TEST(test_external_data)
{
    char data[512] = {0}, path[PATH_BYTES], outside[PATH_BYTES];
    for (int i = 0; i < 500; i++) data[i] = 'a';
    scratch_put("net.data", data);
    assert_int_equal(opened_with("net.data", "68"), OK);
    int count;
    assert_memory_equal(net_file_tensors(made, &count)[0].data, data, 108 * sizeof(float));
    net_file_close(made);
    static const char *const wrong[][3] = {{"../net.data", "0", "expected a file in the folder"},
                                           {"a/../../net.data", "0", "expected a file in the folder"},
                                           {"/etc/passwd", "0", "expected a file in the folder"},
                                           {"", "0", "expected a file in the folder"},
                                           {"absent", "0", "missing"},
                                           {"link", "0", "a link out of the folder"},
                                           {"net.data", "69", "needs 432 bytes"},
                                           {"net.data", "-1", "is no number"},
                                           {"net.data", "18446744073709551615", "needs 432 bytes"}};
    scratch_path(path, "link");
    snprintf(outside, sizeof outside, "%s", "/proc/self/exe");
    assert_int_equal(symlink(outside, path), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(opened_with(wrong[i][0], wrong[i][1]), ERR_FORMAT);
        if (!strstr(status_message(), wrong[i][2])) fail_msg("%s: %s", wrong[i][0], status_message());
    }
}

/* ---- writing */

TEST(test_structure)
{
    char path[PATH_BYTES], digest[NET_FILE_DIGEST + 1];
    NetFile *again;
    int count;
    good(small());
    snprintf(digest, sizeof digest, "%s", net_file_digest(made));
    scratch_path(path, "structure.onnx");
    assert_int_equal(net_file_structure_write(made, path), OK);
    net_file_close(made);
    assert_int_equal(net_file_open(path, &again), OK);
    assert_string_equal(net_file_digest(again), digest);
    assert_null(net_file_tensors(again, &count)[0].data);
    assert_int_equal(count, 7);
    assert_int_equal(net_file_structure_write(again, path), OK); /* once more */
    net_file_close(again);
    assert_int_equal(net_file_open(path, &again), OK);
    assert_string_equal(net_file_digest(again), digest);
    net_file_close(again);
    OnnxMaker *m = small();
    ((float *)m->tensor[0].raw_data.data)[0] = 7;
    good(m);
    assert_string_equal(net_file_digest(made), digest); /* other values */
    net_file_close(made);
    m = small();
    m->attribute[0].ints[0] = m->attribute[0].ints[2] = 0;
    m->attribute[0].ints[1] = m->attribute[0].ints[3] = 0;
    good(m);
    assert_string_not_equal(net_file_digest(made), digest);
    net_file_close(made);
}

static float other_values[64];

static const float *value_of(const void *context, const char *name)
{
    (void)context;
    return !strncmp(name, "fc.", 3) ? other_values : NULL;
}

TEST(test_export_of_other_classes)
{
    char path[PATH_BYTES];
    OnnxMaker *m = started();
    maker_node(m, "Relu", "x", "y");
    ended(m, 3);
    m->output[0].name = (char *)"shaped";
    maker_node(m, "Reshape", "logits to", "shaped");
    maker_whole(m, "to", 2, SIZES(-1, 5));
    good(m);
    scratch_path(path, "other.onnx");
    assert_int_equal(net_file_export(made, value_of, NULL, 5, NULL, 0, path), OK);
    assert_fails(net_file_export(made, value_of, NULL, 9, NULL, 0, path), ERR_UNSUPPORTED,
                 "cannot be written with 9 classes instead of 5");
    net_file_close(made);
}

/* The sizes of the output, {n, classes, 1, 1}, as the file says them. */
static void has_output_of(const char *path, int64_t classes)
{
    OnnxFile *file;
    assert_int_equal(onnx_open(path, &file), OK);
    const Onnx__TensorShapeProto *shape = file->model->graph->output[0]->type->tensor_type->shape;
    const int64_t wanted[] = {2, classes, 1, 1};
    for (int i = 0; i < 4; i++) assert_int_equal(shape->dim[i]->dim_value, wanted[i]);
    onnx_close(file);
}

/* The number of classes is one of the output's sizes, though others are equal to it before or after. */
TEST(test_export_of_output_sizes)
{
    static const int from[] = {1, 5}, to[] = {5, 1, 3};
    for (int i = 0; i < 2; i++) {
        char path[PATH_BYTES];
        OnnxMaker *m = maker_start(SIZES(2, 3, 8, 8), "logits");
        maker_node(m, "GlobalAveragePool", "x", "pooled");
        maker_node(m, "Conv", "pooled fc.weight", "logits");
        maker_floats(m, "fc.weight", 4, SIZES(from[i], 3, 1, 1));
        Onnx__TypeProto type = m->type;
        Onnx__TypeProto__Tensor kind = m->kind;
        Onnx__TensorShapeProto shape = m->shape;
        Onnx__TensorShapeProto__Dimension size[4], *sizes[4];
        for (int k = 0; k < 4; k++) {
            sizes[k] = &size[k], size[k] = m->size[k];
            size[k].dim_value = k == 0 ? 2 : k == 1 ? from[i] : 1;
        }
        shape.dim = sizes, kind.shape = &shape, type.tensor_type = &kind, m->output[0].type = &type;
        good(m);
        scratch_path(path, "sizes.onnx");
        for (int k = 0; k < 3; k++) {
            assert_int_equal(net_file_export(made, value_of, NULL, to[k], NULL, 0, path), OK);
            has_output_of(path, to[k]);
        }
        net_file_close(made);
    }
}

TEST(test_export)
{
    char path[PATH_BYTES];
    int count, again_count;
    NetFile *again;
    OnnxAbout *about;
    for (int i = 0; i < 64; i++) other_values[i] = (float)i;
    const StPair first[] = {{"mean", "0.25"}, {"owner", "the first"}}, then[] = {{"mean", "0.5"}};
    good(small());
    scratch_path(path, "trained.onnx");
    assert_int_equal(net_file_export(made, value_of, NULL, 5, first, 2, path), OK);
    net_file_close(made);
    assert_int_equal(net_file_open(path, &made), OK);
    assert_int_equal(net_file_export(made, value_of, NULL, 9, then, 1, path), OK);
    assert_int_equal(onnx_about_open(path, &about), OK);
    assert_int_equal(onnx_about_count(about), 2);
    assert_string_equal(onnx_about_at(about, 0).value, "the first");
    assert_string_equal(onnx_about_at(about, 1).key, "mean");
    assert_string_equal(onnx_about_at(about, 1).value, "0.5");
    onnx_about_close(about);
    assert_int_equal(net_file_open(path, &again), OK);
    assert_int_equal(net_file_model(again)->classes, 9);
    const NetTensor *a = net_file_tensors(made, &count), *b = net_file_tensors(again, &again_count);
    assert_int_equal(count, again_count);
    assert_memory_equal(a[0].data, b[0].data, 108 * sizeof(float));
    assert_memory_equal(b[5].data, other_values, 36 * sizeof(float));
    assert_int_equal(b[5].dims[0], 9);
    assert_int_equal(a[5].dims[0], 5);
    net_file_close(again);
    net_file_close(made);
}

static const float *share_of(const void *context, const char *name)
{
    static const float values[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    (void)context;
    return !strcmp(name, "first") ? values[0] : !strcmp(name, "second") ? values[1] : NULL;
}

/* The rates of all ops of a kind in the graph of `made`: how many. */
static int rates_of(OpKind kind, bool training, const ModelOptions *given, float rates[4])
{
    const Model *model = net_file_model(made);
    Graph *g = new_graph(training, DTYPE_F32);
    Value x = new_input(g, "image", 2, model->channels, model->side, model->side);
    ModelOptions options = *given;
    ModelHeads heads = {{0}};
    int count = 0;
    options.classes = model->classes, options.side = model->side;
    graph_input(g, "counter", (Shape){1, 4, 1, 1}, DTYPE_I32);
    model->build(g, &options, model->networks, x, &heads);
    assert_int_equal(graph_finish(g), OK);
    for (int i = 0; i < graph_op_count(g) && count < 4; i++)
        if (graph_op_at(g, i)->kind == kind) {
            rates[count++] = 1 - graph_op_at(g, i)->attr.dropout.keep;
            assert_true(kind != OP_DROPOUT || graph_op_at(g, i + 1)->kind == OP_DENSE);
        }
    graph_destroy(g);
    return count;
}

static float dropout_of(bool training, float rate, int *count)
{
    float rates[4] = {0};
    *count = rates_of(OP_DROPOUT, training, &(ModelOptions){.dropout = rate}, rates);
    return rates[0];
}

/* An export for inference has no dropout: a rate that is asked for acts in front of the classes. A file's own keeps its place. */
TEST(test_dropout)
{
    for (int own = 0; own < 2; own++) {
        OnnxMaker *m = started();
        int count;
        maker_node(m, "GlobalAveragePool", "x", "pooled");
        maker_node(m, "Flatten", "pooled", "flat");
        if (own) {
            maker_node(m, "Dropout", "flat", "kept");
            maker_float(m, "ratio", 0.25f);
            m->opset.version = 11; /* as an attribute */
        }
        maker_node(m, "Gemm", own ? "kept fc.weight" : "flat fc.weight", "logits");
        maker_floats(m, "fc.weight", 2, SIZES(3, 5));
        good(m);
        assert_true(fabsf(dropout_of(true, -1, &count) - (own ? 0.25f : 0)) < 1e-6f && count == own);
        assert_true(fabsf(dropout_of(true, 0.5f, &count) - 0.5f) < 1e-6f && count == 1);
        assert_true(dropout_of(true, 0, &count) < 1e-6f && count == 0);
        assert_true(dropout_of(false, 0.5f, &count) < 1e-6f && count == 0);
        net_file_close(made);
    }
}

static void has_paths(bool training, float rate, int count, const float *wanted)
{
    float found[4] = {0};
    assert_int_equal(rates_of(OP_STOCHASTIC_DEPTH, training, &(ModelOptions){.drop_path = rate}, found), count);
    for (int i = 0; i < count; i++) assert_true(fabsf(found[i] - wanted[i]) < 1e-6f);
}

/* A rate that is asked for drops branches of residual sums, more of those behind; a sum of two branches is none. */
TEST(test_drop_path)
{
    static const char *const nodes[][3] = {{"Conv", "x w", "a"},   {"Conv", "a w.b", "b"}, {"Add", "b a", "c"},
                                           {"Conv", "c w.d", "d"}, {"Conv", "c w.e", "e"}, {"Add", "d e", "f"},
                                           {"Conv", "f w.g", "g"}, {"Add", "f g", "h"},    {"Conv", "h w.i", "i"},
                                           {"Relu", "i", "j"},     {"Add", "h j", "y"}};
    OnnxMaker *m = started();
    for (int i = 0; i < (int)(sizeof nodes / sizeof *nodes); i++) {
        maker_node(m, nodes[i][0], nodes[i][1], nodes[i][2]);
        if (!strcmp(nodes[i][0], "Conv")) maker_floats(m, strchr(nodes[i][1], ' ') + 1, 4, SIZES(4, i ? 4 : 3, 1, 1));
    }
    good(ended(m, 4));
    assert_int_equal(net_file_model(made)->residuals, 3);
    assert_true(net_file_model(made)->drop_path == 0);
    has_paths(true, 0.25f, 2, (const float[]){0.125f, 0.25f}); /* of the first sum 0 */
    has_paths(true, 0, 0, NULL);
    has_paths(false, 0.25f, 0, NULL);
    net_file_close(made);
}

/* x times uniform numbers below 0.75, divided by `by`; `like` has their shape. */
static OnnxMaker *drawn(const int64_t like[4], float by)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x w", "a");
    maker_floats(m, "w", 4, SIZES(4, 3, 1, 1));
    maker_floats(m, "like", 4, like);
    maker_node(m, "RandomUniformLike", "like", "u");
    maker_value(m, "part", 0.75f);
    maker_node(m, "Less", "u part", "less");
    maker_node(m, "Cast", "less", "cast");
    maker_int(m, "to", 1);
    maker_node(m, "CastLike", "cast part", "stays");
    maker_value(m, "by", by);
    maker_node(m, "Div", "stays by", "mask");
    return m;
}

/* Without a number of images in the file the shape of what is drawn is computed of that of `a`; what has this shape never has numbers. */
TEST(test_random_numbers_of_an_open_batch)
{
    for (int i = 0; i < 5; i++) {
        OnnxMaker *m = started();
        maker_node(m, "Conv", "x w", "a");
        maker_floats(m, "w", 4, SIZES(4, 3, 1, 1));
        maker_node(m, "Shape", "a", "s");
        maker_node(m, "Gather", "s zero", "n");
        maker_whole(m, "zero", 1, SIZES(0));
        maker_node(m, "Concat", "n rest", "to");
        maker_int(m, "axis", 0);
        maker_whole(m, "rest", 3, i == 4 ? SIZES(2, 1, 1) : SIZES(1, 1, 1));
        maker_value(m, "nothing", 0);
        maker_node(m, i % 2 ? "Expand" : "ConstantOfShape", i % 2 ? "nothing to" : "to", "made");
        maker_node(m, "CastLike", "made a", "typed");
        maker_node(m, "Cast", "typed", "like");
        maker_int(m, "to", 1);
        maker_node(m, "RandomUniformLike", i < 2 ? "made" : "like", "u");
        maker_value(m, "part", 0.75f);
        maker_node(m, "Less", "u part", "less");
        maker_node(m, "CastLike", i < 2 ? "less part" : "less typed", "stays");
        maker_node(m, "Div", "stays part", "mask");
        maker_node(m, "Mul", "a mask", i == 3 ? "masked" : "y");
        if (i == 3) maker_node(m, "Add", "masked typed", "y");
        ended(m, 4);
        if (i < 3) {
            good(m);
            has_paths(true, 0.25f, 1, (const float[]){0.25f});
            net_file_close(made);
        } else
            refused(m, ERR_ARG, i == 3 ? "this constant cannot be computed here" : "of which a part stays, divided by");
    }
}

/* Sizes whose product is 1 in 64 bits are no single number for each image. */
TEST(test_random_numbers_of_huge_sizes)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x w", "a");
    maker_floats(m, "w", 4, SIZES(4, 3, 1, 1));
    maker_whole(m, "sizes", 4,
                SIZES(INT64_C(4294967311), INT64_C(207493927289), INT64_C(129563303484173), INT64_C(7155231042635181)));
    maker_node(m, "ConstantOfShape", "sizes", "like");
    maker_node(m, "RandomUniformLike", "like", "u");
    maker_value(m, "part", 0.75f);
    maker_node(m, "Less", "u part", "less");
    maker_node(m, "Cast", "less", "stays");
    maker_int(m, "to", 1);
    maker_node(m, "Div", "stays part", "mask");
    maker_node(m, "Mul", "a mask", "y");
    refused(ended(m, 4), ERR_ARG, "expected numbers between 0 and 1 for each image of a batch");
}

/* What an exporter makes of stochastic depth and dropout in training; random numbers are nothing else. */
TEST(test_random_numbers)
{
    OnnxMaker *m = drawn(SIZES(2, 1, 1, 1), 0.75f);
    float rates[4];
    maker_node(m, "Mul", "a mask", "y");
    good(ended(m, 4));
    assert_true(net_file_model(made)->drop_path == 0.25f);
    has_paths(true, 0.25f, 1, (const float[]){0.25f});
    has_paths(true, 0.125f, 1, (const float[]){0.125f});
    has_paths(true, 0, 0, NULL);
    has_paths(false, 0.25f, 0, NULL);
    net_file_close(made);

    m = drawn(SIZES(2, 4, 8, 8), 0.75f);
    maker_node(m, "Mul", "mask a", "b");
    maker_node(m, "Flatten", "b", "flat");
    maker_node(m, "Gemm", "flat fc.weight", "logits");
    maker_floats(m, "fc.weight", 2, SIZES(256, 5));
    good(m);
    assert_int_equal(rates_of(OP_DROPOUT, true, &(ModelOptions){.dropout = -1}, rates), 1);
    assert_true(rates[0] == 0.25f);
    net_file_close(made);

    char path[PATH_BYTES]; /* what is exported is for inference */
    m = drawn(SIZES(2, 1, 1, 1), 0.75f);
    maker_node(m, "Mul", "a mask", "masked");
    maker_node(m, "BatchNormalization", "masked n.w n.b n.m n.v", "y mean var");
    maker_int(m, "training_mode", 1);
    for (int i = 0; i < 4; i++) maker_floats(m, (const char *[]){"n.w", "n.b", "n.m", "n.v"}[i], 1, SIZES(4));
    good(ended(m, 4));
    scratch_path(path, "inference.onnx");
    for (int i = 0; i < 2; i++) assert_int_equal(net_file_export(made, value_of, NULL, 5, NULL, 0, path), OK);
    net_file_close(made);
    assert_int_equal(net_file_open(path, &made), OK);
    assert_true(net_file_model(made)->drop_path == 0);
    net_file_close(made);
    OnnxFile *file;
    assert_int_equal(onnx_open(path, &file), OK);
    for (int i = 0; i < file->node_count; i++) {
        const OnnxNode *node = &file->node[i];
        assert_true(strcmp(node->type, "BatchNormalization") != 0 ||
                    (node->out_count == 1 && onnx_int(node, "training_mode", 0) == 0));
        assert_true(strcmp(node->type, "Mul") != 0);
    }
    onnx_close(file);

    for (int i = 0; i < 6; i++) {
        m = drawn(i == 1 ? SIZES(2, 4, 1, 1) : SIZES(2, 1, 1, 1), i == 0 ? 0.5f : 0.75f);
        if (i == 4) maker_node(m, "Div", "by stays", "wrong");
        if (i == 5) maker_node(m, "Less", "part u", "above");
        if (i == 5) maker_node(m, "Div", "above by", "wrong");
        maker_node(m, i == 2 ? "Add" : "Mul", i >= 4 ? "a wrong" : i == 3 ? "a u" : "a mask", "y");
        refused(ended(m, 4), ERR_ARG,
                i >= 2 ? "random numbers are known in" : "of which a part stays, divided by that part");
    }
    m = drawn(SIZES(2, 1, 1, 1), 0.75f);
    maker_node(m, "Mul", "a mask", "b");
    maker_node(m, "Mul", "b mask", "y");
    refused(ended(m, 4), ERR_ARG, "have another reader");
}

/* What a person is told of a file: other averages of batch norms, several outputs, a Sigmoid at the end, no norms. */
TEST(test_facts)
{
    for (int i = 0; i < 4; i++) {
        OnnxMaker *m = started();
        maker_node(m, "Conv", "x first", "z");
        maker_floats(m, "first", 4, SIZES(4, 3, 1, 1));
        for (int k = 0; k < 2 && i != 3; k++) {
            maker_node(m, "BatchNormalization", k ? "n a.w a.b a.m a.v" : "z b.w b.b b.m b.v", k ? "y" : "n");
            maker_float(m, "momentum", k && i == 1 ? 0.5f : 0.9f);
            for (int p = 0; p < 4; p++) {
                static const char *const names[2][4] = {{"b.w", "b.b", "b.m", "b.v"}, {"a.w", "a.b", "a.m", "a.v"}};
                maker_floats(m, names[k][p], 1, SIZES(4));
            }
        }
        if (i == 3) maker_node(m, "Relu", "z", "y");
        ended(m, 4);
        if (i == 2) {
            maker_node(m, "Sigmoid", "logits", "chances");
            m->output[0].name = m->node[m->graph.n_node - 1].output[0];
            maker_output(m, "logits");
        }
        good(m);
        NetFacts facts = net_file_facts(made);
        assert_int_equal(facts.momenta, i == 1);
        assert_int_equal(facts.sigmoid, i == 2);
        assert_int_equal(facts.outputs, i == 2 ? 2 : 1);
        assert_int_equal(facts.norms, i != 3);
        assert_true(facts.convolves);
        net_file_close(made);
    }
}

/* Two layers with one weight are trained as one, which is said; an Identity keeps them apart. */
TEST(test_shared_parameters)
{
    static const char *const second[] = {"b a.weight", "b b.weight", "b c.weight"};
    for (int i = 0; i < 3; i++) {
        OnnxMaker *m = started();
        maker_node(m, "Identity", "a.weight", "b.weight");
        maker_node(m, "Conv", "x first", "a");
        maker_floats(m, "first", 4, SIZES(4, 3, 1, 1));
        maker_node(m, "Conv", "a a.weight", "b");
        maker_floats(m, "a.weight", 4, SIZES(4, 4, 1, 1));
        maker_floats(m, "c.weight", 4, SIZES(4, 4, 1, 1));
        maker_node(m, "Conv", second[i], "y");
        good(ended(m, 4));
        assert_int_equal(net_file_facts(made).shared, i == 0);
        net_file_close(made);
    }
}

/* Two parameters of equal numbers, which an exporter has written once, are two again after training. */
TEST(test_export_of_shared_numbers)
{
    char path[PATH_BYTES];
    for (int reversed = 0; reversed < 2; reversed++) {
        OnnxMaker *m = started();
        maker_node(m, "Identity", "first", "second");
        maker_node(m, "Conv", reversed ? "x a.weight second" : "x a.weight first", "a");
        maker_floats(m, "a.weight", 4, SIZES(4, 3, 1, 1));
        maker_floats(m, "first", 1, SIZES(4));
        maker_node(m, "Conv", reversed ? "a b.weight first" : "a b.weight second", "y");
        maker_floats(m, "b.weight", 4, SIZES(4, 4, 1, 1));
        good(ended(m, 4));
        scratch_path(path, "shares.onnx");
        for (int times = 0; times < 2; times++)
            assert_int_equal(net_file_export(made, share_of, NULL, 5, NULL, 0, path), OK);
        net_file_close(made);
        assert_int_equal(net_file_open(path, &made), OK);
        int count, found = 0;
        const NetTensor *t = net_file_tensors(made, &count);
        assert_int_equal(count, 6);
        for (int i = 0; i < count; i++)
            if (share_of(NULL, t[i].name)) {
                assert_memory_equal(t[i].data, share_of(NULL, t[i].name), 4 * sizeof(float));
                found++;
            }
        assert_int_equal(found, 2);
        net_file_close(made);
    }
}

/* ---- batch norms restored */

/* Replaces `made` by the same network with norms, so many of them. */
static void restored(int norms)
{
    NetFile *with = NULL;
    assert_int_equal(net_file_restore(made, &with), OK);
    assert_int_equal(net_file_facts(with).restored, norms);
    assert_int_equal(net_file_facts(made).restored, 0);
    net_file_close(made);
    made = with;
}

/* A stem, squeeze and excitation, a convolution without a bias, a depthwise one, and one that has its norm. */
static OnnxMaker *folded(void)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x stem.weight stem.bias", "a");
    maker_node(m, "Relu", "a", "b");
    maker_node(m, "ReduceMean", "b", "c");
    maker_ints(m, "axes", 2, SIZES(2, 3));
    m->opset.version = 13;
    maker_node(m, "Conv", "c se.weight se.bias", "d");
    maker_node(m, "Sigmoid", "d", "e");
    maker_node(m, "Mul", "e b", "f");
    maker_node(m, "Conv", "f plain.weight", "g");
    maker_node(m, "Conv", "g depth second", "h");
    maker_int(m, "group", 4);
    maker_node(m, "Conv", "h own.weight own.bias", "i");
    maker_node(m, "BatchNormalization", "i n.weight n.bias n.running_mean n.running_var", "y");
    const char *const vectors[] = {"stem.bias", "se.bias", "second",         "own.bias",
                                   "n.weight",  "n.bias",  "n.running_mean", "n.running_var"};
    for (int i = 0; i < 8; i++) maker_floats(m, vectors[i], 1, SIZES(4));
    maker_floats(m, "stem.weight", 4, SIZES(4, 3, 1, 1));
    maker_floats(m, "se.weight", 4, SIZES(4, 4, 1, 1));
    maker_floats(m, "plain.weight", 4, SIZES(4, 4, 1, 1));
    maker_floats(m, "depth", 4, SIZES(4, 1, 3, 3));
    maker_floats(m, "own.weight", 4, SIZES(4, 4, 1, 1));
    return ended(m, 4);
}

static bool has_parameter(const char *name)
{
    int count;
    const NetTensor *t = net_file_tensors(made, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(t[i].name, name)) return true;
    return false;
}

/* A mean over the whole image by a window, a convolution that a norm and a sum read, and a norm behind an activation; a window over
 * a part of the image leaves pixels. */
TEST(test_norms_around)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", "x stem.weight stem.bias", "a");
    maker_node(m, "AveragePool", "a", "b");
    maker_ints(m, "kernel_shape", 2, SIZES(8, 8));
    maker_node(m, "Conv", "b se.weight se.bias", "c");
    maker_node(m, "Sigmoid", "c", "d");
    maker_node(m, "Mul", "d a", "e");
    maker_node(m, "Conv", "e two.weight two.bias", "f");
    maker_node(m, "BatchNormalization", "f n.weight n.bias n.running_mean n.running_var", "g");
    maker_node(m, "Add", "f g", "h");
    maker_node(m, "AveragePool", "h", "i");
    maker_ints(m, "kernel_shape", 2, SIZES(2, 8));
    maker_node(m, "Conv", "i last.weight last.bias", "j");
    maker_node(m, "Relu", "j", "k");
    maker_node(m, "BatchNormalization", "k o.weight o.bias o.running_mean o.running_var", "y");
    const char *const vectors[] = {"stem.bias", "se.bias", "two.bias",       "last.bias",
                                   "n.weight",  "n.bias",  "n.running_mean", "n.running_var",
                                   "o.weight",  "o.bias",  "o.running_mean", "o.running_var"};
    for (int i = 0; i < 12; i++) maker_floats(m, vectors[i], 1, SIZES(4));
    maker_floats(m, "stem.weight", 4, SIZES(4, 3, 1, 1));
    maker_floats(m, "se.weight", 4, SIZES(4, 4, 1, 1));
    maker_floats(m, "two.weight", 4, SIZES(4, 4, 1, 1));
    maker_floats(m, "last.weight", 4, SIZES(4, 4, 1, 1));
    good(ended(m, 4));
    restored(2);
    assert_true(has_parameter("stem.norm.weight") && has_parameter("last.norm.weight"));
    net_file_close(made);
}

/* Weights that nodes pass on, names that a file has already, and a momentum that its own norms have. */
TEST(test_norms_of_odd_files)
{
    OnnxMaker *m = started();
    maker_node(m, "Identity", "a.weight", "weights");
    maker_node(m, "Identity", "a.bias", "bias");
    maker_node(m, "Conv", "x weights bias", "a");
    maker_node(m, "Relu", "a", "a.norm.input");
    maker_node(m, "Conv", "a.norm.input b.weight", "b");
    maker_node(m, "BatchNormalization", "b n.weight n.bias n.running_mean n.running_var", "y");
    maker_float(m, "momentum", 0.75f);
    maker_floats(m, "a.weight", 4, SIZES(4, 3, 1, 1));
    maker_floats(m, "b.weight", 4, SIZES(4, 4, 1, 1));
    const char *const vectors[] = {"a.bias", "n.weight", "n.bias", "n.running_mean", "n.running_var"};
    for (int i = 0; i < 5; i++) maker_floats(m, vectors[i], 1, SIZES(4));
    good(ended(m, 4));
    restored(1);
    assert_true(has_parameter("a.norm2.weight"));
    assert_false(net_file_facts(made).momenta);
    assert_non_null(strstr(net_file_model(made)->defaults, "bn-decay: 0.75"));
    net_file_close(made);
}

/* Of layers whose names are as long as a file may have them the numbers stay, so that two of them get different ones. */
TEST(test_norms_of_long_names)
{
    char first[600], second[600], in[1300], long_bias[2][640];
    memset(first, 'n', sizeof first), memset(second, 'n', sizeof second);
    memcpy(first + 580, ".weight", 8), memcpy(second + 580, "s.weight", 9);
    OnnxMaker *m = started();
    for (int k = 0; k < 2; k++) {
        snprintf(long_bias[k], sizeof long_bias[k], "%.580s.bias%d", first, k);
        snprintf(in, sizeof in, "%s %.590s %.639s", k ? "a" : "x", k ? second : first, long_bias[k]);
        maker_node(m, "Conv", in, k ? "y" : "a");
        maker_floats(m, k ? second : first, 4, SIZES(4, k ? 4 : 3, 1, 1));
        maker_floats(m, long_bias[k], 1, SIZES(4));
    }
    good(ended(m, 4));
    restored(2);
    net_file_close(made);
}

/* Inputs and tensors that have no name are no part of the network. */
TEST(test_norms_beside_nameless_parts)
{
    Onnx__ValueInfoProto nameless = ONNX__VALUE_INFO_PROTO__INIT, *inputs[2] = {&nameless};
    OnnxMaker *m = folded();
    inputs[1] = m->graph.input[0];
    m->graph.n_input = 2, m->graph.input = inputs;
    maker_floats(m, "", 1, SIZES(4))->name = NULL;
    good(m);
    restored(2);
    net_file_close(made);
}

TEST(test_norms_restored)
{
    char path[PATH_BYTES], digest[NET_FILE_DIGEST + 1];
    good(folded());
    snprintf(digest, sizeof digest, "%s", net_file_digest(made));
    restored(2);
    assert_string_not_equal(net_file_digest(made), digest);
    snprintf(digest, sizeof digest, "%s", net_file_digest(made));
    scratch_path(path, "restored.onnx");
    assert_int_equal(net_file_structure_write(made, path), OK);
    net_file_close(made);
    assert_int_equal(net_file_open(path, &made), OK);
    assert_string_equal(net_file_digest(made), digest);
    restored(0); /* none lacks one now */
    assert_string_equal(net_file_digest(made), digest);
    has_ops(0,
            "%0 = conv(image, stem.weight) 1x1 -> 1x4x8x8 f32 (stem)\n"
            "%1 = batchnorm_apply(%0, stem.bias, stem.norm.running_mean, stem.norm.running_var, stem.norm.weight) eps "
            "1e-05 relu -> 1x4x8x8 f32 (stem.norm)\n"
            "%2 = avg_pool(%1) 8x8 -> 1x4x1x1 f32 (avg_pool)\n"
            "%3 = conv(%2, se.weight, se.bias) 1x1 -> 1x4x1x1 f32 (se)\n"
            "%4 = sigmoid(%3) -> 1x4x1x1 f32 (sigmoid)\n"
            "%5 = mul(%1, %4) -> 1x4x8x8 f32 (mul)\n"
            "%6 = conv(%5, plain.weight) 1x1 -> 1x4x8x8 f32 (plain)\n"
            "%7 = conv(%6, depth) 3x3 -> 1x4x6x6 f32 (h.norm.input)\n"
            "%8 = batchnorm_apply(%7, second, h.norm.running_mean, h.norm.running_var, h.norm.weight) eps 1e-05 -> "
            "1x4x6x6 f32 (h.norm)\n"
            "%9 = conv(%8, own.weight, own.bias) 1x1 -> 1x4x6x6 f32 (own)\n"
            "%10 = batchnorm_apply(%9, n.bias, n.running_mean, n.running_var, n.weight) eps 1e-05 -> 1x4x6x6 f32 (n)\n"
            "%11 = avg_pool(%10) 6x6 -> 1x4x1x1 f32 (avg_pool)\n"
            "%12 = dense(%11, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
}

/* The present values of a parameter, most of which have four. */
static const float *four(const char *name)
{
    int count;
    const NetTensor *t = net_file_tensors(made, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(t[i].name, name)) return t[i].data;
    fail_msg("no %s", name);
    return NULL;
}

/* A bias that two convolutions have in one tensor, or in one of which the other is an Identity, becomes that of each norm. What is set
 * once more takes the place of what was set before. */
TEST(test_norms_of_shared_biases)
{
    static const double mean[] = {1, -2, 0.5, 0}, variance[] = {4, 0.25, 0, 1e-12}, other[] = {2, 3, 4, 5};
    for (int identity = 0; identity < 2; identity++) {
        OnnxMaker *m = started();
        maker_node(m, "Identity", "a.bias", "b.bias");
        maker_node(m, "Conv", "x a.weight a.bias", "a");
        maker_node(m, "Conv", identity ? "a b.weight b.bias" : "a b.weight a.bias", "y");
        maker_floats(m, "a.weight", 4, SIZES(4, 3, 1, 1));
        maker_floats(m, "b.weight", 4, SIZES(4, 4, 1, 1));
        float bias[4];
        memcpy(bias, maker_floats(m, "a.bias", 1, SIZES(4))->raw_data.data, sizeof bias);
        good(ended(m, 4));
        restored(2);
        const NormNames names = {"b.norm.weight", identity ? "b.bias" : "b.norm.bias", "b.norm.running_mean",
                                 "b.norm.running_var"};
        assert_memory_equal(four(names.beta), bias, sizeof bias);
        const double *const means[] = {other, mean, mean};
        for (int k = 0; k < 3; k++) assert_int_equal(net_file_norm_set(made, &names, 4, means[k], variance), OK);
        for (int c = 0; c < 4; c++) {
            assert_true(fabs((double)four(names.mean)[c] - mean[c]) < 1e-6);
            assert_true(fabs((double)four(names.var)[c] - variance[c]) < 1e-6);
            assert_true(fabs((double)four(names.gamma)[c] - sqrt(variance[c] + 1e-5)) < 1e-6);
            assert_true(fabs((double)(four(names.beta)[c] - bias[c]) - mean[c]) < 1e-6);
        }
        assert_memory_equal(four(identity ? "a.bias" : "a.norm.bias"), bias, sizeof bias);
        net_file_close(made);
    }
}

/* What tf2onnx leaves of a norm behind a depthwise convolution becomes one; `plus`: of a network that was trained. */
static OnnxMaker *with_factors(bool plus, bool shared)
{
    OnnxMaker *m = started();
    maker_node(m, "Conv", plus ? "x net_1.00/Conv1/merged:0 sub:0" : "x net_1.00/Conv1/merged:0", "a");
    maker_floats(m, "net_1.00/Conv1/merged:0", 4, SIZES(4, 3, 1, 1));
    maker_floats(m, "sub:0", 1, SIZES(4));
    maker_node(m, "Conv", "a depth", "b");
    maker_int(m, "group", 4);
    maker_floats(m, "depth", 4, SIZES(4, 1, 3, 3));
    maker_node(m, "Mul", "b times", plus ? "c" : "d");
    maker_floats(m, "times", 4, SIZES(1, 4, 1, 1));
    if (plus) {
        maker_node(m, "Add", "plus c", "d");
        maker_floats(m, "plus", 4, SIZES(1, 4, 1, 1));
    }
    if (shared) {
        maker_node(m, "Conv", "d depth", "y");
        maker_int(m, "group", 4);
    } else {
        maker_node(m, "Relu", "d", "y");
    }
    return ended(m, 4);
}

TEST(test_norms_of_factors)
{
    for (int plus = 1; plus >= 0; plus--) {
        float depth[36], times[4], added[4] = {0};
        good(with_factors(plus, false));
        memcpy(depth, four("depth"), sizeof depth);
        memcpy(times, four("times"), sizeof times);
        if (plus) memcpy(added, four("plus"), sizeof added);
        restored(2);
        for (int i = 0; i < 36; i++) depth[i] *= times[i / 9];
        assert_memory_equal(four("depth"), depth, sizeof depth);
        assert_memory_equal(four("b.norm.bias"), added, sizeof added);
        assert_false(has_parameter("times") || has_parameter("plus"));
        char path[PATH_BYTES], digest[NET_FILE_DIGEST + 1];
        snprintf(digest, sizeof digest, "%s", net_file_digest(made));
        scratch_path(path, "restored.onnx");
        assert_int_equal(net_file_structure_write(made, path), OK);
        net_file_close(made);
        assert_int_equal(net_file_open(path, &made), OK);
        assert_string_equal(net_file_digest(made), digest);
        has_ops(0,
                plus ? "%0 = conv(image, net_1.00/Conv1/merged:0) 1x1 -> 1x4x8x8 f32 (a.norm.input)\n"
                       "%1 = batchnorm_apply(%0, sub:0, a.norm.running_mean, a.norm.running_var, a.norm.weight) eps "
                       "1e-05 -> 1x4x8x8 f32 (a.norm)\n"
                       "%2 = conv(%1, depth) 3x3 -> 1x4x6x6 f32 (b.norm.input)\n"
                       "%3 = batchnorm_apply(%2, b.norm.bias, b.norm.running_mean, b.norm.running_var, b.norm.weight) "
                       "eps 1e-05 relu -> 1x4x6x6 f32 (b.norm)\n"
                       "%4 = avg_pool(%3) 6x6 -> 1x4x1x1 f32 (avg_pool)\n"
                       "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n"
                     : "%0 = conv(image, net_1.00/Conv1/merged:0) 1x1 -> 1x4x8x8 f32 (a.norm.input)\n"
                       "%1 = batchnorm_apply(%0, a.norm.bias, a.norm.running_mean, a.norm.running_var, a.norm.weight) "
                       "eps 1e-05 -> 1x4x8x8 f32 (a.norm)\n"
                       "%2 = conv(%1, depth) 3x3 -> 1x4x6x6 f32 (b.norm.input)\n"
                       "%3 = batchnorm_apply(%2, b.norm.bias, b.norm.running_mean, b.norm.running_var, b.norm.weight) "
                       "eps 1e-05 relu -> 1x4x6x6 f32 (b.norm)\n"
                       "%4 = avg_pool(%3) 6x6 -> 1x4x1x1 f32 (avg_pool)\n"
                       "%5 = dense(%4, fc.weight, fc.bias) -> 1x5x1x1 f32 (fc)\n");
    }
    good(with_factors(true, true)); /* the weights of two convolutions cannot take the factors of one */
    restored(1);
    assert_true(has_parameter("times") && has_parameter("plus"));
    net_file_close(made);
}

/* An input that no node reads, as Keras leaves it for a constant that it has folded, is no second image, and a runtime is not asked for it. */
TEST(test_input_that_nobody_reads)
{
    Onnx__ValueInfoProto folded_away = ONNX__VALUE_INFO_PROTO__INIT, *inputs[2] = {&folded_away};
    char path[PATH_BYTES];
    for (int first = 0; first < 2; first++) {
        OnnxMaker *m = small();
        NetFile *again;
        folded_away.name = (char *)"normalization/Sub/y:0";
        inputs[!first] = &folded_away, inputs[first] = m->graph.input[0];
        m->graph.n_input = 2, m->graph.input = inputs;
        good(m);
        scratch_path(path, "export.onnx");
        assert_int_equal(net_file_export(made, value_of, NULL, 5, NULL, 0, path), OK);
        net_file_close(made);
        OnnxFile *file;
        assert_int_equal(onnx_open(path, &file), OK);
        assert_int_equal(file->model->graph->n_input, 1);
        onnx_close(file);
        assert_int_equal(net_file_open(path, &again), OK);
        net_file_close(again);
    }
    OnnxMaker *m = started();
    maker_node(m, "Add", "x z", "y");
    folded_away.name = (char *)"z";
    inputs[0] = m->graph.input[0], inputs[1] = &folded_away;
    m->graph.n_input = 2, m->graph.input = inputs;
    refused(ended(m, 3), ERR_ARG, "has the inputs 'x' and 'z'; expected a network of one image");
}

/* The norms of a network that was not trained fold to nothing. With another norm in the file it was trained otherwise. */
TEST(test_norms_of_an_untrained_network)
{
    static const float zeros[4];
    for (int norm = 0; norm < 2; norm++) {
        OnnxMaker *m = started();
        maker_node(m, "Conv", "x a.weight", "a");
        maker_node(m, "Conv", "a b.weight", norm ? "b" : "y");
        maker_floats(m, "a.weight", 4, SIZES(4, 3, 1, 1));
        maker_floats(m, "b.weight", 4, SIZES(4, 4, 1, 1));
        const char *const vectors[] = {"n.weight", "n.bias", "n.running_mean", "n.running_var"};
        if (norm) maker_node(m, "BatchNormalization", "b n.weight n.bias n.running_mean n.running_var", "y");
        for (int i = 0; norm && i < 4; i++) maker_floats(m, vectors[i], 1, SIZES(4));
        good(ended(m, 4));
        restored(norm ? 0 : 2);
        if (!norm) assert_memory_equal(four("b.norm.bias"), zeros, sizeof zeros);
        net_file_close(made);
    }
}
