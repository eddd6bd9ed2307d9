/* The lists of convolutions in kernels/cpu/conv/conv.c: every row takes the problem that is made for it here, where the processor
 * has its instructions, and explains what it has chosen. oneDNN, the last row, takes everything: without this, a row that declined
 * all problems would fail no other test. */
#include "kernels/cpu/conv/conv_impl.h"
#include "tests/support/unit.h"

static Device device;

static int open_device(void **state)
{
    const DeviceConfig config = {DEVICE_USUAL, .winograd = true, .threads = 2, .allow_reference = true};
    const Backend *cpu;
    return backend_find("cpu", &cpu, NULL, 0) == OK && cpu->open(&config, &device) == OK ? 0 : -1;
}

static int close_device(void **state)
{
    device.backend->close(&device);
    return 0;
}

typedef enum Needs { NOTHING, VECTORS, SHORT_VECTORS, MANY_REGISTERS, BF16, TILES } Needs;

static bool processor_has(Needs needs)
{
    const CpuIsa isa = cpu_isa();
    switch (needs) {
    case VECTORS: return isa != CPU_PLAIN;
    case SHORT_VECTORS: return isa == CPU_AVX2 || isa == CPU_NEON;
    case MANY_REGISTERS: return isa >= CPU_AVX512 || isa == CPU_NEON;
    case BF16: return isa >= CPU_AVX512_BF16;
    case TILES: return isa >= CPU_AMX;
    default: return true;
    }
}

typedef struct Problem {
    const ConvImpl *row;
    Needs needs;
    Dtype dtype;
    OpKind kind;
    int ic, oc, side, window, stride; /* of 8 square images; oc == -1: a window for each channel */
    bool line, kept, slice;           /* the window has one row; weights are kept; y is a slice */
} Problem;

static const Problem problems[] = {
#ifdef CPU_HAS_LANES
    {&conv_winograd_f4_3, VECTORS, DTYPE_F32, OP_CONV, 64, 64, 20, 3, 1},
    {&conv_winograd_f2_5, VECTORS, DTYPE_F32, OP_CONV_DX, 64, 64, 20, 5, 1},
    {&conv_winograd_f2_3, VECTORS, DTYPE_F32, OP_CONV, 64, 64, 20, 3, 1},
    {&conv_winograd_f4_7, VECTORS, DTYPE_F32, OP_CONV_DX, 64, 64, 20, 7, 1, .line = true},
    {&conv_position_gemm, MANY_REGISTERS, DTYPE_F32, OP_CONV, 32, 32, 14, 5, 2},
    {&conv_pointwise, VECTORS, DTYPE_F32, OP_CONV, 64, 64, 20, 1, 1, .kept = true, .slice = true},
    {&conv_winograd_dw_f4_3, VECTORS, DTYPE_F32, OP_CONV_DW, 64, 64, 20, 3, 1},
    {&conv_winograd_dw_f2_5, VECTORS, DTYPE_F32, OP_CONV_DW, 64, 64, 20, 5, 1},
    {&conv_winograd_dw_f2_3, VECTORS, DTYPE_F32, OP_CONV_DW, 64, 64, 20, 3, 1},
    {&conv_winograd_dw_f4_7, VECTORS, DTYPE_F32, OP_CONV_DW, 64, 64, 20, 7, 1, .line = true},
    {&conv_wgrad_f32, VECTORS, DTYPE_F32, OP_CONV_DW, 64, 64, 20, 5, 2},
    {&conv_image_dw, SHORT_VECTORS, DTYPE_F32, OP_CONV_DW, 3, 64, 20, 3, 1},
#if defined(__x86_64__)
    {&conv_wgrad_amx, TILES, DTYPE_BF16, OP_CONV_DW, 64, 64, 20, 3, 1},
    {&conv_wgrad_avx512, BF16, DTYPE_BF16, OP_CONV_DW, 64, 64, 20, 3, 1},
#endif
#endif
    {&conv_depthwise, VECTORS, DTYPE_F32, OP_CONV, 40, -1, 20, 5, 2},
    {&conv_depthwise, BF16, DTYPE_BF16, OP_CONV_DX, 40, -1, 20, 5, 2},
    {&conv_depthwise_dw, VECTORS, DTYPE_F32, OP_CONV_DW, 40, -1, 20, 7, 1},
    {&conv_depthwise_dw, BF16, DTYPE_BF16, OP_CONV_DW, 40, -1, 20, 7, 1},
    {&conv_col2im_dx, NOTHING, DTYPE_F32, OP_CONV_DX, 3, 32, 20, 3, 1},
    {&conv_phases_dx, TILES, DTYPE_BF16, OP_CONV_DX, 64, 64, 20, 3, 2},
    {&conv_onednn, NOTHING, DTYPE_F32, OP_CONV, 16, 16, 20, 3, 1},
    {&conv_onednn, NOTHING, DTYPE_F32, OP_CONV_DW, 16, 16, 20, 3, 1},
};
enum { PROBLEMS = sizeof problems / sizeof *problems, IMAGES = 8, GAP = 16 };

