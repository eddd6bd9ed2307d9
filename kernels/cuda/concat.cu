/* Copies of channels, for concat, slice and reshape where the plan could not let the producer write in place.
 *
 * A row of `c` channels is copied in pieces. One read, one write. */
#include "kernels/cuda/map.cuh"

struct CopyRows {
    const char *from;
    char *to;
    int64_t from_bytes, to_bytes; /* from one row to the next */
    Divider width;                /* pieces in a row */
    uint32_t pieces;
};

enum { COPY_STEPS = 4 };

template <typename Piece> BOUNDED copy_kernel(CopyRows o)
{
    Piece piece[COPY_STEPS];
    uint32_t start = blockIdx.x * (BLOCK * COPY_STEPS) + threadIdx.x, from[COPY_STEPS], row[COPY_STEPS];
    UNROLL
    for (int s = 0; s < COPY_STEPS; s++) {
        if (start + s * BLOCK >= o.pieces) break;
        row[s] = divided(start + s * BLOCK, o.width, &from[s]);
        piece[s] = ((const Piece *)(o.from + row[s] * o.from_bytes))[from[s]];
    }
    UNROLL
    for (int s = 0; s < COPY_STEPS; s++) {
        if (start + s * BLOCK >= o.pieces) break;
        ((Piece *)(o.to + row[s] * o.to_bytes))[from[s]] = piece[s];
    }
}

template <typename Piece> static void copy_launch(CopyRows o, int64_t rows, int64_t row_bytes, cudaStream_t stream)
{
    o.width = divider(row_bytes / (int64_t)sizeof(Piece));
    o.pieces = (uint32_t)(rows * (row_bytes / (int64_t)sizeof(Piece)));
    LAUNCH((copy_kernel<Piece>), (uint32_t)ceil_divided(o.pieces, BLOCK * COPY_STEPS), BLOCK, stream, o);
}

cudaError_t kernel_copy_channels(const Tensor *from, int32_t from_channel, const Tensor *to, int32_t to_channel,
                                 int32_t c, cudaStream_t stream)
{
    CopyRows o;
    int64_t size = dtype_size(to->dtype), rows = pixels_of(*to), bytes = c * size;
    o.from = (const char *)from->data + from_channel * size;
    o.to = (char *)to->data + to_channel * size;
    o.from_bytes = from->pitch * size;
    o.to_bytes = to->pitch * size;
    if (o.from_bytes == bytes && o.to_bytes == bytes) bytes *= rows, rows = 1;
    uint64_t all = address_bits(o.from) | address_bits(o.to) | (uint64_t)bytes;
    if (rows > 1) all |= (uint64_t)o.from_bytes | (uint64_t)o.to_bytes;
    BY_PIECE(all, copy_launch, o, rows, bytes, stream);
    return LAUNCH_ERROR();
}
