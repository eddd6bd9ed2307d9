/* Copies of channels, for concat, slice and reshape where the plan could not let the producer write in place.
 *
 * The elements' type does not matter: a row of `c` channels is copied in the largest pieces (16, 8, 4, 2 or 1 bytes)
 * that row length, pitches and addresses allow. One read, one write. */
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

static int64_t dtype_size(Dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_I32 ? 4 : dtype == DTYPE_U8 ? 1 : 2;
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
    uint64_t all = (uint64_t)(uintptr_t)o.from | (uint64_t)(uintptr_t)o.to | (uint64_t)bytes;
    if (rows > 1) all |= (uint64_t)o.from_bytes | (uint64_t)o.to_bytes;
    if (all % 16 == 0)
        copy_launch<uint4>(o, rows, bytes, stream);
    else if (all % 8 == 0)
        copy_launch<uint2>(o, rows, bytes, stream);
    else if (all % 4 == 0)
        copy_launch<uint32_t>(o, rows, bytes, stream);
    else if (all % 2 == 0)
        copy_launch<uint16_t>(o, rows, bytes, stream);
    else
        copy_launch<uint8_t>(o, rows, bytes, stream);
    return LAUNCH_ERROR();
}
