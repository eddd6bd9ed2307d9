/* Every row of every case table on every backend of this machine, in every float dtype, against the reference.
 *
 * Prints the largest error of each op kind. Ops that a backend does not support in a 16-bit dtype are counted and
 * named; in f32 they are failures. TOWERS_TEST_OP=conv_dx,conv_dw runs these kinds alone, TOWERS_TEST_NOT=conv_dx all
 * others, TOWERS_TEST_BACKEND=cuda one backend. TOWERS_TEST_BITS=FILE writes a hash of each output, by
 * which two builds are compared. */

#include "tests/support/run_case.h"
#include "tests/support/unit.h"

static void print_report(const char *backend, Dtype dtype, OpKind kind, int rows, const CaseReport *r)
{
    char note[64] = "";
    if (r->unsupported) snprintf(note, sizeof note, ", %d unsupported", r->unsupported);
    printf("  %-4s %-4s %-16s %3d rows %4d runs  max error %.2e (%3.0f %% of allowed)%s\n", backend, dtype_name(dtype),
           op_name(kind), rows, r->runs, r->error, 100 * r->worst, note);
    fflush(stdout); /* what is known survives a program that is cut off */
}

static int run_kind(Device *device, OpKind kind, Dtype dtype)
{
    CaseReport report = {0};
    int rows = run_cases(device, kind, dtype, &report);
    print_report(device->backend->name, dtype, kind, rows, &report);
    return report.failures;
}

/* Is `name` one of the comma-separated ones? */
static bool is_listed(const char *name, const char *list)
{
    size_t bytes = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, bytes) == 0 && (at[bytes] == ',' || !at[bytes])) return true;
    }
    return false;
}

static int run_all(Device *device, Dtype dtype)
{
    const char *only = getenv("TOWERS_TEST_OP"), *without = getenv("TOWERS_TEST_NOT");
    int failures = 0, kinds = 0;
    for (int kind = 1; kind < OP_COUNT; kind++) {
        if (only && !is_listed(op_name((OpKind)kind), only)) continue;
        if (is_listed(op_name((OpKind)kind), without)) continue;
        failures += run_kind(device, (OpKind)kind, dtype);
        kinds++;
        if (device->backend->finish(device, STREAM_COMPUTE) != OK)
            fail_msg("the device is lost after %s in %s: %s", op_name((OpKind)kind), dtype_name(dtype),
                     status_message());
    }
    if (!kinds) fail_msg("TOWERS_TEST_OP=%s is no op kind", only);
    return failures;
}

/* Opens the backend, or skips the test if this machine has none. */
static void open_or_skip(const char *name, Device *device)
{
    const Backend *backend;
    int count = 0;
    const char *only = getenv("TOWERS_TEST_BACKEND");
    DeviceConfig config = {DEVICE_USUAL, .threads = 2, .allow_reference = true};
    if (only && strcmp(only, name) != 0) {
        skip("TOWERS_TEST_BACKEND asks for %s alone", only);
    }
    if (backend_find(name, &backend, NULL, 0) != OK || backend_device_count(backend, &count) != OK || count == 0) {
        skip("no %s here: %s", name, status_message());
    }
    if (backend->open(&config, device) != OK) fail_msg("%s: %s", name, status_message());
}

static void check_backend(const char *name, Dtype dtype)
{
    Device device = {0};
    open_or_skip(name, &device);
    int failures = run_all(&device, dtype);
    device.backend->close(&device);
    if (failures) fail_msg("%d runs on %s in %s are wrong", failures, name, dtype_name(dtype));
}

TEST(test_cpu_f32)
{
    check_backend("cpu", DTYPE_F32);
}

TEST(test_cpu_bf16)
{
    check_backend("cpu", DTYPE_BF16);
}

TEST(test_cuda_f32)
{
    check_backend("cuda", DTYPE_F32);
}

TEST(test_cuda_bf16)
{
    check_backend("cuda", DTYPE_BF16);
}

TEST(test_cuda_f16)
{
    check_backend("cuda", DTYPE_F16);
}

static const Case *first_row(OpKind kind)
{
    for (int t = 0; case_tables[t]; t++)
        for (int i = 0; i < case_tables[t]->count; i++)
            if (case_tables[t]->cases[i].kind == kind) return &case_tables[t]->cases[i];
    return NULL;
}

TEST(test_every_kind_has_a_row)
{
    for (int kind = 1; kind < OP_COUNT; kind++)
        if (!first_row((OpKind)kind)) fail_msg("%s has no row in tests/support/cases", op_name((OpKind)kind));
}

/* The output shape of a windowed row, so that a slip in a table is not taken for a slip in a kernel. */
static void check_window_row(const Case *row, Window k)
{
    Shape x = row->in[0].shape, y = row->out[0].shape;
    if (shape_equal(y, window_out(&k, x, y.c))) return;
    fail_msg("row '%s' of %s: %s does not become %s", row->name, op_name(row->kind), shape_text(x), shape_text(y));
}

TEST(test_rows_fit_their_windows)
{
    for (int t = 0; case_tables[t]; t++)
        for (int i = 0; i < case_tables[t]->count; i++) {
            const Case *row = &case_tables[t]->cases[i];
            if (row->kind == OP_CONV) check_window_row(row, row->attr.conv.window);
            if (row->kind == OP_MAX_POOL || (row->kind == OP_AVG_POOL && !row->attr.pool.adaptive))
                check_window_row(row, row->attr.pool.window);
        }
}
