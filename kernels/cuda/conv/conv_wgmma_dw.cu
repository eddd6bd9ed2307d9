/* Gradients of the weights of convolutions with few channels, by products of warpgroups: windows of 3 x 3, a stride of
 * 1, at most 80 channels in, 16-bit formats, compute capability 9.0.
 *
 * dw = dy^T x over pixels, as in conv_direct_dw.cu, but a pixel has one number: padded images lie one behind the
 * other in rows of `pitch` pixels, two more than dy has columns, with two rows more than dy has. At the same numbers dy
 * has zeros where it has no pixel, so a tap (r, s) is the product of dy with x `r pitch + s` pixels further, whatever
 * the row, and nothing but those zeros is multiplied in vain. A block walks through its numbers in chunks: it stages a
 * chunk of dy, and of x the pixels that it has not seen yet, into a ring that holds what three rows of the window need,
 * two chunks before they are used. Each of its three warpgroups multiplies one row of the window, into registers that
 * last until the block's end; then its sums are a part, and kernel_conv_dw_add adds the parts. The grid depends on the
 * shape alone: the same bits every time. Bytes moved: dy once; x once for each 64 channels of dy, most of it from the
 * cache, as their blocks run side by side; the parts twice. */
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/warpgroup.cuh"

enum {
    WG_SIDE = 3,
    WG_BLOCK = WG_SIDE * GROUP,
    WG_V = 8, /* elements of 16 bytes */
    WG_BYTES = 16,
    WG_AHEAD = 2, /* chunks that are copied before they are used */
    WG_Y_VECTORS = GROUP_M / WG_V,
    WG_SPARE = MMA_K + WG_SIDE - 1, /* pixels behind the ring: its first ones again, for a product's rows */
    WG_INS = 80,
    WG_OUTS = 256,
    WG_EACH = 8,         /* chunks, at least so many for a block, before there are more blocks */
    WG_ROOM = 220 << 10, /* bytes of shared memory, of 227 that a block may have */
    WG_SMS = 132         /* multiprocessors of an H100 or H200 */
};

/* INS: channels of x, with zeros up to it. One block fits a multiprocessor, for its registers. */
template <int INS> struct WgRoom {
    enum {
        VECTORS = INS / WG_V,
        SUMS = INS / 2,
        STEPS = INS > 32 ? 3 : 6, /* of 16 pixels in a chunk: with more, warps wait less often */
        CHUNK = STEPS * MMA_K,
        Y_PLANE = (CHUNK + 1) * WG_BYTES, /* odd, in 16 bytes: no bank conflicts when it is written */
        Y_STAGE = WG_Y_VECTORS * Y_PLANE
    };
};

struct WgOperands {
    Tensor x, y;
    float *parts;
    Divider row, image;    /* pixels of a row, rows of an image, both padded */
    uint32_t chunks, each; /* of all images; of a block */
    uint32_t tiles;        /* of 64 channels of dy */
    uint32_t ring, plane;  /* pixels of the ring; bytes from eight of its channels to the next */
    int32_t pad_h, pad_w;
};

/* Where a block is: the next chunk to stage, and the place in the ring of the first pixel of x that this brings. */
struct WgStaging {
    uint32_t chunk, stage, place;
};

DEVICE uint32_t wg_wrapped(const WgOperands &o, uint32_t place)
{
    return place < o.ring ? place : place - o.ring;
}

/* ---- staging */

template <typename T, int INS>
DEVICE void wg_stage_y(const WgOperands &o, uint32_t chunk, uint32_t tile, unsigned char *y)
{
    typedef WgRoom<INS> Room;
    UNROLL
    for (uint32_t k = threadIdx.x; k < Room::CHUNK * WG_Y_VECTORS; k += WG_BLOCK) {
        uint32_t pixel = k / WG_Y_VECTORS, vector = k % WG_Y_VECTORS, row, column;
        uint32_t n = divided(divided(chunk * Room::CHUNK + pixel, o.row, &column), o.image, &row);
        uint32_t channel = tile * GROUP_M + vector * WG_V;
        bool inside = n < (uint32_t)o.y.shape.n && row < (uint32_t)o.y.shape.h && column < (uint32_t)o.y.shape.w &&
                      channel < (uint32_t)o.y.shape.c;
        uint32_t at = ((n * o.y.shape.h + row) * o.y.shape.w + column) * o.y.shape.c + channel;
        copy_async(y + vector * Room::Y_PLANE + pixel * WG_BYTES, (const T *)o.y.data + (inside ? at : 0), inside);
    }
}

