/* What a training step costs a GPU at its practical limits, for scripts/measure/roofline.sh: launches, bytes and products of
 * each op that its plan launches, and the time that these take. The op list and the plan are the program's own.
 *
 * An op reads each operand from memory once in each of its launches, and nothing stays in the caches in between. Its
 * time is that of its bytes or of its products, whichever is longer, and a gap for every launch. Products are counted
 * in tiles of TILE rows and columns. The update of the weights, the sum over towers and the copies of the host are not
 * part of it.
 *
 *   roofline_driver [model=inception_v3] [n=256] [dtype=f16] [gpu=H200] [print=groups|total] */

#include "inception/models/models.h"
#include "tests/support/arguments.h"
#include "tests/support/described_gpu.h"

enum { TILE = 64, GROUPS_MAX = 256, NAME_BYTES = 48 };

/* A copy at 4.3 TB/s and a bf16 product of 8192^3 at 790 TFLOP/s were read on one H200. The H100's numbers are
 * assumed: 0.9 of the bandwidth that its data sheet names, and the same processors at a lower power. */
typedef struct Gpu {
    const char *name;
    double bandwidth, products; /* bytes, and FLOP in 16 bits, a second */
} Gpu;

static const Gpu gpus[] = {{"H200", 4.3e12, 790e12}, {"H100", 3.0e12, 700e12}};

/* What kernels reach of these, and the time from the end of one to the beginning of the next. */
static const double share_of_bandwidth = 0.85, share_of_products = 0.7, gap = 2e-6;

/* Of one op or of several. */
typedef struct Cost {
    int launches, casts;  /* casts: of weight gradients */
    double bytes, beside; /* beside: of launches that only convert an operand */
    double cast_bytes;
    double flop, tiled; /* tiled: with whole tiles */
    double seconds;
} Cost;

typedef struct Group {
    char name[NAME_BYTES];
    Cost cost;
} Group;

typedef struct Roofline {
    const Gpu *gpu;
    Group group[GROUPS_MAX];
    int count;
    Cost total;
} Roofline;

/* ---- one op */

static double tensor_bytes(const Tensor *t, bool padded)
{
    int64_t row = padded ? t->pitch : t->shape.c;
    return t->data ? (double)(shape_pixels(t->shape) * row) * (double)dtype_bytes(t->dtype) : 0;
}

/* One launch that reads and writes each operand once. */
static Cost cost_of_operands(const OpCall *call)
{
    Cost cost = {.launches = 1};
    for (int k = 0; k < call->in_count; k++) cost.bytes += tensor_bytes(&call->in[k], call->padded_in >> k & 1);
    for (int k = 0; k < call->out_count; k++) cost.bytes += tensor_bytes(&call->out[k], call->padded_out >> k & 1);
    return cost;
}

static void launch_beside(Cost *cost, double bytes)
{
    cost->launches++;
    cost->beside += bytes;
}

/* A second pass over what a batch norm has summed. */
static void norm_cost(const OpCall *call, Cost *cost)
{
    double first = tensor_bytes(&call->in[0], false);
    bool applied = call->out[0].data != NULL;
    switch (call->kind) {
    case OP_BATCHNORM:
        if (applied) launch_beside(cost, first);
        break;
    case OP_BATCHNORM_DX:
        if (applied) launch_beside(cost, first + tensor_bytes(&call->in[1], false));
        break;
    case OP_MAX_POOL_NORM_DX:
        launch_beside(cost, first + tensor_bytes(&call->in[1], false) + tensor_bytes(&call->in[2], false));
        break;
    default: break;
    }
}

static double tiles(double size)
{
    double count = (double)(int64_t)((size + TILE - 1) / TILE);
    return count * TILE / size;
}

/* x, w and y of a convolution or a dense layer, whichever of them it computes. False: it is another op. */
static bool product_of(const OpCall *call, const Tensor **x, const Tensor **w, const Tensor **y, double *tiled)
{
    *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    switch (call->kind) {
    case OP_CONV:
    case OP_DENSE: *tiled = tiles((*w)->shape.n); return true;
    case OP_CONV_DX:
    case OP_DENSE_DX:
        *x = &call->out[0], *y = &call->in[0];
        *tiled = tiles((*w)->shape.c);
        return true;
    case OP_CONV_DW:
    case OP_DENSE_DW:
        *w = &call->out[0], *y = &call->in[1];
        *tiled = tiles((*w)->shape.n) * tiles((double)shape_count((*w)->shape) / (*w)->shape.n);
        return true;
    default: return false;
    }
}

/* The libraries want packed operands. */
static bool is_copied(const OpCall *call, const Tensor *t)
{
    bool dense = call->kind == OP_DENSE || call->kind == OP_DENSE_DX || call->kind == OP_DENSE_DW;
    return !dense && !tensor_is_packed(t) && !(t == &call->in[0] && (call->padded_in & 1));
}

/* Where a convolution is a product, cuBLASLt writes its gradient of 16-bit operands in f32. cuDNN writes 16 bits
 * (tests/gpu/cudnn_refusals.h), which are cast. */
static bool casts_gradient(const OpCall *call)
{
    bool product = call->kind == OP_DENSE_DW || (call->kind == OP_CONV_DW && window_is_point(&call->attr.conv.window));
    return call->in[0].dtype != DTYPE_F32 && !product;
}

