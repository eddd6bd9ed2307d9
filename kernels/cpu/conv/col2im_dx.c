/* Gradient with respect to an image of few channels, which is also a transposed convolution to such an image. One
 * matrix product computes, for every pixel of dy, the kh * kw * c numbers that it adds to the pixels under its window;
 * these rows are then added up (the "col2im" of Caffe). oneDNN's own code for it runs in one thread (conv_onednn.c).
 *
 * Every image is added up by one thread in the order of dy, so the result does not depend on the number of threads. */
#include "kernels/cpu/choice.h"
#include "kernels/cpu/conv/conv_impl.h"
#include "kernels/cpu/vector.h"

enum { CHANNELS_MAX = 4 }; /* more fill a vector, and oneDNN is faster */

typedef struct Col2imDx {
    OnednnChoice choice;
    size_t rows_offset, workspace_bytes; /* rows: of the workspace, behind the task's own */
} Col2imDx;

static int64_t row_size(const Tensor *w)
{
    return shape_count(w->shape) / w->shape.n;
}

static const char *col2im_takes(const Device *device, const ConvProblem *p)
{
    (void)device;
    if (p->kind != OP_CONV_DX) return "computes gradients of the input only";
    if (p->x->shape.c > CHANNELS_MAX) return "more than 4 channels";
    if (p->x->dtype != DTYPE_F32 || p->y->dtype != DTYPE_F32) return "types are not f32";
    if (p->window.kh == 1 && p->window.kw == 1) return "the window is a pixel";
    if (p->window.kh == p->x->shape.h && p->window.kw == p->x->shape.w) return "the window is the image";
    if (!tensor_is_packed(p->x)) return "dx is a slice";
    return p->acc ? "dx is added to a sum" : NULL;
}

static void col2im_destroy(void *plan)
{
    Col2imDx *state = plan;
    choice_free(&state->choice);
    free(state);
}

static Status col2im_create(Device *device, const ConvProblem *p, void **plan)
{
    Status st = OK;
    Col2imDx *state = calloc(1, sizeof *state);
    if (!state) return FAIL(ERR_MEMORY, "no memory for the state of the convolution '%s'", p->call->name);
    OnednnProduct product = {.kind = PRODUCT_DX,
                             .rows = shape_pixels(p->y->shape),
                             .ins = row_size(p->w),
                             .outs = p->w->shape.n,
                             .x_pitch = row_size(p->w),
                             .y_pitch = p->y->pitch,
                             .x = DTYPE_F32,
                             .y = DTYPE_F32};
    TRY_OUT(choice_offer_product(&state->choice, device, &product));
    TRY_OUT(choice_settle(&state->choice, device, p->call));
    state->rows_offset = align_up(choice_workspace_bytes(&state->choice), CPU_ALIGNMENT);
    state->workspace_bytes = state->rows_offset + (size_t)(product.rows * product.ins) * sizeof(float);
    *plan = state;
    state = NULL;
out:
    if (state) col2im_destroy(state);
    return st;
}

static size_t col2im_workspace(const void *plan)
{
    return ((const Col2imDx *)plan)->workspace_bytes;
}

/* One axis of a window: its first position in the image, and the taps [from, end) that lie in it. */
typedef struct TapRange {
    int32_t first, from, end;
} TapRange;

static TapRange taps_at(int32_t out, int32_t k, int32_t stride, int32_t pad, int32_t side)
{
    int32_t first = out * stride - pad;
    return (TapRange){first, first < 0 ? -first : 0, side - first < k ? side - first : k};
}

/* dx of one image; `rows` of its positions. */
CPU_CLONES static void col2im_image(const Window *v, Shape x, Shape y, const float *rows, float *dx)
{
    memset(dx, 0, (size_t)x.h * (size_t)x.w * (size_t)x.c * sizeof *dx);
    for (int32_t oh = 0; oh < y.h; oh++) {
        TapRange up = taps_at(oh, v->kh, v->stride_h, v->pad_h, x.h);
        for (int32_t ow = 0; ow < y.w; ow++) {
            TapRange across = taps_at(ow, v->kw, v->stride_w, v->pad_w, x.w);
            int32_t count = (across.end - across.from) * x.c;
            for (int32_t kh = up.from; kh < up.end; kh++) {
                const float *from = rows + (kh * v->kw + across.from) * x.c;
                float *to = dx + ((int64_t)(up.first + kh) * x.w + across.first + across.from) * x.c;
                for (int32_t i = 0; i < count; i++) to[i] += from[i];
            }
            rows += v->kh * v->kw * x.c;
        }
    }
}

typedef struct ImagesRun {
    const OpCall *call;
    const float *rows;
} ImagesRun;

static void images_chunk(void *context, int64_t first, int64_t end)
{
    const ImagesRun *run = context;
    const Tensor *dx = &run->call->out[0];
    Shape x = dx->shape, y = run->call->in[0].shape;
    int64_t rows = (int64_t)y.h * y.w * row_size(&run->call->in[1]), pixels = (int64_t)x.h * x.w * x.c;
    for (int64_t n = first; n < end; n++)
        col2im_image(&run->call->attr.conv.window, x, y, run->rows + n * rows, (float *)dx->data + n * pixels);
}

static Status col2im_run(const void *plan, Device *device, OpCall *call)
{
    const Col2imDx *state = plan;
    ImagesRun run = {call, (const float *)((char *)call->workspace + state->rows_offset)};
    TRY(choice_run(&state->choice, device, call, (char *)call->workspace + state->rows_offset));
    chunks_run(device, call->out[0].shape.n, 1, images_chunk, &run);
    return OK;
}

static void col2im_explain(const void *plan, KernelChoice *choice)
{
    snprintf(choice->name, sizeof choice->name, "product and sum of columns (%s)",
             choice_impl(&((const Col2imDx *)plan)->choice));
}

const ConvImpl conv_col2im_dx = {.name = "product and sum of columns",
                                 .takes = col2im_takes,
                                 .create = col2im_create,
                                 .workspace = col2im_workspace,
                                 .run = col2im_run,
                                 .destroy = col2im_destroy,
                                 .explain = col2im_explain};
