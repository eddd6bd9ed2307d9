/* Shapes, dtypes, windows, names of ops, Philox against its published test vectors, and the reference's 16-bit
 * rounding. */

#include "kernels/op.h"
#include "kernels/philox.h"
#include "tests/support/reference.h"
#include "tests/support/unit.h"

TEST(test_shapes)
{
    Shape s = {64, 192, 35, 34}, big = {65535, 4096, 299, 299};
    assert_int_equal(shape_count(s), 64 * 192 * 35 * 34);
    assert_int_equal(shape_pixels(s), 64 * 35 * 34);
    assert_true(shape_count(big) == 65535LL * 4096 * 299 * 299);
    assert_true(shape_equal(s, s));
    for (int k = 0; k < 4; k++) {
        Shape other = s;
        (&other.n)[k]++;
        assert_false(shape_equal(s, other));
    }
    assert_string_equal(shape_text(s), "64x192x35x34");
}

/* Several in one message. */
TEST(test_shape_text_is_a_ring)
{
    const char *text[8];
    for (int i = 0; i < 8; i++) text[i] = shape_text((Shape){i + 1, 1, 1, 1});
    for (int i = 0; i < 8; i++) assert_int_equal(text[i][0], '1' + i);
}

TEST(test_dtypes)
{
    static const size_t bytes[DTYPE_COUNT] = {4, 2, 2, 1, 4};
    static const char *const names[DTYPE_COUNT] = {"f32", "bf16", "f16", "u8", "i32"};
    for (int d = 0; d < DTYPE_COUNT; d++) {
        assert_int_equal(dtype_bytes((Dtype)d), bytes[d]);
        assert_string_equal(dtype_name((Dtype)d), names[d]);
    }
    Tensor packed = {NULL, {2, 3, 4, 5}, DTYPE_F32, 3}, slice = {NULL, {2, 3, 4, 5}, DTYPE_F32, 8};
    assert_true(tensor_is_packed(&packed));
    assert_false(tensor_is_packed(&slice));
}

static int32_t side_of(int32_t side, int32_t k, int32_t stride, int32_t pad, bool ceil)
{
    Window window = {k, k, stride, stride, pad, pad, ceil};
    return window_out(&window, (Shape){1, 1, side, side}, 1).w;
}

