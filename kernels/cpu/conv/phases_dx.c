/* Gradient of a convolution of stride 2 with respect to its input, by phases. Pixels of x whose rows and columns are both equal
 * modulo the stride meet the same taps, so each of these phases of dx is the gradient of a convolution of stride 1 with those
 * taps ("polyphase"; Vaidyanathan, Multirate Systems and Filter Banks, 4.3). oneDNN's code for strides is as fast as that for
 * stride 1 on other processors, but not on AMX: there 2.6.3 needs three times as long as phases, and 3.7 longer, too.
 *
 * A phase is computed in workspace, then put into its pixels of dx; pixels that no window meets are 0. */
#include "kernels/cpu/conv/conv_onednn.h"

#include "kernels/base/text.h"
#include "kernels/cpu/vector.h"

enum { STRIDE_MAX = 2, PHASES_MAX = STRIDE_MAX * STRIDE_MAX };

/* A phase along one axis, for m < positions:
 *     dx[first + stride m] = sum over j < taps of dy[m + pad - j] w[tap + stride j]
 * Windows meet the pixels with m < met; the others are 0. */
typedef struct PhaseAxis {
    int32_t first, positions, met, tap, taps, pad;
} PhaseAxis;

typedef struct ConvPhase {
    OnednnConv conv;
    PhaseAxis h, w;
} ConvPhase;

typedef struct PhasesDx {
    int count;
    ConvPhase phase[PHASES_MAX];
    size_t dx_offset, weights_offset, workspace_bytes; /* of a phase; the task's own workspace comes first */
} PhasesDx;

static PhaseAxis axis_of(int32_t first, int32_t side, int32_t out, int32_t k, int32_t stride, int32_t pad)
{
    PhaseAxis axis = {.first = first, .positions = (side - first + stride - 1) / stride, .tap = (first + pad) % stride};
    axis.taps = axis.tap < k ? (k - axis.tap + stride - 1) / stride : 0;
    axis.pad = (first + pad) / stride;
    axis.met = axis.taps ? (int32_t)smaller(axis.positions, out - axis.pad + axis.taps - 1) : 0;
    return axis;
}

static PhaseAxis axis_h(const ConvProblem *p, int32_t first)
{
    return axis_of(first, p->x->shape.h, p->y->shape.h, p->window.kh, p->window.stride_h, p->window.pad_h);
}

static PhaseAxis axis_w(const ConvProblem *p, int32_t first)
{
    return axis_of(first, p->x->shape.w, p->y->shape.w, p->window.kw, p->window.stride_w, p->window.pad_w);
}

/* Whether the phase with rotated weights is a convolution that is padded on the right as much as on the left, or more. */
static bool axis_fits(PhaseAxis axis, int32_t out)
{
    return !axis.taps || (axis.pad < axis.taps && axis.met >= out + axis.taps - 1 - 2 * axis.pad);
}

static const char *phases_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    const Window *v = &p->window;
    if (p->kind != OP_CONV_DX) return "computes gradients of the input only";
    if (v->stride_h == 1 && v->stride_w == 1) return "stride is 1";
    if (p->x->dtype != DTYPE_BF16 || p->y->dtype != DTYPE_BF16 || cpu_isa() < CPU_AMX) return "not in bf16 on AMX";
    if (v->stride_h > STRIDE_MAX || v->stride_w > STRIDE_MAX) return "stride is more than 2";
    if (p->x->shape.c < FEW_CHANNELS) return "too few channels";
    for (int32_t k = 0; k < STRIDE_MAX; k++)
        if ((k < v->stride_h && !axis_fits(axis_h(p, k), p->y->shape.h)) ||
            (k < v->stride_w && !axis_fits(axis_w(p, k), p->y->shape.w)))
            return "too much padding";
    return NULL;
}

static void phases_destroy(void *plan)
{
    PhasesDx *state = plan;
    for (int k = 0; k < state->count; k++) choice_free(&state->phase[k].conv.choice);
    free(state);
}

/* The problem of a phase; `x` and `w` become its tensors, without data. */
static ConvProblem problem_of(const ConvProblem *p, const ConvPhase *phase, Tensor *x, Tensor *w)
{
    ConvProblem part = *p;
    *x = (Tensor){.shape = {p->x->shape.n, p->x->shape.c, phase->h.met, phase->w.met}, .dtype = p->x->dtype};
    *w = (Tensor){.shape = {p->w->shape.n, p->w->shape.c, phase->h.taps, phase->w.taps}, .dtype = p->w->dtype};
    x->pitch = w->pitch = p->x->shape.c;
    part.x = x, part.w = w, part.acc = NULL;
    part.packed = tensor_is_packed(p->y);
    part.window = (Window){phase->h.taps, phase->w.taps, 1, 1, phase->h.pad, phase->w.pad, false};
    return part;
}

