/* The number of threads changes no bit of a convolution on the CPU, in any implementation.
 *
 * Values round in every sum, so that another order of additions shows. The shapes are those of the recipes' networks,
 * with fewer images, and some that leave remainders; each is computed in f32 and, if the processor supports it, bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "tests/support/reference.h"

typedef struct Case {
    int n, ic, oc, h, w, kh, kw, stride, pad_h, pad_w;
} Case;

static const Case cases[] = {
    {64, 1, 32, 28, 28, 3, 3, 1, 0, 0},   {64, 1, 6, 28, 28, 5, 5, 1, 2, 2},   {17, 3, 32, 32, 32, 3, 3, 1, 1, 1},
    {5, 3, 32, 75, 75, 3, 3, 2, 0, 0},    {3, 3, 64, 56, 56, 7, 7, 2, 3, 3},   {32, 32, 64, 14, 14, 3, 3, 1, 1, 1},
    {32, 6, 16, 14, 14, 5, 5, 1, 0, 0},   {7, 48, 64, 35, 35, 5, 5, 1, 2, 2},  {8, 96, 96, 35, 35, 3, 3, 2, 0, 0},
    {16, 192, 64, 17, 17, 1, 1, 1, 0, 0}, {9, 128, 96, 17, 17, 1, 7, 1, 0, 3}, {9, 128, 96, 17, 17, 7, 1, 1, 3, 0},
    {6, 192, 320, 17, 17, 3, 3, 2, 0, 0}, {16, 384, 384, 8, 8, 1, 3, 1, 0, 1}, {16, 384, 384, 8, 8, 3, 1, 1, 1, 0},
    {16, 128, 256, 5, 5, 5, 5, 1, 0, 0},  {1, 64, 80, 73, 73, 1, 1, 1, 0, 0},  {50, 1, 16, 29, 29, 5, 5, 2, 1, 1},
    {33, 32, 32, 15, 15, 5, 5, 2, 1, 1},  {19, 128, 80, 7, 7, 5, 5, 2, 2, 2},
};
enum { CASES = sizeof cases / sizeof cases[0], MOST_THREADS = 3 };

static const OpKind kinds[] = {OP_CONV, OP_CONV_DX, OP_CONV_DW};

static const Backend *cpu_find(void)
{
    const Backend *cpu;
    assert_int_equal(backend_find("cpu", &cpu, NULL, 0), OK);
    return cpu;
}

static size_t bytes_of(const Tensor *t)
{
    return (size_t)shape_count(t->shape) * dtype_bytes(t->dtype);
}

static Tensor tensor_make(Shape shape, Dtype dtype)
{
    static uint64_t state = 1;
    Tensor t = {.shape = shape, .dtype = dtype, .pitch = shape.c};
    t.data = aligned_alloc(64, (bytes_of(&t) + 63) / 64 * 64);
    assert_non_null(t.data);
    for (int64_t i = 0; i < shape_count(shape); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        dtype_store(dtype, t.data, i, (double)(state >> 40) / 8388608.0 - 1.0);
    }
    return t;
}

/* The call's output, computed by a device of `threads` threads. */
static void call_run(OpCall *call, int threads)
{
    Device device;
    const Backend *cpu = cpu_find();
    const OpKernel *kernel = cpu->kernels[call->kind];
    DeviceConfig config = {DEVICE_USUAL, .threads = threads};
    assert_int_equal(cpu->open(&config, &device), OK);
    if (kernel->prepare(&device, call) != OK) fail_msg("%s", status_message());
    call->workspace = aligned_alloc(64, (call->workspace_bytes + 127) / 64 * 64);
    assert_non_null(call->workspace);
    assert_int_equal(kernel->launch(&device, call), OK);
    free(call->workspace);
    kernel->discard(&device, call);
    cpu->close(&device);
}

static int kind_differs(const Case *c, Dtype dtype, OpKind kind, const Tensor *x, const Tensor *w, const Tensor *y)
{
    const Tensor *operands[][3] = {[OP_CONV] = {x, w, y}, [OP_CONV_DX] = {y, w, x}, [OP_CONV_DW] = {x, y, w}};
    const Tensor *const *of = operands[kind];
    OpCall call = {.kind = kind, .name = "threads", .in_count = 2, .in = {*of[0], *of[1]}, .out_count = 1};
    call.attr.conv.window = (Window){c->kh, c->kw, c->stride, c->stride, c->pad_h, c->pad_w, false};
    void *kept = NULL;
    int differ = 0;
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        Tensor out = tensor_make(of[2]->shape, of[2]->dtype);
        call.out[0] = out;
        call_run(&call, threads);
        if (kept && memcmp(kept, out.data, bytes_of(&out)) != 0) {
            print_error("%s %s, %dx%dx%dx%d to %d by %dx%d/%d: %d threads make other bits than one\n", op_name(kind),
                        dtype_name(dtype), c->n, c->ic, c->h, c->w, c->oc, c->kh, c->kw, c->stride, threads);
            differ = 1;
        }
        if (kept)
            free(out.data);
        else
            kept = out.data;
    }
    free(kept);
    return differ;
}

static int case_differs(const Case *c, Dtype dtype)
{
    Shape out = {c->n, c->oc, window_out(c->h, c->kh, c->stride, c->pad_h, false),
                 window_out(c->w, c->kw, c->stride, c->pad_w, false)};
    Tensor x = tensor_make((Shape){c->n, c->ic, c->h, c->w}, dtype), y = tensor_make(out, dtype);
    Tensor w = tensor_make((Shape){c->oc, c->ic, c->kh, c->kw}, DTYPE_F32);
    int differ = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) differ += kind_differs(c, dtype, kinds[k], &x, &w, &y);
    free(x.data);
    free(w.data);
    free(y.data);
    return differ;
}

static void test_f32(void **state)
{
    (void)state;
    int differ = 0;
    for (int i = 0; i < CASES; i++) differ += case_differs(&cases[i], DTYPE_F32);
    assert_int_equal(differ, 0);
}

static void test_bf16(void **state)
{
    (void)state;
    int differ = 0;
    if (cpu_find()->computes(DTYPE_BF16) != OK) {
        print_message("skipped: %s\n", status_message());
        skip();
    }
    for (int i = 0; i < CASES; i++) differ += case_differs(&cases[i], DTYPE_BF16);
    assert_int_equal(differ, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
