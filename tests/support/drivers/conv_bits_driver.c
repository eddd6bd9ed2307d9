/* Prints what our own convolutions compute, so that scripts/check/conv_bits.sh can compare two builds to the bit.
 *
 *   conv_bits_driver
 *
 * One line a convolution: the operation, the implementation, the problem, and a digest of the output and of what lies
 * between its pixels. Every row of the lists in conv.c but oneDNN's computes every problem that it takes, also those that
 * an earlier row would have taken. ONEDNN_MAX_CPU_ISA chooses the kind of processor. */
#include <xxhash.h>

#include "kernels/cpu/conv/conv_impl.h"
#include "tests/support/reference.h"
#include "tests/support/unit.h"

typedef struct Problem {
    int n, ic, oc, h, w, kh, kw, stride, pad_h, pad_w;
    int groups; /* 0: one */
} Problem;

/* clang-format off */
static const Problem problems[] = {
    /* 3x3: tiles that fit and that do not, panels of one, two and three vectors, multiples of 8, small images */
    {2, 48, 64, 17, 16, 3, 3, 1, 1, 1}, {2, 192, 112, 16, 17, 3, 3, 1, 1, 1}, {2, 32, 80, 19, 22, 3, 3, 1, 0, 0},
    {2, 40, 56, 17, 18, 3, 3, 1, 1, 1}, {2, 32, 48, 46, 47, 3, 3, 1, 1, 1}, {2, 16, 80, 50, 49, 3, 3, 1, 0, 0},
    {2, 24, 40, 47, 48, 3, 3, 1, 1, 1}, {2, 48, 16, 45, 45, 3, 3, 1, 2, 2}, {3, 80, 32, 17, 20, 3, 3, 1, 2, 0},
    {9, 112, 64, 8, 8, 3, 3, 1, 1, 1}, {16, 64, 96, 9, 7, 3, 3, 1, 0, 2}, {40, 32, 48, 8, 8, 3, 3, 1, 1, 1},
    {5, 32, 32, 60, 41, 3, 3, 1, 0, 1}, {1, 48, 32, 35, 33, 3, 3, 1, 1, 1}, {150, 32, 48, 7, 7, 3, 3, 1, 1, 1},
    {17, 160, 176, 8, 8, 3, 3, 1, 1, 1}, {4, 64, 64, 18, 15, 3, 3, 1, 1, 1}, {5, 32, 32, 80, 61, 3, 3, 1, 0, 1},
    /* 5x5 */
    {2, 48, 64, 24, 23, 5, 5, 1, 2, 2}, {2, 24, 16, 29, 30, 5, 5, 1, 0, 0}, {2, 16, 32, 22, 28, 5, 5, 1, 4, 0},
    {4, 48, 64, 15, 16, 5, 5, 1, 2, 2}, {9, 32, 32, 35, 17, 5, 5, 1, 4, 0}, {20, 64, 32, 8, 7, 5, 5, 1, 2, 2},
    /* 1x7 and 7x1: with and without a last output, of less than a tile */
    {3, 64, 48, 17, 17, 1, 7, 1, 0, 3}, {2, 160, 112, 17, 17, 7, 1, 1, 3, 0}, {2, 32, 64, 16, 20, 1, 7, 1, 0, 3},
    {2, 80, 32, 28, 13, 7, 1, 1, 0, 0}, {2, 56, 40, 17, 17, 1, 7, 1, 0, 3}, {3, 32, 32, 3, 90, 7, 1, 1, 3, 0},
    {3, 32, 32, 1, 90, 7, 1, 1, 3, 0}, {21, 96, 80, 13, 20, 1, 7, 1, 0, 6}, {2, 32, 32, 9, 51, 1, 7, 1, 0, 0},
    /* 1x1 */
    {2, 48, 64, 24, 23, 1, 1, 1, 0, 0}, {2, 24, 40, 24, 23, 1, 1, 1, 0, 0}, {3, 144, 96, 13, 11, 1, 1, 1, 0, 0},
    {5, 70, 30, 17, 9, 1, 1, 1, 0, 0}, {4, 33, 17, 19, 14, 1, 1, 2, 0, 0},
    /* other windows: with a stride, of channels that fill no vector */
    {8, 64, 64, 14, 14, 5, 5, 2, 2, 2}, {9, 48, 96, 7, 7, 5, 5, 2, 2, 2}, {15, 32, 16, 13, 12, 5, 6, 2, 1, 2},
    {6, 35, 83, 18, 23, 5, 5, 2, 1, 2}, {6, 37, 45, 33, 21, 3, 3, 2, 1, 1}, {2, 41, 24, 12, 75, 3, 5, 1, 1, 0},
    {11, 96, 40, 12, 12, 3, 3, 2, 0, 1}, {3, 130, 20, 11, 70, 1, 3, 1, 0, 1}, {4, 16, 9, 21, 140, 3, 1, 1, 1, 0},
    /* images */
    {8, 3, 32, 33, 31, 3, 3, 2, 0, 0}, {9, 3, 64, 20, 20, 3, 3, 1, 1, 1}, {70, 1, 32, 28, 28, 5, 5, 1, 2, 2},
    {8, 3, 64, 32, 32, 7, 7, 2, 3, 3}, {10, 4, 24, 17, 19, 4, 4, 2, 1, 1},
    /* a window for each channel */
    {2, 40, 40, 15, 14, 3, 3, 1, 1, 1, 40}, {2, 72, 72, 14, 14, 5, 5, 2, 2, 2, 72}, {2, 17, 17, 9, 9, 2, 2, 3, 0, 0, 17},
    {3, 48, 48, 11, 12, 7, 7, 1, 3, 3, 48}, {1, 20, 20, 30, 29, 3, 3, 2, 1, 1, 20},
};
/* clang-format on */

