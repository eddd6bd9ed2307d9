/* Convolutions and dense layers of the CPU backend against plain loops.
 *
 * Every value is a small integer, so sums are exact in f32 in any order and the comparison is for equality (of the
 * rounded value for bf16; Winograd's transforms have fractions and round). Outputs, the gaps of slices and workspace
 * start as NaN; gaps must still be NaN afterwards. */
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/cpu/choice.h"
#include "tests/support/reference.h"
#include "tests/support/unit.h"

typedef struct Case {
    const char *name;
    int n, ic, oc, h, w, kh, kw, stride, pad_h, pad_w;
    int x_gap, y_gap; /* channels between the pixels of x, dx, acc and of y, dy */
    bool bias, relu, acc;
} Case;

static const Case cases[] = {
    {"3x3 gray, valid", 3, 1, 32, 12, 12, 3, 3, 1, 0, 0},
    {"3x3 gray, same, bias", 1, 1, 32, 28, 28, 3, 3, 1, 1, 1, .bias = true},
    {"5x5 gray, few outputs", 3, 1, 6, 12, 12, 5, 5, 1, 2, 2, .bias = true, .relu = true},
    {"1x1 to a slice, bias, ReLU", 9, 40, 24, 7, 7, 1, 1, 1, 0, 0, .y_gap = 16, .bias = true, .relu = true},
    {"3x3 color, stride 2", 3, 3, 32, 15, 17, 3, 3, 2, 0, 0},
    {"3x3 color, same, many images, to a slice", 11, 3, 16, 9, 8, 3, 3, 1, 1, 1, .y_gap = 8},
    {"5x3 of four channels, stride 2", 9, 4, 24, 10, 17, 5, 3, 2, 2, 1},
    {"5x3 gray, rows padded alone, many images", 9, 1, 16, 10, 17, 5, 3, 1, 2, 0},
    {"3x5 color, columns padded alone, many images", 9, 3, 16, 12, 17, 3, 5, 1, 0, 2},
    {"3x3 gray, valid, many images", 67, 1, 16, 10, 10, 3, 3, 1, 0, 0},
    {"7x7 color, stride 2, same", 1, 3, 16, 20, 20, 7, 7, 2, 3, 3, .relu = true},
    {"3x3 five channels", 3, 5, 7, 9, 8, 3, 3, 1, 1, 1, .bias = true, .acc = true},
    {"3x3 valid", 3, 16, 48, 9, 7, 3, 3, 1, 0, 0, .bias = true},
    {"3x3 same, sum", 3, 48, 64, 9, 7, 3, 3, 1, 1, 1, .relu = true, .acc = true},
    {"3x3 stride 2, a row left over", 3, 48, 16, 10, 10, 3, 3, 2, 0, 0, .acc = true},
    {"3x3 stride 2, padded", 1, 80, 48, 11, 9, 3, 3, 2, 1, 1},
    {"3x3 stride 2, padded, sum of slices", 2, 32, 48, 12, 11, 3, 3, 2, 1, 1, .x_gap = 16, .y_gap = 5, .acc = true},
    {"1x3 stride 2, a column left over", 2, 32, 48, 9, 12, 1, 3, 2, 0, 0, .acc = true},
    {"1x7", 3, 16, 32, 9, 9, 1, 7, 1, 0, 3, .bias = true, .acc = true},
    {"7x1", 3, 80, 32, 9, 9, 7, 1, 1, 3, 0, .relu = true},
    {"1x3 of few channels", 1, 5, 3, 4, 9, 1, 3, 1, 0, 1},
    {"1x1", 3, 48, 80, 5, 7, 1, 1, 1, 0, 0, .bias = true, .relu = true},
    {"1x1, sum", 3, 80, 48, 5, 7, 1, 1, 1, 0, 0, .acc = true},
    {"1x1 of odd channels, sum", 1, 5, 3, 5, 7, 1, 1, 1, 0, 0, .bias = true, .acc = true},
    {"1x1 stride 2, sum", 3, 16, 32, 9, 9, 1, 1, 2, 0, 0, .acc = true},
    {"1x1 of slices, sum", 3, 48, 80, 5, 7, 1, 1, 1, 0, 0, .x_gap = 16, .y_gap = 5, .bias = true, .acc = true},
    {"1x1 of slices, relu", 3, 16, 16, 6, 6, 1, 1, 1, 0, 0, .x_gap = 3, .y_gap = 48, .relu = true},
    {"3x3 of slices, sum", 3, 16, 48, 9, 7, 3, 3, 1, 1, 1, .x_gap = 5, .y_gap = 16, .bias = true, .acc = true},
    {"3x3 of slices, stride 2", 1, 48, 5, 9, 9, 3, 3, 2, 0, 0, .x_gap = 16, .y_gap = 11, .relu = true},
    {"1x1 of many pixels, sum", 3, 8, 8, 30, 30, 1, 1, 1, 0, 0, .bias = true, .relu = true, .acc = true},
    {"1x1 of many pixels, of slices", 3, 8, 8, 30, 30, 1, 1, 1, 0, 0, .x_gap = 8, .y_gap = 8, .acc = true},
    {"the whole image", 3, 16, 48, 5, 5, 5, 5, 1, 0, 0, .bias = true, .relu = true, .acc = true},
    {"the whole image, of slices", 3, 16, 48, 5, 4, 5, 4, 1, 0, 0, .x_gap = 8, .y_gap = 8, .acc = true},
    {"3x3 in tiles", 3, 32, 48, 12, 10, 3, 3, 1, 1, 1, .acc = true},
    {"3x3 in tiles, a row and a column left over", 2, 80, 32, 13, 15, 3, 3, 1, 0, 0},
    {"3x3 in many tiles of slices", 3, 48, 32, 17, 20, 3, 3, 1, 1, 1, .x_gap = 3, .y_gap = 16},
    {"3x3 in many tiles, valid", 4, 80, 64, 33, 35, 3, 3, 1, 0, 0},
    {"3x3 in tiles, padded by 2", 5, 48, 64, 7, 9, 3, 3, 1, 2, 2, .acc = true},
    {"3x3 in tiles of slices", 3, 64, 112, 11, 11, 3, 3, 1, 1, 1, .x_gap = 16, .y_gap = 5, .acc = true},
    {"1x7 along lines", 2, 32, 48, 17, 17, 1, 7, 1, 0, 3, .acc = true},
    {"7x1 along lines", 3, 80, 64, 17, 17, 7, 1, 1, 3, 0, .acc = true},
    {"1x7 along lines without a last output, of slices", 2, 64, 112, 13, 16, 1, 7, 1, 0, 3, .x_gap = 3, .y_gap = 16,
     .acc = true},
    {"7x1 along lines of slices", 3, 48, 32, 14, 11, 7, 1, 1, 3, 0, .x_gap = 16, .y_gap = 5, .acc = true},
    {"1x7 along long lines, valid", 1, 48, 32, 9, 51, 1, 7, 1, 0, 0, .acc = true},
    {"7x1 along lines, valid", 3, 32, 64, 13, 25, 7, 1, 1, 0, 0},
    {"1x7 along lines, padded by 6", 2, 32, 32, 12, 15, 1, 7, 1, 0, 6, .acc = true},
    {"7x1 along lines of less than a tile", 3, 32, 32, 3, 90, 7, 1, 1, 3, 0},
    {"7x1 along lines of one output", 3, 32, 32, 1, 90, 7, 1, 1, 3, 0},
    {"7x1 along a single line", 2, 32, 32, 300, 1, 7, 1, 1, 3, 0, .acc = true},
    {"5x5 stride 2 of many images", 9, 32, 16, 7, 7, 5, 5, 2, 2, 2, .bias = true, .relu = true},
    {"5x5 stride 2 of many images, more before than behind", 17, 32, 48, 7, 6, 5, 5, 2, 1, 1, .bias = true},
    {"5x5 stride 2 of many images, of slices", 8, 32, 16, 8, 9, 5, 5, 2, 2, 1, .x_gap = 16, .y_gap = 5, .bias = true},
    {"5x5 stride 2 of many images, gray", 19, 1, 48, 11, 13, 5, 5, 2, 1, 1, .bias = true},
    {"5x5 stride 2 of many images, odd outputs", 8, 32, 5, 9, 8, 5, 5, 2, 1, 1},
    {"5x5 stride 2 of many images, sum", 8, 32, 16, 6, 7, 5, 5, 2, 2, 2, .acc = true},
    {"7x5 stride 3 of many images", 29, 48, 16, 10, 9, 7, 5, 3, 3, 2},
    {"5x5 stride 6 of many images, pixels between", 8, 32, 16, 13, 11, 5, 5, 6, 0, 0, .bias = true},
    {"3x3 stride 4 of many images, pixels between", 8, 64, 64, 19, 19, 3, 3, 4, 0, 0},
    {"a single pixel", 1, 3, 5, 1, 1, 1, 1, 1, 0, 0, .bias = true, .acc = true},
};
enum { CASES = sizeof cases / sizeof cases[0], GUARD_BYTES = 4096 };

