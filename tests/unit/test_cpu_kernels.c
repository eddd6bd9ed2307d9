/* The CPU's own kernels in cases that the small rows of tests/support/cases do not cover: work that is cut into many
 * chunks (against the reference, and equal to the bit for 1, 2 and 3 threads), difficult numbers (NaN, a mean far from
 * zero, a single pixel), and the optimizers over fifty steps. */

#include <float.h>

#include "kernels/philox.h"
#include "tests/support/reference.h"
#include "tests/support/run_case.h"
#include "tests/support/unit.h"

enum { THREADS_MOST = 3 };

static Device devices[THREADS_MOST + 1]; /* [threads]; 0 is not used */

static int open_devices(void **state)
{
    const Backend *backend;
    if (backend_find("cpu", &backend, NULL, 0) != OK) return -1;
    for (int threads = 1; threads <= THREADS_MOST; threads++) {
        DeviceConfig config = {DEVICE_USUAL, .threads = threads, .allow_reference = true};
        if (backend->open(&config, &devices[threads]) != OK) return -1;
    }
    return 0;
}

static int close_devices(void **state)
{
    for (int threads = 1; threads <= THREADS_MOST; threads++) devices[threads].backend->close(&devices[threads]);
    return 0;
}

/* ---- many chunks */

#define STATS(c) VECTOR(c), VECTOR(c)
#define MEAN_VAR(c)                                                                                                    \
    {{1, c, 1, 1}, TYPE_F32, FILL_MEAN},                                                                               \
    {                                                                                                                  \
        {1, c, 1, 1}, TYPE_F32, FILL_VAR                                                                               \
    }
#define NORM(relu_)                                                                                                    \
    {                                                                                                                  \
        .norm = { 1e-3f, relu_ }                                                                                       \
    }
#define POOL(...)                                                                                                      \
    {                                                                                                                  \
        .pool = { {__VA_ARGS__}, false }                                                                               \
    }
#define POOL_PAD(...)                                                                                                  \
    {                                                                                                                  \
        .pool = { {__VA_ARGS__}, true }                                                                                \
    }

