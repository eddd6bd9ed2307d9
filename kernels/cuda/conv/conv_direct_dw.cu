/* Gradients of the weights of convolutions with few channels, on tensor cores: windows of 3 x 3, at most 32 channels in
 * and 64 out, 16-bit formats.
 *
 * These are a network's first layers: large images, and so few channels that little more than reading x and dy once
 * should take time. dw = dy^T x is a product over pixels, for each tap of the window over the same ones, shifted. A
 * block walks down strips of 32 columns. For each row of dy it stages that row and the rows of x that the window has
 * not seen yet, in two rings of shared memory, some rows before they are used. A warp multiplies them from there for
 * all nine taps, into registers that last until the block's end; then its sums are a part, and a second kernel adds the
 * parts in their order, in f64. The grid depends on the shape alone: the same bits every time. Bytes moved: dy once, x a
 * little more than once, for the columns and rows that strips and blocks share, the parts twice. */
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/tensor_cores.cuh"

enum {
    DW_SIDE = 3,
    DW_TAPS = DW_SIDE * DW_SIDE,
    DW_ACROSS = 32, /* pixels of a strip's row of dy: two products deep, and as many as a warp has lanes */
    DW_WARPS = 4,
    DW_BLOCK = DW_WARPS * WARP,
    DW_V = 8, /* elements of 16 bytes */
    DW_BYTES = 16,
    DW_INS = DW_WARPS * DW_V, /* channels at most */
    DW_OUTS = 64,
    DW_ROWS = 8, /* at least so many for a block, before there are more blocks */
    DW_SMS = 132 /* multiprocessors of an H100 or H200 */
};

/* OUTS: channels of dy, with zeros up to it. GROUPS: of 8 channels of x. Four groups: each warp has one of them, and all
 * channels of dy. One group: a warp has 16 channels of dy, and warps that have the same take rows by turns. */
template <int OUTS, int GROUPS> struct DwRoom {
    enum {
        TILES = OUTS / MMA_M,
        OWN = GROUPS > 1 ? TILES : 1,              /* tiles of a warp */
        TURNS = GROUPS > 1 ? 1 : DW_WARPS / TILES, /* parts of a block */
        AHEAD = GROUPS > 1 ? 2 : 3,                /* rows that are copied before they are used */
        PER_SM = GROUPS > 1 ? 4 - TILES / 2 : 4,   /* as many as registers allow */
        ODD = DW_ACROSS + 1,                       /* where the odd columns of a row of x begin if the stride is 2 */
        X_PIXELS = GROUPS > 1 ? DW_ACROSS + DW_SIDE - 1 : 2 * DW_ACROSS + 1,
        X_STEP = GROUPS > 1 ? (GROUPS + 1) * DW_BYTES : DW_BYTES, /* odd, in 16 bytes: no bank conflicts */
        Y_STEP = (OUTS / DW_V + 1) * DW_BYTES,
        X_ROW = X_PIXELS * X_STEP,
        Y_ROW = DW_ACROSS * Y_STEP,
        X_ROWS = DW_SIDE * (AHEAD + 1), /* if each of the rows of dy is the first of a strip */
        Y_ROWS = AHEAD + 1
    };
};

struct DwOperands {
    Tensor x, y;
    float *parts;
    Divider strips, height;                   /* of an image; rows of dy */
    uint32_t rows, each;                      /* of all strips; of a block */
    int32_t stride, pad_h, pad_w, end, patch; /* end: columns of x that a window sees; patch: those of a strip */
};

/* A row of a strip, and where it is staged. */
struct DwRow {
    uint32_t n, strip, row;
    bool fresh;    /* the first of its strip, or of the block */
    uint32_t x, y; /* rows of the rings; x: the first of the window */
};

DEVICE DwRow dw_row(const DwOperands &o, uint32_t number)
{
    DwRow at;
    uint32_t rest = divided(number, o.height, &at.row);
    at.n = divided(rest, o.strips, &at.strip);
    at.fresh = true;
    at.x = at.y = 0;
    return at;
}

template <typename Room> DEVICE void dw_next(const DwOperands &o, DwRow *at)
{
    at->fresh = ++at->row == o.height.by;
    if (at->fresh) {
        at->row = 0;
        if (++at->strip == o.strips.by) at->strip = 0, at->n++;
    }
    at->x += at->fresh ? DW_SIDE : o.stride;
    if (at->x >= Room::X_ROWS) at->x -= Room::X_ROWS;
    if (++at->y == Room::Y_ROWS) at->y = 0;
}

template <typename Room> DEVICE uint32_t dw_ring(uint32_t x)
{
    return x < Room::X_ROWS ? x : x - Room::X_ROWS;
}

