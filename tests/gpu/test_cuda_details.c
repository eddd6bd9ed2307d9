/* Cases on the emulation that the case tables do not reach: channel counts with every kind of remainder, the same bits
 * in any order of threads and blocks, images padded for tensor cores, mixed types, long and unaligned tables of
 * segments, and the conversions around library calls. */

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/convert.h"
#include "tests/gpu/emulation/emulated_backend.h"
#include "tests/gpu/emulation/undefined.h"
#include "tests/support/interpret.h"
#include "tests/support/run_case.h"
#include "tests/support/unit.h"

static Device device;

static int open_device(void **state)
{
    DeviceConfig config = {DEVICE_USUAL, .threads = 1};
    return emulated_backend.open(&config, &device) == OK ? 0 : -1;
}

static int close_device(void **state)
{
    emulated_backend.close(&device);
    return 0;
}

static void must(Status st)
{
    if (st != OK) fail_msg("%s: %s", status_name(st), status_message());
}

/* ---- every tail */

static const int channels[] = {1, 3, 4, 5, 8, 17, 20, 32, 64, 100, 264};

static void run_row(const Case *row)
{
    CaseReport report = {0};
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) run_case(&device, row, dtype, &report);
    if (report.failures || report.unsupported)
        fail_msg("%d runs of %s with %d channels are wrong", report.failures, op_name(row->kind), row->in[0].shape.c);
}

static Operand image_of(int c, Fill fill)
{
    return (Operand){{2, c, 5, 7}, TYPE_ACT, fill};
}

static Operand vector_of(int c, Fill fill)
{
    return (Operand){{1, c, 1, 1}, TYPE_F32, fill};
}

TEST(test_tails_elementwise)
{
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        int c = channels[i];
        Operand x = image_of(c, FILL_UNIFORM), sign = image_of(c, FILL_SIGN), more = image_of(c + 8, FILL_UNIFORM);
        Operand both = image_of(2 * c + 8, FILL_UNIFORM);
        Operand counter = {{1, 4, 1, 1}, TYPE_I32, FILL_COUNTER};
        run_row(&(Case){"tail", OP_RELU_DX, {{{0}}}, {x, sign}, {x}});
        run_row(&(Case){"tail", OP_ADD, {.add = {true}}, {x, x, x}, {x}});
        run_row(&(Case){"tail", OP_DROPOUT, {.dropout = {0.5f, 1}}, {x, counter}, {x}});
        run_row(&(Case){"tail", OP_RANDOM, {.random = {true, 1}}, {counter}, {x}});
        run_row(&(Case){"tail", OP_CONCAT, {{{0}}}, {x, more}, {both}});
        run_row(&(Case){"tail", OP_CHANNEL_SPREAD, {{{0}}}, {vector_of(c, FILL_UNIFORM)}, {x}});
    }
}

TEST(test_tails_of_columns)
{
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        int c = channels[i];
        Operand x = image_of(c, FILL_UNIFORM), v = vector_of(c, FILL_UNIFORM), g = vector_of(c, FILL_POSITIVE);
        Operand mean = vector_of(c, FILL_MEAN), var = vector_of(c, FILL_VAR);
        OpAttr norm = {.norm = {1e-3f, true}};
        run_row(&(Case){"tail", OP_BATCHNORM, norm, {x, v, g}, {x, v, v}});
        run_row(&(Case){"tail", OP_BATCHNORM_DX, norm, {x, x, v, mean, var, g}, {x, v, v}});
        run_row(&(Case){"tail", OP_CHANNEL_SUM, {{{0}}}, {x}, {v}});
    }
}

/* More parts than the last block loads at once. */
TEST(test_many_parts)
{
    Operand x = {{12, 64, 33, 32}, TYPE_ACT, FILL_UNIFORM};
    run_row(&(Case){"many parts", OP_CHANNEL_SUM, {{{0}}}, {x}, {vector_of(64, FILL_UNIFORM)}});
}

/* More channels than there are counters for. */
TEST(test_too_many_channels)
{
    Tensor x = {(void *)64, {1, KERNEL_MAX_CHANNELS + 1, 1, 1}, DTYPE_F32, KERNEL_MAX_CHANNELS + 1};
    OpCall call = {.kind = OP_CHANNEL_SUM, .name = "wide", .in_count = 1, .in = {x}, .out_count = 1, .out = {x}};
    assert_fails(emulated_backend.kernels[OP_CHANNEL_SUM]->prepare(&device, &call), ERR_UNSUPPORTED,
                 "expected at most 32768 channels on a GPU, found 32769");
}