/* `count` pixels, from number `first` on, to `place` of the ring. */
template <typename T, int INS>
DEVICE void wg_stage_x(const WgOperands &o, uint32_t first, uint32_t count, uint32_t place, unsigned char *x)
{
    enum { VECTORS = WgRoom<INS>::VECTORS };
    for (uint32_t k = threadIdx.x; k < count * VECTORS; k += WG_BLOCK) {
        uint32_t pixel = k / VECTORS, vector = k % VECTORS, row, column;
        uint32_t n = divided(divided(first + pixel, o.row, &column), o.image, &row);
        uint32_t i = row - o.pad_h, j = column - o.pad_w; /* wrapped around where it is less than 0 */
        bool inside = n < (uint32_t)o.x.shape.n && i < (uint32_t)o.x.shape.h && j < (uint32_t)o.x.shape.w &&
                      vector * WG_V < (uint32_t)o.x.shape.c;
        uint32_t at = ((n * o.x.shape.h + i) * o.x.shape.w + j) * o.x.pitch + vector * WG_V;
        const T *from = (const T *)o.x.data + (inside ? at : 0);
        uint32_t slot = wg_wrapped(o, place + pixel);
        unsigned char *to = x + vector * o.plane + slot * WG_BYTES;
        copy_async(to, from, inside);
        if (slot < WG_SPARE) copy_async(to + o.ring * WG_BYTES, from, inside);
    }
}

/* Pixels of x behind those of a chunk of dy that it needs, too. */
DEVICE uint32_t wg_behind(const WgOperands &o)
{
    return (WG_SIDE - 1) * o.row.by + WG_SIDE - 1;
}

template <typename T, int INS>
DEVICE void wg_stage(const WgOperands &o, uint32_t last, uint32_t tile, unsigned char *x, unsigned char *y,
                     WgStaging *next)
{
    enum { CHUNK = WgRoom<INS>::CHUNK };
    if (next->chunk < last) {
        wg_stage_y<T, INS>(o, next->chunk, tile, y + next->stage * WgRoom<INS>::Y_STAGE);
        wg_stage_x<T, INS>(o, next->chunk * CHUNK + wg_behind(o), CHUNK, next->place, x);
        next->chunk++;
        next->stage = next->stage < WG_AHEAD ? next->stage + 1 : 0;
        next->place = wg_wrapped(o, next->place + CHUNK);
    }
    copy_commit();
}

/* ---- products */

/* The pixels of a chunk, of which the window's row sees those from `place` on, for the three taps of that row. */
template <typename T, int INS>
DEVICE void wg_multiply(const WgOperands &o, const unsigned char *x, uint32_t place, const unsigned char *y,
                        float (*sum)[WgRoom<INS>::SUMS])
{
    typedef WgRoom<INS> Room;
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % GROUP_WARPS;
    uint32_t pixel = lane / (2 * MATRIX) * MATRIX + lane % MATRIX;
    const unsigned char *dy = y + (2 * warp + lane / MATRIX % 2) * Room::Y_PLANE + pixel * WG_BYTES;
    unsigned a[Room::STEPS][4];
    UNROLL
    for (int k = 0; k < Room::STEPS; k++) load_transposed(dy + k * MMA_K * WG_BYTES, a[k]);
    SharedMatrix ring = shared_matrix(x, MATRIX * WG_BYTES, o.plane);
    group_begin();
    UNROLL
    for (int k = 0; k < Room::STEPS; k++) {
        SharedMatrix pixels = rows_further(ring, wg_wrapped(o, place + k * MMA_K));
        UNROLL
        for (int s = 0; s < WG_SIDE; s++) group_multiply_add<INS>(T(), a[k], rows_further(pixels, s), sum[s]);
    }
    group_commit();
}

