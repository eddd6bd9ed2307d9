/* Weight gradients by oneDNN, cut into parts by shape alone: `images` slices of the batch times `outs` slices of the
 * outputs. oneDNN would divide the sum among all threads, so its rounding would depend on their number. Here each part
 * is a task that oneDNN has made for one thread. The sums of image slices are added in order. */
#include "kernels/cpu/conv/conv_onednn.h"

#include "kernels/cpu/span.h"
#include "kernels/text.h"

enum { LANES = 16 };

typedef struct DwSlices {
    int images, outs;
    int threads;
    OnednnConv *part;  /* [images][outs] */
    size_t part_bytes; /* of workspace, for one thread */
    size_t sums_bytes; /* of one slice's dw; slice 0 writes to dw itself */
} DwSlices;

/* Slices of about equal size: the first place of slice `k` of `slices` of `whole`, cut between multiples of `step`. */
static int32_t slice_begin(int32_t whole, int slices, int k, int step)
{
    int32_t steps = (whole + step - 1) / step;
    return (int32_t)smaller(whole, (int64_t)steps * k / slices * step);
}

static void *place(const Tensor *t, int64_t element)
{
    return t->data ? (char *)t->data + (size_t)element * dtype_bytes(t->dtype) : NULL;
}

/* The tensors of one part; w points into `sums`, which holds a whole dw. */
typedef struct DwPart {
    Tensor x, w, y;
} DwPart;

static DwPart part_of(const DwSlices *slices, const ConvProblem *p, int image, int out, void *sums)
{
    int32_t n = p->x->shape.n, c = p->y->shape.c;
    int32_t first = slice_begin(n, slices->images, image, 1), end = slice_begin(n, slices->images, image + 1, 1);
    int32_t from = slice_begin(c, slices->outs, out, LANES), to = slice_begin(c, slices->outs, out + 1, LANES);
    DwPart part = {*p->x, *p->w, *p->y};
    part.x.shape.n = part.y.shape.n = end - first;
    part.y.shape.c = part.w.shape.n = to - from;
    part.x.data = place(p->x, (int64_t)first * p->x->shape.h * p->x->shape.w * p->x->pitch);
    part.y.data = place(p->y, (int64_t)first * p->y->shape.h * p->y->shape.w * p->y->pitch + from);
    part.w.data = sums ? (float *)sums + from * (shape_count(p->w->shape) / c) : NULL;
    return part;
}

static const char *dw_takes(const Device *device, const ConvProblem *p)
{
    (void)device, (void)p;
    return NULL;
}

static void dw_destroy(void *made)
{
    DwSlices *slices = made;
    for (int k = 0; slices->part && k < slices->images * slices->outs; k++) choice_free(&slices->part[k].choice);
    free(slices->part);
    free(slices);
}

static Status dw_create(Device *device, const ConvProblem *p, void **made)
{
    Status st = OK;
    DwSlices *slices = calloc(1, sizeof *slices);
    if (!slices) return FAIL(ERR_MEMORY, "no memory for the weight-gradient slices of '%s'", p->call->name);
    /* A slice of images costs one more pass over dw; a slice of outputs reads x once more and copies its part of dy.
     * So a small dw is cut by images and a large one by outputs. The limits are measured over Inception v3. */
    enum { SMALL_DW = 32 << 10, LARGE_DW = 160 << 10, MANY = 8, FEW = 4 }; /* elements; slices */
    int64_t count = shape_count(p->w->shape), vectors = (p->y->shape.c + LANES - 1) / LANES;
    int parts = count <= SMALL_DW ? MANY : FEW;
    slices->images = count <= LARGE_DW ? (int)smaller(parts, p->x->shape.n) : 1;
    slices->outs = (int)smaller(parts / slices->images, vectors);
    slices->threads = cpu_threads(device);
    slices->part = calloc((size_t)(slices->images * slices->outs), sizeof *slices->part);
    if (!slices->part) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the weight-gradient slices of '%s'", p->call->name));
    slices->sums_bytes = align_up((size_t)shape_count(p->w->shape) * sizeof(float), 64);
    for (int k = 0; k < slices->images * slices->outs; k++) {
        DwPart tensors = part_of(slices, p, k / slices->outs, k % slices->outs, NULL);
        OnednnConv *part = &slices->part[k];
        ConvProblem cut = *p;
        cut.x = &tensors.x, cut.w = &tensors.w, cut.y = &tensors.y;
        part->choice.one_thread = true;
        TRY_OUT(onednn_conv_choose(part, device, &cut));
        size_t bytes = align_up(parts_workspace_bytes(part->choice.task), 64);
        if (bytes > slices->part_bytes) slices->part_bytes = bytes;
    }
    *made = slices;
    slices = NULL;
out:
    if (slices) dw_destroy(slices);
    return st;
}

static size_t dw_workspace(const void *made)
{
    const DwSlices *slices = made;
    int64_t busy = smaller(slices->threads, slices->images * slices->outs);
    return (size_t)busy * slices->part_bytes + (size_t)(slices->images - 1) * slices->sums_bytes;
}

typedef struct SlicesRun {
    const DwSlices *slices;
    const OpCall *call;
    ConvProblem problem;
    char *sums, *parts; /* in workspace */
} SlicesRun;

static Status part_run(const SlicesRun *run, int index, int thread)
{
    const DwSlices *slices = run->slices;
    int image = index / slices->outs;
    void *sums = image ? run->sums + (size_t)(image - 1) * slices->sums_bytes : run->problem.w->data;
    DwPart part = part_of(slices, &run->problem, image, index % slices->outs, sums);
    OpCall bound = *run->call;
    bound.in[0] = part.x;
    bound.in[1] = part.y;
    bound.workspace = run->parts + (size_t)thread * slices->part_bytes;
    return choice_run(&slices->part[index].choice, &bound, part.w.data);
}

static void sums_chunk(void *context, int64_t first, int64_t end)
{
    const SlicesRun *run = context;
    for (int k = 0; k < run->slices->images - 1; k++)
        row_add((float *)run->problem.w->data + first,
                (const float *)(const void *)(run->sums + (size_t)k * run->slices->sums_bytes) + first, end - first);
}

/* Always in a parallel region, also with one part: inside, oneDNN keeps to the one thread that its tasks were made
 * for. */
static Status dw_run(const void *made, Device *device, OpCall *call)
{
    enum { SUMS_CHUNK = 2048 };
    const DwSlices *slices = made;
    TeamStatus first;
    SlicesRun run = {.slices = slices, .call = call, .sums = call->workspace};
    run.problem = (ConvProblem){.x = &call->in[0], .w = &call->out[0], .y = &call->in[1]};
    run.parts = run.sums + (size_t)(slices->images - 1) * slices->sums_bytes;
    first.status = OK;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(device))
    for (int k = 0; k < slices->images * slices->outs; k++) team_status_take(&first, part_run(&run, k, team_member()));
    TRY(team_status_end(&first));
    chunks_run(device, shape_count(run.problem.w->shape), SUMS_CHUNK, sums_chunk, &run);
    return OK;
}

static void dw_explain(const void *made, KernelChoice *choice)
{
    const DwSlices *slices = made;
    onednn_conv_explain(&slices->part[0], choice);
    Text name = text_behind(choice->name, sizeof choice->name);
    text_add(&name, " in %d parts", slices->images * slices->outs);
}

const ConvImpl conv_onednn_dw = {.name = "oneDNN",
                                 .takes = dw_takes,
                                 .create = dw_create,
                                 .workspace = dw_workspace,
                                 .run = dw_run,
                                 .destroy = dw_destroy,
                                 .explain = dw_explain};
