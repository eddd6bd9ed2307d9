/* Matrix products with a strided vector among their operands, on the oneDNN of this machine and on a stand-in with the
 * defect of oneDNN 3.7.2, which treats the vector as packed. Every call of the library goes through
 * __wrap_dnnl_primitive_execute (the linker's --wrap), which changes the library's own result. */
#include <stdint.h>

#include <dnnl.h>

#include "kernels/cpu/onednn.h"
#include "tests/support/run_case.h"
#include "tests/support/unit.h"

/* ---- the stand-in */

typedef enum Fault { FAULT_NONE = 0, FAULT_PACKED, FAULT_VALUE } Fault;

static struct {
    Fault fault;
    int hits;
} library;

typedef struct Vector {
    int64_t count, stride; /* elements; count 0: not a vector */
    size_t element;        /* bytes */
    char *data;
} Vector;

static Vector vector_of(dnnl_memory_t memory)
{
    Vector v = {0};
    void *data = NULL;
    if (dnnl_memory_get_data_handle(memory, &data) != dnnl_success) return v;
#if DNNL_VERSION_MAJOR >= 3
    const_dnnl_memory_desc_t desc;
    const dnnl_dims_t *dims, *strides;
    int rank = 0;
    dnnl_data_type_t type = dnnl_data_type_undef;
    if (dnnl_memory_get_memory_desc(memory, &desc) != dnnl_success ||
        dnnl_memory_desc_query(desc, dnnl_query_ndims_s32, &rank) != dnnl_success || rank != 2 ||
        dnnl_memory_desc_query(desc, dnnl_query_dims, (void *)&dims) != dnnl_success ||
        dnnl_memory_desc_query(desc, dnnl_query_strides, (void *)&strides) != dnnl_success ||
        dnnl_memory_desc_query(desc, dnnl_query_data_type, &type) != dnnl_success)
        return v;
#else
    const dnnl_memory_desc_t *desc;
    if (dnnl_memory_get_memory_desc(memory, &desc) != dnnl_success || desc->ndims != 2) return v;
    const dnnl_dims_t *dims = &desc->dims, *strides = &desc->format_desc.blocking.strides;
    dnnl_data_type_t type = desc->data_type;
#endif
    int axis = (*dims)[0] == 1;
    if ((*dims)[!axis] != 1 || (*dims)[axis] == 1) return v;
    return (Vector){(*dims)[axis], (*strides)[axis], type == dnnl_f32 ? 4 : 2, data};
}

dnnl_status_t __real_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                            const dnnl_exec_arg_t *args);
dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                            const dnnl_exec_arg_t *args);

static bool is_matmul(const_dnnl_primitive_t primitive)
{
    const_dnnl_primitive_desc_t desc;
    dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
    return dnnl_primitive_get_primitive_desc(primitive, &desc) == dnnl_success &&
           dnnl_primitive_desc_query(desc, dnnl_query_primitive_kind, 0, &kind) == dnnl_success && kind == dnnl_matmul;
}

/* The elements of a strided result next to each other at its beginning, NaN where they belong. */
static void result_packed(const Vector *y)
{
    char *copy = malloc((size_t)y->count * y->element);
    assert_non_null(copy);
    for (int64_t i = 0; i < y->count; i++) {
        char *from = y->data + (size_t)(i * y->stride) * y->element;
        memcpy(copy + (size_t)i * y->element, from, y->element);
        memset(from, 0xff, y->element);
    }
    memcpy(y->data, copy, (size_t)y->count * y->element);
    free(copy);
    library.hits++;
}

dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                            const dnnl_exec_arg_t *args)
{
    dnnl_status_t code = __real_dnnl_primitive_execute(primitive, stream, count, args);
    if (code != dnnl_success || library.fault == FAULT_NONE || !is_matmul(primitive)) return code;
    for (int i = 0; i < count; i++) {
        if (args[i].arg != DNNL_ARG_DST) continue;
        Vector y = vector_of(args[i].memory);
        if (y.count == 0 || y.stride <= 1) continue;
        if (library.fault == FAULT_PACKED) result_packed(&y);
        if (library.fault == FAULT_VALUE) memset(y.data + (size_t)y.stride * y.element, 0, y.element), library.hits++;
    }
    return code;
}

/* ---- tests */

