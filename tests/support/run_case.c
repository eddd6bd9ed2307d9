/* One row on one device; see run_case.h.
 *
 * Before a kernel runs, all memory that it may write is filled with 0xff bytes (NaN in every float dtype): outputs, the
 * gaps between the pixels of slices, a guard after the last pixel, the workspace. Afterwards the values defined by the
 * reference must be right and all others unchanged. Pointers may differ between prepare and launch, and do here. */
#include "tests/support/run_case.h"

#include "tests/support/interpret.h"

#include <errno.h>
#include <stdarg.h>

enum { POISON = 0xff, GUARD = 32 };

typedef struct Buffer {
    size_t bytes;
    int64_t offset; /* of the first element */
    void *host, *device;
} Buffer;

/* How a run stores its operands. */
typedef struct Variant {
    const char *name;
    uint32_t in_slices, out_slices;
    int offset, gap;
    int in_place; /* operand that out[0] shares, or -1 */
    int absent;   /* output that nobody reads, or -1 */
} Variant;

typedef struct Run {
    Device *device;
    const Case *row;
    Dtype dtype;
    const Variant *variant;
    const RefTensor *in, *out;
    OpCall call;
    Buffer in_buffer[OP_MAX_IN], out_buffer[OP_MAX_OUT];
    void *workspace;
    CaseReport *report;
} Run;

static bool present(const Operand *operand)
{
    return operand->shape.n > 0;
}

static Dtype operand_dtype(const Operand *operand, Dtype dtype)
{
    switch (operand->type) {
    case TYPE_ACT: return dtype;
    case TYPE_U8: return DTYPE_U8;
    case TYPE_I32: return DTYPE_I32;
    default: return DTYPE_F32;
    }
}

/* ---- values */

static void fill_labels(const RefTensor *logits, RefTensor *labels)
{
    int classes = logits->shape.c;
    for (int n = 0; n < labels->shape.n; n++) {
        const double *z = logits->data + (int64_t)n * classes;
        int top = 0;
        for (int c = 1; c < classes; c++) top = z[c] > z[top] ? c : top;
        labels->data[n] = n % 5 == 4 ? LABEL_NONE : n % 2 ? (n * 7 + classes - 1) % classes : top;
    }
}

static void fill_crops(const Case *row, RefTensor *t)
{
    Shape from = row->in[0].shape, to = row->out[0].shape;
    for (int n = 0; n < t->shape.n; n++) {
        double *record = t->data + n * IMAGE_RECORD;
        record[IMAGE_OY] = n * 5 % (from.h - to.h + 1);
        record[IMAGE_OX] = (n * 3 + 1) % (from.w - to.w + 1);
        record[IMAGE_FLIP] = n % 2;
        if (from.n > to.n && n % 4) { /* mixed by share, cut, or both */
            record[IMAGE_PARTNER] = 1 + (n * 3 + 1) % from.n;
            record[IMAGE_SHARE] = n % 4 == 2 ? 0 : 0x345678;
            record[IMAGE_CUT_Y] = n % 3;
            record[IMAGE_CUT_X] = 1;
            record[IMAGE_CUT_H] = n % 4 == 1 ? 0 : 4;
            record[IMAGE_CUT_W] = to.w / 2;
        }
        if (n % 3 != 1) continue;
        record[IMAGE_ERASE_Y] = n % to.h;
        record[IMAGE_ERASE_X] = 2;
        record[IMAGE_ERASE_H] = 3;
        record[IMAGE_ERASE_W] = to.w / 2;
    }
}

static void fill_probabilities(RefTensor *t)
{
    for (int64_t first = 0; first < shape_count(t->shape); first += t->shape.c) {
        double sum = 0;
        for (int c = 0; c < t->shape.c; c++) sum += t->data[first + c] = exp(t->data[first + c]);
        for (int c = 0; c < t->shape.c; c++) t->data[first + c] /= sum;
    }
}

static void fill_moments(Fill fill, const RefTensor *x, RefTensor *t)
{
    OpAttr attr = {0};
    RefTensor in[OP_MAX_IN] = {*x}, out[OP_MAX_OUT] = {{{0}, NULL}};
    out[fill == FILL_MEAN ? 1 : 2] = *t;
    reference_run(OP_BATCHNORM, &attr, in, out);
}