TEST(test_tails_of_windows)
{
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        int c = channels[i];
        Operand x = image_of(c, FILL_UNIFORM), y = {{2, c, 3, 4}, TYPE_ACT, FILL_UNIFORM};
        Operand argmax = {{2, c, 3, 4}, TYPE_U8, FILL_ARGMAX}, relu_y = {{2, c, 3, 4}, TYPE_ACT, FILL_SIGN};
        OpAttr pool = {.pool = {{3, 3, 2, 2, 1, 1, false}, false, false}};
        run_row(&(Case){"tail", OP_MAX_POOL, pool, {x}, {y, argmax}});
        run_row(&(Case){"tail", OP_MAX_POOL_DX, pool, {y, argmax, x, relu_y}, {x}});
        OpAttr norm = {.pool = {.window = pool.pool.window, .epsilon = 1e-3f}};
        Operand v = vector_of(c, FILL_UNIFORM), g = vector_of(c, FILL_POSITIVE), levels = image_of(c, FILL_LEVELS);
        run_row(&(Case){"tail", OP_MAX_POOL_NORM, norm, {levels, v, v, g, g}, {y, argmax}});
        run_row(&(Case){"tail", OP_MAX_POOL_NORM_DX, norm, {y, argmax, x, v, v, g, g}, {x, v, v}, 2, true});
        run_row(&(Case){"tail", OP_AVG_POOL, pool, {x}, {y}});
        run_row(&(Case){"tail", OP_AVG_POOL_DX, pool, {y, x}, {x}});
    }
}

/* A deviation of one around a thousand: sums without a shift would lose the variance. */
TEST(test_large_mean)
{
    enum { PIXELS = 3000, C = 8 };
    static float x[PIXELS * C], beta[C], mean[C], var[C];
    static double values[PIXELS * C];
    fill_uniform(values, PIXELS * C, 3, -1, 1);
    for (int i = 0; i < PIXELS * C; i++) x[i] = (float)(1000 + values[i]);
    OpCall call = {.kind = OP_BATCHNORM, .attr = {.norm = {1e-3f, false}}, .name = "large", .in_count = 2};
    Tensor vector = {NULL, {1, C, 1, 1}, DTYPE_F32, C};
    call.out_count = 3;
    call.in[0] = (Tensor){x, {1, C, PIXELS, 1}, DTYPE_F32, C};
    call.in[1] = vector, call.in[1].data = beta;
    call.out[0] = (Tensor){NULL, {1, C, PIXELS, 1}, DTYPE_F32, C};
    call.out[1] = vector, call.out[1].data = mean;
    call.out[2] = vector, call.out[2].data = var;
    const OpKernel *kernel = emulated_backend.kernels[OP_BATCHNORM];
    must(kernel->prepare(&device, &call));
    must(emulated_backend.alloc(&device, call.workspace_bytes, &call.workspace));
    must(kernel->launch(&device, &call));
    for (int c = 0; c < C; c++) {
        double sum = 0, square = 0;
        for (int i = 0; i < PIXELS; i++) sum += (double)x[i * C + c] / PIXELS;
        for (int i = 0; i < PIXELS; i++) square += ((double)x[i * C + c] - sum) * ((double)x[i * C + c] - sum) / PIXELS;
        assert_true(fabs((double)mean[c] - sum) < 1e-4);
        assert_true(fabs((double)var[c] - square) < 1e-5 * square);
    }
    emulated_backend.release(&device, call.workspace);
    kernel->discard(&device, &call);
}

/* A logit that is NaN makes the loss NaN, and its sample counts as no correct one, even though its label has the largest logit. */
TEST(test_nan_logit)
{
    enum { N = 2, CLASSES = 4 };
    float logits[N * CLASSES] = {3, NAN, 1, 0, 3, 2, 1, 0}, loss = 0, prob[N * CLASSES], correct[2] = {-1, -1};
    int32_t labels[N] = {0, 0};
    OpCall call = {.kind = OP_SOFTMAX_LOSS, .name = "loss", .in_count = 2, .out_count = 3};
    call.in[0] = (Tensor){logits, {N, CLASSES, 1, 1}, DTYPE_F32, CLASSES};
    call.in[1] = (Tensor){labels, {N, 1, 1, 1}, DTYPE_I32, 1};
    call.out[0] = (Tensor){&loss, {1, 1, 1, 1}, DTYPE_F32, 1};
    call.out[1] = (Tensor){prob, {N, CLASSES, 1, 1}, DTYPE_F32, CLASSES};
    call.out[2] = (Tensor){correct, {1, 2, 1, 1}, DTYPE_F32, 2};
    const OpKernel *kernel = emulated_backend.kernels[OP_SOFTMAX_LOSS];
    must(kernel->prepare(&device, &call));
    must(emulated_backend.alloc(&device, call.workspace_bytes, &call.workspace));
    must(kernel->launch(&device, &call));
    assert_true(isnan(loss));
    assert_true(correct[0] == 1 && correct[1] == 1);
    emulated_backend.release(&device, call.workspace);
    kernel->discard(&device, &call);
}