static const Case rows[] = {
    {"one output", OP_DENSE, {.dense = {false}}, {ACT(5, 33, 1, 1), WEIGHT(1, 33, 1, 1)}, {ACT(5, 1, 1, 1)}},
    {"one output, many rows",
     OP_DENSE,
     {.dense = {true}},
     {ACT(200, 65, 1, 1), WEIGHT(1, 65, 1, 1), VECTOR(1)},
     {ACT(200, 1, 1, 1)}},
    {"one output", OP_DENSE_DX, {{{0}}}, {ACT(5, 1, 1, 1), WEIGHT(1, 33, 1, 1)}, {ACT(5, 33, 1, 1)}},
    {"one output", OP_DENSE_DW, {{{0}}}, {ACT(5, 33, 1, 1), ACT(5, 1, 1, 1)}, {PLAIN(1, 33, 1, 1)}},
    {"1x1 to one channel",
     OP_CONV,
     {.conv = {.window = {1, 1, 1, 1, 0, 0, false}}},
     {ACT(2, 16, 7, 7), WEIGHT(1, 16, 1, 1)},
     {ACT(2, 1, 7, 7)}},
    {"1x1 to one channel",
     OP_CONV_DW,
     {.conv = {.window = {1, 1, 1, 1, 0, 0, false}}},
     {ACT(2, 16, 7, 7), ACT(2, 1, 7, 7)},
     {PLAIN(1, 16, 1, 1)}},
    {"1x1 of one channel",
     OP_CONV_DX,
     {.conv = {.window = {1, 1, 1, 1, 0, 0, false}}},
     {ACT(2, 8, 7, 7), WEIGHT(8, 1, 1, 1)},
     {ACT(2, 1, 7, 7)}},
    {"1x1 of one channel, acc",
     OP_CONV_DX,
     {.conv = {.window = {1, 1, 1, 1, 0, 0, false}}},
     {ACT(2, 8, 7, 7), WEIGHT(8, 1, 1, 1), ACT(2, 1, 7, 7)},
     {ACT(2, 1, 7, 7)},
     .roundings = 3},
};

static void run_rows(Dtype dtype)
{
    Device device = {0};
    DeviceConfig config = {.threads = 2, .allow_reference = true};
    const Backend *backend;
    CaseReport report = {0};
    assert_int_equal(backend_find("cpu", &backend, NULL, 0), OK);
    assert_int_equal(backend->open(&config, &device), OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_case(&device, &rows[i], dtype, &report);
    backend->close(&device);
    assert_int_equal(report.failures, 0);
    assert_true(report.runs > 0);
}

TEST(test_this_library)
{
    library.fault = FAULT_NONE;
    run_rows(DTYPE_F32);
    run_rows(DTYPE_BF16);
}

/* Each is found out by the trial, and something else computes the layer. */
TEST(test_wrong_library)
{
    for (Fault fault = FAULT_PACKED; fault <= FAULT_VALUE; fault++) {
        library.fault = fault;
        library.hits = 0;
        run_rows(DTYPE_F32);
        run_rows(DTYPE_BF16);
        assert_true(library.hits > 0);
    }
    library.fault = FAULT_NONE;
}

static OnednnSpec product_spec(int64_t m, int64_t k, int64_t n, int64_t y_pitch)
{
    OnednnSpec spec = {.kind = ONEDNN_MATMUL};
    spec.held[ONEDNN_X] = (OnednnView){2, {m, k}, {k, 1}, DTYPE_F32};
    spec.held[ONEDNN_W] = (OnednnView){2, {k, n}, {1, k}, DTYPE_F32};
    spec.held[ONEDNN_Y] = (OnednnView){2, {m, n}, {y_pitch, 1}, DTYPE_F32};
    return spec;
}

static bool probe(const OnednnSpec *spec)
{
    Onednn *onednn;
    bool right = false;
    assert_int_equal(onednn_open(&onednn), OK);
    if (onednn_probe(onednn, spec, &right) != OK) fail_msg("%s", status_message());
    onednn_close(onednn);
    return right;
}

/* Only strided vectors are tried, so that no usual layer pays for it; and the trial tells right from wrong. */
TEST(test_trial)
{
    OnednnSpec usual = product_spec(64, 300, 10, 32), packed = product_spec(64, 300, 1, 1),
               slice = product_spec(64, 300, 1, 17);
    assert_false(onednn_is_suspect(&usual));
    assert_false(onednn_is_suspect(&packed));
    assert_true(onednn_is_suspect(&slice));
    assert_true(probe(&usual));
    assert_true(probe(&packed));
    for (library.fault = FAULT_PACKED; library.fault <= FAULT_VALUE; library.fault++) {
        assert_true(probe(&packed));
        assert_false(probe(&slice));
    }
    library.fault = FAULT_NONE;
    slice.fit[ONEDNN_Y] = ONEDNN_PACKED;
    assert_false(onednn_is_suspect(&slice));
    assert_true(probe(&slice));
}