/* A problem whose tensors have no data. */
typedef struct Posed {
    OpCall call;
    Tensor x, w, y;
    ConvProblem problem;
} Posed;

static void pose(const Problem *p, Posed *posed)
{
    const int pad = (p->window - 1) / 2;
    const int groups = p->oc < 0 ? p->ic : 1, oc = p->oc < 0 ? p->ic : p->oc;
    const Window window = {p->line ? 1 : p->window, p->window, p->line ? 1 : p->stride, p->stride,
                           p->line ? 0 : pad,       pad};
    *posed = (Posed){.call = {.kind = p->kind, .name = "a convolution", .attr.conv.window = window}};
    posed->x = (Tensor){.shape = {IMAGES, p->ic, p->side, p->side}, .dtype = p->dtype, .pitch = p->ic};
    posed->y = (Tensor){.shape = window_out(&window, posed->x.shape, oc), .dtype = p->dtype, .pitch = oc};
    posed->w =
        (Tensor){.shape = {oc, p->ic / groups, window.kh, window.kw}, .dtype = DTYPE_F32, .pitch = p->ic / groups};
    if (p->slice) posed->y.pitch += GAP;
    posed->problem = (ConvProblem){.kind = p->kind,
                                   .call = &posed->call,
                                   .x = &posed->x,
                                   .w = &posed->w,
                                   .y = &posed->y,
                                   .window = window,
                                   .groups = groups,
                                   .keeps_w = p->kept,
                                   .packed = !p->slice};
}

static void explain(const ConvImpl *row, const ConvProblem *problem, KernelChoice *choice)
{
    void *plan;
    if (row->create(&device, problem, &plan) != OK) fail_msg("%s: %s", row->name, status_message());
    snprintf(choice->name, sizeof choice->name, "%s", row->name);
    if (row->explain) row->explain(plan, choice);
    row->destroy(plan);
}

TEST(test_every_row_takes_its_problem)
{
    for (int i = 0; i < PROBLEMS; i++) {
        const ConvImpl *row = problems[i].row;
        KernelChoice choice = {0};
        Posed posed;
        pose(&problems[i], &posed);
        const char *declines = row->takes(&device, &posed.problem);
        bool groups = posed.problem.groups == 1 || row->takes_groups;
        if (!processor_has(problems[i].needs)) {
            if (!declines) fail_msg("problem %d: '%s' takes it without its instructions", i, row->name);
            continue;
        }
        if (declines || !groups)
            fail_msg("problem %d: '%s' declines: %s", i, row->name, declines ? declines : "groups");
        explain(row, &posed.problem, &choice);
        if (strncmp(choice.name, row->name, strlen(row->name)) != 0)
            fail_msg("'%s' explains itself as '%s'", row->name, choice.name);
    }
}

TEST(test_every_row_has_a_problem)
{
    static const OpKind kinds[] = {OP_CONV, OP_CONV_DW};
    for (int k = 0; k < 2; k++)
        for (const ConvImpl *const *row = conv_list(kinds[k]); *row; row++) {
            int found = 0;
            while (found < PROBLEMS &&
                   (problems[found].row != *row || (problems[found].kind == OP_CONV_DW) != (kinds[k] == OP_CONV_DW)))
                found++;
            if (found == PROBLEMS) fail_msg("no problem is made for '%s'", (*row)->name);
        }
}

/* A window of one pixel, stride 2 and padding 1 meets the odd pixels alone: the first phase, of the even ones, has no task. */
TEST(test_phases_without_taps_are_explained)
{
    const Problem point = {&conv_phases_dx, TILES, DTYPE_BF16, OP_CONV_DX, 32, 32, 7, 1, 2};
    KernelChoice choice = {0};
    Posed posed;
    pose(&point, &posed);
    posed.problem.window.pad_h = posed.problem.window.pad_w = 1;
    posed.y.shape = window_out(&posed.problem.window, posed.x.shape, point.oc);
    if (processor_has(TILES)) assert_null(conv_phases_dx.takes(&device, &posed.problem));
    explain(&conv_phases_dx, &posed.problem, &choice);
    assert_non_null(strstr(choice.name, "phases of the stride (4 of oneDNN, "));
}

TESTS_WITH(open_device, close_device)