/* ---- the same bits again: each launch takes threads and blocks in the opposite order, and a round has three */

enum { AGAIN_C = 40, AGAIN_PIXELS = 4000, AGAIN_COUNT = AGAIN_C * AGAIN_PIXELS };

static float *random_floats(int count, uint64_t seed)
{
    double *values = calloc((size_t)count, sizeof *values);
    float *floats = calloc((size_t)count, sizeof *floats);
    assert_true(values && floats);
    fill_uniform(values, count, seed, -1, 1);
    for (int i = 0; i < count; i++) floats[i] = (float)values[i];
    free(values);
    return floats;
}

TEST(test_same_bits_again)
{
    float *x = random_floats(AGAIN_COUNT, 1), *dy = random_floats(AGAIN_COUNT, 2), *dx = random_floats(AGAIN_COUNT, 3);
    float *vectors = random_floats(AGAIN_C, 4), sums[2][2 * AGAIN_C];
    float ones[AGAIN_C];
    for (int c = 0; c < AGAIN_C; c++) ones[c] = 1;
    OpCall call = {.kind = OP_BATCHNORM_DX, .attr = {.norm = {1e-3f, true}}, .name = "again", .in_count = 6};
    Shape image = {1, AGAIN_C, AGAIN_PIXELS, 1}, vector = {1, AGAIN_C, 1, 1};
    void *const in[] = {dy, x, vectors, vectors, ones, ones};
    for (int k = 0; k < 6; k++) call.in[k] = (Tensor){in[k], k < 2 ? image : vector, DTYPE_F32, AGAIN_C};
    call.out_count = 3;
    call.out[0] = (Tensor){dx, image, DTYPE_F32, AGAIN_C};
    const OpKernel *kernel = emulated_backend.kernels[OP_BATCHNORM_DX];
    must(kernel->prepare(&device, &call));
    must(emulated_backend.alloc(&device, call.workspace_bytes, &call.workspace));
    double squares[2];
    for (int round = 0; round < 2; round++) {
        call.out[1] = (Tensor){sums[round], vector, DTYPE_F32, AGAIN_C};
        call.out[2] = (Tensor){sums[round] + AGAIN_C, vector, DTYPE_F32, AGAIN_C};
        must(kernel->launch(&device, &call));
        must(emulated_backend.square_sum(&device, x, AGAIN_COUNT, &squares[round]));
    }
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    assert_true(squares[0] == squares[1]);
    emulated_backend.release(&device, call.workspace);
    kernel->discard(&device, &call);
    free(x), free(dy), free(dx), free(vectors);
}

/* ---- a pool that normalizes what it reads has the bits of the two ops; its gradient has them but for the order of the
 * sums, where a thread works on blocks of pixels */

enum { POOLED_N = 2, POOLED_C = 24, POOLED_SIDE = 13, POOLED_COUNT = POOLED_N * POOLED_C * POOLED_SIDE * POOLED_SIDE };

/* Equal neighbors, both signs, a NaN and infinities; small ones, which a 16-bit type rounds to equal ones. */
static void pooled_values(Dtype dtype, void *x, void *dy)
{
    static double random[2][POOLED_COUNT];
    fill_uniform(random[0], POOLED_COUNT, 5, -1, 1);
    fill_uniform(random[1], POOLED_COUNT, 6, -1, 1);
    for (int i = 0; i < POOLED_COUNT; i++) {
        double value = i % 5 == 0 ? floor(random[0][i] * 4) / 4 : i % 5 == 1 ? 0.5 + random[0][i] / 512 : random[0][i];
        if (i % POOLED_C == 3 && i % 7 == 0) value = i % 2 ? INFINITY : NAN;
        dtype_store(dtype, x, i, value);
        dtype_store(dtype, dy, i, random[1][i]);
    }
}

static Tensor pooled_tensor(void *data, Dtype dtype, int32_t c, int32_t side)
{
    return (Tensor){data, {POOLED_N, c, side, side}, dtype, c};
}

