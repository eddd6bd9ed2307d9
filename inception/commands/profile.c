/* Times of every op of a step. The device is synchronized after each op, so overlap between ops does not
 * show. The overhead of one synchronization (microseconds on a GPU) is subtracted from every time. */
#include "inception/commands/commands.h"
#include "inception/commands/speed.h"

#include "towers/files/json.h"
#include "towers/replica/replica.h"

enum { TOP_LAYERS = 25, PEAK_SIDE = 2048, PEAK_SIDE_FAST = 8192, PEAK_ROUNDS = 12, COPY_BYTES = 128 << 20 };
enum { ROUNDS = 7, ASK_ROUNDS = 50 };
static const double FAST_MS = 2, LEAST_MS = 1e-4;

/* The times of an op, or of all ops of a kind. */
typedef struct OpTime {
    const OpCall *call; /* the last of the kind */
    int calls;
    double ms;                        /* fastest round */
    double gflop, real_gflop, gbytes; /* by definition; as computed by the algorithm; minimum bytes moved */
} OpTime;

typedef struct Peak {
    double gflops, gbs; /* 0: not measured */
} Peak;

KernelChoice kernel_chosen(Device *device, const OpCall *call)
{
    const OpKernel *kernel = device->backend->kernels[call->kind];
    KernelChoice choice = {.name = "-"};
    if (kernel->explain) kernel->explain(device, call, &choice);
    return choice;
}

static double tensor_bytes(const Tensor *t)
{
    return (double)shape_count(t->shape) * (double)dtype_bytes(t->dtype);
}

static bool lies_within(const Tensor *part, const Tensor *whole)
{
    const char *at = part->data, *first = whole->data;
    int64_t elements = (shape_pixels(whole->shape) - 1) * whole->pitch + whole->shape.c;
    return at >= first && at < first + elements * (int64_t)dtype_bytes(whole->dtype);
}

/* A slice, reshape or concat whose operand already lies in its result moves nothing. */
static double moved_gbytes(const OpCall *call)
{
    double bytes = 0;
    for (int k = 0; k < call->in_count; k++) {
        bool there = call->kind == OP_CONCAT ? lies_within(&call->in[k], &call->out[0])
                                             : lies_within(&call->out[0], &call->in[k]);
        if (!there) bytes += 2 * tensor_bytes(call->kind == OP_CONCAT ? &call->in[k] : &call->out[0]);
    }
    return bytes * 1e-9;
}

/* Every operand once: the bytes that an op must move if nothing stays in a cache. */
static double call_gbytes(const OpCall *call)
{
    double bytes = 0;
    if (call->kind == OP_SLICE || call->kind == OP_RESHAPE || call->kind == OP_CONCAT) return moved_gbytes(call);
    for (int k = 0; k < call->in_count; k++)
        if (call->in[k].data) bytes += tensor_bytes(&call->in[k]);
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data) bytes += tensor_bytes(&call->out[k]);
    return bytes * 1e-9;
}

/* Overhead of a launch and a synchronization, the least that every time includes. */
static Status asking_time(Device *device, double *ms)
{
    Status st = OK;
    void *memory = NULL;
    *ms = 1e30;
    TRY(device->backend->alloc(device, sizeof(float), &memory));
    for (int i = 0; i < ASK_ROUNDS; i++) {
        int64_t start = clock_ns();
        TRY_OUT(device->backend->fill(device, memory, 0, 1));
        TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
        *ms = fmin(*ms, (double)(clock_ns() - start) * 1e-6);
    }
out:
    device->backend->release(device, memory);
    return st;
}

/* Ops `first` and following. */
static Status ops_time(Replica *r, const Plan *plan, int first, OpTime *times)
{
    int count = plan_op_count(plan) - first;
    double asking;
    TRY(asking_time(&r->device, &asking));
    for (int i = 0; i < count; i++) {
        const OpCall *call = plan_call(plan, first + i);
        double gflop = 2e-9 * (double)op_macs(call), share = call->product_share > 0 ? (double)call->product_share : 1;
        times[i] = (OpTime){call, 1, 1e30, gflop, gflop * share, call_gbytes(call)};
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            int64_t start = clock_ns();
            TRY(plan_run((Plan *)plan, first + i, first + i + 1));
            TRY(r->device.backend->finish(&r->device, STREAM_COMPUTE));
            double ms = (double)(clock_ns() - start) * 1e-6 - asking;
            times[i].ms = fmin(times[i].ms, fmax(ms, LEAST_MS));
        }
    return OK;
}