static void fill_argmax(const Case *row, RefTensor *t)
{
    RefTensor in[OP_MAX_IN] = {ref_create(row->out[0].shape)}, out[OP_MAX_OUT] = {{{0}, NULL}, *t};
    fill_uniform(in[0].data, shape_count(in[0].shape), 99, -1, 1);
    reference_run(OP_MAX_POOL, &row->attr, in, out);
    ref_destroy(&in[0]);
}

static void fill_operand(const Case *row, int k, Dtype dtype, RefTensor *in)
{
    static const double counter[4] = {(double)(int32_t)0x89abcdefu, 0x1234567, 17, 3};
    const Operand *operand = &row->in[k];
    RefTensor *t = &in[k];
    int64_t count = shape_count(t->shape);
    fill_uniform(t->data, count, (uint64_t)k + 1, -1, 1);
    for (int64_t i = 0; i < count; i++) {
        if (operand->fill == FILL_POSITIVE) t->data[i] = 1 + t->data[i] / 2;
        if (operand->fill == FILL_SIGN) t->data[i] = fmax(0, t->data[i]);
        if (operand->fill == FILL_PIXEL) t->data[i] = floor((t->data[i] + 1) * 128);
        if (operand->fill == FILL_COUNTER) t->data[i] = counter[i];
        if (operand->fill == FILL_SHARE) t->data[i] = i % 7 == 0 ? (t->data[i] + 1) / 2 : t->data[i] > 0;
        if (operand->fill == FILL_LEVELS) t->data[i] = floor(t->data[i] * 8) / 8;
        if (operand->fill == FILL_FAR) t->data[i] *= i % 5 == 0 ? 100 : 4;
    }
    if (operand->fill == FILL_LABEL) fill_labels(&in[0], t);
    if (operand->fill == FILL_CROP) memset(t->data, 0, (size_t)count * sizeof(double)), fill_crops(row, t);
    if (operand->fill == FILL_PROB) fill_probabilities(t);
    if (operand->fill == FILL_MEAN || operand->fill == FILL_VAR) fill_moments(operand->fill, &in[1], t);
    if (operand->fill == FILL_ARGMAX) fill_argmax(row, t);
    Dtype held = operand->type == TYPE_WEIGHT ? dtype : operand_dtype(operand, dtype);
    for (int64_t i = 0; i < count; i++) t->data[i] = dtype_round(held, t->data[i]);
}

/* ---- memory */

static bool poisoned(const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < count; i++)
        if (p[i] != POISON) return false;
    return true;
}

static Status buffer_create(Run *run, const Operand *operand, bool slice, Buffer *b, Tensor *t)
{
    t->shape = operand->shape;
    t->dtype = operand_dtype(operand, run->dtype);
    t->pitch = t->shape.c + (slice ? run->variant->gap : 0);
    t->data = (void *)64; /* prepare must not use it */
    b->offset = slice ? run->variant->offset : 0;
    b->bytes = (size_t)(b->offset + shape_pixels(t->shape) * t->pitch + GUARD) * dtype_bytes(t->dtype);
    b->host = malloc(b->bytes);
    if (!b->host) return FAIL(ERR_MEMORY, "%zu bytes for an operand", b->bytes);
    memset(b->host, POISON, b->bytes);
    return run->device->backend->alloc(run->device, b->bytes, &b->device);
}

static void buffer_destroy(Run *run, Buffer *b)
{
    if (b->device) run->device->backend->release(run->device, b->device);
    free(b->host);
    *b = (Buffer){0};
}

static int64_t element_place(const Buffer *b, const Tensor *t, int64_t i)
{
    return b->offset + i / t->shape.c * t->pitch + i % t->shape.c;
}

static void buffer_store(Buffer *b, const Tensor *t, const double *values)
{
    for (int64_t i = 0; i < shape_count(t->shape); i++)
        dtype_store(t->dtype, b->host, element_place(b, t, i), values[i]);
}

/* Put each element back to poison, so that only writes outside of it remain. */
static void buffer_forget(Buffer *b, const Tensor *t)
{
    size_t size = dtype_bytes(t->dtype);
    for (int64_t i = 0; i < shape_count(t->shape); i++)
        memset((char *)b->host + (size_t)element_place(b, t, i) * size, POISON, size);
}

static void bind(Tensor *t, const Buffer *b)
{
    if (t->data) t->data = (char *)b->device + (size_t)b->offset * dtype_bytes(t->dtype);
}

static bool shares(const Run *run, int k)
{
    return k == 0 && run->variant->in_place >= 0;
}