static void run_call(OpCall call)
{
    const OpKernel *kernel = emulated_backend.kernels[call.kind];
    must(kernel->prepare(&device, &call));
    must(emulated_backend.alloc(&device, call.workspace_bytes, &call.workspace));
    must(kernel->launch(&device, &call));
    emulated_backend.release(&device, call.workspace);
    if (kernel->discard) kernel->discard(&device, &call);
}

/* Equal up to what the order of the sums changes; in 16 bits that may be the last bit. */
static void check_near(Dtype dtype, const void *a, const void *b, int count)
{
    double part = dtype == DTYPE_F32 ? 1e-5 : dtype == DTYPE_F16 ? 0x1p-10 : 0x1p-7;
    for (int i = 0; i < count; i++) {
        double x = dtype_load(dtype, a, i), y = dtype_load(dtype, b, i);
        if (x != x && y != y) continue;
        if (!(x == y || fabs(x - y) <= part * fabs(x) + 1e-5)) fail_msg("element %d: %.9g, apart %.9g", i, y, x);
    }
}

static bool in_blocks(Window window)
{
    return window.stride_h == 2;
}

static void check_pooled(Dtype dtype, int32_t c, Window window)
{
    static float x[POOLED_COUNT], dy[POOLED_COUNT], a[POOLED_COUNT], da[POOLED_COUNT];
    static float vectors[4][POOLED_C], y[2][POOLED_COUNT], dx[3][POOLED_COUNT], sums[3][2][POOLED_C];
    static uint8_t argmax[2][POOLED_COUNT];
    int32_t side = window_out(&window, (Shape){1, c, POOLED_SIDE, POOLED_SIDE}, c).h;
    Tensor image = pooled_tensor(x, dtype, c, POOLED_SIDE), small = pooled_tensor(dy, dtype, c, side), v[4];
    OpAttr norm = {.norm = {1e-3f, true}}, pool = {.pool = {.window = window, .epsilon = 1e-3f}};
    pooled_values(dtype, x, dy);
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < c; i++)
            vectors[k][i] = k == 2 ? 0.3f + (float)i / 32 : (float)((i * (k + 3)) % 11) / 8 - 0.6f;
        v[k] = (Tensor){vectors[k], {1, c, 1, 1}, DTYPE_F32, c}; /* beta, mean, var, gamma */
    }
    memset(y, 0, sizeof y), memset(argmax, 0, sizeof argmax), memset(dx, 0, sizeof dx), memset(sums, 0, sizeof sums);
    Tensor middle = pooled_tensor(a, dtype, c, POOLED_SIDE), back = pooled_tensor(da, dtype, c, POOLED_SIDE), place[2];
    for (int k = 0; k < 2; k++) place[k] = pooled_tensor(argmax[k], DTYPE_U8, c, side);
    run_call((OpCall){OP_BATCHNORM_APPLY, norm, "apart", .in = {image, v[0], v[1], v[2], v[3]}, .out = {middle},
                      .in_count = 5, .out_count = 1});
    run_call((OpCall){OP_MAX_POOL, pool, "apart", .in = {middle},
                      .out = {pooled_tensor(y[0], dtype, c, side), place[0]}, .in_count = 1, .out_count = 2});
    run_call((OpCall){OP_MAX_POOL_NORM, pool, "joined", .in = {image, v[0], v[1], v[2], v[3]},
                      .out = {pooled_tensor(y[1], dtype, c, side), place[1]}, .in_count = 5, .out_count = 2});
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(argmax[0], argmax[1], sizeof argmax[0]);
    run_call(
        (OpCall){OP_MAX_POOL_DX, pool, "apart", .in = {small, place[0]}, .out = {back}, .in_count = 2, .out_count = 1});
    Tensor d[3], s[3][2];
    for (int k = 0; k < 3; k++) d[k] = pooled_tensor(dx[k], dtype, c, POOLED_SIDE);
    for (int k = 0; k < 6; k++) s[k / 2][k % 2] = (Tensor){sums[k / 2][k % 2], {1, c, 1, 1}, DTYPE_F32, c};
    run_call((OpCall){OP_BATCHNORM_DX, norm, "apart", .in = {back, image, v[0], v[1], v[2], v[3]},
                      .out = {d[0], s[0][0], s[0][1]}, .in_count = 6, .out_count = 3});
    OpCall fused = {OP_MAX_POOL_NORM_DX,
                    pool,
                    "fused",
                    .in = {small, place[0], image, v[0], v[1], v[2], v[3]},
                    .out = {d[1], s[1][0], s[1][1]},
                    .in_count = 7,
                    .out_count = 3};
    run_call(fused);
    if (in_blocks(window)) {
        check_near(DTYPE_F32, sums[0], sums[1], 2 * POOLED_C);
        check_near(dtype, dx[0], dx[1], POOLED_N * c * POOLED_SIDE * POOLED_SIDE);
    } else {
        assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
        assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    }
    fused.out[0].data = NULL;
    run_call(fused); /* a launch less, so that the next run takes blocks and threads in the other order */
    for (int k = 0; k < 3; k++) fused.out[k] = k ? s[2][k - 1] : d[2];
    run_call(fused);
    assert_memory_equal(sums[1], sums[2], sizeof sums[1]);
    assert_memory_equal(dx[1], dx[2], sizeof dx[1]);
}

