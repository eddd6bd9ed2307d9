/* Convolutions of images: few channels in, any number out, straight from the definition, in f32 on the ordinary cores.
 *
 * Tensor cores multiply 8 channels or more, of which an image has 3, and the first layer has few products for its bytes:
 * it should take no longer than its memory. Method: direct convolution with a tile of outputs in the registers of each
 * thread, as Volkov and Demmel 2008, "Benchmarking GPUs to Tune Dense Linear Algebra", have it for products. A block
 * makes 32 x 8 pixels of at most 32 channels. It stages the patch of x that these see, and the weights, as f32 in shared
 * memory; a thread sums 4 x 2 pixels of 8 channels, so that a vector of weights serves 8 pixels, and one of x 8 channels.
 * The sum of each output has one order: rows of the window, columns, channels. Bytes moved: x once (with the channels
 * that pad it, and twice where patches overlap), y once; beyond 32 channels x is read again, which the cache should
 * serve. */
#include "kernels/cuda/map.cuh"

enum {
    DIRECT_ACROSS = 32, /* pixels of a tile */
    DIRECT_DOWN = 8,
    DIRECT_LANES = 8,                              /* threads side by side, so far apart are the pixels */
    DIRECT_COLUMNS = DIRECT_ACROSS / DIRECT_LANES, /* of one thread */
    DIRECT_ROWS = 2,
    DIRECT_PLACES = DIRECT_LANES * (DIRECT_DOWN / DIRECT_ROWS), /* threads of the same channels */
    DIRECT_V = 8,
    DIRECT_GROUPS = 4, /* at most so many vectors of channels in a block */
    DIRECT_OUTS = DIRECT_GROUPS * DIRECT_V,
    DIRECT_BLOCK = DIRECT_PLACES * DIRECT_GROUPS,
    DIRECT_SMALL = 3, /* windows: those up to this side need less shared memory */
    DIRECT_LARGE = 7,
    DIRECT_STRIDE = 2,
    DIRECT_STEPS = 3 /* loads before the first is stored: three rounds suffice for a window of 3 and a stride of 2 */
};

/* Four blocks fit a multiprocessor: a thread's 64 sums leave room for as many other registers. */
#define DIRECT_BOUNDED __global__ void __launch_bounds__(DIRECT_BLOCK, 4)

struct DirectOperands {
    Tensor x, w, y;
    Window window;
    Divider chunks, across, down; /* of channels; tiles of an image */
    Divider width, taps;          /* of a patch; of the window */
    uint32_t pixels, groups;      /* of a patch; of 8 channels, in a block */
    uint32_t step;                /* from pixel to pixel of x */
    int32_t odd, pitch;           /* where the odd columns of a patch's row begin; from row to row */
};

struct DirectTile {
    uint32_t n;
    int32_t row, column; /* of y, the first */
    uint32_t out;        /* channel, the first */
};

/* Elements of shared memory; a vector more for each tap, against bank conflicts. */
template <int CHANNELS, int SIDE> struct DirectRoom {
    enum {
        PATCH = ((DIRECT_DOWN - 1) * DIRECT_STRIDE + SIDE) * ((DIRECT_ACROSS - 1) * DIRECT_STRIDE + SIDE),
        TAP = CHANNELS * DIRECT_OUTS / 4 + 1,
        WEIGHTS = SIDE * SIDE * TAP
    };
};

DEVICE DirectTile direct_tile(const DirectOperands &o)
{
    DirectTile tile;
    uint32_t chunk, across, down, rest = divided(blockIdx.x, o.chunks, &chunk);
    rest = divided(rest, o.across, &across);
    tile.n = divided(rest, o.down, &down);
    tile.row = (int32_t)(down * DIRECT_DOWN);
    tile.column = (int32_t)(across * DIRECT_ACROSS);
    tile.out = chunk * o.groups * DIRECT_V;
    return tile;
}

/* With a stride of 2 even columns come first, then odd ones: what neighbors in y read lies side by side. */
DEVICE int32_t direct_place(const DirectOperands &o, int32_t column)
{
    int32_t step = o.window.stride_w - 1;
    return (column & step) * o.odd + (column >> step);
}

template <typename T> DEVICE float4 direct_widened(uint2 words)
{
    T first = {(unsigned short)words.x}, second = {(unsigned short)(words.x >> 16)};
    T third = {(unsigned short)words.y}, fourth = {(unsigned short)(words.y >> 16)};
    return make_float4(widened(first), widened(second), widened(third), widened(fourth));
}

/* Pixel by pixel of the patch the first four channels, zeros outside of the image. Who has no pixel left does the last
 * one again: that is cheaper than to ask. */