/* ---- peak rates of the machine, measured with own kernels: a square matrix product and a copy */

static Status call_best_ms(Device *device, OpCall *call, double *best)
{
    const OpKernel *kernel = device->backend->kernels[call->kind];
    Status st = OK;
    *best = 1e30;
    if (kernel->prepare) TRY(kernel->prepare(device, call));
    if (call->workspace_bytes) TRY_OUT(device->backend->alloc(device, call->workspace_bytes, &call->workspace));
    for (int i = 0; i < PEAK_ROUNDS; i++) {
        int64_t start = clock_ns();
        TRY_OUT(kernel->launch(device, call));
        TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
        double ms = (double)(clock_ns() - start) * 1e-6;
        if (ms < *best) *best = ms;
    }
out:
    if (call->workspace) device->backend->release(device, call->workspace);
    if (kernel->discard && call->state) kernel->discard(device, call);
    return st;
}

static Status peak_of_side(Device *device, Dtype dtype, int32_t side, double *product_ms, Peak *peak)
{
    Status st = OK;
    void *memory[3] = {0};
    double copy_ms, asking;
    size_t bytes = (size_t)side * (size_t)side * sizeof(float);
    bytes = bytes > COPY_BYTES ? bytes : COPY_BYTES;
    Shape square = {side, side, 1, 1}, flat = {(int32_t)(bytes / 4 / 1024), 1024, 1, 1};
    TRY(asking_time(device, &asking));
    for (int i = 0; i < 3; i++) TRY_OUT(device->backend->alloc(device, bytes, &memory[i]));
    OpCall product = {.kind = OP_DENSE, .name = "peak", .in_count = 2, .out_count = 1};
    product.in[0] = (Tensor){memory[0], square, dtype, side};
    product.in[1] = (Tensor){memory[1], square, DTYPE_F32, side};
    product.out[0] = (Tensor){memory[2], square, dtype, side};
    OpCall copy = {.kind = OP_SLICE, .name = "peak", .in_count = 1, .out_count = 1};
    copy.in[0] = (Tensor){memory[0], flat, DTYPE_F32, 1024};
    copy.out[0] = (Tensor){memory[1], flat, DTYPE_F32, 1024};
    TRY_OUT(call_best_ms(device, &product, product_ms));
    TRY_OUT(call_best_ms(device, &copy, &copy_ms));
    *peak = (Peak){2.0 * side * side * side / fmax(*product_ms - asking, LEAST_MS) * 1e-6,
                   2.0 * (double)bytes / fmax(copy_ms - asking, LEAST_MS) * 1e-6};
out:
    for (int i = 0; i < 3; i++)
        if (memory[i]) device->backend->release(device, memory[i]);
    return st;
}

/* ---- tables */

static int by_ms(const void *a, const void *b)
{
    double x = ((const OpTime *)a)->ms, y = ((const OpTime *)b)->ms;
    return (x < y) - (x > y);
}

enum {
    CELL = 96,
    COLUMNS_MAX = 10,
    ROWS_MAX = 1 + ((int)OP_COUNT > (int)TOP_LAYERS ? (int)OP_COUNT : (int)TOP_LAYERS)
};
typedef struct ProfileTable { /* of texts; printed in aligned columns on a terminal, else as Markdown */
    int columns, texts;       /* the first `texts` columns are texts, the others numbers */
    int rows;
    char cell[ROWS_MAX][COLUMNS_MAX][CELL]; /* the first row is the head */
} ProfileTable;

/* A row that begins with these texts. */
static char (*table_row(ProfileTable *t, const char *const *texts, int count))[CELL]
{
    for (int k = 0; k < count; k++) snprintf(t->cell[t->rows][k], CELL, "%s", texts[k]);
    return t->cell[t->rows++];
}

static void table_print(const ProfileTable *t, bool terminal, FILE *to)
{
    int width[COLUMNS_MAX] = {0};
    for (int i = 0; i < t->rows; i++)
        for (int k = 0; k < t->columns; k++) width[k] = (int)fmax(width[k], (double)strlen(t->cell[i][k]));
    for (int i = 0; i < t->rows; i++) {
        for (int k = 0; k < t->columns; k++)
            if (terminal)
                text_printf(to, "%s%*s", k ? "  " : "", k < t->texts ? -width[k] : width[k], t->cell[i][k]);
            else
                text_printf(to, "| %s ", t->cell[i][k]);
        fputs(terminal ? "\n" : "|\n", to);
        for (int k = 0; i == 0 && !terminal && k < t->columns; k++) fputs(k < t->texts ? "|---" : "|---:", to);
        if (i == 0 && !terminal) fputs("|\n", to);
    }
    fputc('\n', to);
}