TEST(test_pool_of_norm)
{
    static const Window windows[] = {
        {3, 3, 2, 2, 0, 0, false}, {3, 3, 2, 2, 1, 1, true}, {2, 2, 2, 2, 0, 0, true}, {3, 3, 1, 1, 1, 1, false}};
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
            check_pooled(dtype, POOLED_C, windows[k]);
            check_pooled(dtype, 5, windows[k]);
        }
}

/* Of equal elements the first is the maximum; of NaNs, which are larger than all else, the last. */
static int32_t place_of_maximum(Dtype dtype, const void *x, Window w, int64_t image, int32_t i, int32_t j,
                                int32_t channel)
{
    int32_t place = -1;
    double best = 0;
    for (int32_t k = 0; k < w.kh * w.kw; k++) {
        int32_t row = i * w.stride_h - w.pad_h + k / w.kw, column = j * w.stride_w - w.pad_w + k % w.kw;
        if (row < 0 || row >= POOLED_SIDE || column < 0 || column >= POOLED_SIDE) continue;
        int64_t pixel = (image * POOLED_SIDE + row) * POOLED_SIDE + column;
        double value = dtype_load(dtype, x, pixel * POOLED_C + channel);
        if (place < 0 || value > best || value != value) best = value, place = k;
    }
    return place;
}

TEST(test_places_of_maxima)
{
    static const Window windows[] = {
        {3, 3, 2, 2, 0, 0, false}, {3, 3, 2, 2, 1, 1, true}, {3, 3, 2, 2, 2, 2, false}, {3, 3, 1, 1, 1, 1, false}};
    static float x[POOLED_COUNT], dy[POOLED_COUNT], y[POOLED_COUNT];
    static uint8_t argmax[POOLED_COUNT];
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
            Window w = windows[k];
            int32_t side = window_out(&w, (Shape){1, 1, POOLED_SIDE, POOLED_SIDE}, 1).h;
            OpAttr pool = {.pool = {.window = w}};
            pooled_values(dtype, x, dy);
            for (int i = 0; i < POOLED_COUNT; i += 29) dtype_store(dtype, x, i, NAN);
            run_call((OpCall){
                OP_MAX_POOL, pool, "places", .in = {pooled_tensor(x, dtype, POOLED_C, POOLED_SIDE)},
                .out = {pooled_tensor(y, dtype, POOLED_C, side), pooled_tensor(argmax, DTYPE_U8, POOLED_C, side)},
                .in_count = 1, .out_count = 2});
            for (int32_t at = 0; at < POOLED_N * side * side * POOLED_C; at++) {
                int32_t pixel = at / POOLED_C, j = pixel % side, i = pixel / side % side, image = pixel / side / side;
                assert_int_equal(argmax[at], place_of_maximum(dtype, x, w, image, i, j, at % POOLED_C));
            }
        }
}

/* ---- images whose rows end with zeros */

TEST(test_padded_image)
{
    enum { N = 2, H = 6, W = 5, SIDE = 9 };
    static uint8_t pixels[N * SIDE * SIDE * 3];
    static const int32_t crops[N * IMAGE_RECORD] = {1, 3, 0, [IMAGE_RECORD] = 2, 4, 1};
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37);
    for (Dtype dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        size_t size = dtype_bytes(dtype);
        char narrow[N * H * W * 3 * 4], wide[N * H * W * 8 * 4];
        for (int c = 3; c <= 8; c += 5) {
            OpCall call = {.kind = OP_IMAGE, .name = "padded", .in_count = 2, .out_count = 1};
            for (int k = 0; k < 4; k++) call.attr.image.mean[k] = 0.4f, call.attr.image.std[k] = 0.25f;
            call.in[0] = (Tensor){pixels, {N, 3, SIDE, SIDE}, DTYPE_U8, 3};
            call.in[1] = (Tensor){(void *)(uintptr_t)crops, {N, IMAGE_RECORD, 1, 1}, DTYPE_I32, IMAGE_RECORD};
            void *out = NULL;
            must(emulated_backend.alloc(&device, N * H * W * (size_t)c * size, &out));
            call.out[0] = (Tensor){out, {N, 3, H, W}, dtype, c};
            call.padded_out = c > 3;
            must(emulated_backend.kernels[OP_IMAGE]->prepare(&device, &call));
            must(emulated_backend.kernels[OP_IMAGE]->launch(&device, &call));
            memcpy(c == 3 ? narrow : wide, out, N * H * W * (size_t)c * size);
            emulated_backend.release(&device, out);
        }
        static const char zeros[5 * 4];
        for (size_t p = 0; p < N * H * W; p++) {
            assert_memory_equal(wide + p * 8 * size, narrow + p * 3 * size, 3 * size);
            assert_memory_equal(wide + (p * 8 + 3) * size, zeros, 5 * size);
        }
    }
}