enum { SLICES = 1, ADDED = 2, KEPT = 4, VARIANTS = 8, GAP = 16, THREADS = 2 };

/* What a problem is computed of. */
typedef struct Operands {
    Tensor x, w, y, bias, acc;
} Operands;

static uint64_t random_state;

/* All elements, those between the pixels too. */
static int64_t elements(const Tensor *t)
{
    return shape_pixels(t->shape) * t->pitch;
}

static Tensor tensor_of(Shape shape, Dtype dtype, int gap)
{
    return (Tensor){.shape = shape, .dtype = dtype, .pitch = shape.c + gap};
}

/* Uniform in [-1, 1). */
static void tensor_fill(Tensor *t)
{
    t->data = malloc((size_t)elements(t) * dtype_bytes(t->dtype));
    assert_non_null(t->data);
    for (int64_t i = 0; i < elements(t); i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        dtype_store(t->dtype, t->data, i, (double)(random_state >> 11) / (double)(UINT64_C(1) << 52) - 1);
    }
}

static Window window_of(const Problem *p)
{
    return (Window){p->kh, p->kw, p->stride, p->stride, p->pad_h, p->pad_w, false};
}

/* Without their values. The input of a convolution is no slice where its output is one: our code takes either. */
static Operands operands_of(const Problem *p, OpKind kind, Dtype dtype, int variant)
{
    int gap = variant & SLICES ? GAP : 0;
    Window window = window_of(p);
    Shape x = {p->n, p->ic, p->h, p->w}, y = window_out(&window, x, p->oc);
    return (Operands){.x = tensor_of(x, dtype, kind == OP_CONV ? 0 : gap),
                      .w = tensor_of((Shape){p->oc, p->ic / (p->groups ? p->groups : 1), p->kh, p->kw}, DTYPE_F32, 0),
                      .y = tensor_of(y, dtype, gap / 2),
                      .bias = tensor_of((Shape){1, p->oc, 1, 1}, DTYPE_F32, 0),
                      .acc = tensor_of(x, dtype, gap)};
}

static void operands_fill(Operands *o)
{
    random_state = 1;
    tensor_fill(&o->x);
    tensor_fill(&o->w);
    tensor_fill(&o->y);
    tensor_fill(&o->bias);
    tensor_fill(&o->acc);
}

static void operands_free(Operands *o)
{
    free(o->x.data);
    free(o->w.data);
    free(o->y.data);
    free(o->bias.data);
    free(o->acc.data);
}

static OpCall call_make(const Operands *o, const Problem *p, OpKind kind, int variant)
{
    OpCall call = {.kind = kind, .name = "a convolution", .in_count = 2, .out_count = 1, .renewed = true};
    call.attr.conv.window = window_of(p);
    call.attr.conv.relu = kind == OP_CONV && (variant & ADDED);
    call.in[0] = kind == OP_CONV_DX ? o->y : o->x;
    call.in[1] = kind == OP_CONV_DW ? o->y : o->w;
    call.out[0] = kind == OP_CONV ? o->y : kind == OP_CONV_DX ? o->x : o->w;
    if (variant & ADDED) call.in[call.in_count++] = kind == OP_CONV ? o->bias : o->acc;
    return call;
}