static Device device;
static uint64_t random_state = 1;

/* ---- tensors */

static size_t bytes_of(const Tensor *t)
{
    return (size_t)(shape_pixels(t->shape) * t->pitch) * dtype_bytes(t->dtype);
}

static void poison(void *memory, size_t bytes)
{
    memset(memory, 0xFF, bytes);
}

static Tensor tensor_make(Shape shape, Dtype dtype, int gap)
{
    Tensor t = {.shape = shape, .dtype = dtype, .pitch = shape.c + gap};
    t.data = aligned_alloc(64, (bytes_of(&t) + 63) / 64 * 64);
    assert_non_null(t.data);
    poison(t.data, bytes_of(&t));
    return t;
}

static double value_at(const Tensor *t, int64_t at)
{
    return dtype_load(t->dtype, t->data, at);
}

static void value_set(const Tensor *t, int64_t at, double value)
{
    dtype_store(t->dtype, t->data, at, value);
}

static void fill_random(const Tensor *t)
{
    for (int64_t p = 0; p < shape_pixels(t->shape); p++)
        for (int c = 0; c < t->shape.c; c++) {
            random_state = random_state * 6364136223846793005u + 1442695040888963407u;
            value_set(t, p * t->pitch + c, (int)(random_state >> 33) % 7 - 3);
        }
}

