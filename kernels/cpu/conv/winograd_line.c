/* 1x7 and 7x1 convolutions of stride 1 by F(4, 7): 14 products instead of 28.
 *
 * F(2, 3) nested in itself with a stride of 2: output 2i + j sums taps 2k + l, i and j < 2, k and l < 3, which has two
 * places for taps 2 and 4; with the right ones empty two of the 16 products vanish:
 *     h0 h1 .          d = B' x B of x[2p + q], p and q < 4, B' and A' as in winograd_both.h, G in winograd_tile.h
 *     h2 h3 h4         u = G h G'
 *     .  h5 h6         y = A' (u d) A
 * Transforms and rounding are those of F(2x2, 3x3) in winograd.c. If a line is one output longer than its tiles, that
 * output is a plain sum. The gradient with respect to x is the same convolution with rotated weights. f32 needs
 * AVX-512 or AVX2; bf16 needs AVX512-BF16 and is not used if there is AMX; see docs/decisions/0006-winograd.md. The
 * transforms are in winograd_line_code.h.
 *
 * A line is a row of an image (1x7) or a column (7x1). Weights are transformed once per call: u[panel of
 * outputs][point] [words of inputs][outputs], followed by the plain taps of a last output. Then each thread takes some
 * lines: their tiles of 4 outputs are transformed to d[8 tiles][point][8][inputs], multiplied to m[8 tiles][point][8]
 * [outputs of a panel], one point after another so that its weights stay in the caches, and transformed back. */
#include "kernels/cpu/conv/conv_impl.h"

#include "kernels/cpu/vector.h"

#if defined(__x86_64__)
#include "kernels/cpu/conv/winograd_line.h"

static const char *line_takes(const Device *device, const ConvProblem *p)
{
    enum { FEW_CHANNELS = 32, FEW_PIXELS = 256, SHORT = 8 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    const Window *v = &p->window;
    bool row = v->kh == 1 && v->kw == TAPS && v->pad_h == 0 && v->pad_w < TAPS;
    bool column = v->kh == TAPS && v->kw == 1 && v->pad_h < TAPS && v->pad_w == 0;
    if (!(row || column) || v->stride_h != 1 || v->stride_w != 1) return "window is not 1x7 or 7x1 of stride 1";
    if (conv_winograd_off(device, p)) return conv_winograd_off(device, p);
    if (x->dtype == DTYPE_F32 && (row ? y->shape.w : y->shape.h) < SHORT)
        return "lines are short: plain sums skip the padding";
    return winograd_declines(x, y, FEW_CHANNELS, FEW_PIXELS);
}

static void tail_choose(WinogradLine *g)
{
    int last = g->to.length - 1;
    g->tail = last % SIDE == 0;
    g->tiles = g->tail ? last / SIDE : last / SIDE + 1;
    g->tail_first = (int)smaller(TAPS, larger(0, g->pad - last));
    g->tail_end = (int)larger(g->tail_first, smaller(TAPS, g->from.length - last + g->pad));
}

static Status line_create(Device *device, const ConvProblem *p, void **made)
{
    enum { BLOCK_TILES = 32 };
    const Tensor *x = conv_from(p), *y = conv_to(p);
    void *plan;
    TRY(winograd_begin(device, p, sizeof(WinogradLine), &winograd_line_avx512, &winograd_line_avx2, &plan));
    WinogradLine *g = plan;
    int pad = p->window.pad_h + p->window.pad_w;
    g->down = p->window.kh > 1;
    g->from = line_layout(x->shape, x->pitch, g->down);
    g->to = line_layout(y->shape, y->pitch, g->down);
    g->pad = g->plan.rotated ? TAPS - 1 - pad : pad;
    tail_choose(g);
    g->plan.points = POINTS + tail_taps(g);
    g->plan.plain = g->tail_first;
    g->plan.outputs = y->shape.n * g->to.across;
    g->plan.block = smaller(GROUP, larger(1, BLOCK_TILES / larger(1, g->tiles)));
    g->plan.per_thread_bytes = d_bytes(g) + tails_bytes(g) + m_bytes(g);
    return winograd_create(p, g, made);
}

const ConvImpl conv_winograd_line = {.name = "winograd F(4, 7)",
                                     .takes = line_takes,
                                     .create = line_create,
                                     .workspace = winograd_workspace,
                                     .run = winograd_run,
                                     .destroy = winograd_destroy,
                                     .product_share = 14.0f / 28,
                                     .adds_bias = true,
                                     .adds_relu = true};
#endif