template <typename T> DEVICE void direct_stage_x(const DirectOperands &o, const DirectTile &tile, float4 *patch)
{
    int32_t i = tile.row * o.window.stride_h - o.window.pad_h, j = tile.column * o.window.stride_w - o.window.pad_w;
    uint32_t start = (tile.n * o.x.shape.h + i) * o.x.shape.w + j; /* outside of the image it means nothing */
    for (uint32_t first = threadIdx.x; first < o.pixels; first += DIRECT_STEPS * blockDim.x) {
        uint2 words[DIRECT_STEPS];
        int32_t place[DIRECT_STEPS];
        UNROLL
        for (int s = 0; s < DIRECT_STEPS; s++) {
            uint32_t column, row = divided(min(first + s * blockDim.x, o.pixels - 1), o.width, &column);
            bool inside = (uint32_t)i + row < (uint32_t)o.x.shape.h && (uint32_t)j + column < (uint32_t)o.x.shape.w;
            uint32_t pixel = start + row * (uint32_t)o.x.shape.w + column;
            words[s].x = words[s].y = 0;
            if (inside) words[s] = *(const uint2 *)((const T *)o.x.data + pixel * o.step);
            place[s] = (int32_t)row * o.pitch + direct_place(o, (int32_t)column);
        }
        UNROLL
        for (int s = 0; s < DIRECT_STEPS; s++) patch[place[s]] = direct_widened<T>(words[s]);
    }
}

/* Channels of y side by side, for each channel of x of each tap; zeros behind the last. */
template <typename T, int CHANNELS>
DEVICE void direct_stage_w(const DirectOperands &o, const DirectTile &tile, float *weights)
{
    enum { TAP = 4 * DirectRoom<CHANNELS, 1>::TAP };
    for (uint32_t at = threadIdx.x; at < o.groups * DIRECT_V * o.taps.by; at += blockDim.x) {
        uint32_t tap, out = divided(at, o.taps, &tap);
        uint2 words = {0, 0};
        if (tile.out + out < (uint32_t)o.w.shape.n)
            words = *(const uint2 *)((const T *)o.w.data + ((tile.out + out) * o.taps.by + tap) * o.w.pitch);
        float4 value = direct_widened<T>(words);
        float *to = weights + tap * TAP + out;
        to[0] = value.x, to[DIRECT_OUTS] = value.y, to[2 * DIRECT_OUTS] = value.z;
        if (CHANNELS > 3) to[3 * DIRECT_OUTS] = value.w;
    }
}

/* One tap of the window: its weights with each of the thread's pixels. */
template <int CHANNELS>
DEVICE void direct_tap(const float4 *x, int32_t row, const float4 *w, float (*sum)[DIRECT_COLUMNS][DIRECT_V])
{
    float weight[CHANNELS][DIRECT_V];
    UNROLL
    for (int c = 0; c < CHANNELS; c++) load_vector<DIRECT_V>((const float *)(w + c * (DIRECT_OUTS / 4)), weight[c]);
    UNROLL
    for (int i = 0; i < DIRECT_ROWS; i++) {
        UNROLL
        for (int j = 0; j < DIRECT_COLUMNS; j++) {
            float4 pixel = x[i * row + j * DIRECT_LANES];
            const float value[4] = {pixel.x, pixel.y, pixel.z, pixel.w};
            UNROLL
            for (int c = 0; c < CHANNELS; c++) {
                UNROLL
                for (int k = 0; k < DIRECT_V; k++) sum[i][j][k] = __fmaf_rn(value[c], weight[c][k], sum[i][j][k]);
            }
        }
    }
}

/* The pixels of y from (i, j) on that there are. */
template <typename T>
DEVICE void direct_store(const DirectOperands &o, uint32_t n, uint32_t i, uint32_t j, uint32_t channel,
                         const float (*sum)[DIRECT_COLUMNS][DIRECT_V])
{
    uint32_t height = o.y.shape.h, width = o.y.shape.w, channels = o.y.shape.c;
    if (channel >= channels) return;
    UNROLL
    for (int a = 0; a < DIRECT_ROWS; a++) {
        UNROLL
        for (int b = 0; b < DIRECT_COLUMNS; b++) {
            uint32_t pixel = (n * height + i + a) * width + j + b * DIRECT_LANES;
            if (i + a < height && j + b * DIRECT_LANES < width)
                Lanes<T, DIRECT_V>::store(o.y, pixel * channels + channel, sum[a][b]);
        }
    }
}