/* With a stride of 2 even columns come first, then odd ones: what a warp multiplies lies side by side. */
template <typename Room> DEVICE uint32_t dw_place(const DwOperands &o, uint32_t column)
{
    uint32_t step = (uint32_t)o.stride - 1;
    return (column & step) * Room::ODD + (column >> step);
}

/* ---- staging */

template <typename T, int OUTS, typename Room>
DEVICE void dw_stage_y(const DwOperands &o, const DwRow &at, unsigned char *y)
{
    enum { VECTORS = OUTS / DW_V };
    uint32_t start = (at.n * o.y.shape.h + at.row) * o.y.shape.w, width = o.y.shape.w, channels = o.y.shape.c;
    UNROLL
    for (uint32_t k = threadIdx.x; k < DW_ACROSS * VECTORS; k += DW_BLOCK) {
        uint32_t pixel = k / VECTORS, vector = k % VECTORS, column = at.strip * DW_ACROSS + pixel;
        bool inside = column < width && vector * DW_V < channels;
        uint32_t from = inside ? (start + column) * channels + vector * DW_V : 0;
        copy_async(y + at.y * Room::Y_ROW + pixel * Room::Y_STEP + vector * DW_BYTES, (const T *)o.y.data + from,
                   inside);
    }
}

/* The rows of the window that are not there yet. */
template <typename T, int GROUPS, typename Room>
DEVICE void dw_stage_x(const DwOperands &o, const DwRow &at, unsigned char *x)
{
    int32_t left = (int32_t)at.strip * DW_ACROSS * o.stride - o.pad_w;
    for (int32_t r = at.fresh ? 0 : DW_SIDE - o.stride; r < DW_SIDE; r++) {
        int32_t i = (int32_t)at.row * o.stride - o.pad_h + r;
        uint32_t start = (at.n * o.x.shape.h + i) * o.x.shape.w; /* outside of the image it means nothing */
        unsigned char *to = x + dw_ring<Room>(at.x + r) * Room::X_ROW;
        for (uint32_t k = threadIdx.x; k < (uint32_t)o.patch * GROUPS; k += DW_BLOCK) {
            uint32_t pixel = k / GROUPS, vector = k % GROUPS, column = left + pixel;
            bool inside =
                (uint32_t)i < (uint32_t)o.x.shape.h && column < (uint32_t)o.end && (int32_t)vector * DW_V < o.x.shape.c;
            uint32_t from = inside ? (start + column) * o.x.pitch + vector * DW_V : 0;
            copy_async(to + dw_place<Room>(o, pixel) * Room::X_STEP + vector * DW_BYTES, (const T *)o.x.data + from,
                       inside);
        }
    }
}

/* ---- products */

/* The pixels of one row, for all taps: tiles from `tile` on of dy with channels from 8 `group` on of x. */
template <typename T, typename Room>
DEVICE void dw_multiply(const DwOperands &o, const DwRow &at, const unsigned char *x, const unsigned char *y,
                        uint32_t tile, uint32_t group, float (*sum)[DW_TAPS][4])
{
    uint32_t lane = threadIdx.x % WARP, pixel = lane / (2 * MATRIX) * MATRIX + lane % MATRIX;
    const unsigned char *dy = y + at.y * Room::Y_ROW + pixel * Room::Y_STEP + lane / MATRIX % 2 * DW_BYTES;
    unsigned a[Room::OWN][2][4], b[4];
    UNROLL
    for (int t = 0; t < Room::OWN; t++) {
        load_transposed(dy + (tile + t) * 2 * DW_BYTES, a[t][0]);
        load_transposed(dy + MMA_K * Room::Y_STEP + (tile + t) * 2 * DW_BYTES, a[t][1]);
    }
    UNROLL
    for (uint32_t tap = 0; tap < DW_TAPS; tap++) {
        const unsigned char *row = x + dw_ring<Room>(at.x + tap / DW_SIDE) * Room::X_ROW + group * DW_BYTES;
        load_transposed(row + (dw_place<Room>(o, tap % DW_SIDE) + lane) * Room::X_STEP, b);
        UNROLL
        for (int t = 0; t < Room::OWN; t++) {
            multiply_add(T(), a[t][0], b, sum[t][tap]);
            multiply_add(T(), a[t][1], b + 2, sum[t][tap]);
        }
    }
}