/* ---- types that differ */

TEST(test_mixed_types)
{
    enum { COUNT = 48 };
    uint16_t a[COUNT], y[COUNT];
    float b[COUNT];
    for (int i = 0; i < COUNT; i++) {
        dtype_store(DTYPE_BF16, a, i, i - 20.5);
        b[i] = (float)i / 8;
    }
    OpCall call = {.kind = OP_MUL, .name = "mixed", .in_count = 2, .out_count = 1};
    call.in[0] = (Tensor){a, {1, COUNT, 1, 1}, DTYPE_BF16, COUNT};
    call.in[1] = (Tensor){b, {1, COUNT, 1, 1}, DTYPE_F32, COUNT};
    call.out[0] = (Tensor){y, {1, COUNT, 1, 1}, DTYPE_F16, COUNT};
    must(emulated_backend.kernels[OP_MUL]->prepare(&device, &call));
    must(emulated_backend.kernels[OP_MUL]->launch(&device, &call));
    for (int i = 0; i < COUNT; i++)
        assert_true(dtype_load(DTYPE_F16, y, i) == dtype_round(DTYPE_F16, (i - 20.5) * (double)b[i]));
}

/* ---- more segments than one launch holds, at odd places */

TEST(test_many_segments)
{
    enum { SEGMENTS = 300, LENGTH = 29, GAP = 2, COUNT = SEGMENTS * (LENGTH + GAP) };
    static OptimizerSegment segments[SEGMENTS];
    float *param = random_floats(COUNT, 1), *grad = random_floats(COUNT, 2), *momentum = random_floats(COUNT, 3);
    float *old = random_floats(COUNT, 1), *before = random_floats(COUNT, 3);
    static OptimizerTrust trust[SEGMENTS];
    for (int k = 0; k < SEGMENTS; k++)
        segments[k] =
            (OptimizerSegment){(size_t)k * (LENGTH + GAP), LENGTH, (float)k * 1e-3f, k % 3 ? 1 : 0.5f, k % 5 != 0};
    OptimizerScalars scalars = {0.1f, 1, 1, 0, 1, {0}};
    OptimizerUpdate update = {.hyper = {.kind = OPTIMIZER_SGD, .momentum = 0.9f},
                              .param = param,
                              .grad = grad,
                              .state = {momentum},
                              .segments = segments,
                              .segment_count = SEGMENTS,
                              .scalars = &scalars};
    must(emulated_backend.optimizer_apply(&device, &update));
    for (int i = 0; i < COUNT; i++) {
        RefUpdate e = {(double)old[i], (double)grad[i], {(double)before[i], 0}};
        bool owned = i % (LENGTH + GAP) < LENGTH;
        if (owned) reference_update(&update.hyper, &segments[i / (LENGTH + GAP)], &scalars, &e);
        assert_true(fabs((double)param[i] - e.param) <= 1e-6);
        assert_true(fabs((double)momentum[i] - e.state[0]) <= 1e-6);
    }
    update.hyper = (OptimizerHyper){.kind = OPTIMIZER_LARS, .momentum = 0.9f, .trust = 0.01f};
    update.trust = trust;
    memcpy(param, old, COUNT * sizeof *param);
    memcpy(momentum, before, COUNT * sizeof *momentum);
    must(emulated_backend.optimizer_apply(&device, &update));
    for (int k = 0; k < SEGMENTS; k++) {
        RefUpdate e[LENGTH];
        const size_t first = segments[k].first;
        for (size_t i = 0; i < LENGTH; i++)
            e[i] = (RefUpdate){(double)old[first + i], (double)grad[first + i], {(double)before[first + i], 0}};
        double ratio = reference_update_layer(&update.hyper, &segments[k], &scalars, e);
        assert_true(fabs((double)trust[k].ratio - ratio) <= 1e-6);
        for (size_t i = 0; i < LENGTH; i++) assert_true(fabs((double)param[first + i] - e[i].param) <= 1e-6);
    }
    free(param), free(grad), free(momentum), free(old), free(before);
}