static const Case big_rows[] = {
    // clang-format off
    {"odd channels",   OP_BATCHNORM, NORM(true),  {ACT(2, 17, 41, 39), VECTOR(17), VECTOR(17)}, {ACT(2, 17, 41, 39), STATS(17)}},
    {"one channel",    OP_BATCHNORM, NORM(false), {ACT(7, 1, 101, 103), VECTOR(1)}, {ACT(7, 1, 101, 103), STATS(1)}},
    {"wide",           OP_BATCHNORM, NORM(true),  {ACT(5, 320, 11, 13), VECTOR(320)}, {ACT(5, 320, 11, 13), STATS(320)}},
    {"layers",         OP_LAYERNORM, NORM(false), {ACT(9, 96, 21, 19), VECTOR(96), VECTOR(96)}, {ACT(9, 96, 21, 19)}},
    {"layers",         OP_LAYERNORM_DX, NORM(false), {ACT(9, 96, 21, 19), ACT(9, 96, 21, 19), VECTOR(96)},
                                                     {ACT(9, 96, 21, 19), STATS(96)}},
    {"of samples",     OP_MUL, {{{0}}}, {ACT(9, 72, 21, 19), ACT(9, 72, 1, 1)}, {ACT(9, 72, 21, 19)}},
    {"odd channels",   OP_BATCHNORM_DX, NORM(true), {ACT(2, 17, 41, 39), ACT(2, 17, 41, 39), VECTOR(17), MEAN_VAR(17), VECTOR(17)},
                                                    {ACT(2, 17, 41, 39), STATS(17)}},
    {"no gamma",       OP_BATCHNORM_DX, NORM(true), {ACT(9, 64, 21, 19), ACT(9, 64, 21, 19), VECTOR(64), MEAN_VAR(64)},
                                                    {ACT(9, 64, 21, 19), STATS(64)}},
    {"3x3 stride 2",   OP_MAX_POOL, POOL(3, 3, 2, 2, 0, 0), {ACT(2, 33, 31, 33)}, {ACT(2, 33, 15, 16), ARGMAX(2, 33, 15, 16)}},
    {"3x3 same",       OP_MAX_POOL, POOL(3, 3, 1, 1, 1, 1), {ACT(2, 5, 61, 63)}, {ACT(2, 5, 61, 63), ARGMAX(2, 5, 61, 63)}},
    {"many channels",  OP_MAX_POOL, POOL(2, 2, 2, 2), {ACT(3, 1029, 8, 8)}, {ACT(3, 1029, 4, 4), ARGMAX(3, 1029, 4, 4)}},
    {"3x3 stride 2",   OP_MAX_POOL_DX, POOL(3, 3, 2, 2), {ACT(2, 33, 15, 16), ARGMAX(2, 33, 15, 16), ACT(2, 33, 31, 33)}, {ACT(2, 33, 31, 33)}},
    {"3x3, even sides", OP_MAX_POOL_DX, POOL(3, 3, 2, 2), {ACT(2, 40, 16, 17), ARGMAX(2, 40, 16, 17)}, {ACT(2, 40, 34, 36)}},
    {"3x3 same",       OP_MAX_POOL_DX, POOL(3, 3, 1, 1, 1, 1), {ACT(2, 33, 31, 33), ARGMAX(2, 33, 31, 33)}, {ACT(2, 33, 31, 33)}},
    {"many channels",  OP_MAX_POOL_DX, POOL(5, 5, 1, 1, 2, 2), {ACT(2, 1029, 7, 7), ARGMAX(2, 1029, 7, 7)}, {ACT(2, 1029, 7, 7)}},
    {"3x3 same",       OP_AVG_POOL, POOL(3, 3, 1, 1, 1, 1), {ACT(2, 33, 41, 43)}, {ACT(2, 33, 41, 43)}},
    {"3x3 same, pad",  OP_AVG_POOL, POOL_PAD(3, 3, 1, 1, 1, 1), {ACT(2, 3, 41, 143)}, {ACT(2, 3, 41, 143)}},
    {"global",         OP_AVG_POOL, POOL(8, 8, 1, 1), {ACT(9, 1029, 8, 8)}, {ACT(9, 1029, 1, 1)}},
    {"global",         OP_AVG_POOL_DX, POOL(8, 8, 1, 1), {ACT(9, 1029, 1, 1)}, {ACT(9, 1029, 8, 8)}},
    {"3x3 same, acc",  OP_AVG_POOL_DX, POOL(3, 3, 1, 1, 1, 1), {ACT(2, 33, 41, 43), ACT(2, 33, 41, 43)}, {ACT(2, 33, 41, 43)}},
    {"many pixels",    OP_CHANNEL_SUM, {{{0}}}, {ACT(2, 17, 41, 39)}, {VECTOR(17)}},
    {"to a scalar",    OP_SUM_TO, {{{0}}}, {ACT(2, 17, 41, 39)}, {SCALAR}},
    {"to samples",     OP_SUM_TO, {{{0}}}, {ACT(5, 1029, 9, 7)}, {PLAIN(5, 1, 1, 1)}},
    {"of samples",     OP_SPREAD_TO, {{{0}}}, {PLAIN(5, 1, 1, 1)}, {ACT(5, 1029, 9, 7)}},
    {"many pixels",    OP_CHANNEL_SPREAD, {{{0}}}, {VECTOR(1029)}, {ACT(5, 1029, 9, 7)}},
    {"many",           OP_RELU, {{{0}}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_RELU_DX, {{{0}}}, {ACT(2, 17, 41, 39), ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_LEAKY_RELU_DX, {.leaky = {0.2f}}, {ACT(2, 17, 41, 39), ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_TANH, {{{0}}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_SILU, {{{0}}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_DROPOUT, {.dropout = {0.7f, 3}}, {ACT(2, 17, 41, 39), COUNTER}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_STOCHASTIC_DEPTH, {.dropout = {0.6f, 3}}, {ACT(9, 17, 21, 19), COUNTER}, {ACT(9, 17, 21, 19)}},
    {"many",           OP_RANDOM, {.random = {true, 9}}, {COUNTER}, {ACT(5, 17, 21, 19)}},
    {"three",          OP_CONCAT, {{{0}}}, {ACT(2, 17, 41, 39), ACT(2, 3, 41, 39), ACT(2, 32, 41, 39)}, {ACT(2, 52, 41, 39)}},
    {"some",           OP_SLICE, {.slice = {5}}, {ACT(2, 17, 41, 39)}, {ACT(2, 9, 41, 39)}},
    {"many",           OP_RESHAPE, {{{0}}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17 * 39, 41, 1)}},
    {"four sides",     OP_PAD, {.pad = {2, 3, -1, 5}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17, 46, 43)}},
    {"two, relu",      OP_ADD, {.add = {true}}, {ACT(2, 17, 41, 39), ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"three",          OP_ADD, {.add = {false}}, {ACT(2, 17, 41, 39), ACT(2, 17, 41, 39), ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_MUL, {{{0}}}, {ACT(2, 17, 41, 39), ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_AFFINE, {.affine = {2, -0.5f}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"many",           OP_POWER, {.power = {2}}, {ACT(2, 17, 41, 39)}, {ACT(2, 17, 41, 39)}},
    {"thousand",       OP_SOFTMAX_LOSS, {.loss = {0.1f}}, {ACT(33, 1001, 1, 1), LABELS(33)},
                                                          {SCALAR, PLAIN(33, 1001, 1, 1), {{1, 2, 1, 1}, TYPE_F32, FILL_UNIFORM}}},
    {"thousand",       OP_SOFTMAX_LOSS_DX, {.loss = {0.1f}}, {{{33, 1001, 1, 1}, TYPE_F32, FILL_PROB}, LABELS(33), SCALAR}, {ACT(33, 1001, 1, 1)}},
    {"crop and flip",  OP_IMAGE, {.image = {{0.5f, 0.4f, 0.3f}, {0.2f, 0.3f, 0.4f}}},
                                 {{{7, 3, 75, 83}, TYPE_U8, FILL_PIXEL}, {{7, IMAGE_RECORD, 1, 1}, TYPE_I32, FILL_CROP}}, {ACT(7, 3, 64, 64)}},
    // clang-format on
};
enum { BIG_ROWS = sizeof big_rows / sizeof *big_rows };

/* Convolutions by our own kernels; the table of convolutions checks their results. */
#define CONV(...)                                                                                                      \
    {                                                                                                                  \
        .conv = { {__VA_ARGS__}, false }                                                                               \
    }

static const Case conv_rows[] = {
    // clang-format off
    {"3x3", OP_CONV,    CONV(3, 3, 1, 1, 1, 1), {ACT(3, 32, 23, 21), WEIGHT(48, 32, 3, 3)}, {ACT(3, 48, 23, 21)}},
    {"3x3", OP_CONV_DX, CONV(3, 3, 1, 1, 1, 1), {ACT(3, 48, 23, 21), WEIGHT(48, 32, 3, 3)}, {ACT(3, 32, 23, 21)}},
    {"3x3", OP_CONV_DW, CONV(3, 3, 1, 1, 1, 1), {ACT(3, 32, 23, 21), ACT(3, 48, 23, 21)}, {PLAIN(48, 32, 3, 3)}},
    {"1x7", OP_CONV,    CONV(1, 7, 1, 1, 0, 3), {ACT(3, 32, 23, 21), WEIGHT(48, 32, 1, 7)}, {ACT(3, 48, 23, 21)}},
    {"7x1", OP_CONV_DX, CONV(7, 1, 1, 1, 3, 0), {ACT(3, 48, 23, 21), WEIGHT(48, 32, 7, 1)}, {ACT(3, 32, 23, 21)}},
    {"1x7", OP_CONV_DW, CONV(1, 7, 1, 1, 0, 3), {ACT(3, 32, 23, 21), ACT(3, 48, 23, 21)}, {PLAIN(48, 32, 1, 7)}},
    // clang-format on
};
enum { CONV_ROWS = sizeof conv_rows / sizeof *conv_rows };

static void check_big_rows(Dtype dtype)
{
    CaseReport report = {0};
    for (int i = 0; i < BIG_ROWS; i++) run_case(&devices[2], &big_rows[i], dtype, &report);
    assert_int_equal(report.failures, 0);
    assert_int_equal(report.unsupported, 0);
}

TEST(test_many_chunks_f32)
{
    check_big_rows(DTYPE_F32);
}

TEST(test_many_chunks_bf16)
{
    check_big_rows(DTYPE_BF16);
}

/* ---- equal to the bit for any number of threads */

static Dtype dtype_of(OperandType type, Dtype act)
{
    switch (type) {
    case TYPE_ACT: return act;
    case TYPE_U8: return DTYPE_U8;
    case TYPE_I32: return DTYPE_I32;
    default: return DTYPE_F32;
    }
}

static Tensor tensor_create(Shape shape, Dtype dtype)
{
    Tensor t = {NULL, shape, dtype, shape.c};
    t.data = aligned_alloc(64, ((size_t)shape_count(shape) * dtype_bytes(dtype) + 63) / 64 * 64);
    assert_non_null(t.data);
    memset(t.data, 0xFF, (size_t)shape_count(shape) * dtype_bytes(dtype));
    return t;
}

/* Floats in [0.5, 1.5) or, for activations, [-1, 1); integers 0 .. 4. */
static void tensor_fill(Tensor *t, bool centered, uint32_t salt)
{
    for (int64_t i = 0; i < shape_count(t->shape); i++) {
        uint32_t word = philox(salt, (uint32_t)i, 0, 0, 0).v[0];
        bool integer = t->dtype == DTYPE_U8 || t->dtype == DTYPE_I32;
        double unit = (double)philox_unit(word);
        dtype_store(t->dtype, t->data, i, integer ? word % 5 : centered ? 2 * unit - 1 : unit + 0.5);
    }
}

static OpCall call_create(const Case *row, Dtype dtype)
{
    OpCall call = {.kind = row->kind, .attr = row->attr, .name = row->name};
    for (int k = 0; k < OP_MAX_IN && row->in[k].shape.n; k++) {
        call.in[k] = tensor_create(row->in[k].shape, dtype_of(row->in[k].type, dtype));
        tensor_fill(&call.in[k], row->in[k].type == TYPE_ACT, (uint32_t)k + 1);
        call.in_count = k + 1;
    }
    for (int k = 0; k < OP_MAX_OUT && row->out[k].shape.n; k++) {
        call.out[k] = tensor_create(row->out[k].shape, dtype_of(row->out[k].type, dtype));
        call.out_count = k + 1;
    }
    return call;
}

static void call_destroy(OpCall *call)
{
    for (int k = 0; k < OP_MAX_IN; k++) free(call->in[k].data);
    for (int k = 0; k < OP_MAX_OUT; k++) free(call->out[k].data);
}

static void call_run(Device *device, OpCall *call)
{
    const OpKernel *kernel = device->backend->kernels[call->kind];
    if (kernel->prepare) assert_int_equal(kernel->prepare(device, call), OK);
    call->workspace = aligned_alloc(64, (call->workspace_bytes + 63) / 64 * 64);
    memset(call->workspace, 0xFF, call->workspace_bytes);
    assert_int_equal(kernel->launch(device, call), OK);
    if (kernel->discard) kernel->discard(device, call);
    free(call->workspace);
    call->workspace = NULL;
}

static void check_threads(const Case *row, Dtype dtype)
{
    OpCall one = call_create(row, dtype);
    call_run(&devices[1], &one);
    for (int threads = 2; threads <= THREADS_MOST; threads++) {
        OpCall more = call_create(row, dtype);
        call_run(&devices[threads], &more);
        for (int k = 0; k < one.out_count; k++) {
            const Tensor *t = &one.out[k];
            if (memcmp(t->data, more.out[k].data, (size_t)shape_count(t->shape) * dtype_bytes(t->dtype)) != 0)
                fail_msg("%s '%s' %s: out[%d] differs with %d threads", op_name(row->kind), row->name,
                         dtype_name(dtype), k, threads);
        }
        call_destroy(&more);
    }
    call_destroy(&one);
}

TEST(test_threads_do_not_matter)
{
    for (int i = 0; i < BIG_ROWS; i++) {
        check_threads(&big_rows[i], DTYPE_F32);
        check_threads(&big_rows[i], DTYPE_BF16);
    }
    for (int i = 0; i < CONV_ROWS; i++) check_threads(&conv_rows[i], DTYPE_BF16);
}

/* ---- hard numbers */

TEST(test_batchnorm_of_a_far_mean)
{
    Case row = {.name = "far", .kind = OP_BATCHNORM, .attr = {.norm = {1e-3f, false}}};
    row.in[0] = (Operand)ACT(4, 3, 64, 64), row.in[1] = (Operand)VECTOR(3);
    row.out[0] = row.in[0], row.out[1] = row.out[2] = row.in[1];
    OpCall call = call_create(&row, DTYPE_F32);
    float *x = call.in[0].data, *mean = call.out[1].data, *var = call.out[2].data;
    double sum[3] = {0}, square[3] = {0}, pixels = 4 * 64 * 64;
    for (int i = 0; i < 4 * 64 * 64 * 3; i++) {
        x[i] = 1000.0f + 1.7320508f * x[i]; /* uniform of deviation 1 */
        sum[i % 3] += (double)x[i];
    }
    x[0] = 1e4f; /* the first pixel is no good guess of the mean */
    sum[0] += 1e4 - 1000;
    for (int i = 0; i < 4 * 64 * 64 * 3; i++) square[i % 3] += pow((double)x[i] - sum[i % 3] / pixels, 2);
    call_run(&devices[2], &call);
    for (int c = 1; c < 3; c++) {
        assert_true(fabs((double)mean[c] - sum[c] / pixels) < 1e-4);
        assert_true(fabs((double)var[c] * pixels / square[c] - 1) < 1e-5);
    }
    assert_true(fabs((double)var[0] - 4943.6) < 30);
    call_destroy(&call);
}

TEST(test_batchnorm_of_one_pixel)
{
    Case row = {.name = "one", .kind = OP_BATCHNORM, .attr = {.norm = {1e-3f, false}}};
    row.in[0] = (Operand)ACT(1, 5, 1, 1), row.in[1] = (Operand)VECTOR(5);
    row.out[0] = row.in[0], row.out[1] = row.out[2] = row.in[1];
    OpCall call = call_create(&row, DTYPE_F32);
    call_run(&devices[2], &call);
    for (int c = 0; c < 5; c++) {
        assert_true(((float *)call.out[2].data)[c] == 0.0f);
        assert_true(((float *)call.out[0].data)[c] == ((float *)call.in[1].data)[c]);
    }
    call_destroy(&call);
}

/* A NaN anywhere must come out: ReLU and maximum do not hide it. */
TEST(test_nan_is_seen)
{
    const OpKind kinds[] = {OP_RELU,      OP_RELU6,    OP_SILU,      OP_SIGMOID, OP_GELU,
                            OP_GELU_TANH, OP_MAX_POOL, OP_BATCHNORM, OP_ADD,     OP_AVG_POOL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
            Case row = {.name = "nan", .kind = kinds[i], .in = {ACT(1, 3, 4, 4)}, .out = {ACT(1, 3, 4, 4)}};
            if (kinds[i] == OP_BATCHNORM) row.attr = (OpAttr){.norm = {1e-3f, true}}, row.in[1] = (Operand)VECTOR(3);
            if (kinds[i] == OP_ADD) row.attr.add.relu = true, row.in[1] = row.in[0];
            if (kinds[i] == OP_MAX_POOL || kinds[i] == OP_AVG_POOL)
                row.attr = (OpAttr){.pool = {{2, 2, 2, 2}, false}}, row.out[0] = (Operand)ACT(1, 3, 2, 2);
            OpCall call = call_create(&row, (Dtype)dtype);
            dtype_store((Dtype)dtype, call.in[0].data, 0, (double)NAN);
            call_run(&devices[2], &call);
            assert_true(isnan(dtype_load((Dtype)dtype, call.out[0].data, 0)));
            assert_false(isnan(dtype_load((Dtype)dtype, call.out[0].data, 1)));
            call_destroy(&call);
        }
}

/* Far below 0, where 1 + erf(x / sqrt(2)) has no digits left, results are as precise as elsewhere. */
TEST(test_gelu_keeps_its_tail)
{
    enum { COUNT = 24 * 512 }; /* from -12 to 12 */
    Case row = {.name = "tail", .kind = OP_GELU, .in = {ACT(1, COUNT, 1, 1)}, .out = {ACT(1, COUNT, 1, 1)}};
    OpCall call = call_create(&row, DTYPE_F32);
    float *x = call.in[0].data, *y = call.out[0].data;
    for (int i = 0; i < COUNT; i++) x[i] = (float)i / 512.0f - 12.0f + 1e-4f;
    call_run(&devices[2], &call);
    for (int i = 0; i < COUNT; i++) {
        double wanted = 0.5 * (double)x[i] * erfc(-(double)x[i] / sqrt(2));
        if (fabs((double)y[i] / wanted - 1) > 8 * (double)FLT_EPSILON)
            fail_msg("gelu(%g): %g instead of %g", (double)x[i], (double)y[i], wanted);
    }
    call_destroy(&call);
}

/* However large x is, no product overflows or counts what only rounds to nothing: slopes are those at 1e4, as are values below 0. */
TEST(test_unary_ops_far_out)
{
    static const float far_out[] = {1e4f, 1e10f, 1e18f, 1e19f, 2e19f, 1e25f, 1e30f, FLT_MAX};
    enum { COUNT = sizeof far_out / sizeof *far_out };
    static const OpKind kinds[] = {
#define OP(...)
#define UNARY(KIND, ...) OP_##KIND,
#define UNARY_GRAD(KIND, ...) OP_##KIND, OP_##KIND##_DX,
#include "kernels/ops.def"
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        Case row = {.name = "far", .kind = kinds[k], .in = {ACT(1, COUNT, 1, 1)}, .out = {ACT(1, COUNT, 1, 1)}};
        bool slope = op_max_inputs(kinds[k]) == 2;
        if (slope) row.in[1] = row.in[0];
        for (int sign = -1; sign <= (slope ? 1 : -1); sign += 2) {
            OpCall call = call_create(&row, DTYPE_F32);
            float *x = call.in[slope].data, *y = call.out[0].data;
            for (int i = 0; i < COUNT; i++) ((float *)call.in[0].data)[i] = 1, x[i] = (float)sign * far_out[i];
            call_run(&devices[2], &call);
            for (int i = 1; i < COUNT; i++)
                if (!(fabsf(y[i] - y[0]) <= 2e-7f))
                    fail_msg("%s of %g: %g, of %g: %g", op_name(kinds[k]), (double)x[0], (double)y[0], (double)x[i],
                             (double)y[i]);
            call_destroy(&call);
        }
    }
}

/* ---- a maximum is one of its numbers, however small: equal to the bit, and at its place */

enum { POOL_N = 2, POOL_C = 37, POOL_SIDE = 9 };

/* A number of a few bits: zeros of both signs, numbers below 2^-126, the smallest above. */
static uint32_t small_bits(Dtype dtype, int64_t i)
{
    uint32_t drawn = philox(11, (uint32_t)i, 0, 0, 0).v[0], half = (drawn & 1) << 15 | (drawn >> 8) % 0x84;
    return dtype == DTYPE_BF16 ? half : half << 16 | (half & 0x7f);
}

static uint32_t bits_at(Dtype dtype, const void *data, int64_t i)
{
    return dtype == DTYPE_BF16 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
}

/* Ordered as the numbers are; not by comparing numbers, for this thread takes the small ones for zero. */
static int64_t rank_of(Dtype dtype, uint32_t bits)
{
    uint32_t sign = dtype == DTYPE_BF16 ? 0x8000 : 0x80000000;
    return bits & sign ? -(int64_t)(bits & ~sign) : (int64_t)bits;
}

static void check_small_maximum(Dtype dtype, const OpCall *call, int64_t n, int64_t y, int64_t x, int64_t c)
{
    int64_t best = INT64_MIN, at = ((n * POOL_SIDE + y) * POOL_SIDE + x) * POOL_C + c;
    uint32_t bits = 0;
    int place = 0;
    for (int k = 0; k < 9; k++) {
        int64_t row = y + k / 3 - 1, column = x + k % 3 - 1;
        if (row < 0 || column < 0 || row >= POOL_SIDE || column >= POOL_SIDE) continue;
        uint32_t found = bits_at(dtype, call->in[0].data, ((n * POOL_SIDE + row) * POOL_SIDE + column) * POOL_C + c);
        if (rank_of(dtype, found) <= best) continue;
        best = rank_of(dtype, found);
        bits = found;
        place = k;
    }
    uint32_t got = bits_at(dtype, call->out[0].data, at);
    int got_place = ((const uint8_t *)call->out[1].data)[at];
    if (got != bits || got_place != place)
        fail_msg("%s, image %d, row %d, column %d, channel %d: %#x at %d instead of %#x at %d", dtype_name(dtype),
                 (int)n, (int)y, (int)x, (int)c, got, got_place, bits, place);
}

/* At the border windows are cut and go through the plain loops, inside through those of the processor. */
TEST(test_small_numbers_have_a_maximum)
{
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        Case row = {.name = "small", .kind = OP_MAX_POOL, .attr = POOL(3, 3, 1, 1, 1, 1)};
        row.in[0] = row.out[0] = (Operand)ACT(POOL_N, POOL_C, POOL_SIDE, POOL_SIDE);
        row.out[1] = (Operand)ARGMAX(POOL_N, POOL_C, POOL_SIDE, POOL_SIDE);
        OpCall call = call_create(&row, (Dtype)dtype);
        for (int64_t i = 0; i < POOL_N * POOL_SIDE * POOL_SIDE * POOL_C; i++) {
            if (dtype == DTYPE_BF16)
                ((uint16_t *)call.in[0].data)[i] = (uint16_t)small_bits(DTYPE_BF16, i);
            else
                ((uint32_t *)call.in[0].data)[i] = small_bits(DTYPE_F32, i);
        }
        call_run(&devices[2], &call);
        for (int i = 0; i < POOL_N * POOL_SIDE * POOL_SIDE * POOL_C; i++)
            check_small_maximum((Dtype)dtype, &call, i / POOL_C / POOL_SIDE / POOL_SIDE,
                                i / POOL_C / POOL_SIDE % POOL_SIDE, i / POOL_C % POOL_SIDE, i % POOL_C);
        call_destroy(&call);
    }
}

/* ---- losses */

static OpCall softmax_call(void)
{
    Case row = {.name = "loss", .kind = OP_SOFTMAX_LOSS, .in = {ACT(2, 7, 1, 1), LABELS(2)}};
    row.out[0] = (Operand)SCALAR, row.out[1] = (Operand)PLAIN(2, 7, 1, 1);
    row.out[2] = (Operand){{1, 2, 1, 1}, TYPE_F32, FILL_UNIFORM};
    return call_create(&row, DTYPE_F32);
}

TEST(test_bad_samples_make_a_nan_loss)
{
    for (int bad = 0; bad < 3; bad++) {
        OpCall call = softmax_call();
        for (int i = 0; i < 14; i++) ((float *)call.in[0].data)[i] = i % 7 == 3 ? 5.0f : 0.0f;
        int32_t *labels = call.in[1].data;
        labels[0] = labels[1] = 3;
        if (bad == 0) ((float *)call.in[0].data)[0] = NAN;
        if (bad == 1) labels[0] = -2;
        if (bad == 2) labels[0] = 7;
        call_run(&devices[1], &call);
        const float *correct = call.out[2].data;
        assert_true(isnan(*(float *)call.out[0].data));
        assert_true(correct[0] == 1 && correct[1] == 1); /* the good sample */
        call_destroy(&call);
    }
}

TEST(test_ties_go_to_the_lower_class)
{
    OpCall call = softmax_call();
    memset(call.in[0].data, 0, 14 * sizeof(float));
    int32_t *labels = call.in[1].data;
    labels[0] = 4, labels[1] = 5;
    call_run(&devices[1], &call);
    const float *correct = call.out[2].data;
    assert_true(correct[0] == 0 && correct[1] == 1);
    call_destroy(&call);
}

TEST(test_what_the_cpu_refuses)
{
    Case row = {.name = "half", .kind = OP_RELU, .in = {ACT(1, 3, 4, 4)}, .out = {ACT(1, 3, 4, 4)}};
    OpCall call = call_create(&row, DTYPE_F16);
    const OpKernel *const *kernels = devices[1].backend->kernels;
    assert_int_equal(kernels[OP_RELU]->prepare(&devices[1], &call), ERR_UNSUPPORTED);
    call_destroy(&call);
}

/* ---- optimizers */

enum { PARAMS = 17501, STEPS = 50 };

static const OptimizerHyper hypers[] = {
    {.kind = OPTIMIZER_SGD},
    {.kind = OPTIMIZER_SGD, .momentum = 0.9f, .clip_value = 0.5f},
    {.kind = OPTIMIZER_SGD, .momentum = 0.9f, .nesterov = true},
    {.kind = OPTIMIZER_RMSPROP_TF, .momentum = 0.9f, .decay = 0.9f, .epsilon = 1.0f},
    {.kind = OPTIMIZER_RMSPROP_TF, .decay = 0.9f, .epsilon = 0.1f},
    {.kind = OPTIMIZER_RMSPROP, .momentum = 0.9f, .decay = 0.99f, .epsilon = 1e-3f},
    {.kind = OPTIMIZER_RMSPROP, .decay = 0.99f, .epsilon = 1e-3f},
    {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f},
    {.kind = OPTIMIZER_ADAMW, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f},
    {.kind = OPTIMIZER_LARS, .momentum = 0.9f, .trust = 0.1f},
    {.kind = OPTIMIZER_LAMB, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-6f},
};

/* Everything one training of PARAMS parameters owns. */
typedef struct Training {
    float *param, *grad, *state[OPTIMIZER_STATES], *ema;
    uint16_t *half;
    RefUpdate *reference;
    double *reference_ema;
    OptimizerScalars scalars;
    OptimizerTrust *trust;
    OptimizerUpdate update;
} Training;

static const OptimizerSegment segments[] = {{0, 300, 0.01f, 1.0f, true},
                                            {300, 16, 0.0f, 2.0f},
                                            {316, 500, 0.1f, 0.0f, true},
                                            {816, PARAMS - 816, 0.0f, 1.0f, true}};
enum { SEGMENTS = sizeof segments / sizeof *segments, FROZEN = 2 };

static float *floats_create(void)
{
    float *made = calloc(PARAMS, sizeof *made);
    assert_non_null(made);
    return made;
}

static float draw(uint32_t i, uint32_t step)
{
    return 2 * philox_unit(philox(7, i, step, 0, 0).v[0]) - 1;
}

static Training training_create(const OptimizerHyper *hyper, Dtype half)
{
    Training t = {.param = floats_create(), .grad = floats_create(), .ema = floats_create()};
    t.half = calloc(PARAMS, sizeof *t.half);
    t.reference = calloc(PARAMS, sizeof *t.reference);
    t.reference_ema = calloc(PARAMS, sizeof *t.reference_ema);
    assert_true(t.half && t.reference && t.reference_ema);
    for (int k = 0; k < OPTIMIZER_STATES; k++)
        if (k < optimizer_state_count(hyper)) t.state[k] = floats_create();
    for (uint32_t i = 0; i < PARAMS; i++) {
        t.param[i] = t.ema[i] = draw(i, 0);
        t.reference[i].param = t.reference_ema[i] = (double)t.param[i];
        for (int k = 0; k < OPTIMIZER_STATES; k++) {
            t.reference[i].state[k] = (double)optimizer_state_start(hyper, k);
            if (t.state[k]) t.state[k][i] = optimizer_state_start(hyper, k);
        }
    }
    if (optimizer_is_layerwise(hyper->kind)) t.trust = calloc(PARAMS, sizeof *t.trust);
    t.update = (OptimizerUpdate){.hyper = *hyper,
                                 .param = t.param,
                                 .grad = t.grad,
                                 .state = {t.state[0], t.state[1]},
                                 .ema = t.ema,
                                 .half = t.half,
                                 .half_dtype = half,
                                 .segments = segments,
                                 .segment_count = SEGMENTS,
                                 .trust = t.trust};
    return t;
}

static void training_destroy(Training *t)
{
    free(t->param), free(t->grad), free(t->state[0]), free(t->state[1]), free(t->ema), free(t->half);
    free(t->reference), free(t->reference_ema), free(t->trust);
}

static void training_step(Training *t, Device *device, int step)
{
    t->scalars =
        (OptimizerScalars){.lr = 0.01f, .step = (float)step, .grad_scale = 0.5f, .ema_decay = 0.9f, .commit = 1};
    t->update.scalars = &t->scalars;
    for (uint32_t i = 0; i < PARAMS; i++) t->grad[i] = 3 * draw(i, (uint32_t)step);
    assert_int_equal(device->backend->optimizer_apply(device, &t->update), OK);
}

static void reference_step(Training *t)
{
    for (int i = 0; i < PARAMS; i++) t->reference[i].grad = (double)t->grad[i];
    for (int s = 0; s < SEGMENTS; s++) {
        size_t first = segments[s].first, end = first + segments[s].count;
        if (t->trust) reference_update_layer(&t->update.hyper, &segments[s], &t->scalars, &t->reference[first]);
        for (size_t i = first; !t->trust && i < end; i++)
            reference_update(&t->update.hyper, &segments[s], &t->scalars, &t->reference[i]);
        for (size_t i = first; i < end; i++) t->reference_ema[i] += 0.1 * (t->reference[i].param - t->reference_ema[i]);
    }
}

static void check_training(const Training *t, const char *what)
{
    for (int i = 0; i < PARAMS; i++) {
        double wanted = t->reference[i].param;
        if (!(fabs((double)t->param[i] - wanted) < 2e-5))
            fail_msg("%s: parameter %d is %.9g, wanted %.9g", what, i, (double)t->param[i], wanted);
        if (!(fabs((double)t->ema[i] - t->reference_ema[i]) < 2e-5))
            fail_msg("%s: average %d is %.9g, wanted %.9g", what, i, (double)t->ema[i], t->reference_ema[i]);
        double half = dtype_load(t->update.half_dtype, t->half, i);
        if (half != dtype_round(t->update.half_dtype, (double)t->param[i]))
            fail_msg("%s: 16-bit copy %d is %.9g of %.9g", what, i, half, (double)t->param[i]);
    }
}

TEST(test_optimizers_follow_the_reference)
{
    for (size_t k = 0; k < sizeof hypers / sizeof *hypers; k++) {
        char what[32];
        snprintf(what, sizeof what, "optimizer row %zu", k);
        Training t = training_create(&hypers[k], k % 2 ? DTYPE_F16 : DTYPE_BF16);
        for (int step = 1; step <= STEPS; step++) {
            training_step(&t, &devices[2], step);
            reference_step(&t);
        }
        check_training(&t, what);
        for (size_t i = segments[FROZEN].first; i < segments[FROZEN].first + segments[FROZEN].count; i++) {
            assert_true(t.param[i] == draw((uint32_t)i, 0) && t.ema[i] == t.param[i]);
            for (int s = 0; s < optimizer_state_count(&hypers[k]); s++)
                assert_true(t.state[s][i] == optimizer_state_start(&hypers[k], s));
        }
        training_destroy(&t);
    }
}

TEST(test_optimizer_threads_do_not_matter)
{
    for (size_t k = 0; k < sizeof hypers / sizeof *hypers; k++) {
        Training a = training_create(&hypers[k], DTYPE_BF16), b = training_create(&hypers[k], DTYPE_BF16);
        for (int step = 1; step <= 3; step++) {
            training_step(&a, &devices[1], step);
            training_step(&b, &devices[3], step);
        }
        assert_memory_equal(a.param, b.param, PARAMS * sizeof(float));
        assert_memory_equal(a.ema, b.ema, PARAMS * sizeof(float));
        training_destroy(&a);
        training_destroy(&b);
    }
}

TEST(test_a_refused_step_changes_nothing)
{
    Training t = training_create(&hypers[7], DTYPE_BF16);
    t.scalars = (OptimizerScalars){.lr = 0.01f, .step = 1, .grad_scale = 1, .ema_decay = 0.9f, .commit = 0};
    t.update.scalars = &t.scalars;
    for (int i = 0; i < PARAMS; i++) t.grad[i] = NAN;
    assert_int_equal(devices[2].backend->optimizer_apply(&devices[2], &t.update), OK);
    for (uint32_t i = 0; i < PARAMS; i++)
        assert_true(t.param[i] == draw(i, 0) && t.ema[i] == draw(i, 0) && t.state[0][i] == 0 && t.half[i] == 0);
    training_destroy(&t);
}

/* Every rounding case of the 16-bit copies: ties, subnormals, overflow. The bits are those of Python's struct. */
static const struct {
    float value;
    uint16_t bf16, f16;
} hard[] = {
    // clang-format off
    {0.0f, 0x0000, 0x0000},
    {-0.0f, 0x8000, 0x8000},
    {1.0f, 0x3F80, 0x3C00},
    {1.00048828125f, 0x3F80, 0x3C00},
    {1.00146484375f, 0x3F80, 0x3C02},
    {65504.0f, 0x4780, 0x7BFF},
    {65519.0f, 0x4780, 0x7BFF},
    {65520.0f, 0x4780, 0x7C00},
    {1e30f, 0x714A, 0x7C00},
    {6.1e-5f, 0x3880, 0x03FF},
    {5.9604645e-8f, 0x3380, 0x0001},
    {2.9802322e-8f, 0x3300, 0x0000},
    {3e-8f, 0x3301, 0x0001},
    {1e-10f, 0x2EDC, 0x0000},
    {-6.0e-5f, 0xB87C, 0x83EF},
    {INFINITY, 0x7F80, 0x7C00},
    {-INFINITY, 0xFF80, 0xFC00},
    {3.3895314e38f, 0x7F7F, 0x7C00},
    {1.00390625f, 0x3F80, 0x3C04},
    {-2.5f, 0xC020, 0xC100},
    {1e-40f, 0x0001, 0x0000},
    // clang-format on
};
enum { HARD = sizeof hard / sizeof *hard };

TEST(test_half_copies_round_as_the_standard)
{
    for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++) {
        float param[HARD + 1], grad[HARD + 1] = {0};
        uint16_t half[HARD + 1];
        for (int i = 0; i < HARD; i++) param[i] = hard[i].value;
        param[HARD] = NAN;
        OptimizerSegment all = {0, HARD + 1, 0, 0};
        OptimizerScalars scalars = {.commit = 1, .grad_scale = 1};
        OptimizerUpdate update = {.hyper = {.kind = OPTIMIZER_SGD}, .param = param, .grad = grad, .half = half};
        update.half_dtype = (Dtype)dtype, update.segments = &all, update.segment_count = 1, update.scalars = &scalars;
        assert_int_equal(devices[1].backend->optimizer_apply(&devices[1], &update), OK);
        for (int i = 0; i < HARD; i++) assert_int_equal(half[i], dtype == DTYPE_BF16 ? hard[i].bf16 : hard[i].f16);
        assert_true(isnan(dtype_load((Dtype)dtype, half, HARD)));
    }
}

TEST(test_square_sum_and_average)
{
    float *x = floats_create(), running[3] = {1, 2, 3};
    double wanted = 0, sum[THREADS_MOST + 1];
    for (uint32_t i = 0; i < PARAMS; i++) {
        x[i] = draw(i, 0);
        wanted += (double)x[i] * (double)x[i];
    }
    for (int threads = 1; threads <= THREADS_MOST; threads++)
        assert_int_equal(devices[1].backend->square_sum(&devices[threads], x, PARAMS, &sum[threads]), OK);
    assert_true(fabs(sum[1] / wanted - 1) < 1e-12);
    assert_true(sum[1] == sum[2] && sum[2] == sum[3]);
    x[PARAMS - 1] = NAN;
    assert_int_equal(devices[1].backend->square_sum(&devices[2], x, PARAMS, &sum[0]), OK);
    assert_true(isnan(sum[0]));
    const float batch[3] = {2, 4, 8}, correct[3] = {1, 0.5f, 2}, yes = 1, no = 0, slow = 0.75f, fast = 0.5f;
    const Backend *cpu = devices[1].backend;
    assert_int_equal(cpu->average(&devices[1], running, batch, correct, &slow, 3, &no), OK);
    assert_true(running[0] == 1 && running[1] == 2 && running[2] == 3);
    assert_int_equal(cpu->average(&devices[1], running, batch, correct, &slow, 3, &yes), OK);
    assert_true(running[0] == 1.25f && running[1] == 2.0f && running[2] == 6.25f);
    assert_int_equal(cpu->average(&devices[1], running, batch, NULL, &fast, 3, &yes), OK);
    assert_true(running[0] == 1.625f && running[1] == 3.0f && running[2] == 7.125f);
    free(x);
}

TESTS_WITH(open_devices, close_devices)