static double largest(const double *values, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(values[i]));
    return most;
}

/* bf16 results may be off by half a unit in their last place, and by as much of an intermediate result of size
 * `inner`. */
static void expect_tensor(const char *name, const char *what, const Tensor *t, const double *wanted, double inner)
{
    double unit = t->dtype == DTYPE_F32 ? 0.0 : 1.0 / 256.0;
    if (device.config.winograd && t->dtype == DTYPE_F32) {
        unit = 4e-6;
        inner = largest(wanted, shape_count(t->shape));
    }
    for (int64_t p = 0; p < shape_pixels(t->shape); p++)
        for (int64_t c = 0; c < t->pitch; c++) {
            double have = value_at(t, p * t->pitch + c), want = c < t->shape.c ? wanted[p * t->shape.c + c] : NAN;
            if (isnan(want) ? isnan(have) : fabs(have - want) <= unit * (fabs(want) + inner)) continue;
            fail_msg("%s, %s %s %s: pixel %" PRId64 " channel %" PRId64 " is %g, wanted %g", name, what,
                     dtype_name(t->dtype), shape_text(t->shape), p, c, have, want);
        }
}

/* ---- plain loops */

static double *zeros(Shape shape)
{
    double *made = calloc((size_t)shape_count(shape), sizeof *made);
    assert_non_null(made);
    return made;
}

static double packed_value(const Tensor *t, int64_t packed)
{
    return value_at(t, packed / t->shape.c * t->pitch + packed % t->shape.c);
}

/* All channels as doubles, packed. */
static double *doubles_of(const Tensor *t)
{
    double *values = zeros(t->shape);
    for (int64_t i = 0; i < shape_count(t->shape); i++) values[i] = packed_value(t, i);
    return values;
}

/* Add every product of a convolution to `sum`, which stands for that of x, w and y that is NULL. */
static void add_terms(const Case *c, Shape out, const Tensor *x, const Tensor *w, const Tensor *y, double *sum)
{
    double *xs = x ? doubles_of(x) : sum, *ws = w ? doubles_of(w) : sum, *ys = y ? doubles_of(y) : sum;
    for (int64_t p = 0; p < shape_pixels(out); p++)
        for (int kh = 0; kh < c->kh; kh++)
            for (int kw = 0; kw < c->kw; kw++) {
                int64_t ow = p % out.w, oh = p / out.w % out.h, n = p / out.w / out.h;
                int64_t h = oh * c->stride + kh - c->pad_h, v = ow * c->stride + kw - c->pad_w;
                if (h < 0 || v < 0 || h >= c->h || v >= c->w) continue;
                double *of_x = &xs[((n * c->h + h) * c->w + v) * c->ic];
                for (int o = 0; o < out.c; o++) {
                    double *of_w = &ws[((o * c->kh + kh) * c->kw + kw) * c->ic], *of_y = &ys[p * out.c + o];
                    for (int i = 0; i < c->ic; i++)
                        if (!y)
                            *of_y += of_x[i] * of_w[i];
                        else if (!x)
                            of_x[i] += *of_y * of_w[i];
                        else
                            of_w[i] += of_x[i] * *of_y;
                }
            }
    if (x) free(xs);
    if (w) free(ws);
    if (y) free(ys);
}

/* ---- running a call */

static void run_call(OpCall *call)
{
    const OpKernel *kernel = device.backend->kernels[call->kind];
    void *data = call->out[0].data;
    call->out[0].data = call; /* any pointer that is not NULL: prepare must not keep it */
    if (kernel->prepare(&device, call) != OK) fail_msg("%s", status_message());
    call->out[0].data = data;
    size_t bytes = (call->workspace_bytes + 63) / 64 * 64 + GUARD_BYTES;
    unsigned char *workspace = aligned_alloc(64, bytes);
    assert_non_null(workspace);
    poison(workspace, bytes);
    call->workspace = workspace;
    if (kernel->launch(&device, call) != OK) fail_msg("%s", status_message());
    for (size_t i = call->workspace_bytes; i < bytes; i++) assert_int_equal(workspace[i], 0xFF);
    free(workspace);
}

static void discard_call(OpCall *call)
{
    device.backend->kernels[call->kind]->discard(&device, call);
    assert_null(call->state);
}