/* As the weights lie: [outs][taps][channels]. */
template <int INS>
DEVICE void wg_store(const WgOperands &o, uint32_t part, uint32_t tile, const float (*sum)[WgRoom<INS>::SUMS])
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % GROUP_WARPS, r = threadIdx.x / GROUP;
    uint32_t outs = o.y.shape.c, channels = o.x.shape.c;
    UNROLL
    for (int half = 0; half < 2; half++) {
        uint32_t out = tile * GROUP_M + warp * MMA_M + half * MATRIX + lane / 4;
        if (out >= outs) continue;
        float *to = o.parts + ((part * outs + out) * WG_SIDE + r) * WG_SIDE * channels + lane % 4 * 2;
        UNROLL
        for (int s = 0; s < WG_SIDE; s++) {
            UNROLL
            for (int j = 0; j < INS / MMA_N; j++) {
                if (j * MMA_N >= (int32_t)channels) break;
                float2 two = {sum[s][4 * j + 2 * half], sum[s][4 * j + 2 * half + 1]};
                *(float2 *)(to + s * channels + j * MMA_N) = two;
            }
        }
    }
}

template <typename T, int INS>
__global__ void __launch_bounds__(WG_BLOCK, 1) wgmma_dw_kernel(const __grid_constant__ WgOperands o)
{
    typedef WgRoom<INS> Room;
    SHARED_ROOM(unsigned char, room);
    unsigned char *y = room, *x = room + (WG_AHEAD + 1) * Room::Y_STAGE;
    uint32_t tile = blockIdx.x % o.tiles, part = blockIdx.x / o.tiles, r = threadIdx.x / GROUP;
    uint32_t first = part * o.each, last = min(first + o.each, o.chunks), behind = wg_behind(o);
    uint32_t stage = 0, place = r * o.row.by; /* of the chunk to multiply; less than the ring's pixels */
    WgStaging next = {first, 0, behind};
    float sum[WG_SIDE][Room::SUMS];
    UNROLL
    for (int i = 0; i < WG_SIDE * Room::SUMS; i++) sum[i / Room::SUMS][i % Room::SUMS] = 0;
    wg_stage_x<T, INS>(o, first * Room::CHUNK, behind, 0, x);
    for (int k = 0; k < WG_AHEAD; k++) wg_stage<T, INS>(o, last, tile, x, y, &next);
    for (uint32_t chunk = first; chunk < last; chunk++) {
        copy_wait<WG_AHEAD - 1>();
        group_sees_copies();
        __syncthreads();
        wg_multiply<T, INS>(o, x, place, y + stage * Room::Y_STAGE, sum);
        wg_stage<T, INS>(o, last, tile, x, y, &next);
        group_wait<WG_SIDE * Room::SUMS>(sum[0]);
        stage = stage < WG_AHEAD ? stage + 1 : 0;
        place = wg_wrapped(o, place + Room::CHUNK);
    }
    wg_store<INS>(o, part, tile, sum);
}

/* ---- host */

struct WgPlan {
    int ins; /* of the kernel */
    uint32_t pitch, rows, chunks, each, parts, tiles, ring, plane, bytes;
};

template <int INS> static WgPlan wg_plan_of(const DirectConv *c)
{
    typedef WgRoom<INS> Room;
    WgPlan plan;
    plan.ins = INS;
    plan.pitch = (uint32_t)c->y.shape.w + WG_SIDE - 1;
    plan.rows = (uint32_t)c->y.shape.h + WG_SIDE - 1;
    plan.chunks = (uint32_t)ceil_divided((int64_t)c->y.shape.n * plan.rows * plan.pitch, Room::CHUNK);
    plan.tiles = (uint32_t)ceil_divided(c->y.shape.c, GROUP_M);
    int64_t most = clamped(plan.chunks / WG_EACH, 1, WG_SMS / plan.tiles);
    plan.each = (uint32_t)ceil_divided(plan.chunks, most);
    plan.parts = (uint32_t)ceil_divided(plan.chunks, plan.each);
    plan.ring = Room::CHUNK * (WG_AHEAD + 1) + (WG_SIDE - 1) * plan.pitch + WG_SIDE - 1;
    /* Threads side by side write vectors of one pixel, 4, or 8 and more, which then lie in other banks each. */
    while ((plan.ring + WG_SPARE) % 8 != (Room::VECTORS < 8 ? 2 : 1)) plan.ring++;
    plan.plane = (plan.ring + WG_SPARE) * WG_BYTES;
    plan.bytes = (WG_AHEAD + 1) * Room::Y_STAGE + Room::VECTORS * plan.plane;
    return plan;
}