/* As the weights lie: [outs][taps][channels]. */
template <typename Room>
DEVICE void dw_store(const DwOperands &o, uint32_t part, uint32_t tile, uint32_t group, const float (*sum)[DW_TAPS][4])
{
    uint32_t lane = threadIdx.x % WARP, outs = o.y.shape.c, channels = o.x.shape.c;
    uint32_t channel = group * DW_V + lane % 4 * 2;
    if (channel >= channels) return;
    UNROLL
    for (int k = 0; k < 2 * Room::OWN; k++) {
        uint32_t out = (tile + k / 2) * MMA_M + lane / 4 + k % 2 * MATRIX;
        if (out >= outs) continue;
        float *to = o.parts + ((part * outs + out) * DW_TAPS) * channels + channel;
        UNROLL
        for (int tap = 0; tap < DW_TAPS; tap++) {
            const float *two = sum[k / 2][tap] + k % 2 * 2;
            to[tap * channels] = two[0];
            to[tap * channels + 1] = two[1];
        }
    }
}

template <typename T, int OUTS, int GROUPS>
__global__ void __launch_bounds__(DW_BLOCK, (DwRoom<OUTS, GROUPS>::PER_SM))
    dw_kernel(const __grid_constant__ DwOperands o)
{
    typedef DwRoom<OUTS, GROUPS> Room;
    SHARED_ARRAY(uint4, x_rows, Room::X_ROWS * Room::X_ROW / DW_BYTES);
    SHARED_ARRAY(uint4, y_rows, Room::Y_ROWS * Room::Y_ROW / DW_BYTES);
    unsigned char *x = (unsigned char *)x_rows, *y = (unsigned char *)y_rows;
    uint32_t warp = threadIdx.x / WARP, tile = GROUPS > 1 ? 0 : warp % Room::TILES;
    uint32_t group = GROUPS > 1 ? warp : 0, turn = GROUPS > 1 ? 0 : warp / Room::TILES;
    uint32_t first = blockIdx.x * o.each, last = min(first + o.each, o.rows), staged = first;
    DwRow at = dw_row(o, first), ahead = at;
    float sum[Room::OWN][DW_TAPS][4];
    UNROLL
    for (int k = 0; k < Room::OWN * DW_TAPS * 4; k++) sum[k / (DW_TAPS * 4)][k / 4 % DW_TAPS][k % 4] = 0;
    for (uint32_t number = first; number < last + Room::AHEAD; number++) {
        bool filled = number >= first + Room::AHEAD; /* the row `at` was staged, AHEAD turns ago */
        if (filled) {
            copy_wait<Room::AHEAD - 1>();
            __syncthreads();
        }
        if (staged < last) {
            dw_stage_y<T, OUTS, Room>(o, ahead, y);
            dw_stage_x<T, GROUPS, Room>(o, ahead, x);
            dw_next<Room>(o, &ahead);
            staged++;
        }
        copy_commit();
        if (!filled) continue;
        if (number % Room::TURNS == turn) dw_multiply<T, Room>(o, at, x, y, tile, group, sum);
        dw_next<Room>(o, &at);
    }
    dw_store<Room>(o, blockIdx.x * Room::TURNS + turn, tile, group, sum);
}

/* ---- the sum of the parts: eight threads for four elements, each of every eighth part */

enum { DW_SLICES = BLOCK / WARP };