static Window window_of(const Case *c)
{
    return (Window){c->kh, c->kw, c->stride, c->stride, c->pad_h, c->pad_w, false};
}

static OpCall conv_call(OpKind kind, const Case *c, const Tensor *a, const Tensor *b, const Tensor *optional,
                        const Tensor *out)
{
    OpCall call = {.kind = kind, .name = c->name, .in_count = kind == OP_CONV_DW ? 2 : 3, .out_count = 1};
    call.attr.conv.window = window_of(c);
    call.attr.conv.relu = kind == OP_CONV && c->relu;
    call.in[0] = *a;
    call.in[1] = *b;
    if (optional) call.in[2] = *optional;
    call.out[0] = *out;
    return call;
}

static Shape y_shape(const Case *c)
{
    Window window = window_of(c);
    return window_out(&window, (Shape){c->n, c->ic, c->h, c->w}, c->oc);
}

static void check_forward(const Case *c, const Tensor *x, const Tensor *w, const Tensor *y)
{
    Tensor bias = tensor_make((Shape){1, c->oc, 1, 1}, DTYPE_F32, 0);
    fill_random(&bias);
    double *wanted = zeros(y->shape);
    add_terms(c, y->shape, x, w, NULL, wanted);
    for (int64_t i = 0; i < shape_count(y->shape); i++) {
        if (c->bias) wanted[i] += value_at(&bias, i % c->oc);
        if (c->relu && wanted[i] < 0) wanted[i] = 0;
    }
    for (int keeps = 0; keeps < 2; keeps++) {
        OpCall call = conv_call(OP_CONV, c, x, w, c->bias ? &bias : NULL, y);
        call.kept_in = keeps ? 1 << 1 : 0;
        call.renewed = keeps;
        run_call(&call);
        expect_tensor(c->name, keeps ? "y of kept weights" : "y", y, wanted, 0);
        discard_call(&call);
    }
    free(wanted);
    free(bias.data);
}

/* dx + acc, with acc in a place of its own or in that of dx. */
static void check_dx(const Case *c, const Tensor *w, const Tensor *dy, bool in_place)
{
    Tensor dx = tensor_make((Shape){c->n, c->ic, c->h, c->w}, dy->dtype, c->x_gap);
    Tensor acc = tensor_make(dx.shape, dx.dtype, c->x_gap);
    fill_random(&acc);
    double *wanted = zeros(dx.shape);
    int64_t count = shape_count(dx.shape);
    add_terms(c, dy->shape, NULL, w, dy, wanted);
    double inner = c->acc ? largest(wanted, count) : 0;
    for (int64_t i = 0; c->acc && i < count; i++) wanted[i] += packed_value(&acc, i);
    OpCall call = conv_call(OP_CONV_DX, c, dy, w, c->acc ? &acc : NULL, in_place ? &acc : &dx);
    run_call(&call);
    expect_tensor(c->name, in_place ? "dx in place of acc" : "dx", &call.out[0], wanted, inner);
    discard_call(&call);
    free(wanted);
    free(acc.data);
    free(dx.data);
}

static void check_dw(const Case *c, const Tensor *x, const Tensor *dw, const Tensor *dy)
{
    double *wanted = zeros(dw->shape);
    add_terms(c, dy->shape, x, NULL, dy, wanted);
    OpCall call = conv_call(OP_CONV_DW, c, x, dy, NULL, dw);
    run_call(&call);
    expect_tensor(c->name, "dw", dw, wanted, 0);
    discard_call(&call);
    free(wanted);
}

static void check_case(const Case *c, Dtype dtype)
{
    Tensor x = tensor_make((Shape){c->n, c->ic, c->h, c->w}, dtype, c->x_gap);
    Tensor w = tensor_make((Shape){c->oc, c->ic, c->kh, c->kw}, DTYPE_F32, 0);
    Tensor y = tensor_make(y_shape(c), dtype, c->y_gap);
    fill_random(&x);
    fill_random(&w);
    check_forward(c, &x, &w, &y);
    fill_random(&y);
    Tensor dw = tensor_make(w.shape, DTYPE_F32, 0);
    check_dw(c, &x, &dw, &y);
    check_dx(c, &w, &y, false);
    if (c->acc) check_dx(c, &w, &y, true);
    free(dw.data);
    free(x.data);
    free(w.data);
    free(y.data);
}