static WgPlan wg_plan(const DirectConv *c)
{
    if (c->x.shape.c <= 32) return wg_plan_of<32>(c);
    return c->x.shape.c <= 64 ? wg_plan_of<64>(c) : wg_plan_of<WG_INS>(c);
}

/* Whether this build has code of sm_90a: it may be for other GPUs alone. */
#if defined(TOWERS_SM_90A) || defined(TOWERS_EMULATE_CUDA)
static const bool COMPILED = true;
#else
static const bool COMPILED = false;
#endif

bool kernel_conv_wgmma_dw_takes(const DirectConv *c)
{
    const Window *k = &c->window;
    int64_t pixels = ((int64_t)c->y.shape.n * (c->y.shape.h + 2) + 4) * ((int64_t)c->y.shape.w + 2) + WG_BLOCK;
    bool halves = c->y.dtype != DTYPE_F32 && c->x.dtype == c->y.dtype && c->w.dtype == DTYPE_F32;
    bool channels =
        c->x.shape.c % WG_V == 0 && c->x.shape.c <= WG_INS && c->y.shape.c % WG_V == 0 && c->y.shape.c <= WG_OUTS;
    bool rows = c->x.pitch % WG_V == 0 && packed(c->y) && packed(c->w) && pixels < KERNEL_MAX_ELEMENTS;
    bool window = k->kh == WG_SIDE && k->kw == WG_SIDE && k->stride_h == 1 && k->stride_w == 1;
    return halves && channels && rows && window && !k->dilate_h && !k->dilate_w && COMPILED &&
           wg_plan(c).bytes <= WG_ROOM;
}

size_t kernel_conv_wgmma_dw_bytes(const DirectConv *c)
{
    return (size_t)wg_plan(c).parts * (size_t)shape_count(c->w.shape) * sizeof(float);
}

template <typename T, int INS>
static cudaError_t wg_launch(const WgPlan &plan, const WgOperands &o, cudaStream_t stream)
{
    cudaError_t error = ROOM_ALLOWED((wgmma_dw_kernel<T, INS>), plan.bytes);
    if (error != cudaSuccess) return error;
    LAUNCH_ROOM((wgmma_dw_kernel<T, INS>), plan.parts * plan.tiles, WG_BLOCK, plan.bytes, stream, o);
    return LAUNCH_ERROR();
}

template <typename T> static cudaError_t wg_launch_of(const WgPlan &plan, const WgOperands &o, cudaStream_t stream)
{
    if (plan.ins == 32) return wg_launch<T, 32>(plan, o, stream);
    return plan.ins == 64 ? wg_launch<T, 64>(plan, o, stream) : wg_launch<T, WG_INS>(plan, o, stream);
}

cudaError_t kernel_conv_wgmma_dw(const DirectConv *c, void *workspace, cudaStream_t stream)
{
    const WgPlan plan = wg_plan(c);
    WgOperands o;
    o.x = c->x, o.y = c->y;
    o.parts = (float *)workspace;
    o.row = divider(plan.pitch), o.image = divider(plan.rows);
    o.chunks = plan.chunks, o.each = plan.each, o.tiles = plan.tiles;
    o.ring = plan.ring, o.plane = plan.plane;
    o.pad_h = c->window.pad_h, o.pad_w = c->window.pad_w;
    cudaError_t error =
        c->y.dtype == DTYPE_F16 ? wg_launch_of<F16>(plan, o, stream) : wg_launch_of<BF16>(plan, o, stream);
    return error != cudaSuccess ? error : kernel_conv_dw_add(o.parts, plan.parts, &c->w, stream);
}