static ConvProblem problem_make(const OpCall *call, const Operands *o, int variant)
{
    bool added = variant & ADDED;
    return (ConvProblem){.kind = call->kind,
                         .call = call,
                         .x = &o->x,
                         .w = &o->w,
                         .y = &o->y,
                         .bias = added && call->kind == OP_CONV ? &o->bias : NULL,
                         .acc = added && call->kind == OP_CONV_DX ? &o->acc : NULL,
                         .window = call->attr.conv.window,
                         .groups = conv_groups(o->x.shape, o->w.shape),
                         .relu = call->attr.conv.relu,
                         .keeps_w = variant & KEPT,
                         .packed = tensor_is_packed(&o->x) && tensor_is_packed(&o->y)};
}

static void line_print(const ConvImpl *impl, const Problem *p, const Tensor *out, int variant)
{
    XXH128_hash_t bits = XXH3_128bits(out->data, (size_t)elements(out) * dtype_bytes(out->dtype));
    printf("%s: %d images %dx%dx%d to %d, window %dx%d, stride %d, padding %d,%d%s%s%s: %016" PRIx64 "%016" PRIx64 "\n",
           impl->name, p->n, p->h, p->w, p->ic, p->oc, p->kh, p->kw, p->stride, p->pad_h, p->pad_w,
           variant & SLICES ? ", slices" : "", variant & ADDED ? ", added" : "", variant & KEPT ? ", kept" : "",
           bits.high64, bits.low64);
}

static void compute(const ConvImpl *impl, Device *device, OpCall *call, const ConvProblem *problem)
{
    void *plan;
    if (impl->create(device, problem, &plan) != OK) fail_msg("%s: %s", impl->name, status_message());
    size_t bytes = (impl->workspace(plan) + 127) / 64 * 64;
    call->workspace = aligned_alloc(64, bytes);
    assert_non_null(call->workspace);
    memset(call->workspace, 0xFF, bytes);
    if (impl->run(plan, device, call) != OK) fail_msg("%s: %s", impl->name, status_message());
    impl->destroy(plan);
    free(call->workspace);
}

static void visit(Device *device, const ConvImpl *impl, const Problem *p, OpKind kind, Dtype dtype, int variant)
{
    Operands o = operands_of(p, kind, dtype, variant);
    OpCall call = call_make(&o, p, kind, variant);
    ConvProblem problem = problem_make(&call, &o, variant);
    if ((problem.groups > 1 && !impl->takes_groups) || impl->takes(device, &problem)) return;
    operands_fill(&o);
    call = call_make(&o, p, kind, variant);
    compute(impl, device, &call, &problem);
    printf("%s, %s, ", op_name(kind), dtype_name(dtype));
    line_print(impl, p, &call.out[0], variant);
    operands_free(&o);
}

/* Variants that change nothing of a kind are left out; and in bf16 what is added, which oneDNN does. */
static bool varies(OpKind kind, Dtype dtype, int variant)
{
    if (kind == OP_CONV && dtype == DTYPE_BF16 && (variant & ADDED)) return false;
    if (kind != OP_CONV && (variant & KEPT)) return false;
    return kind != OP_CONV_DW || !(variant & ADDED);
}

static void kind_run(Device *device, OpKind kind)
{
    static const Dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    for (const ConvImpl *const *row = conv_list(kind); row[1]; row++) /* oneDNN's is the last */
        for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
            for (int variant = 0; variant < VARIANTS; variant++)
                for (int d = 0; d < 2; d++)
                    if (varies(kind, dtypes[d], variant)) visit(device, *row, &problems[i], kind, dtypes[d], variant);
}

int main(void)
{
    const DeviceConfig config = {DEVICE_USUAL, .winograd = true, .threads = THREADS};
    const Backend *cpu;
    Device device;
    if (backend_find("cpu", &cpu, NULL, 0) != OK || cpu->open(&config, &device) != OK) fail_msg("%s", status_message());
    kind_run(&device, OP_CONV);
    kind_run(&device, OP_CONV_DX);
    kind_run(&device, OP_CONV_DW);
    cpu->close(&device);
    return 0;
}