/* Weights of which a product in parts may keep what it has made, as evaluation does. */
TEST(test_weights_are_kept)
{
    static const Case c = {"1x1 of long sums, kept weights", 1, 1024, 320, 7, 7, 1, 1, 1, 0, 0};
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        Tensor x = tensor_make((Shape){c.n, c.ic, c.h, c.w}, dtype, 0);
        Tensor w = tensor_make((Shape){c.oc, c.ic, 1, 1}, DTYPE_F32, 0), y = tensor_make(y_shape(&c), dtype, 0);
        double *wanted = zeros(y.shape);
        fill_random(&x);
        fill_random(&w);
        add_terms(&c, y.shape, &x, &w, NULL, wanted);
        OpCall call = conv_call(OP_CONV, &c, &x, &w, NULL, &y);
        call.kept_in = 1 << 1;
        run_call(&call);
        expect_tensor(c.name, "y", &y, wanted, 0);
        discard_call(&call);
        free(wanted);
        free(x.data);
        free(w.data);
        free(y.data);
    }
}

/* What is made of the weights stays until they are renewed. */
static void check_kept(const Case *c, Dtype dtype, const char *kernel_name)
{
    Tensor x = tensor_make((Shape){c->n, c->ic, c->h, c->w}, dtype, c->x_gap);
    Tensor y = tensor_make(y_shape(c), dtype, c->y_gap);
    Tensor w = tensor_make((Shape){c->oc, c->ic, c->kh, c->kw}, DTYPE_F32, 0);
    fill_random(&x);
    fill_random(&w);
    OpCall call = conv_call(OP_CONV, c, &x, &w, NULL, &y);
    call.kept_in = 1 << 1;
    const OpKernel *kernel = device.backend->kernels[OP_CONV];
    assert_int_equal(kernel->prepare(&device, &call), OK);
    KernelChoice choice = {0};
    kernel->explain(&device, &call, &choice);
    if (cpu_isa() >= CPU_AVX2 && strncmp(choice.name, kernel_name, strlen(kernel_name)) != 0)
        fail_msg("%s is computed by '%s', not by '%s'", c->name, choice.name, kernel_name);
    call.workspace = aligned_alloc(64, (call.workspace_bytes + 127) / 64 * 64);
    assert_non_null(call.workspace);
    double *wanted = NULL;
    for (int launch = 0; launch < 3; launch++) {
        call.renewed = launch != 1; /* the second has other weights, of which it is not told */
        if (call.renewed) {
            free(wanted);
            wanted = zeros(y.shape);
            add_terms(c, y.shape, &x, &w, NULL, wanted);
        }
        assert_int_equal(kernel->launch(&device, &call), OK);
        expect_tensor(c->name, "y", &y, wanted, 0);
        fill_random(&w);
    }
    discard_call(&call);
    free(call.workspace);
    free(wanted);
    free(x.data);
    free(w.data);
    free(y.data);
}

TEST(test_transformed_weights_are_kept)
{
    static const Case few_tiles = {"3x3, as few tiles as kept weights allow", 4, 32, 48, 16, 16, 3, 3, 1, 1, 1};
    static const Case slice = {"1x1 into a slice", 9, 40, 24, 7, 7, 1, 1, 1, 0, 0, .x_gap = 3, .y_gap = 5};
    static const Case large_slice = {"1x1 into a slice", 2, 96, 112, 13, 15, 1, 1, 1, 0, 0, .y_gap = 16};
    device.config.winograd = true;
    check_kept(&few_tiles, DTYPE_F32, "winograd F(4x4, 3x3)");
    check_kept(&slice, DTYPE_F32, "product of panels");
    check_kept(&large_slice, DTYPE_F32, "product of panels");
    device.config.winograd = false;
}

/* With AMX each part of a long product keeps its own. */
TEST(test_converted_weights_are_kept)
{
    static const Case long_sums = {"1x1 of many channels", 2, 1024, 192, 14, 14, 1, 1, 1, 0, 0};
    if (cpu_isa() < CPU_AVX512_BF16) skip("this processor has no AVX512-BF16");
    check_kept(&long_sums, DTYPE_BF16, "oneDNN, product");
}

TEST(test_conv_f32)
{
    for (int i = 0; i < CASES; i++) check_case(&cases[i], DTYPE_F32);
}

TEST(test_conv_bf16)
{
    for (int i = 0; i < CASES; i++) check_case(&cases[i], DTYPE_BF16);
}

TEST(test_conv_winograd)
{
    static const Case winograd_cases[] = {
        {"3x3 same", 9, 32, 48, 14, 14, 3, 3, 1, 1, 1, .bias = true, .relu = true},
        {"3x3 of multiples of 8, slices", 9, 40, 24, 15, 16, 3, 3, 1, 1, 1, .x_gap = 3, .y_gap = 5, .acc = true},
        {"3x3 valid", 20, 16, 64, 13, 11, 3, 3, 1, 0, 0, .bias = true, .acc = true},
        {"3x3 padded by 2", 36, 64, 32, 6, 6, 3, 3, 1, 2, 2, .acc = true},
        {"5x5 of slices", 9, 16, 40, 9, 8, 5, 5, 1, 2, 2, .x_gap = 3, .y_gap = 5, .bias = true, .relu = true,
         .acc = true},
        {"3x3 of 40 channels", 2, 40, 33, 9, 10, 3, 3, 1, 1, 1, .relu = true},
        {"3x3 of slices", 32, 32, 32, 7, 7, 3, 3, 1, 1, 1, .x_gap = 16, .y_gap = 5, .bias = true, .acc = true},
        {"3x3 smaller than a tile", 2, 32, 32, 3, 3, 3, 3, 1, 1, 1},
        {"3x3 stride 2", 2, 32, 32, 9, 9, 3, 3, 2, 1, 1, .bias = true},
    };
    device.config.winograd = true;
    for (size_t i = 0; i < sizeof winograd_cases / sizeof winograd_cases[0]; i++) {
        check_case(&winograd_cases[i], DTYPE_F32);
        check_case(&winograd_cases[i], DTYPE_BF16);
    }
    device.config.winograd = false;
}