/* In 16 bits the weights are read from their 16-bit copy. */
static void product_cost(const OpCall *call, Cost *cost)
{
    const Tensor *x, *w, *y;
    double tiled;
    if (!product_of(call, &x, &w, &y, &tiled)) return;
    bool forward = call->kind == OP_CONV || call->kind == OP_DENSE, makes_w = w == &call->out[0];
    bool relu = call->kind == OP_CONV ? call->attr.conv.relu : call->kind == OP_DENSE && call->attr.dense.relu;
    double half = tensor_bytes(w, false) / 2;
    cost->flop = 2 * (double)op_macs(call);
    cost->tiled = cost->flop * tiled;
    if (makes_w && casts_gradient(call)) {
        cost->casts++;
        cost->cast_bytes = 2 * half;
        launch_beside(cost, cost->cast_bytes);
    }
    if (x->dtype != DTYPE_F32 && !makes_w) cost->bytes -= half;
    if (forward && (relu || call->in_count > 2)) launch_beside(cost, 2 * tensor_bytes(y, false));
    if (is_copied(call, x)) launch_beside(cost, 2 * tensor_bytes(x, false));
    if (is_copied(call, y)) launch_beside(cost, 2 * tensor_bytes(y, false));
}

static Cost cost_of(const OpCall *call, const Gpu *gpu)
{
    Cost cost = cost_of_operands(call);
    norm_cost(call, &cost);
    product_cost(call, &cost);
    double products = gpu->products * (call->in[0].dtype == DTYPE_F32 ? 0.5 : 1) * share_of_products; /* TF32 */
    double memory = gpu->bandwidth * share_of_bandwidth, computed = cost.tiled / products, moved = cost.bytes / memory;
    cost.seconds = (computed > moved ? computed : moved) + cost.beside / memory + gap * cost.launches;
    return cost;
}

/* ---- groups: "Mixed_5b" of "Mixed_5b.branch1x1.conv.dx" */

static void cost_add(Cost *to, const Cost *cost)
{
    to->launches += cost->launches;
    to->casts += cost->casts;
    to->cast_bytes += cost->cast_bytes;
    to->bytes += cost->bytes;
    to->beside += cost->beside;
    to->flop += cost->flop;
    to->tiled += cost->tiled;
    to->seconds += cost->seconds;
}

static void op_add(void *context, OpCall *call)
{
    Roofline *roofline = context;
    Cost cost = cost_of(call, roofline->gpu);
    char name[NAME_BYTES];
    int at = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(call->name, ".+"), call->name);
    while (at < roofline->count && strcmp(roofline->group[at].name, name) != 0) at++;
    if (at == GROUPS_MAX) at--, strcpy(name, "others");
    Group *group = &roofline->group[at];
    if (at == roofline->count) roofline->count++, memcpy(group->name, name, sizeof name);
    cost_add(&group->cost, &cost);
    cost_add(&roofline->total, &cost);
}

/* ---- output */

static void row_print(const char *name, const Cost *cost, const Cost *total, int32_t n)
{
    printf("| %s | %d | %.1f | %.2f | %.2f | %.1f |\n", name, cost->launches, (cost->bytes + cost->beside) / n / 1e6,
           cost->flop / n / 1e9, cost->seconds * 1e3, 100 * cost->seconds / total->seconds);
}

static void roofline_print(const Roofline *roofline, const Program *program, int32_t n, const char *what)
{
    const Cost *total = &roofline->total;
    double casts = gap * total->casts + total->cast_bytes / (roofline->gpu->bandwidth * share_of_bandwidth);
    if (!strcmp(what, "total"))
        printf("%d | %d | %.2f | %.1f | %.2f | %.0f | %.1f\n", total->launches, total->casts, casts * 1e3,
               (total->bytes + total->beside) / n / 1e6, total->seconds * 1e3, n / total->seconds,
               (double)plan_bytes(program->plan, ARENA_SCRATCH) / n / 1e6);
    if (strcmp(what, "groups") != 0) return;
    for (int i = 0; i < roofline->count; i++) row_print(roofline->group[i].name, &roofline->group[i].cost, total, n);
    row_print("**all**", total, total, n);
}

static bool is_named(const char *wanted, const char *const *names, int count, int *at)
{
    for (*at = 0; *at < count; ++*at)
        if (!strcmp(wanted, names[*at])) return true;
    return false;
}

static Status drive(int argc, char **argv, Roofline *roofline)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    static const Dtype dtype_of[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    const char *const names[] = {gpus[0].name, gpus[1].name};
    const Model *model;
    Layout *layout = NULL;
    Program program = {0};
    Device device;
    int dtype, gpu;
    int32_t n = (int32_t)number_argument(argc, argv, "n", 256);
    TRY(model_find(argument(argc, argv, "model", "inception_v3"), &model));
    if (n < 1 || !is_named(argument(argc, argv, "dtype", "f16"), dtypes, 3, &dtype) ||
        !is_named(argument(argc, argv, "gpu", "H200"), names, 2, &gpu))
        return FAIL(ERR_ARG, "expected n=1 or more, dtype=f32|f16|bf16, gpu=H200|H100");
    FakeBackend *fake = described_gpu(&device);
    if (!fake) return FAIL(ERR_MEMORY, "no memory for a described GPU");
    fake->on_launch = op_add;
    fake->context = roofline;
    roofline->gpu = &gpus[gpu];
    Status st = described_step(model, n, true, dtype_of[dtype], &device, &layout, &program);
    for (int a = 0; st == OK && a < ARENA_COUNT; a++)
        plan_bind(program.plan, (Arena)a, (void *)((uintptr_t)(a + 1) << 44));
    if (st == OK) st = plan_run(program.plan, 0, plan_op_count(program.plan));
    if (st == OK) roofline_print(roofline, &program, n, argument(argc, argv, "print", "groups"));
    program_destroy(&program);
    layout_destroy(layout);
    fake_destroy(fake);
    return st;
}

int main(int argc, char **argv)
{
    static Roofline roofline;
    Status st = drive(argc, argv, &roofline);
    if (st != OK) status_print(stderr, st, 1);
    return status_exit_code(st);
}