static Status phases_create(Device *device, const ConvProblem *p, void **plan)
{
    Status st = OK;
    size_t own = 0, dx = 0, weights = 0;
    PhasesDx *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", p->call->name);
    for (int32_t k = 0; k < p->window.stride_h * p->window.stride_w; k++) {
        ConvPhase *phase = &state->phase[state->count++];
        Tensor x, w;
        phase->h = axis_h(p, k / p->window.stride_w);
        phase->w = axis_w(p, k % p->window.stride_w);
        if (!phase->h.met || !phase->w.met) continue;
        ConvProblem part = problem_of(p, phase, &x, &w);
        TRY_OUT(onednn_conv_choose(&phase->conv, device, &part));
        own = (size_t)larger((int64_t)own, (int64_t)choice_workspace_bytes(&phase->conv.choice));
        dx = (size_t)larger((int64_t)dx, shape_count(x.shape) * (int64_t)dtype_bytes(x.dtype));
        weights = (size_t)larger((int64_t)weights, shape_count(w.shape) * (int64_t)sizeof(float));
    }
    state->dx_offset = align_up(own, CPU_ALIGNMENT);
    state->weights_offset = state->dx_offset + align_up(dx, CPU_ALIGNMENT);
    state->workspace_bytes = state->weights_offset + weights;
    *plan = state;
    state = NULL;
out:
    if (state) phases_destroy(state);
    return st;
}

static size_t phases_workspace(const void *plan)
{
    return ((const PhasesDx *)plan)->workspace_bytes;
}

/* ---- run */

typedef struct PhaseRun {
    const OpCall *call;
    const ConvPhase *phase;
    const Tensor *acc;
    void *dx, *weights;
} PhaseRun;

/* The phase's taps of outputs [first, end), in reverse order for a task that rotates. */
static void weights_chunk(void *context, int64_t first, int64_t end)
{
    const PhaseRun *run = context;
    const ConvPhase *phase = run->phase;
    const Tensor *w = &run->call->in[1];
    const Window *v = &run->call->attr.conv.window;
    int64_t channels = w->shape.c, taps = (int64_t)phase->h.taps * phase->w.taps;
    for (int64_t n = first; n < end; n++)
        for (int64_t k = 0; k < taps; k++) {
            int64_t h = phase->h.tap + k / phase->w.taps * v->stride_h, at = phase->conv.rotates ? taps - 1 - k : k;
            int64_t from = (n * v->kh + h) * v->kw + phase->w.tap + k % phase->w.taps * v->stride_w;
            memcpy((float *)run->weights + (n * taps + at) * channels, (const float *)w->data + from * channels,
                   (size_t)channels * sizeof(float));
        }
}

/* `from` or `acc` may be NULL: zeros. */
static void pixel_put(uint16_t *to, const uint16_t *from, const uint16_t *acc, int64_t count)
{
    if (from && acc) return add_bf16(to, from, acc, count);
    if (!from) from = acc;
    if (!from) memset(to, 0, (size_t)count * sizeof *to);
    if (from && from != to) memcpy(to, from, (size_t)count * sizeof *to);
}

/* Rows [first, end) of the phase, of all images. */
static void rows_chunk(void *context, int64_t first, int64_t end)
{
    const PhaseRun *run = context;
    const PhaseAxis *h = &run->phase->h, *w = &run->phase->w;
    const Window *v = &run->call->attr.conv.window;
    const Tensor *x = &run->call->out[0];
    int64_t channels = x->shape.c;
    for (int64_t row = first; row < end; row++) {
        int64_t n = row / h->positions, m = row % h->positions;
        int64_t pixel = (n * x->shape.h + h->first + m * v->stride_h) * x->shape.w + w->first;
        const uint16_t *from = (const uint16_t *)run->dx + (n * h->met + m) * w->met * channels;
        for (int64_t k = 0; k < w->positions; k++, pixel += v->stride_w, from += channels)
            pixel_put(element_at(x, pixel * x->pitch), m < h->met && k < w->met ? from : NULL,
                      run->acc ? element_at(run->acc, pixel * run->acc->pitch) : NULL, channels);
    }
}

static Status phases_run(const void *plan, Device *device, OpCall *call)
{
    const PhasesDx *state = plan;
    OpCall bound = *call;
    PhaseRun run = {.call = call, .acc = conv_optional(call, 2)};
    run.dx = (char *)call->workspace + state->dx_offset;
    run.weights = bound.in[1].data = (char *)call->workspace + state->weights_offset;
    for (int k = 0; k < state->count; k++) {
        run.phase = &state->phase[k];
        if (run.phase->conv.choice.task) {
            chunks_run(device, call->in[1].shape.n, 1, weights_chunk, &run);
            TRY(choice_run(&run.phase->conv.choice, device, &bound, run.dx));
        }
        chunks_run(device, (int64_t)call->out[0].shape.n * run.phase->h.positions, 1, rows_chunk, &run);
    }
    return OK;
}

/* By the first phase that has taps: the others are zeros. */
static void phases_explain(const void *plan, KernelChoice *choice)
{
    const PhasesDx *state = plan;
    KernelChoice phase = *choice;
    int first = 0;
    while (first < state->count && !state->phase[first].conv.choice.task) first++;
    if (first == state->count) return;
    onednn_conv_explain(&state->phase[first].conv, &phase);
    memcpy(choice->passed, phase.passed, sizeof choice->passed);
    Text name = text_behind(choice->name, sizeof choice->name);
    text_add(&name, " (%d of %s)", state->count, phase.name);
}

const ConvImpl conv_phases_dx = {.name = "phases of the stride",
                                 .takes = phases_takes,
                                 .create = phases_create,
                                 .workspace = phases_workspace,
                                 .run = phases_run,
                                 .destroy = phases_destroy,
                                 .explain = phases_explain};