/* ---- dense */

typedef struct DenseCase {
    int n, c, h, w, out, y_gap;
    bool bias, relu;
} DenseCase;

static void dense_expect(const DenseCase *c, OpKind kind, const Tensor *in0, const Tensor *in1, const Tensor *bias,
                         const Tensor *out, const double *wanted)
{
    OpCall call = {.kind = kind, .name = "dense", .in_count = kind == OP_DENSE ? 3 : 2, .out_count = 1};
    call.attr.dense.relu = kind == OP_DENSE && c->relu;
    call.in[0] = *in0;
    call.in[1] = *in1;
    if (bias) call.in[2] = *bias;
    call.out[0] = *out;
    run_call(&call);
    expect_tensor(op_name(kind), "output", out, wanted, 0);
    discard_call(&call);
}

static void check_dense(const DenseCase *c, Dtype x_dtype, Dtype y_dtype)
{
    Tensor x = tensor_make((Shape){c->n, c->c, c->h, c->w}, x_dtype, 0), dx = tensor_make(x.shape, x_dtype, 0);
    Tensor w = tensor_make((Shape){c->out, c->c, c->h, c->w}, DTYPE_F32, 0), dw = tensor_make(w.shape, DTYPE_F32, 0);
    Tensor y = tensor_make((Shape){c->n, c->out, 1, 1}, y_dtype, c->y_gap),
           dy = tensor_make(y.shape, y_dtype, c->y_gap);
    Tensor bias = tensor_make((Shape){1, c->out, 1, 1}, DTYPE_F32, 0);
    const Tensor *given[] = {&x, &w, &dy, &bias};
    for (int i = 0; i < 4; i++) fill_random(given[i]);
    double *wanted_y = zeros(y.shape), *wanted_dx = zeros(x.shape), *wanted_dw = zeros(w.shape);
    int ins = c->c * c->h * c->w;
    for (int n = 0; n < c->n; n++)
        for (int o = 0; o < c->out; o++) {
            double *sum = &wanted_y[n * c->out + o];
            for (int i = 0; i < ins; i++) {
                *sum += value_at(&x, n * ins + i) * value_at(&w, o * ins + i);
                wanted_dx[n * ins + i] += value_at(&dy, n * dy.pitch + o) * value_at(&w, o * ins + i);
                wanted_dw[o * ins + i] += value_at(&dy, n * dy.pitch + o) * value_at(&x, n * ins + i);
            }
            if (c->bias) *sum += value_at(&bias, o);
            if (c->relu) *sum = fmax(*sum, 0);
        }
    dense_expect(c, OP_DENSE, &x, &w, c->bias ? &bias : NULL, &y, wanted_y);
    dense_expect(c, OP_DENSE_DX, &dy, &w, NULL, &dx, wanted_dx);
    dense_expect(c, OP_DENSE_DW, &x, &dy, NULL, &dw, wanted_dw);
    Tensor *all[] = {&x, &w, &dy, &bias, &y, &dx, &dw};
    for (int i = 0; i < 7; i++) free(all[i]->data);
    free(wanted_y);
    free(wanted_dx);
    free(wanted_dw);
}

TEST(test_dense)
{
    static const DenseCase dense_cases[] = {{5, 7, 3, 3, 10, 0, true, false},   {1, 48, 1, 1, 5, 0, false, true},
                                            {16, 80, 1, 1, 100, 6, true, true}, {3, 1, 1, 1, 1, 0, true, false},
                                            {7, 64, 5, 5, 128, 0, true, true},  {33, 512, 1, 1, 300, 4, true, true},
                                            {300, 512, 1, 1, 33, 0, true, true}};
    for (size_t i = 0; i < sizeof dense_cases / sizeof dense_cases[0]; i++) {
        check_dense(&dense_cases[i], DTYPE_F32, DTYPE_F32);
        check_dense(&dense_cases[i], DTYPE_BF16, DTYPE_BF16);
        check_dense(&dense_cases[i], DTYPE_BF16, DTYPE_F32);
    }
}

/* ---- a weight of output 0 is NaN: so is all of that output behind its ReLU, and nothing else */