static void number_put(char cell[CELL], const char *format, double number, bool known)
{
    snprintf(cell, CELL, known ? format : "-", number);
}

/* The numbers of a row, behind its texts. */
static void numbers_fill(char (*at)[CELL], const OpTime *t, double total, const Peak *peak)
{
    /* Percentage of the limiting peak: the larger of the best possible times for arithmetic and memory, over the time.
     * "-" if nothing is computed or moved, or if memory cannot be that fast (the operands were in a cache). */
    double share = 100 * fmax(t->real_gflop / peak->gflops, t->gbytes / peak->gbs) * 1e3 / t->ms;
    number_put(at[0], "%.3f", t->ms, true);
    number_put(at[1], "%.1f", 100 * t->ms / total, true);
    number_put(at[2], "%.1f", t->gflop / t->ms * 1e3, t->gflop > 0);
    number_put(at[3], "%.1f", t->real_gflop / t->ms * 1e3, t->gflop > 0);
    number_put(at[4], "%.1f", t->gbytes / t->ms * 1e3, t->gbytes > 0);
    number_put(at[5], "%.0f", share, share > 0 && share <= 100);
}

static void kinds_print(const OpTime *times, int count, double total, const Peak *peak, bool terminal, FILE *to)
{
    static const char *const head[] = {"op",           "calls", "ms",       "share %", "effective GFLOP/s",
                                       "real GFLOP/s", "GB/s",  "% of peak"};
    OpTime kinds[OP_COUNT] = {0};
    ProfileTable table = {.columns = 8, .texts = 1};
    for (int i = 0; i < count; i++) {
        OpTime *kind = &kinds[times[i].call->kind];
        kind->call = times[i].call;
        kind->calls++;
        kind->ms += times[i].ms;
        kind->gflop += times[i].gflop;
        kind->real_gflop += times[i].real_gflop;
        kind->gbytes += times[i].gbytes;
    }
    qsort(kinds, OP_COUNT, sizeof *kinds, by_ms);
    table_row(&table, head, table.columns);
    for (int i = 0; i < OP_COUNT && kinds[i].calls; i++) {
        const char *name = op_name(kinds[i].call->kind);
        char(*row)[CELL] = table_row(&table, &name, 1);
        snprintf(row[1], CELL, "%d", kinds[i].calls);
        numbers_fill(row + 2, &kinds[i], total, peak);
    }
    table_print(&table, terminal, to);
}

/* A line for each set of reasons, with the layers that it holds for. */
static void passed_print(Device *device, const OpTime *times, int count, FILE *to)
{
    KernelChoice choice[TOP_LAYERS];
    bool printed[TOP_LAYERS] = {0};
    for (int i = 0; i < count; i++) choice[i] = kernel_chosen(device, times[i].call);
    fputs("Kernels not used, and why:\n\n", to);
    for (int i = 0; i < count; i++) {
        if (!choice[i].passed[0] || printed[i]) continue;
        for (int j = i; j < count; j++) {
            if (times[j].call->kind != times[i].call->kind || strcmp(choice[j].passed, choice[i].passed) != 0) continue;
            text_printf(to, "%s%s", j == i ? "- " : ", ", times[j].call->name);
            printed[j] = true;
        }
        text_printf(to, " (%s): %s\n", op_name(times[i].call->kind), choice[i].passed);
    }
}

/* Of all ops, which are more than the table shows. */
static Status profile_json(Device *device, const OpTime *times, int count, const Peak *peak, json_t **made)
{
    double total = 0;
    json_t *ops = json_array();
    for (int i = 0; i < count; i++) {
        const OpTime *t = &times[i];
        KernelChoice choice = kernel_chosen(device, t->call);
        json_t *op =
            json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f}", "layer", t->call->name, "op", op_name(t->call->kind),
                      "output", shape_text(t->call->out[0].shape), "kernel", choice.name, "ms", t->ms, "gflop",
                      t->gflop, "real_gflop", t->real_gflop, "gbytes", t->gbytes);
        if (!op || json_array_append_new(ops, op) != 0) {
            json_decref(ops);
            return FAIL(ERR_MEMORY, "no memory for the times of %d ops as JSON", count);
        }
        total += t->ms;
    }
    *made =
        json_pack("{s:f, s:f, s:f, s:o}", "ms", total, "peak_gflops", peak->gflops, "peak_gbs", peak->gbs, "ops", ops);
    return *made ? OK : FAIL(ERR_MEMORY, "no memory for a profile as JSON");
}

