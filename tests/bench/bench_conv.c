/* Speed of the CPU backend's convolutions: bench_conv [f32|bf16] [threads] [small|inception] [ledger]
 *
 * One line per shape with the time and rate of CONV, CONV_DX and CONV_DW as the trainer calls them, including weight
 * conversion, then the sums over all layers of the network. Times are the minimum of several runs over one set of
 * buffers, so caches are warmer than in training.
 *
 * With `ledger`, what each kernel gains: each call is computed by the kernel that is chosen for it and, in turn with that, by
 * the one that is chosen without it (DeviceConfig.without). */
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

/* ---- the ledger */

enum { LEDGER_ROWS = 64 };

typedef struct LedgerRow {
    OpKind kind;
    char name[sizeof((KernelChoice *)0)->name];
    int layers;
    double with, without; /* seconds, of all its layers */
} LedgerRow;

typedef struct Ledger {
    int count;
    LedgerRow row[LEDGER_ROWS];
    double total; /* seconds, of all layers by the kernels that are chosen */
} Ledger;

static LedgerRow *ledger_row(Ledger *ledger, OpKind kind, const char *name)
{
    for (int i = 0; i < ledger->count; i++)
        if (ledger->row[i].kind == kind && strcmp(ledger->row[i].name, name) == 0) return &ledger->row[i];
    if (ledger->count == LEDGER_ROWS) return NULL;
    LedgerRow *row = &ledger->row[ledger->count++];
    *row = (LedgerRow){.kind = kind};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

/* The shortest times of two prepared calls of a kind, run in turn. */
static Status time_in_turn(Device *device, OpCall *calls[2], double best[2])
{
    enum { LEAST_RUNS = 6, MOST_RUNS = 100 };
    const double patience = 0.5;
    double begin = seconds();
    best[0] = best[1] = 1e9;
    for (int run = 0; run < MOST_RUNS && (run < LEAST_RUNS || seconds() - begin < patience); run++)
        for (int k = 0; k < 2; k++) {
            double start = seconds();
            TRY(device->backend->kernels[calls[k]->kind]->launch(device, calls[k]));
            double spent = seconds() - start;
            if (spent < best[k]) best[k] = spent;
        }
    return OK;
}

/* One call of `layers` equal ones, into the ledger. */
static Status ledger_call(Device *device, const OpCall *call, int layers, Ledger *ledger)
{
    Status st = OK;
    const OpKernel *kernel = device->backend->kernels[call->kind];
    OpCall chosen = *call, other = *call, *both[2] = {&chosen, &other};
    KernelChoice choice = {0};
    double spent[2];
    for (int k = 0; k < 2; k++) {
        device->config.without = k ? choice.name : NULL;
        TRY_OUT(kernel->prepare(device, both[k]));
        if (k == 0) kernel->explain(device, &chosen, &choice);
        TRY_OUT(device->backend->alloc(device, both[k]->workspace_bytes, &both[k]->workspace));
    }
    KernelChoice left = {0};
    kernel->explain(device, &other, &left);
    if (strncmp(choice.name, "oneDNN", 6) != 0 && strcmp(left.name, choice.name) == 0)
        TRY_OUT(
            FAIL(ERR_INTERNAL, "'%s' was not left out: a kernel's name must begin with that of its row", choice.name));
    TRY_OUT(time_in_turn(device, both, spent));
    ledger->total += spent[0] * layers;
    LedgerRow *row = ledger_row(ledger, call->kind, choice.name);
    if (!row) TRY_OUT(FAIL(ERR_INTERNAL, "more than %d kernels: enlarge LEDGER_ROWS", LEDGER_ROWS));
    row->layers += layers;
    row->with += spent[0] * layers;
    row->without += spent[1] * layers;
out:
    device->config.without = NULL;
    for (int k = 0; k < 2; k++) {
        device->backend->release(device, both[k]->workspace);
        kernel->discard(device, both[k]);
    }
    return st;
}

static void ledger_print(const Ledger *ledger, const Network *network)
{
    printf("| %s, kind | kernel | layers | ms | ms without it | gain |\n|---|---|---:|---:|---:|---:|\n",
           network->name);
    for (int i = 0; i < ledger->count; i++) {
        const LedgerRow *row = &ledger->row[i];
        bool last = strncmp(row->name, "oneDNN", 6) == 0; /* takes all that is left: nothing is there without it */
        printf("| %s | %s | %d | %.2f |", op_name(row->kind), row->name, row->layers, row->with * 1e3);
        if (last)
            printf(" | |\n");
        else
            printf(" %.2f | %.1f %% |\n", row->without * 1e3, 100 * (row->without - row->with) / ledger->total);
    }
    printf("\nall convolutions: %.1f ms; gain: of that time\n\n", ledger->total * 1e3);
}

/* ---- layers and networks */

/* `ledger`: NULL, or instead of times. */
static Status time_layer(Device *device, const Layer *l, int batch, Dtype dtype, double spent[3], double *flop,
                         Ledger *ledger)
{
    Status st = OK;
    Tensor x = {0}, w = {0}, y = {0};
    Window window = {l->kh, l->kw, l->stride, l->stride, l->pad_h, l->pad_w, false};
    Shape in = {batch, l->ic, l->side, l->side}, out = window_out(&window, in, l->oc);
    TRY_OUT(tensor_make(device, in, dtype, &x));
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
        if (ledger)
            TRY_OUT(ledger_call(device, &calls[k], l->count, ledger));
        else
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
        TRY(time_layer(device, l, network->batch, dtype, spent, &flop, NULL));
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

static Status ledger_network(Device *device, const Network *network, Dtype dtype)
{
    double spent[3], flop;
    Ledger *ledger = calloc(1, sizeof *ledger);
    Status st = ledger ? OK : FAIL(ERR_MEMORY, "no memory for the ledger");
    for (const Layer *l = network->layers; st == OK && l->ic; l++)
        st = time_layer(device, l, network->batch, dtype, spent, &flop, ledger);
    if (st == OK) ledger_print(ledger, network);
    free(ledger);
    return st;
}

static Status bench(int argc, char **argv)
{
    Status st = OK;
    const Backend *cpu;
    Device device;
    DeviceConfig config = {DEVICE_USUAL, .threads = argc > 2 ? atoi(argv[2]) : 2};
    Dtype dtype = argc > 1 && strcmp(argv[1], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    bool ledger = argc > 4 && strcmp(argv[4], "ledger") == 0;
    char text[160];
    TRY(backend_find("cpu", &cpu, NULL, 0));
    TRY(cpu->open(&config, &device));
    cpu->describe(&device, text, sizeof text);
    printf("%s, %s\n\n", text, dtype_name(dtype));
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++)
        if (argc < 4 || strcmp(argv[3], networks[i].name) == 0)
            TRY_OUT((ledger ? ledger_network : time_network)(&device, &networks[i], dtype));
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