static void expect_nan_kept(OpCall *call, const Tensor *w, const Tensor *y)
{
    fill_random(&call->in[0]);
    fill_random(w);
    ((float *)w->data)[0] = NAN;
    run_call(call);
    for (int64_t i = 0; i < shape_count(y->shape); i++)
        if (isnan(packed_value(y, i)) != (i % y->shape.c == 0))
            fail_msg("%s: output %d of pixel %d is %g", call->name, (int)(i % y->shape.c), (int)(i / y->shape.c),
                     packed_value(y, i));
    discard_call(call);
}

TEST(test_relu_keeps_nan)
{
    static const Case kept[] = {{"1x1", 3, 48, 80, 5, 7, 1, 1, 1, 0, 0, .relu = true},
                                {"3x3, few pixels, slice", 1, 16, 16, 6, 6, 3, 3, 1, 0, 0, .y_gap = 5, .relu = true},
                                {"3x3, our own", 3, 32, 48, 14, 14, 3, 3, 1, 0, 0, .bias = true, .relu = true}};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const Case *c = &kept[i];
        Tensor x = tensor_make((Shape){c->n, c->ic, c->h, c->w}, DTYPE_F32, 0),
               y = tensor_make(y_shape(c), DTYPE_F32, c->y_gap);
        Tensor w = tensor_make((Shape){c->oc, c->ic, c->kh, c->kw}, DTYPE_F32, 0);
        Tensor bias = tensor_make((Shape){1, c->oc, 1, 1}, DTYPE_F32, 0);
        fill_random(&bias);
        OpCall call = conv_call(OP_CONV, c, &x, &w, c->bias ? &bias : NULL, &y);
        expect_nan_kept(&call, &w, &y);
        Tensor *all[] = {&x, &w, &bias, &y};
        for (int k = 0; k < 4; k++) free(all[k]->data);
    }
}

TEST(test_relu_of_dense_keeps_nan)
{
    Tensor x = tensor_make((Shape){5, 48, 1, 1}, DTYPE_F32, 0), w = tensor_make((Shape){10, 48, 1, 1}, DTYPE_F32, 0);
    Tensor y = tensor_make((Shape){5, 10, 1, 1}, DTYPE_F32, 0);
    OpCall call = {.kind = OP_DENSE, .name = "dense", .in_count = 2, .in = {x, w}, .out_count = 1, .out = {y}};
    call.attr.dense.relu = true;
    expect_nan_kept(&call, &w, &y);
    Tensor *all[] = {&x, &w, &y};
    for (int k = 0; k < 3; k++) free(all[k]->data);
}

/* The bias of our own kernels, which some processors lack, is added in the same pass. */
TEST(test_bias_and_relu_keep_nan)
{
    enum { CHANNELS = 19 };
    static const Dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    float bias[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) bias[c] = c % 2 ? 0.5f : -0.5f;
    for (int d = 0; d < 2; d++) {
        Tensor y = tensor_make((Shape){3, CHANNELS, 2, 2}, dtypes[d], 5);
        for (int64_t i = 0; i < shape_count(y.shape); i++)
            dtype_store(y.dtype, y.data, i / CHANNELS * y.pitch + i % CHANNELS, i % CHANNELS ? 0.25 : (double)NAN);
        cpu_bias_relu(&device, &y, bias, true);
        for (int64_t i = 0; i < shape_count(y.shape); i++) {
            double have = packed_value(&y, i), want = i % CHANNELS % 2 ? 0.75 : 0;
            if (i % CHANNELS ? have != want : !isnan(have))
                fail_msg("%s, element %d: %g", dtype_name(y.dtype), (int)i, have);
        }
        free(y.data);
    }
}

/* ---- what is refused */

/* oneDNN has nothing but reference loops for a 3x3 convolution that reads a slice in place. */
static Status settle_slow_candidate(const char *layer)
{
    OnednnChoice choice = {0};
    OpCall call = {.kind = OP_CONV, .name = layer};
    call.in[0].shape = (Shape){1, 16, 6, 6};
    OnednnSpec spec = {.kind = ONEDNN_CONV,
                       .held = {{4, {1, 16, 6, 6}, {6 * 6 * 48, 1, 6 * 48, 48}, DTYPE_F32},
                                {4, {16, 16, 3, 3}, {3 * 3 * 16, 1, 3 * 16, 16}, DTYPE_F32},
                                {4, {1, 16, 4, 4}, {4 * 4 * 16, 1, 4 * 16, 16}, DTYPE_F32}},
                       .fit = {ONEDNN_AS_HELD, ONEDNN_ANY, ONEDNN_AS_HELD},
                       .window = {3, 3, 1, 1, 0, 0, false}};
    assert_int_equal(choice_offer(&choice, &device, &spec, (const int8_t[]){0, 1, FROM_OUT, FROM_NOTHING}), OK);
    assert_null(choice.task);
    assert_non_null(choice.reference);
    Status st = choice_settle(&choice, &device, &call);
    choice_free(&choice);
    return st;
}

