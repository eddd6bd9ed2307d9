/* See winograd_squares.h. */
#include "kernels/cpu/conv/winograd_squares.h"

#include "kernels/cpu/vector.h"

const SquaresSize squares_sizes[SQUARES_KINDS] = {[BY_2X2] = {2, 3, 4}, [BY_4X4] = {4, 3, 6}, [BY_5X5] = {2, 5, 6}};

int64_t squares_tiles(Shape image, int out)
{
    return (int64_t)((image.h + out - 1) / out) * ((image.w + out - 1) / out);
}

/* Whether the window has taps x taps pixels, a stride of 1 and less padding than taps. */
static bool window_slides(const Window *v, int taps)
{
    bool fits = v->kh == taps && v->kw == taps && v->stride_h == 1 && v->stride_w == 1;
    return fits && v->pad_h < taps && v->pad_w < taps;
}

/* Pairs of an output and a tap along one dimension, with stride 1, whose pixel lies inside the image. */
static int64_t pairs_inside(int x, int y, int taps, int pad)
{
    int64_t pairs = 0;
    for (int k = 0; k < taps; k++) pairs += larger(0, smaller(y, x + pad - k) - larger(0, pad - k));
    return pairs;
}

/* Algorithms of six points are for networks that ask for them, in f32, where they save enough products. */
static const char *six_points_decline(const Device *device, const ConvProblem *p, const SquaresSize *size)
{
    enum { OF_2X2 = 87, OF_PLAIN = 60 }; /* % of the products of F(2x2, 3x3), and of plain sums, at most */
    const Shape x = p->x->shape, y = p->y->shape, *to = p->kind == OP_CONV_DX ? &x : &y;
    const Window *v = &p->window;
    int64_t products = 100 * size->side * size->side * squares_tiles(*to, size->out);
    int64_t plain = pairs_inside(x.h, y.h, v->kh, v->pad_h) * pairs_inside(x.w, y.w, v->kw, v->pad_w);
    if (!device->config.winograd) return "off without --winograd";
    if (p->x->dtype != DTYPE_F32 || p->y->dtype != DTYPE_F32) return "types are not f32";
    if (products > OF_PLAIN * plain) return "plain sums skip the padding";
    if (size->taps == 3 && products > OF_2X2 * 16 * squares_tiles(*to, 2)) return "tiles of 2x2 fit the image better";
    return NULL;
}

const char *squares_decline(const Device *device, const ConvProblem *p, WinogradSquares squares)
{
    const SquaresSize *size = &squares_sizes[squares];
    if (!window_slides(&p->window, size->taps))
        return size->taps == 3 ? "window is not 3x3 of stride 1" : "window is not 5x5 of stride 1";
    if (conv_winograd_off(device, p)) return conv_winograd_off(device, p);
    return squares == BY_2X2 ? NULL : six_points_decline(device, p, size);
}