static Status run_build(Run *run)
{
    const Case *row = run->row;
    OpCall *call = &run->call;
    *call = (OpCall){.kind = row->kind, .attr = row->attr, .name = row->name};
    for (int k = 0; k < OP_MAX_IN; k++) {
        if (!present(&row->in[k])) continue;
        call->in_count = k + 1;
        TRY(buffer_create(run, &row->in[k], run->variant->in_slices >> k & 1, &run->in_buffer[k], &call->in[k]));
    }
    for (int k = 0; k < OP_MAX_OUT && present(&row->out[k]); k++) {
        call->out_count = k + 1;
        TRY(buffer_create(run, &row->out[k], run->variant->out_slices >> k & 1, &run->out_buffer[k], &call->out[k]));
        if (k == run->variant->absent) call->out[k].data = NULL;
    }
    return OK;
}

static Status run_prepare(Run *run)
{
    const Backend *backend = run->device->backend;
    const OpKernel *kernel = backend->kernels[run->row->kind];
    if (kernel->prepare) TRY(kernel->prepare(run->device, &run->call));
    if (!run->call.workspace_bytes) return OK;
    TRY(backend->alloc(run->device, run->call.workspace_bytes, &run->workspace));
    run->call.workspace = run->workspace;
    return OK;
}

/* Upload inputs and poison, launch, fetch everything back into the host buffers. */
static Status run_launch(Run *run)
{
    Device *device = run->device;
    const Backend *backend = device->backend;
    OpCall *call = &run->call;
    size_t scratch_bytes = call->workspace_bytes;
    void *scratch = malloc(scratch_bytes + 1);
    if (!scratch) return FAIL(ERR_MEMORY, "%zu bytes for a workspace", scratch_bytes);
    memset(scratch, POISON, scratch_bytes + 1);
    Status st = OK;
    for (int k = 0; k < call->out_count; k++) {
        Buffer *b = &run->out_buffer[k];
        memset(b->host, POISON, b->bytes);
        TRY_OUT(backend->upload(device, b->device, b->host, b->bytes));
        bind(&call->out[k], b);
    }
    for (int k = 0; k < call->in_count; k++) {
        Buffer *b = &run->in_buffer[k];
        if (!b->device) continue;
        buffer_store(b, &call->in[k], run->in[k].data);
        TRY_OUT(backend->upload(device, b->device, b->host, b->bytes));
        bind(&call->in[k], b);
    }
    if (run->variant->in_place >= 0) call->out[0].data = call->in[run->variant->in_place].data;
    if (scratch_bytes) TRY_OUT(backend->upload(device, run->workspace, scratch, scratch_bytes));
    TRY_OUT(backend->kernels[call->kind]->launch(device, call));
    for (int k = 0; k < call->in_count; k++)
        if (run->in_buffer[k].device)
            TRY_OUT(
                backend->download(device, run->in_buffer[k].host, run->in_buffer[k].device, run->in_buffer[k].bytes));
    for (int k = 0; k < call->out_count; k++) {
        Buffer *from = shares(run, k) ? &run->in_buffer[run->variant->in_place] : &run->out_buffer[k];
        TRY_OUT(backend->download(device, run->out_buffer[k].host, from->device, from->bytes));
    }
    TRY_OUT(backend->finish(device, STREAM_COMPUTE));
out:
    free(scratch);
    return st;
}

/* ---- the comparison */

