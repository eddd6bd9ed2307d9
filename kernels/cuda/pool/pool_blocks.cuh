/* Shared by the gradients of maxima (pool_max_dx.cu, pool_norm.cu): what windows of K x K with stride S, both known here,
 * send to blocks of S x S pixels.
 *
 * Blocks are counted from the edge of the padding, so the pixels of one lie in the same windows, and which position of a
 * window is which pixel is a constant. A thread reads each window once for all pixels of its block. */
#pragma once

#include "kernels/cuda/pool/pool.cuh"

/* The pixels of a block. One that does not exist lies in the padding or behind the end. */
template <int S> struct PoolBlock {
    uint32_t n;
    int32_t i, j;   /* in blocks, from the edge of the padding */
    uint32_t there; /* a bit for each pixel */
    uint32_t pixel[S * S];
    /* (down, across): counted from the first block that is not only padding */
    MEMBER void find(const PoolOperands &o, uint32_t image, uint32_t down, uint32_t across)
    {
        Shape s = o.out.shape;
        n = image;
        i = (int32_t)down + o.window.pad_h / S, j = (int32_t)across + o.window.pad_w / S;
        int32_t y = i * S - o.window.pad_h, x = j * S - o.window.pad_w;
        there = 0;
        UNROLL
        for (int p = 0; p < S * S; p++) {
            bool is = (uint32_t)(y + p / S) < (uint32_t)s.h && (uint32_t)(x + p % S) < (uint32_t)s.w;
            there |= (uint32_t)is << p;
            pixel[p] = (n * s.h + y + p / S) * s.w + x + p % S;
        }
    }
    MEMBER bool exists(int p) const
    {
        return there >> p & 1;
    }
};

/* What a window sends. A window that is not there, and an element whose ReLU is closed, has a position that no window of
 * K x K has. */
template <typename T, int V> struct PoolSent {
    typename Lanes<T, V>::Block dy;
    PositionWords<V> positions;
    uint32_t pixel; /* the window's */
    MEMBER void fetch(const PoolOperands &o, uint32_t n, int32_t i, int32_t j, uint32_t channel)
    {
        Shape s = o.in.shape;
        bool exists = (uint32_t)i < (uint32_t)s.h && (uint32_t)j < (uint32_t)s.w;
        pixel = (n * s.h + min(max(i, 0), s.h - 1)) * s.w + min(max(j, 0), s.w - 1);
        dy = Lanes<T, V>::block(o.in, pool_index(o.in, pixel, channel));
        positions.fill(0xFF); /* before the load: nothing waits for one until all of them are on their way */
        if (exists) positions.load((const unsigned char *)o.argmax.data + pool_index(o.argmax, pixel, channel));
    }
    MEMBER void mask(const PoolOperands &o, uint32_t channel)
    {
        float y[V];
        Lanes<T, V>::load(o.relu_y, pool_index(o.relu_y, pixel, channel), y);
        UNROLL
        for (int k = 0; k < V; k++)
            if (!(y[k] > 0.0f)) positions.close(k);
    }
    /* The first of a sum is taken as it is. */
    MEMBER void add(uint32_t position, bool first, float *sum) const
    {
        float wide[V];
        PositionWords<V> other = positions.other_than(position);
        Lanes<T, V>::widen(dy, wide);
        UNROLL
        for (int k = 0; k < V; k++) {
            bool is = other.none(k);
            if (first)
                sum[k] = is ? wide[k] : 0.0f;
            else if (is)
                sum[k] += wide[k];
        }
    }
};

/* The windows over a block: OVER along a side, the last of them at the block's own position. */
template <typename T, int V, int K, int S> struct BlockWindows {
    enum { OVER = (K - 1) / S + 1 };
    PoolSent<T, V> sent[OVER * OVER];
    MEMBER void fetch(const PoolOperands &o, const PoolBlock<S> &block, uint32_t channel)
    {
        UNROLL
        for (int q = 0; q < OVER * OVER; q++)
            sent[q].fetch(o, block.n, block.i - OVER + 1 + q / OVER, block.j - OVER + 1 + q % OVER, channel);
    }
    MEMBER void mask(const PoolOperands &o, uint32_t channel)
    {
        UNROLL
        for (int q = 0; q < OVER * OVER; q++) sent[q].mask(o, channel);
    }
    /* What is sent to pixel p of the block. */
    MEMBER void gather(int p, float *sum) const
    {
        bool first = true;
        UNROLL
        for (int q = 0; q < OVER * OVER; q++) {
            int row = p / S + (OVER - 1 - q / OVER) * S, column = p % S + (OVER - 1 - q % OVER) * S;
            if (row >= K || column >= K) continue;
            sent[q].add((uint32_t)(row * K + column), first, sum);
            first = false;
        }
    }
    /* The same as a store would keep it: the sum of one window's is already so. */
    MEMBER void gather_rounded(Dtype dtype, int p, float *sum) const
    {
        gather(p, sum);
        if (p / S + S < K || p % S + S < K) Lanes<T, V>::round(dtype, sum);
    }
};

/* ---- launchers */

/* Blocks of `size` pixels along a side of which the first `pad` are padding; none of them is only that. */
static inline int64_t blocks_along(int64_t side, int64_t pad, int64_t size)
{
    return (pad + side - 1) / size - pad / size + 1;
}

/* The number of blocks; o->width and o->height count them from now on. */
static inline int64_t pool_blocks(PoolOperands *o, int64_t size)
{
    Shape s = o->out.shape;
    int64_t down = blocks_along(s.h, o->window.pad_h, size), across = blocks_along(s.w, o->window.pad_w, size);
    o->height = divider(down);
    o->width = divider(across);
    return s.n * down * across;
}
