/* The number of threads changes no bit of a convolution or dense layer on the CPU, in any implementation.
 *
 * Values round in every sum, so that another order of additions shows. The shapes are those of the recipes' networks,
 * with fewer images, and some that leave remainders; each is computed in f32 and, if the processor supports it, bf16.
 * With ONEDNN_MAX_CPU_ISA=AVX2 it tests the code of processors without AVX-512. */
#include <stdint.h>

#include "kernels/backend.h"
#include "tests/support/reference.h"
#include "tests/support/unit.h"

typedef struct Case {
    int n, ic, oc, h, w, kh, kw, stride, pad_h, pad_w;
    int groups; /* 0: one */
} Case;

static const Case cases[] = {
    {64, 1, 32, 28, 28, 3, 3, 1, 0, 0},        {64, 1, 6, 28, 28, 5, 5, 1, 2, 2},
    {17, 3, 32, 32, 32, 3, 3, 1, 1, 1},        {5, 3, 32, 75, 75, 3, 3, 2, 0, 0},
    {3, 3, 64, 56, 56, 7, 7, 2, 3, 3},         {32, 32, 64, 14, 14, 3, 3, 1, 1, 1},
    {32, 6, 16, 14, 14, 5, 5, 1, 0, 0},        {7, 48, 64, 35, 35, 5, 5, 1, 2, 2},
    {8, 96, 96, 35, 35, 3, 3, 2, 0, 0},        {16, 192, 64, 17, 17, 1, 1, 1, 0, 0},
    {9, 128, 96, 17, 17, 1, 7, 1, 0, 3},       {9, 128, 96, 17, 17, 7, 1, 1, 3, 0},
    {6, 192, 320, 17, 17, 3, 3, 2, 0, 0},      {16, 384, 384, 8, 8, 1, 3, 1, 0, 1},
    {16, 384, 384, 8, 8, 3, 1, 1, 1, 0},       {16, 128, 256, 5, 5, 5, 5, 1, 0, 0},
    {1, 64, 80, 73, 73, 1, 1, 1, 0, 0},        {50, 1, 16, 29, 29, 5, 5, 2, 1, 1},
    {33, 32, 32, 15, 15, 5, 5, 2, 1, 1},       {19, 128, 80, 7, 7, 5, 5, 2, 2, 2},
    {16, 1280, 320, 8, 8, 1, 1, 1, 0, 0},      {3, 72, 72, 28, 28, 5, 5, 2, 2, 2, 72},
    {9, 120, 120, 14, 14, 3, 3, 1, 1, 1, 120}, {5, 64, 96, 14, 14, 3, 3, 1, 1, 1, 8},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* oneDNN divides long sums only if there are many threads for few outputs. */
static const int teams[] = {1, 2, 3, 7, 24};
enum { TEAMS = sizeof teams / sizeof teams[0] };

static const struct Product {
    int rows, ins, outs;
} products[] = {{64, 3200, 1000},  {16, 2048, 1000}, {64, 1024, 10}, {512, 512, 520}, {7, 8192, 1},   {2048, 70, 1},
                {1, 3000, 500},    {2050, 100, 96},  {4096, 96, 96}, {1500, 100, 96}, {8192, 64, 64}, {100, 4096, 100},
                {1024, 2050, 320}, {1, 1024, 10},    {2, 3000, 500}, {4, 2048, 2048}};
enum { PRODUCTS = sizeof products / sizeof products[0] };

static const OpKind conv_kinds[] = {OP_CONV, OP_CONV_DX, OP_CONV_DW};
static const OpKind dense_kinds[] = {OP_DENSE, OP_DENSE_DX, OP_DENSE_DW};

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

/* `what`: the call in words. It is one of y = op(x, w), dx(y, w) and dw(x, y). */
static int call_differs(OpCall *call, const char *what, const Tensor *x, const Tensor *w, const Tensor *y)
{
    const Tensor *out = call->kind == OP_CONV || call->kind == OP_DENSE         ? y
                        : call->kind == OP_CONV_DX || call->kind == OP_DENSE_DX ? x
                                                                                : w;
    void *kept = NULL;
    int differ = 0;
    call->name = "threads";
    call->in_count = 2;
    call->out_count = 1;
    call->in[0] = out == x ? *y : *x;
    call->in[1] = out == w ? *y : *w;
    for (int k = 0; k < TEAMS; k++) {
        call->out[0] = tensor_make(out->shape, out->dtype);
        call_run(call, teams[k]);
        for (int64_t i = 0; !kept && i < shape_count(out->shape); i++) /* sums of at most 8192 products below 1 */
            if (!(fabs(dtype_load(out->dtype, call->out[0].data, i)) < 8192))
                fail_msg("%s %s, %s: output %d is %g", op_name(call->kind), dtype_name(x->dtype), what, (int)i,
                         dtype_load(out->dtype, call->out[0].data, i));
        if (kept && memcmp(kept, call->out[0].data, bytes_of(out)) != 0) {
            print_error("%s %s, %s: %d threads make other bits than one\n", op_name(call->kind), dtype_name(x->dtype),
                        what, teams[k]);
            differ = 1;
        }
        if (kept)
            free(call->out[0].data);
        else
            kept = call->out[0].data;
    }
    free(kept);
    return differ;
}

static int kinds_differ(const OpKind kinds[3], const Window *window, const char *what, Tensor *x, Tensor *w, Tensor *y)
{
    int differ = 0;
    for (int k = 0; k < 3; k++) {
        OpCall call = {.kind = kinds[k]};
        if (window) call.attr.conv.window = *window;
        differ += call_differs(&call, what, x, w, y);
    }
    free(x->data);
    free(w->data);
    free(y->data);
    return differ;
}

static int conv_differs(const Case *c, Dtype dtype)
{
    char what[96];
    Window window = {c->kh, c->kw, c->stride, c->stride, c->pad_h, c->pad_w, false};
    Shape in = {c->n, c->ic, c->h, c->w};
    Tensor x = tensor_make(in, dtype), y = tensor_make(window_out(&window, in, c->oc), dtype);
    Tensor w = tensor_make((Shape){c->oc, c->ic / (c->groups ? c->groups : 1), c->kh, c->kw}, DTYPE_F32);
    snprintf(what, sizeof what, "%dx%dx%dx%d to %d by %dx%d/%d", c->n, c->ic, c->h, c->w, c->oc, c->kh, c->kw,
             c->stride);
    return kinds_differ(conv_kinds, &window, what, &x, &w, &y);
}

static int dense_differs(const struct Product *p, Dtype dtype)
{
    char what[96];
    Tensor x = tensor_make((Shape){p->rows, p->ins, 1, 1}, dtype),
           y = tensor_make((Shape){p->rows, p->outs, 1, 1}, dtype);
    Tensor w = tensor_make((Shape){p->outs, p->ins, 1, 1}, DTYPE_F32);
    snprintf(what, sizeof what, "%d rows of %d to %d", p->rows, p->ins, p->outs);
    return kinds_differ(dense_kinds, NULL, what, &x, &w, &y);
}

static int all_differ(Dtype dtype)
{
    int differ = 0;
    for (int i = 0; i < CASES; i++) differ += conv_differs(&cases[i], dtype);
    for (int i = 0; i < PRODUCTS; i++) differ += dense_differs(&products[i], dtype);
    return differ;
}

TEST(test_f32)
{
    assert_int_equal(all_differ(DTYPE_F32), 0);
}

TEST(test_bf16)
{
    if (cpu_find()->computes(DTYPE_BF16) != OK) {
        skip("this processor has no --amp: %s", status_message());
    }
    assert_int_equal(all_differ(DTYPE_BF16), 0);
}