BOUNDED dw_add_kernel(const float *parts, uint32_t count, uint32_t vectors, float *w)
{
    SHARED_ARRAY(double, sums, 4 * BLOCK);
    uint32_t vector = blockIdx.x * WARP + threadIdx.x % WARP, slice = threadIdx.x / WARP;
    double sum[4] = {0, 0, 0, 0};
    if (vector < vectors) {
        UNROLL_BY(8)
        for (uint32_t part = slice; part < count; part += DW_SLICES) {
            float four[4];
            load_vector<4>(parts + (part * vectors + vector) * 4, four);
            UNROLL
            for (int i = 0; i < 4; i++) sum[i] += (double)four[i];
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) sums[i * BLOCK + threadIdx.x] = sum[i];
    __syncthreads();
    if (slice > 0 || vector >= vectors) return;
    UNROLL
    for (int i = 0; i < 4; i++) {
        double all = 0;
        for (int k = 0; k < DW_SLICES; k++) all += sums[i * BLOCK + k * WARP + threadIdx.x];
        w[vector * 4 + i] = (float)all;
    }
}

cudaError_t kernel_conv_dw_add(const float *parts, uint32_t count, const Tensor *w, cudaStream_t stream)
{
    uint32_t vectors = (uint32_t)(shape_count(w->shape) / 4);
    LAUNCH(dw_add_kernel, (uint32_t)ceil_divided(vectors, WARP), BLOCK, stream, parts, count, vectors,
           (float *)w->data);
    return LAUNCH_ERROR();
}

/* ---- host */

struct DwPlan {
    int outs, groups; /* of the kernel */
    uint32_t rows, strips, blocks, each, parts;
};

template <typename Room> static void dw_plan_blocks(DwPlan *plan)
{
    int64_t most = clamped(plan->rows / DW_ROWS, 1, DW_SMS * Room::PER_SM);
    plan->each = (uint32_t)ceil_divided(plan->rows, most);
    plan->blocks = (uint32_t)ceil_divided(plan->rows, plan->each);
    plan->parts = plan->blocks * Room::TURNS;
}

static DwPlan dw_plan(const DirectConv *c)
{
    DwPlan plan;
    plan.outs = c->y.shape.c > DW_OUTS / 2 ? DW_OUTS : DW_OUTS / 2;
    plan.groups = c->x.shape.c > DW_V ? DW_WARPS : 1;
    plan.strips = (uint32_t)ceil_divided(c->y.shape.w, DW_ACROSS);
    plan.rows = (uint32_t)(c->y.shape.n * c->y.shape.h) * plan.strips;
    if (plan.groups == 1 && plan.outs == DW_OUTS)
        dw_plan_blocks<DwRoom<DW_OUTS, 1>>(&plan);
    else if (plan.groups == 1)
        dw_plan_blocks<DwRoom<DW_OUTS / 2, 1>>(&plan);
    else if (plan.outs == DW_OUTS)
        dw_plan_blocks<DwRoom<DW_OUTS, DW_WARPS>>(&plan);
    else
        dw_plan_blocks<DwRoom<DW_OUTS / 2, DW_WARPS>>(&plan);
    return plan;
}

/* Whether the code that this GPU runs was made for one with such tensor cores: a build may be for older ones alone. */
static bool compiled_for_cores(void)
{
#ifdef TOWERS_EMULATE_CUDA
    return true;
#else
    cudaFuncAttributes of;
    if (cudaFuncGetAttributes(&of, dw_kernel<BF16, DW_OUTS, 1>) == cudaSuccess) return of.ptxVersion >= DIRECT_DW_SM;
    (void)cudaGetLastError();
    return false;
#endif
}

bool kernel_conv_direct_dw_takes(const DirectConv *c)
{
    const Window *k = &c->window;
    bool halves = c->y.dtype != DTYPE_F32 && c->x.dtype == c->y.dtype && c->w.dtype == DTYPE_F32;
    bool channels =
        c->x.shape.c % DW_V == 0 && c->x.shape.c <= DW_INS && c->y.shape.c % DW_V == 0 && c->y.shape.c <= DW_OUTS;
    bool rows = c->x.pitch % DW_V == 0 && packed(c->y) && packed(c->w);
    bool window = k->kh == DW_SIDE && k->kw == DW_SIDE && k->stride_h == k->stride_w &&
                  k->stride_w <= (c->x.shape.c > DW_V ? 1 : 2);
    return halves && channels && rows && window && !k->dilate_h && !k->dilate_w && compiled_for_cores();
}

size_t kernel_conv_direct_dw_bytes(const DirectConv *c)
{
    return (size_t)dw_plan(c).parts * (size_t)shape_count(c->w.shape) * sizeof(float);
}

template <typename T> static void dw_launch(const DwPlan &plan, const DwOperands &o, cudaStream_t stream)
{
    if (plan.groups == 1 && plan.outs == DW_OUTS)
        LAUNCH((dw_kernel<T, DW_OUTS, 1>), plan.blocks, DW_BLOCK, stream, o);
    else if (plan.groups == 1)
        LAUNCH((dw_kernel<T, DW_OUTS / 2, 1>), plan.blocks, DW_BLOCK, stream, o);
    else if (plan.outs == DW_OUTS)
        LAUNCH((dw_kernel<T, DW_OUTS, DW_WARPS>), plan.blocks, DW_BLOCK, stream, o);
    else
        LAUNCH((dw_kernel<T, DW_OUTS / 2, DW_WARPS>), plan.blocks, DW_BLOCK, stream, o);
}

cudaError_t kernel_conv_direct_dw(const DirectConv *c, void *workspace, cudaStream_t stream)
{
    const Window &k = c->window;
    const DwPlan plan = dw_plan(c);
    DwOperands o;
    o.x = c->x, o.y = c->y;
    o.parts = (float *)workspace;
    o.strips = divider(plan.strips);
    o.height = divider(c->y.shape.h);
    o.rows = plan.rows, o.each = plan.each;
    o.stride = k.stride_w, o.pad_h = k.pad_h, o.pad_w = k.pad_w;
    o.end = (int32_t)clamped((c->y.shape.w - 1) * k.stride_w + DW_SIDE - k.pad_w, 0, c->x.shape.w);
    o.patch = (DW_ACROSS - 1) * k.stride_w + DW_SIDE;
    if (c->y.dtype == DTYPE_F16)
        dw_launch<F16>(plan, o, stream);
    else
        dw_launch<BF16>(plan, o, stream);
    return kernel_conv_dw_add(o.parts, plan.parts, &c->w, stream);
}