/* Sides as PyTorch and torchvision have them. */
TEST(test_windows)
{
    static const struct {
        int32_t side, k, stride, pad, floor, ceil;
    } rows[] = {
        {299, 3, 2, 0, 149, 149}, {147, 3, 2, 0, 73, 73}, {224, 7, 2, 3, 112, 113}, {112, 3, 2, 0, 55, 56},
        {56, 3, 2, 0, 27, 28},    {28, 3, 2, 0, 13, 14},  {14, 2, 2, 0, 7, 7},      {7, 3, 1, 1, 7, 7},
        {8, 3, 2, 1, 4, 5},       {4, 2, 2, 1, 3, 3},     {5, 5, 1, 0, 1, 1},       {17, 5, 3, 0, 5, 5},
        {3, 1, 3, 0, 1, 1},       {3, 2, 2, 1, 2, 2},     {1, 1, 1, 0, 1, 1},       {4, 1, 3, 0, 2, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(side_of(rows[i].side, rows[i].k, rows[i].stride, rows[i].pad, false), rows[i].floor);
        assert_int_equal(side_of(rows[i].side, rows[i].k, rows[i].stride, rows[i].pad, true), rows[i].ceil);
    }
    assert_true(side_of(2, 3, 1, 0, false) <= 0);
    assert_int_equal(side_of(2, 3, 2, 0, true), 1);
    assert_true(side_of(1, 3, 2, 0, true) <= 0);
}

/* Sides as TensorFlow's "SAME" and ONNX' pads and dilations have them; a rounded-up window may not start in the padding behind. */
TEST(test_windows_with_uneven_padding)
{
    static const struct {
        Shape x;
        Window window;
        int32_t h, w;
    } rows[] = {
        {{1, 1, 224, 224}, {3, 3, 2, 2, 0, 0, false, 1, 1}, 112, 112},
        {{1, 1, 224, 223}, {7, 7, 2, 2, 2, 3, false, 1, 0}, 112, 112},
        {{1, 1, 10, 10}, {3, 3, 1, 1, 2, 1, false, -2, -1}, 10, 9},
        {{1, 1, 10, 9}, {3, 3, 1, 1, 2, 1, false, 0, 1, 1, 1}, 10, 8},
        {{1, 1, 4, 4}, {5, 1, 1, 1, 0, 0, false, 0, 0, 1, 7}, 0, 4},
        {{1, 1, 6, 6}, {2, 2, 3, 3, 0, 0, true, 1, 0}, 2, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Shape y = window_out(&rows[i].window, rows[i].x, 3);
        if (y.h != rows[i].h || y.w != rows[i].w || y.c != 3) fail_msg("row %zu: %s", i, shape_text(y));
    }
}

/* No window of a rounded-up output may start behind the input and its left padding. */
TEST(test_ceil_windows_start_inside)
{
    for (int side = 1; side < 20; side++)
        for (int k = 1; k < 6; k++)
            for (int stride = 1; stride < 5; stride++)
                for (int pad = 0; pad <= k / 2; pad++) {
                    int32_t out = side_of(side, k, stride, pad, true), down = side_of(side, k, stride, pad, false);
                    assert_true(out == (down > 0 ? down : 0) || out == (down > 0 ? down : 0) + 1);
                    if (out > 0) assert_true((out - 1) * stride < side + pad);
                }
}

TEST(test_op_table)
{
    for (int kind = 1; kind < OP_COUNT; kind++) {
        OpKind k = (OpKind)kind;
        assert_true(op_name(k)[0]);
        assert_true(op_min_inputs(k) >= 1 && op_min_inputs(k) <= op_max_inputs(k) && op_max_inputs(k) <= OP_MAX_IN);
        assert_true(op_outputs(k) >= 1 && op_outputs(k) <= OP_MAX_OUT);
        for (int other = 1; other < kind; other++) assert_string_not_equal(op_name(k), op_name((OpKind)other));
    }
    assert_string_equal(op_name(OP_CONV_DX), "conv_dx");
}

TEST(test_macs)
{
    Tensor x = {.shape = {2, 3, 9, 9}}, w = {.shape = {8, 3, 3, 3}}, y = {.shape = {2, 8, 7, 7}};
    OpCall forward = {.kind = OP_CONV, .in = {x, w}, .out = {y}}, back = {.kind = OP_CONV_DX, .in = {y, w}, .out = {x}};
    OpCall weights = {.kind = OP_CONV_DW, .in = {x, y}, .out = {w}}, none = {.kind = OP_RELU, .in = {x}, .out = {x}};
    int64_t macs = 2 * 7 * 7 * 8 * 27;
    assert_int_equal(op_macs(&forward), macs);
    assert_int_equal(op_macs(&back), macs);
    assert_int_equal(op_macs(&weights), macs);
    assert_int_equal(op_macs(&none), 0);
}

/* The known answers of the authors' test vectors: all bits zero, all bits one, the digits of pi. */
TEST(test_philox)
{
    static const uint32_t wanted[3][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                          {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                          {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    Philox got[3] = {philox(0, 0, 0, 0, 0), philox(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX),
                     philox(0x299f31d0a4093822u, 0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u)};
    for (int i = 0; i < 3; i++) assert_memory_equal(got[i].v, wanted[i], sizeof wanted[i]);
    assert_true(philox_unit(0) == 0.0f && philox_unit(UINT32_MAX) < 1.0f);
}

static void check_rounding(Dtype dtype, double value, double wanted)
{
    uint16_t bits[2] = {0, 0};
    dtype_store(dtype, bits, 1, value);
    double got = dtype_load(dtype, bits, 1);
    if (got != wanted && !(isnan(got) && isnan(wanted)))
        fail_msg("%s of %.9g is %.9g, wanted %.9g", dtype_name(dtype), value, got, wanted);
}

TEST(test_sixteen_bits)
{
    static const double kept[] = {0, 1, -1, 0.5, 1.5, -2.75, 96, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        check_rounding(DTYPE_BF16, kept[i], kept[i]);
        check_rounding(DTYPE_F16, kept[i], kept[i]);
    }
    check_rounding(DTYPE_BF16, 1 + 1.0 / 256, 1); /* a tie goes to the even fraction */
    check_rounding(DTYPE_BF16, 1 + 3.0 / 256, 1 + 4.0 / 256);
    check_rounding(DTYPE_BF16, 1 + 1.01 / 256, 1 + 2.0 / 256);
    check_rounding(DTYPE_F16, 1 + 1.0 / 2048, 1);
    check_rounding(DTYPE_F16, 1 + 3.0 / 2048, 1 + 4.0 / 2048);
    check_rounding(DTYPE_F16, 65504, 65504);
    check_rounding(DTYPE_F16, 70000, INFINITY);
    check_rounding(DTYPE_F16, ldexp(1, -24), ldexp(1, -24));
    check_rounding(DTYPE_F16, ldexp(-3, -16), ldexp(-3, -16));
    check_rounding(DTYPE_F16, ldexp(1, -26), 0);
}
