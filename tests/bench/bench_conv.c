/* Speed of the CPU backend's convolutions: bench_conv [f32|bf16] [threads] [small|inception]
 *
 * One line per shape with the time and rate of CONV, CONV_DX and CONV_DW as the trainer calls them, including weight
 * conversion, then the sums over all layers of the network. Times are the minimum of several runs over one set of
 * buffers, so caches are warmer than in training. */
#include <time.h>

#include "kernels/backend.h"

typedef struct Layer {
    int ic, oc, side, kh, kw, stride, pad_h, pad_w, count;
} Layer;

typedef struct Network {
    const char *name;
    int batch;
    const Layer *layers; /* ends with ic == 0 */
} Network;

/* clang-format off */
static const Layer small[] = {
    {1, 32, 28, 3, 3, 1, 0, 0, 1}, {1, 32, 28, 3, 3, 1, 1, 1, 1}, {1, 32, 28, 5, 5, 1, 2, 2, 1},
    {3, 32, 32, 3, 3, 1, 1, 1, 1}, {32, 64, 26, 3, 3, 1, 0, 0, 1}, {32, 64, 14, 3, 3, 1, 1, 1, 1},
    {64, 64, 14, 3, 3, 1, 1, 1, 1}, {64, 64, 14, 1, 1, 1, 0, 0, 1}, {64, 128, 7, 3, 3, 1, 1, 1, 1}, {0},
};
/* arXiv:1512.00567, Table 1, with torchvision's details: 96 convolutions, 45 of them distinct. */
static const Layer inception[] = {
    {3, 32, 299, 3, 3, 2, 0, 0, 1}, {32, 32, 149, 3, 3, 1, 0, 0, 1}, {32, 64, 147, 3, 3, 1, 1, 1, 1},
    {64, 80, 73, 1, 1, 1, 0, 0, 1}, {80, 192, 73, 3, 3, 1, 0, 0, 1},
    {192, 64, 35, 1, 1, 1, 0, 0, 2}, {192, 48, 35, 1, 1, 1, 0, 0, 1}, {192, 32, 35, 1, 1, 1, 0, 0, 1},
    {48, 64, 35, 5, 5, 1, 2, 2, 3}, {64, 96, 35, 3, 3, 1, 1, 1, 4}, {96, 96, 35, 3, 3, 1, 1, 1, 3},
    {256, 64, 35, 1, 1, 1, 0, 0, 3}, {256, 48, 35, 1, 1, 1, 0, 0, 1}, {288, 64, 35, 1, 1, 1, 0, 0, 4},
    {288, 48, 35, 1, 1, 1, 0, 0, 1}, {288, 384, 35, 3, 3, 2, 0, 0, 1}, {96, 96, 35, 3, 3, 2, 0, 0, 1},
    {768, 192, 17, 1, 1, 1, 0, 0, 12}, {768, 128, 17, 1, 1, 1, 0, 0, 2}, {128, 128, 17, 1, 7, 1, 0, 3, 2},
    {128, 128, 17, 7, 1, 1, 3, 0, 2}, {128, 192, 17, 7, 1, 1, 3, 0, 1}, {128, 192, 17, 1, 7, 1, 0, 3, 1},
    {768, 160, 17, 1, 1, 1, 0, 0, 4}, {160, 160, 17, 1, 7, 1, 0, 3, 4}, {160, 160, 17, 7, 1, 1, 3, 0, 4},
    {160, 192, 17, 7, 1, 1, 3, 0, 2}, {160, 192, 17, 1, 7, 1, 0, 3, 2}, {192, 192, 17, 1, 7, 1, 0, 3, 4},
    {192, 192, 17, 7, 1, 1, 3, 0, 4}, {192, 320, 17, 3, 3, 2, 0, 0, 1}, {192, 192, 17, 3, 3, 2, 0, 0, 1},
    {1280, 320, 8, 1, 1, 1, 0, 0, 1}, {1280, 384, 8, 1, 1, 1, 0, 0, 1}, {1280, 448, 8, 1, 1, 1, 0, 0, 1},
    {1280, 192, 8, 1, 1, 1, 0, 0, 1}, {384, 384, 8, 1, 3, 1, 0, 1, 4}, {384, 384, 8, 3, 1, 1, 1, 0, 4},
    {448, 384, 8, 3, 3, 1, 1, 1, 2}, {2048, 320, 8, 1, 1, 1, 0, 0, 1}, {2048, 384, 8, 1, 1, 1, 0, 0, 1},
    {2048, 448, 8, 1, 1, 1, 0, 0, 1}, {2048, 192, 8, 1, 1, 1, 0, 0, 1},
    {768, 128, 5, 1, 1, 1, 0, 0, 1}, {128, 768, 5, 5, 5, 1, 0, 0, 1}, {0},
};
static const Network networks[] = {{"small", 64, small}, {"inception", 16, inception}};
/* clang-format on */