TEST(test_reference_code_is_refused_unless_accepted)
{
    assert_fails(settle_slow_candidate("Mixed_6a.branch3x3"), ERR_UNSUPPORTED, "Mixed_6a.branch3x3");
    assert_non_null(strstr(status_message(), "ref:any"));
    assert_non_null(strstr(status_message(), "1x16x6x6"));
    device.config.allow_reference = true;
    assert_int_equal(settle_slow_candidate("Mixed_6a.branch3x3"), OK);
    device.config.allow_reference = false;
}

/* Products in plain C are taken where there is nothing better, as for NEON, and nothing else that oneDNN calls "ref" is. */
TEST(test_plain_products_are_the_last_resort)
{
    OnednnChoice choice = {0};
    OpCall call = {.kind = OP_CONV, .name = "a convolution"};
    OnednnSpec spec = {.kind = ONEDNN_CONV,
                       .held = {{4, {2, 16, 6, 6}, {6 * 6 * 16, 1, 6 * 16, 16}, DTYPE_F32},
                                {4, {16, 16, 3, 3}, {3 * 3 * 16, 1, 3 * 16, 16}, DTYPE_F32},
                                {4, {2, 16, 4, 4}, {4 * 4 * 16, 1, 4 * 16, 16}, DTYPE_F32}},
                       .fit = {ONEDNN_PACKED, ONEDNN_ANY, ONEDNN_PACKED},
                       .window = {3, 3, 1, 1, 0, 0, false}};
    assert_int_equal(choice_offer(&choice, &device, &spec, (const int8_t[]){0, 1, FROM_OUT, FROM_NOTHING}), OK);
    assert_true(!choice.task == (choice.reference != NULL));
    bool optimized = choice.task != NULL;
    assert_int_equal(choice_settle(&choice, &device, &call), OK);
    assert_true(optimized == !strstr(choice_impl(&choice), "ref"));
    if (!optimized) assert_non_null(strstr(choice_impl(&choice), "gemm:ref"));
    choice_free(&choice);
}

/* ---- the device */

/* Enough rows for every thread of the team; the factors are of normal size, their products are not. */
TEST(test_denormals_are_zero_in_every_thread)
{
    const Case c = {"tiny", 64, 16, 16, 8, 8, 3, 3, 1, 1, 1};
    Tensor x = tensor_make((Shape){c.n, c.ic, c.h, c.w}, DTYPE_F32, 0), y = tensor_make(y_shape(&c), DTYPE_F32, 0);
    Tensor w = tensor_make((Shape){c.oc, c.ic, c.kh, c.kw}, DTYPE_F32, 0);
    for (int64_t i = 0; i < shape_count(x.shape); i++) value_set(&x, i, 1e-20);
    for (int64_t i = 0; i < shape_count(w.shape); i++) value_set(&w, i, 1e-20);
    OpCall call = conv_call(OP_CONV, &c, &x, &w, NULL, &y);
    run_call(&call);
    /* By bits: this thread takes denormals for zero too. */
    for (int64_t i = 0; i < shape_count(y.shape); i++) assert_int_equal(((uint32_t *)y.data)[i] & 0x7FFFFFFF, 0);
    discard_call(&call);
    free(x.data);
    free(w.data);
    free(y.data);
}

TEST(test_device_says_what_it_is)
{
    char text[160];
    device.backend->describe(&device, text, sizeof text);
    assert_non_null(strstr(text, "oneDNN"));
    assert_non_null(strstr(text, "2 threads"));
}

TEST(test_device_refuses_nonsense)
{
    Device other;
    const Backend *found;
    assert_int_equal(device.backend->open(&(DeviceConfig){DEVICE_USUAL, .threads = 0}, &other), ERR_ARG);
    assert_int_equal(device.backend->open(&(DeviceConfig){DEVICE_USUAL, .threads = 1, .ordinal = 1}, &other), ERR_ARG);
    assert_int_equal(backend_find("tpu", &found, NULL, 0), ERR_ARG);
}

TEST(test_memory_is_aligned_and_zero)
{
    const size_t sizes[] = {1, 1000, 5 << 20};
    for (int i = 0; i < 3; i++) {
        unsigned char *memory = NULL;
        assert_int_equal(device.backend->alloc(&device, sizes[i], (void **)&memory), OK);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t at = 0; at < sizes[i]; at++) assert_int_equal(memory[at], 0);
        device.backend->release(&device, memory);
    }
}

static int device_setup(void **state)
{
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) return -1;
    return cpu->open(&(DeviceConfig){DEVICE_USUAL, .threads = 2}, &device) == OK ? 0 : -1;
}

static int device_teardown(void **state)
{
    device.backend->close(&device);
    return 0;
}

TESTS_WITH(device_setup, device_teardown)