/* The squares of a large tensor are summed up by as many blocks as it needs, at most TRUST_PARTS, in the same order whichever
 * block ends first: the emulation turns the blocks round from launch to launch. */
TEST(test_trust_of_large_tensors)
{
    enum { SEGMENTS = 3, LAUNCHES = 2, CHUNK = 8192, COUNT = 3 * CHUNK * TRUST_PARTS / 2 };
    static const OptimizerSegment segments[SEGMENTS] = {
        {0, CHUNK + 1, 1e-3f, 1, true}, {CHUNK + 4, 5, 0, 1, true}, {CHUNK + 12, COUNT - CHUNK - 12, 1e-2f, 1, true}};
    static const int parts[SEGMENTS] = {2, 1, TRUST_PARTS};
    static OptimizerTrust trust[LAUNCHES][SEGMENTS];
    OptimizerScalars scalars = {0.1f, 1, 1, 0, 1, {0}};
    float *param = random_floats(COUNT, 1), *grad = random_floats(COUNT, 2);
    for (int launch = 0; launch < LAUNCHES; launch++) {
        float *moved = random_floats(COUNT, 1), *momentum = random_floats(COUNT, 3);
        OptimizerUpdate update = {.hyper = {.kind = OPTIMIZER_LARS, .momentum = 0.9f, .trust = 0.01f},
                                  .param = moved,
                                  .grad = grad,
                                  .state = {momentum},
                                  .segments = segments,
                                  .segment_count = SEGMENTS,
                                  .scalars = &scalars,
                                  .trust = trust[launch]};
        must(emulated_backend.optimizer_apply(&device, &update));
        free(moved), free(momentum);
    }
    assert_memory_equal(trust[0], trust[1], sizeof trust[0]);
    for (int k = 0; k < SEGMENTS; k++) {
        double params = 0, grads = 0;
        int used = 0;
        for (size_t i = segments[k].first; i < segments[k].first + segments[k].count; i++) {
            params += (double)param[i] * (double)param[i];
            grads += (double)grad[i] * (double)grad[i];
        }
        for (int part = 0; part < TRUST_PARTS; part++) used += trust[0][k].part[part][0] > 0;
        assert_int_equal(used, parts[k]);
        double ratio = 0.01 * sqrt(params) / (sqrt(grads) + (double)segments[k].weight_decay * sqrt(params));
        assert_true(fabs((double)trust[0][k].ratio - ratio) <= 1e-7 * ratio);
    }
    free(param), free(grad);
}

/* ---- hashes */

static uint64_t hash_of(const float *x, size_t count, uint64_t first)
{
    void *memory;
    must(emulated_backend.alloc(&device, sizeof(uint64_t), &memory));
    must(emulated_backend.hash(&device, x, count, first, memory));
    uint64_t sum = *(uint64_t *)memory;
    emulated_backend.release(&device, memory);
    return sum;
}

/* Every bit counts, the place of every element, and nothing else: more elements than a launch has threads, at odd places. */
TEST(test_hash)
{
    enum { COUNT = 3000, MOST = 300000 };
    float *x = random_floats(COUNT + 1, 1), *large = random_floats(MOST, 2);
    uint64_t whole = hash_of(x, COUNT, 5);
    assert_true(hash_of(x, 1001, 5) + hash_of(x + 1001, COUNT - 1001, 5 + 1001) == whole);
    assert_true(hash_of(x, COUNT, 6) != whole);
    assert_true(hash_of(x + 1, COUNT, 5) != whole);
    for (int i = 0; i < COUNT; i += 97)
        for (int bit = 0; bit < 32; bit++) {
            uint32_t flipped, kept;
            memcpy(&kept, &x[i], sizeof kept);
            flipped = kept ^ 1u << bit;
            memcpy(&x[i], &flipped, sizeof flipped);
            assert_true(hash_of(x, COUNT, 5) != whole);
            memcpy(&x[i], &kept, sizeof kept);
        }
    whole = hash_of(large, MOST, 0);
    large[MOST - 1] += 1;
    assert_true(hash_of(large, MOST, 0) != whole);
    free(x), free(large);
}

/* ---- conversions */