static void profile_print(Device *device, OpTime *times, int count, const TrainJob *job, const Peak *peak, FILE *to)
{
    double total = 0;
    for (int i = 0; i < count; i++) total += times[i].ms;
    text_printf(to,
                "\n%s, batch %d, %s on %s, %d thread%s: %.2f ms in %d ops; machine peak: %.0f GFLOP/s (matrix "
                "product), %.1f GB/s (copy)\n\n",
                job->program.model->name, job->local_batches.batch[0],
                job->device.tf32 ? "tf32" : dtype_name(job->program.compute), job->backend->name, job->device.threads,
                job->device.threads == 1 ? "" : "s", total, count, peak->gflops, peak->gbs);
    bool terminal = isatty(fileno(to));
    kinds_print(times, count, total, peak, terminal, to);
    static const char *const head[] = {
        "layer", "op", "output", "kernel", "ms", "share %", "effective GFLOP/s", "real GFLOP/s", "GB/s", "% of peak"};
    ProfileTable table = {.columns = 10, .texts = 4};
    qsort(times, (size_t)count, sizeof *times, by_ms);
    table_row(&table, head, table.columns);
    for (int i = 0; i < count && i < TOP_LAYERS; i++) {
        const OpCall *call = times[i].call;
        KernelChoice choice = kernel_chosen(device, call);
        const char *texts[] = {call->name, op_name(call->kind), shape_text(call->out[0].shape), choice.name};
        numbers_fill(table_row(&table, texts, 4) + 4, &times[i], total, peak);
    }
    table_print(&table, terminal, to);
    passed_print(device, times, count < TOP_LAYERS ? count : TOP_LAYERS, to);
    fputc('\n', to);
    fprintf(to, "effective: arithmetic of the op's definition, per second; real: arithmetic of the algorithm used "
                "(less with Winograd).\n%% of peak: relative to the machine's arithmetic or memory peak, whichever "
                "limits; -: no arithmetic or memory traffic, or operands that fit in a cache.\n");
}

Status profile_run(const JobFiles *files, bool inference, FILE *to, json_t **made)
{
    Status st = OK;
    const TrainJob *job = &files->job;
    Replica *replica = NULL;
    Loader *loader = NULL;
    OpTime *times = NULL;
    Peak peak = {0};
    const Batch *batch;
    ReplicaConfig config = {.backend = job->backend,
                            .device = job_device(job, 0),
                            .program = job->program,
                            .local = 1,
                            .optimizer = job->optimizer,
                            .seed = job->seed};
    *(inference ? &config.eval_n : &config.train_n) = (const int32_t[]){job->local_batches.batch[0], 0};
    TRY_OUT(replica_create(&config, &replica));
    TRY_OUT(bench_loader(job, job->local_batches.batch[0], &loader));
    TRY_OUT(loader_next(loader, &batch));
    Program *program = inference ? replica_eval_program(replica, batch->n) : replica_program(replica, 0, batch->n);
    int first = program->fold_end, count = plan_op_count(program->plan) - first;
    times = calloc((size_t)count, sizeof *times);
    if (!times) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the times of %d ops", count));
    RandomKey key = job_random_key(job, 1, batch);
    TRY_OUT(replica_feed(replica, program, batch, 0, &key, 1.0f / (float)batch->n));
    TRY_OUT(plan_run(program->plan, 0, first + count));
    /* If the product is too fast to be timed well, measure again with larger matrices. */
    double ms;
    TRY_OUT(peak_of_side(&replica->device, job->program.compute, PEAK_SIDE, &ms, &peak));
    TRY_OUT(ms < FAST_MS ? peak_of_side(&replica->device, job->program.compute, PEAK_SIDE_FAST, &ms, &peak) : OK);
    TRY_OUT(ops_time(replica, program->plan, first, times));
    /* The timed product may have been disturbed: raise the peak to the rate of the fastest op. */
    for (int i = 0; i < count; i++) peak.gflops = fmax(peak.gflops, times[i].real_gflop / times[i].ms * 1e3);
    profile_print(&replica->device, times, count, job, &peak, to);
    if (made) TRY_OUT(profile_json(&replica->device, times, count, &peak, made));
out:
    free(times);
    loader_destroy(loader);
    replica_destroy(replica);
    return st;
}
