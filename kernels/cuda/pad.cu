/* Pad and crop: each piece of the channels of a pixel of y is a copy of one of x, or zeros. Shuffle: each channel is another one. One
 * read, one write. */
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

struct ShufflePixels {
    const char *from;
    char *to;
    int64_t from_pitch, to_pitch;
    int32_t each;
    Divider width, groups;
    uint32_t elements;
};

/* Writes are in order, reads are not. */
template <typename Number> BOUNDED shuffle_kernel(const __grid_constant__ ShufflePixels o)
{
    uint32_t element = blockIdx.x * BLOCK + threadIdx.x, c, g;
    if (element >= o.elements) return;
    uint32_t pixel = divided(element, o.width, &c), k = divided(c, o.groups, &g);
    ((Number *)o.to)[(int64_t)pixel * o.to_pitch + c] =
        ((const Number *)o.from)[(int64_t)pixel * o.from_pitch + (int64_t)g * o.each + k];
}

cudaError_t kernel_shuffle(const OpCall *call, cudaStream_t stream)
{
    ShufflePixels o;
    const Tensor &x = call->in[0], &y = call->out[0];
    o.from = (const char *)x.data;
    o.to = (char *)y.data;
    o.from_pitch = x.pitch;
    o.to_pitch = y.pitch;
    o.each = y.shape.c / call->attr.shuffle.groups;
    o.width = divider(y.shape.c);
    o.groups = divider(call->attr.shuffle.groups);
    o.elements = (uint32_t)(pixels_of(y) * y.shape.c);
    uint32_t blocks = (uint32_t)ceil_divided(o.elements, BLOCK);
    if (dtype_size(y.dtype) == 4)
        LAUNCH(shuffle_kernel<uint32_t>, blocks, BLOCK, stream, o);
    else
        LAUNCH(shuffle_kernel<uint16_t>, blocks, BLOCK, stream, o);
    return LAUNCH_ERROR();
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