/* blockDim: groups x DIRECT_PLACES; eight neighbors have eight pixels of the same channels. */
template <typename T, int CHANNELS, int SIDE> DIRECT_BOUNDED direct_kernel(const __grid_constant__ DirectOperands o)
{
    typedef DirectRoom<CHANNELS, SIDE> Room;
    SHARED_ARRAY(float4, patch, Room::PATCH);
    SHARED_ARRAY(float4, weights, Room::WEIGHTS);
    const DirectTile tile = direct_tile(o);
    uint32_t lane = threadIdx.x % DIRECT_LANES, rest = threadIdx.x / DIRECT_LANES;
    int32_t group = (int32_t)(rest % o.groups), first = (int32_t)(rest / o.groups) * DIRECT_ROWS;
    float sum[DIRECT_ROWS][DIRECT_COLUMNS][DIRECT_V];
    UNROLL
    for (int i = 0; i < DIRECT_ROWS * DIRECT_COLUMNS * DIRECT_V; i++)
        sum[i / (DIRECT_COLUMNS * DIRECT_V)][i / DIRECT_V % DIRECT_COLUMNS][i % DIRECT_V] = 0;
    direct_stage_x<T>(o, tile, patch);
    direct_stage_w<T, CHANNELS>(o, tile, (float *)weights);
    __syncthreads();
    int32_t row = o.window.stride_h * o.pitch;
    const float4 *x = patch + first * row + lane, *w = weights + group * (DIRECT_V / 4);
    UNROLL_BY(1)
    for (int a = 0; a < o.window.kh; a++, x += o.pitch) {
        UNROLL_BY(1)
        for (int b = 0; b < o.window.kw; b++, w += Room::TAP) direct_tap<CHANNELS>(x + direct_place(o, b), row, w, sum);
    }
    uint32_t i = tile.row + first, j = tile.column + lane, channel = tile.out + group * DIRECT_V;
    direct_store<T>(o, tile.n, i, j, channel, sum);
}

/* ---- host */

static int32_t patch_side(int32_t pixels, int32_t stride, int32_t window)
{
    return (pixels - 1) * stride + window;
}

bool kernel_conv_direct_takes(const DirectConv *c)
{
    const Window *k = &c->window;
    bool halves = c->y.dtype != DTYPE_F32 && c->x.dtype == c->y.dtype && c->w.dtype == c->y.dtype;
    bool channels = c->channels >= 1 && c->channels <= 4 && c->y.shape.c % DIRECT_V == 0;
    bool rows = c->x.pitch % 4 == 0 && c->w.pitch % 4 == 0 && packed(c->y);
    bool window =
        k->kh <= DIRECT_LARGE && k->kw <= DIRECT_LARGE && k->stride_h <= DIRECT_STRIDE && k->stride_w <= DIRECT_STRIDE;
    return halves && channels && rows && window && !k->dilate_h && !k->dilate_w;
}

template <typename T, int CHANNELS> static void direct_launch(const DirectOperands &o, cudaStream_t stream)
{
    uint32_t blocks = (uint32_t)o.y.shape.n * o.down.by * o.across.by * o.chunks.by;
    if (o.window.kh <= DIRECT_SMALL && o.window.kw <= DIRECT_SMALL)
        LAUNCH((direct_kernel<T, CHANNELS, DIRECT_SMALL>), blocks, o.groups * DIRECT_PLACES, stream, o);
    else
        LAUNCH((direct_kernel<T, CHANNELS, DIRECT_LARGE>), blocks, o.groups * DIRECT_PLACES, stream, o);
}

cudaError_t kernel_conv_direct(const DirectConv *c, cudaStream_t stream)
{
    const Window &k = c->window;
    int32_t width = patch_side(DIRECT_ACROSS, k.stride_w, k.kw);
    int64_t vectors = c->y.shape.c / DIRECT_V, chunks = ceil_divided(vectors, DIRECT_GROUPS);
    DirectOperands o;
    o.x = c->x, o.w = c->w, o.y = c->y;
    o.window = k;
    o.chunks = divider(chunks);
    o.groups = (uint32_t)ceil_divided(vectors, chunks);
    o.across = divider(ceil_divided(c->y.shape.w, DIRECT_ACROSS));
    o.down = divider(ceil_divided(c->y.shape.h, DIRECT_DOWN));
    o.width = divider(width);
    o.taps = divider((int64_t)k.kh * k.kw);
    o.pixels = (uint32_t)(width * patch_side(DIRECT_DOWN, k.stride_h, k.kh));
    o.step = (uint32_t)c->x.pitch;
    o.odd = (width + 1) / 2;
    o.pitch = width;
    bool half = c->y.dtype == DTYPE_F16, few = c->channels <= 3;
    if (half && few)
        direct_launch<F16, 3>(o, stream);
    else if (half)
        direct_launch<F16, 4>(o, stream);
    else if (few)
        direct_launch<BF16, 3>(o, stream);
    else
        direct_launch<BF16, 4>(o, stream);
    return LAUNCH_ERROR();
}
