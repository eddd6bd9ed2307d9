/* Pad and crop: each piece of the channels of a pixel of y is a copy of one of x, or zeros. One read, one write. */
#include "kernels/cuda/map.cuh"

struct PadPixels {
    const char *from;
    char *to;
    int64_t from_bytes, to_bytes; /* from one pixel to the next */
    Shape x;
    int32_t top, left;
    Divider width, w, h; /* pieces of a pixel; of y */
    uint32_t pieces;
};

template <typename Piece> BOUNDED pad_kernel(const __grid_constant__ PadPixels o)
{
    uint32_t piece = blockIdx.x * BLOCK + threadIdx.x, c, w, h;
    if (piece >= o.pieces) return;
    uint32_t pixel = divided(piece, o.width, &c), n = divided(divided(pixel, o.w, &w), o.h, &h);
    int32_t row = (int32_t)h - o.top, column = (int32_t)w - o.left;
    Piece value = {};
    if (row >= 0 && row < o.x.h && column >= 0 && column < o.x.w)
        value = ((const Piece *)(o.from + (((int64_t)n * o.x.h + row) * o.x.w + column) * o.from_bytes))[c];
    ((Piece *)(o.to + (int64_t)pixel * o.to_bytes))[c] = value;
}

template <typename Piece> static void pad_launch(PadPixels o, const Tensor &y, int64_t pixel_bytes, cudaStream_t stream)
{
    o.width = divider(pixel_bytes / (int64_t)sizeof(Piece));
    o.w = divider(y.shape.w);
    o.h = divider(y.shape.h);
    o.pieces = (uint32_t)(pixels_of(y) * (pixel_bytes / (int64_t)sizeof(Piece)));
    LAUNCH((pad_kernel<Piece>), (uint32_t)ceil_divided(o.pieces, BLOCK), BLOCK, stream, o);
}

cudaError_t kernel_pad(const OpCall *call, cudaStream_t stream)
{
    PadPixels o;
    const Tensor &x = call->in[0], &y = call->out[0];
    int64_t size = dtype_size(y.dtype), bytes = y.shape.c * size;
    o.from = (const char *)x.data;
    o.to = (char *)y.data;
    o.from_bytes = x.pitch * size;
    o.to_bytes = y.pitch * size;
    o.x = x.shape;
    o.top = call->attr.pad.top;
    o.left = call->attr.pad.left;
    uint64_t all =
        address_bits(o.from) | address_bits(o.to) | (uint64_t)bytes | (uint64_t)o.from_bytes | (uint64_t)o.to_bytes;
    BY_PIECE(all, pad_launch, o, y, bytes, stream);
    return LAUNCH_ERROR();
}