static void complain(Run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(Run *run, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    run->report->failures++;
    fprintf(stderr, "FAIL %s %s %s '%s' (%s): %s\n", run->device->backend->name, dtype_name(run->dtype),
            op_name(run->row->kind), run->row->name, run->variant->name, text);
}

/* Roundings to 16 bits that cuDNN adds to a convolution: a bias is added to a result that was rounded once already, and
 * the gradient of the weights comes in 16 bits before it goes on in f32. */
static int roundings_more(const Run *run, Dtype *dtype)
{
    OpKind kind = run->row->kind;
    if (strcmp(run->device->backend->name, "cuda") != 0 || run->dtype == DTYPE_F32) return 0;
    if (kind == OP_CONV_DW) *dtype = run->dtype;
    return (kind == OP_CONV || kind == OP_DENSE) && run->call.in_count > 2 && run->call.in[2].data;
}

static double tolerance_of(const Run *run, Dtype dtype)
{
    double factor = run->row->roundings > 0 ? run->row->roundings : 1;
    if (run->row->sums_rounded && dtype == DTYPE_F32 && run->dtype != DTYPE_F32) {
        dtype = run->dtype;
        factor *= 4; /* each term has a rounding of its own */
    }
    factor += roundings_more(run, &dtype);
    switch (dtype) {
    case DTYPE_F32: return run->dtype == DTYPE_F32 ? 5e-6 : 2e-5;
    case DTYPE_BF16: return factor * 1.25 / 256; /* half a unit in the last place, and a little */
    case DTYPE_F16: return factor * 1.25 / 2048;
    default: return 0;
    }
}

static double root_mean_square(const RefTensor *t)
{
    double sum = 0;
    for (int64_t i = 0; i < shape_count(t->shape); i++) sum += t->data[i] * t->data[i];
    return sqrt(sum / (double)shape_count(t->shape));
}

static void check_values(Run *run, int k)
{
    const RefTensor *wanted = &run->out[k];
    const Tensor *t = &run->call.out[k];
    double limit = tolerance_of(run, t->dtype), size = root_mean_square(wanted), worst = -1;
    int64_t at = 0;
    for (int64_t i = 0; i < shape_count(t->shape); i++) {
        double got = dtype_load(t->dtype, run->out_buffer[k].host, element_place(&run->out_buffer[k], t, i));
        double error = fabs(got - wanted->data[i]) / fmax(fmax(fabs(wanted->data[i]), size), 1e-30);
        if (error <= worst) continue;
        worst = isnan(error) ? INFINITY : error;
        at = i;
    }
    if (limit > 0) {
        run->report->worst = fmax(run->report->worst, worst / limit);
        run->report->error = fmax(run->report->error, worst);
    }
    if (worst <= limit) return;
    double got = dtype_load(t->dtype, run->out_buffer[k].host, element_place(&run->out_buffer[k], t, at));
    complain(run, "out[%d] is off by %.3g, allowed %.3g: element %" PRId64 " is %.9g, wanted %.9g", k, worst, limit, at,
             got, wanted->data[at]);
}

/* One line of the file TOWERS_TEST_BITS: which output of which run, and a hash (FNV-1a) of all bytes of its memory. */
static void bits_write(Run *run, int k)
{
    const char *path = getenv("TOWERS_TEST_BITS");
    FILE *file = path ? fopen(path, "a") : NULL;
    const Buffer *b = &run->out_buffer[k];
    uint64_t hash = 0xcbf29ce484222325u;
    if (!path) return;
    for (size_t i = 0; i < b->bytes; i++) hash = (hash ^ ((const unsigned char *)b->host)[i]) * 0x100000001b3u;
    bool good = file && fprintf(file, "%s %s %s '%s' (%s) out[%d] %016" PRIx64 "\n", run->device->backend->name,
                                dtype_name(run->dtype), op_name(run->row->kind), run->row->name, run->variant->name, k,
                                hash) > 0;
    if (file) good &= fclose(file) == 0;
    if (!good) complain(run, "%s cannot be written: %s", path, strerror(errno));
}

static void check_untouched(Run *run)
{
    OpCall *call = &run->call;
    for (int k = 0; k < call->out_count; k++) {
        if (call->out[k].data) buffer_forget(&run->out_buffer[k], &call->out[k]);
        if (!poisoned(run->out_buffer[k].host, run->out_buffer[k].bytes))
            complain(run, "wrote outside the elements of out[%d]", k);
    }
    for (int k = 0; k < call->in_count; k++) {
        Buffer *b = &run->in_buffer[k];
        if (!b->device || k == run->variant->in_place) continue;
        for (int64_t i = 0; i < shape_count(call->in[k].shape); i++) {
            double now = dtype_load(call->in[k].dtype, b->host, element_place(b, &call->in[k], i));
            if (now == run->in[k].data[i]) continue;
            complain(run, "changed in[%d]", k);
            break;
        }
        buffer_forget(b, &call->in[k]);
        if (!poisoned(b->host, b->bytes)) complain(run, "wrote between the elements of in[%d]", k);
    }
}

static void check_launch(Run *run, int round)
{
    if (run_launch(run) != OK) {
        complain(run, "launch %d: %s", round, status_message());
        return;
    }
    for (int k = 0; k < run->call.out_count; k++)
        if (run->call.out[k].data) {
            check_values(run, k);
            bits_write(run, k);
        }
    check_untouched(run);
}

static void run_variant(Device *device, const Case *row, Dtype dtype, const Variant *variant, const RefTensor *in,
                        const RefTensor *out, CaseReport *report)
{
    Run run = {
        .device = device, .row = row, .dtype = dtype, .variant = variant, .in = in, .out = out, .report = report};
    report->runs++;
    Status st = run_build(&run);
    if (st == OK) st = run_prepare(&run);
    if (st == ERR_UNSUPPORTED && dtype != DTYPE_F32)
        report->unsupported++;
    else if (st != OK)
        complain(&run, "prepare: %s: %s", status_name(st), status_message());
    for (int round = 0; st == OK && round < 2; round++) check_launch(&run, round);
    const OpKernel *kernel = device->backend->kernels[row->kind];
    if (kernel->discard) kernel->discard(device, &run.call);
    for (int k = 0; k < OP_MAX_IN; k++) buffer_destroy(&run, &run.in_buffer[k]);
    for (int k = 0; k < OP_MAX_OUT; k++) buffer_destroy(&run, &run.out_buffer[k]);
    if (run.workspace) device->backend->release(device, run.workspace);
}

/* ---- variants */

static bool can_share(const Case *row, int k)
{
    return op_storage[row->kind].in_place >> k & 1 && present(&row->in[k]) && row->in[k].type == row->out[0].type &&
           shape_equal(row->in[k].shape, row->out[0].shape);
}

/* The first output that may be unread. The y of a pooling is always read: its other output exists for the gradient that comes
 * back through it. */
static int first_optional(const Case *row)
{
    switch (row->kind) {
    case OP_BATCHNORM:
    case OP_BATCHNORM_DX:
    case OP_LAYERNORM_DX:
    case OP_MAX_POOL_NORM_DX:
    case OP_SOFTMAX_LOSS:
    case OP_SIGMOID_LOSS: return 0;
    default: return 1;
    }
}

static void run_variants(Device *device, const Case *row, Dtype dtype, const RefTensor *in, const RefTensor *out,
                         CaseReport *report)
{
    uint32_t in_mask = op_storage[row->kind].strided_in, out_mask = op_storage[row->kind].strided_out;
    const Variant packed = {"packed", 0, 0, 0, 0, -1, -1};
    const Variant slices[] = {
        {"slices", in_mask, out_mask, 16, 48, -1, -1},
        {"odd slices", in_mask, out_mask, 3, 5, -1, -1},
        {"slices in", in_mask, 0, 8, 16, -1, -1},
        {"slices out", 0, out_mask, 8, 16, -1, -1},
    };
    run_variant(device, row, dtype, &packed, in, out, report);
    for (size_t i = 0; i < sizeof slices / sizeof *slices && (in_mask || out_mask); i++)
        run_variant(device, row, dtype, &slices[i], in, out, report);
    for (int k = 0; k < OP_MAX_IN; k++) {
        if (!can_share(row, k)) continue;
        run_variant(device, row, dtype, &(Variant){"in place", 0, 0, 0, 0, k, -1}, in, out, report);
        if (in_mask >> k & 1 && out_mask & 1)
            run_variant(device, row, dtype, &(Variant){"slice in place", 1u << k, 1, 8, 16, k, -1}, in, out, report);
    }
    for (int k = first_optional(row); k < OP_MAX_OUT && present(&row->out[k]); k++)
        run_variant(device, row, dtype, &(Variant){"output unread", 0, 0, 0, 0, -1, k}, in, out, report);
}

void run_case(Device *device, const Case *row, Dtype dtype, CaseReport *report)
{
    RefTensor in[OP_MAX_IN] = {0}, out[OP_MAX_OUT] = {0};
    for (int k = 0; k < OP_MAX_IN; k++) {
        if (!present(&row->in[k])) continue;
        in[k] = ref_create(row->in[k].shape);
        fill_operand(row, k, dtype, in);
    }
    for (int k = 0; k < OP_MAX_OUT && present(&row->out[k]); k++) out[k] = ref_create(row->out[k].shape);
    reference_run(row->kind, &row->attr, in, out);
    run_variants(device, row, dtype, in, out, report);
    for (int k = 0; k < OP_MAX_IN; k++) ref_destroy(&in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++) ref_destroy(&out[k]);
}

int run_cases(Device *device, OpKind kind, Dtype dtype, CaseReport *report)
{
    int rows = 0;
    for (int t = 0; case_tables[t]; t++) {
        for (int i = 0; i < case_tables[t]->count; i++) {
            if (case_tables[t]->cases[i].kind != kind) continue;
            run_case(device, &case_tables[t]->cases[i], dtype, report);
            rows++;
        }
    }
    return rows;
}