static const OpKind kinds[3] = {OP_CONV, OP_CONV_DX, OP_CONV_DW};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static Status tensor_make(Device *device, Shape shape, Dtype dtype, Tensor *made)
{
    *made = (Tensor){.shape = shape, .dtype = dtype, .pitch = shape.c};
    return device->backend->alloc(device, (size_t)shape_count(shape) * dtype_bytes(dtype), &made->data);
}

static Status time_call(Device *device, OpCall *call, double *best)
{
    enum { LEAST_RUNS = 4, MOST_RUNS = 100 };
    const double patience = 0.25;
    Status st = OK;
    const OpKernel *kernel = device->backend->kernels[call->kind];
    TRY(kernel->prepare(device, call));
    TRY_OUT(device->backend->alloc(device, call->workspace_bytes, &call->workspace));
    double begin = seconds();
    *best = 1e9;
    for (int run = 0; run < MOST_RUNS && (run < LEAST_RUNS || seconds() - begin < patience); run++) {
        double start = seconds();
        TRY_OUT(kernel->launch(device, call));
        double spent = seconds() - start;
        if (spent < *best) *best = spent;
    }
out:
    device->backend->release(device, call->workspace);
    kernel->discard(device, call);
    return st;
}

static Status time_layer(Device *device, const Layer *l, int batch, Dtype dtype, double spent[3], double *flop)
{
    Status st = OK;
    Tensor x = {0}, w = {0}, y = {0};
    Window window = {l->kh, l->kw, l->stride, l->stride, l->pad_h, l->pad_w, false};
    Shape out = {batch, l->oc, window_out(l->side, l->kh, l->stride, l->pad_h, false),
                 window_out(l->side, l->kw, l->stride, l->pad_w, false)};
    TRY_OUT(tensor_make(device, (Shape){batch, l->ic, l->side, l->side}, dtype, &x));
    TRY_OUT(tensor_make(device, (Shape){l->oc, l->ic, l->kh, l->kw}, DTYPE_F32, &w));
    TRY_OUT(tensor_make(device, out, dtype, &y));
    OpCall calls[3] = {{.in_count = 2, .in = {x, w}, .out = {y}},
                       {.in_count = 2, .in = {y, w}, .out = {x}},
                       {.in_count = 2, .in = {x, y}, .out = {w}}};
    for (int k = 0; k < 3; k++) {
        calls[k].kind = kinds[k];
        calls[k].name = "bench";
        calls[k].out_count = 1;
        calls[k].attr.conv.window = window;
        TRY_OUT(time_call(device, &calls[k], &spent[k]));
    }
    *flop = 2.0 * (double)op_macs(&calls[0]);
out:
    device->backend->release(device, x.data);
    device->backend->release(device, w.data);
    device->backend->release(device, y.data);
    return st;
}

static Status time_network(Device *device, const Network *network, Dtype dtype)
{
    double total[3] = {0}, flops = 0;
    printf("%-34s %8s %6s %8s %6s %8s %6s   (ms, GFLOP/s)\n", network->name, "fwd", "", "dx", "", "dw", "");
    for (const Layer *l = network->layers; l->ic; l++) {
        double spent[3] = {0}, flop = 0;
        TRY(time_layer(device, l, network->batch, dtype, spent, &flop));
        printf("%2d x  %4d>%-4d @%-3d %dx%d/%d pad %d,%d   ", l->count, l->ic, l->oc, l->side, l->kh, l->kw, l->stride,
               l->pad_h, l->pad_w);
        for (int k = 0; k < 3; k++) {
            printf(" %8.3f %6.1f", spent[k] * 1e3, flop / spent[k] * 1e-9);
            total[k] += spent[k] * l->count;
        }
        printf("\n");
        flops += flop * l->count;
    }
    printf("%-34s", "all layers");
    for (int k = 0; k < 3; k++) printf(" %8.1f %6.1f", total[k] * 1e3, flops / total[k] * 1e-9);
    printf("\n%d images: %.3f s, %.2f images/s\n\n", network->batch, total[0] + total[1] + total[2],
           network->batch / (total[0] + total[1] + total[2]));
    return OK;
}

static Status bench(int argc, char **argv)
{
    Status st = OK;
    const Backend *cpu;
    Device device;
    DeviceConfig config = {DEVICE_USUAL, .threads = argc > 2 ? atoi(argv[2]) : 2};
    Dtype dtype = argc > 1 && strcmp(argv[1], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    char text[160];
    TRY(backend_find("cpu", &cpu, NULL, 0));
    TRY(cpu->open(&config, &device));
    cpu->describe(&device, text, sizeof text);
    printf("%s, %s\n\n", text, dtype_name(dtype));
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++)
        if (argc < 4 || strcmp(argv[3], networks[i].name) == 0) TRY_OUT(time_network(&device, &networks[i], dtype));
out:
    cpu->close(&device);
    return st;
}

int main(int argc, char **argv)
{
    Status st = bench(argc, argv);
    if (st != OK) status_print(stderr, st, 1);
    return status_exit_code(st);
}