static void check_cast(Dtype to, Dtype from, int64_t count, int64_t offset)
{
    double values[600];
    void *source = NULL, *target = NULL;
    fill_uniform(values, 600, 9, -4, 4);
    must(emulated_backend.alloc(&device, (size_t)(count + offset) * dtype_bytes(from), &source));
    must(emulated_backend.alloc(&device, (size_t)(count + offset) * dtype_bytes(to), &target));
    for (int64_t i = 0; i < count; i++) dtype_store(from, source, offset + i, values[i]);
    assert_int_equal(convert_flat((char *)target + (size_t)offset * dtype_bytes(to), to,
                                  (char *)source + (size_t)offset * dtype_bytes(from), from, count, NULL),
                     cudaSuccess);
    for (int64_t i = 0; i < count; i++)
        assert_true(dtype_load(to, target, offset + i) == dtype_round(to, dtype_load(from, source, offset + i)));
    emulated_backend.release(&device, source);
    emulated_backend.release(&device, target);
}

TEST(test_casts)
{
    static const int64_t counts[] = {0, 1, 7, 8, 9, 31, 256, 519};
    for (Dtype to = DTYPE_F32; to <= DTYPE_F16; to++)
        for (Dtype from = DTYPE_F32; from <= DTYPE_F16; from++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                for (int64_t offset = 0; offset < 2; offset++) check_cast(to, from, counts[i], offset);
}

TEST(test_fill)
{
    float x[301];
    x[300] = 5;
    assert_int_equal(convert_fill(x, 2.5f, 300, NULL), cudaSuccess);
    for (int i = 0; i < 301; i++) assert_true(x[i] == (i < 300 ? 2.5f : 5.0f));
}

/* Three channels in slices to eight in another type, and back to packed. */
TEST(test_pixels)
{
    enum { PIXELS = 35, C = 3, PITCH = 5, WIDE = 8 };
    float x[PIXELS * PITCH], back[PIXELS * C];
    uint16_t y[PIXELS * WIDE];
    for (int i = 0; i < PIXELS * PITCH; i++) x[i] = (float)i / 4;
    memset(y, 0xff, sizeof y);
    Tensor from = {x, {1, C, 5, 7}, DTYPE_F32, PITCH}, to = {y, {1, WIDE, 5, 7}, DTYPE_F16, WIDE};
    Tensor narrow = {y, {1, C, 5, 7}, DTYPE_F16, WIDE}, packed = {back, {1, C, 5, 7}, DTYPE_F32, C};
    assert_int_equal(convert_pixels(&to, &from, NULL), cudaSuccess);
    for (int i = 0; i < PIXELS * WIDE; i++) {
        double wanted = i % WIDE < C ? (double)x[i / WIDE * PITCH + i % WIDE] : 0;
        assert_true(dtype_load(DTYPE_F16, y, i) == wanted);
    }
    assert_int_equal(convert_pixels(&packed, &narrow, NULL), cudaSuccess);
    for (int i = 0; i < PIXELS * C; i++) assert_true(back[i] == x[i / C * PITCH + i % C]);
}

TEST(test_bias)
{
    enum { PIXELS = 12 };
    for (int c = 5; c <= 16; c += 11) {
        float y[PIXELS * 16], bias[16];
        for (int i = 0; i < PIXELS * c; i++) y[i] = (float)(i % 9) - 4;
        for (int i = 0; i < c; i++) bias[i] = (float)i / 8;
        Tensor t = {y, {1, c, 3, 4}, DTYPE_F32, c};
        assert_int_equal(convert_bias(&t, bias, true, NULL), cudaSuccess);
        for (int i = 0; i < PIXELS * c; i++) assert_true(y[i] == fmaxf(0, (float)(i % 9) - 4 + bias[i % c]));
    }
}

/* ---- what is undefined on a GPU stops the emulation */

static bool stops(void (*run)(int, int), int one, int other)
{
    int ending;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        run(one, other);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ending, 0), child);
    return WIFSIGNALED(ending) && WTERMSIG(ending) == SIGABRT;
}

TEST(test_undefined_kernels)
{
    assert_false(stops(undefined_shuffle, 64, 32));
    assert_true(stops(undefined_shuffle, 48, 32)); /* the second warp has 16 lanes */
    assert_true(stops(undefined_shuffle, 64, 16)); /* half of the lanes have ended */
    for (int fences = 0; fences < 4; fences++) assert_true(stops(undefined_sum, fences, 0) == (fences != 3));
    for (int needs = 0; needs < 6; needs++) assert_true(stops(undefined_product, needs, 0) == (needs != 5));
}

TESTS_WITH(open_device, close_device)
