/* cuBLASLt: matrix products in double precision; where the preference allows CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE (the
 * library's default does), every algorithm uses it as badly as it may. The semi-opaque structs store the arguments of their
 * creators. Refused as cublasLt.h and cuBLAS's documentation of cublasLtMatmul say: attributes of another size, types
 * that do not belong together, matrices that do not fit, algorithms of another kind of problem, too little workspace. */
#include "tests/gpu/fake_cuda/fake.h"
#include "tests/support/reference.h"

#include <cublasLt.h>

enum { TRANSPOSE_A = 0, TRANSPOSE_B, COMPUTE, SCALE, TYPE = 0, ROWS, COLUMNS, LEADING, REDUCTIONS = 0, WORKSPACE };
enum { NUMBER = 0, SCHEME, KIND /* words of an algorithm */, ALGORITHMS = 2, WORKSPACE_STEP = 256 };

struct cublasLtContext {
    int unused;
};

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *made)
{
    ENTER(CUBLAS, cublasLtCreate);
    *made = calloc(1, sizeof **made);
    fake_born("cuBLASLt handle");
    return *made ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    int code = fake_enter(FAKE_CUBLAS, "cublasLtDestroy");
    fake_died("cuBLASLt handle");
    free(handle);
    return code;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    (void)status;
    return "a failure of the fake";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale)
{
    ENTER(CUBLAS, cublasLtMatmulDescCreate);
    *made = calloc(1, sizeof **made);
    if (!*made) return CUBLAS_STATUS_ALLOC_FAILED;
    (*made)->data[COMPUTE] = (uint64_t)compute;
    (*made)->data[SCALE] = (uint64_t)scale;
    fake_born("product");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    int code = fake_enter(FAKE_CUBLAS, "cublasLtMatmulDescDestroy");
    fake_died("product");
    free(desc);
    return code;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    ENTER(CUBLAS, cublasLtMatmulDescSetAttribute);
    if (!value || bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
    bool transpose = *(const cublasOperation_t *)value == CUBLAS_OP_T;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) desc->data[TRANSPOSE_A] = transpose;
    if (name == CUBLASLT_MATMUL_DESC_TRANSB) desc->data[TRANSPOSE_B] = transpose;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading)
{
    ENTER(CUBLAS, cublasLtMatrixLayoutCreate);
    *made = calloc(1, sizeof **made);
    if (!*made) return CUBLAS_STATUS_ALLOC_FAILED;
    uint64_t data[] = {[TYPE] = (uint64_t)type, [ROWS] = rows, [COLUMNS] = columns, [LEADING] = (uint64_t)leading};
    memcpy((*made)->data, data, sizeof data);
    fake_born("matrix");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    int code = fake_enter(FAKE_CUBLAS, "cublasLtMatrixLayoutDestroy");
    fake_died("matrix");
    free(layout);
    return code;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
    ENTER(CUBLAS, cublasLtMatmulPreferenceCreate);
    *made = calloc(1, sizeof **made);
    if (!*made) return CUBLAS_STATUS_ALLOC_FAILED;
    (*made)->data[REDUCTIONS] = CUBLASLT_REDUCTION_SCHEME_MASK;
    fake_born("preference");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    int code = fake_enter(FAKE_CUBLAS, "cublasLtMatmulPreferenceDestroy");
    fake_died("preference");
    free(preference);
    return code;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                                    size_t bytes)
{
    ENTER(CUBLAS, cublasLtMatmulPreferenceSetAttribute);
    if (!value || bytes != (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? sizeof(uint64_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) preference->data[WORKSPACE] = *(const uint64_t *)value;
    if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) preference->data[REDUCTIONS] = *(const uint32_t *)value;
    return CUBLAS_STATUS_SUCCESS;
}

/* op(A) is rows of D by `inner`, op(B) is `inner` by columns of D; C is laid out like D. Sums in f32 take both operands in one
 * type and scale in f32, and give that type or f32; operands that may be rounded to TF32 are f32. */
static bool is_problem(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    const uint64_t *x = a->data, *y = b->data, *z = d->data;
    bool ta = desc->data[TRANSPOSE_A], tb = desc->data[TRANSPOSE_B];
    uint64_t compute = desc->data[COMPUTE];
    if (compute != CUBLAS_COMPUTE_32F && (compute != CUBLAS_COMPUTE_32F_FAST_TF32 || x[TYPE] != CUDA_R_32F))
        return false;
    if (desc->data[SCALE] != CUDA_R_32F || x[TYPE] != y[TYPE] || (z[TYPE] != x[TYPE] && z[TYPE] != CUDA_R_32F))
        return false;
    if (memcmp(c->data, d->data, sizeof c->data) != 0) return false;
    if (x[LEADING] < x[ROWS] || y[LEADING] < y[ROWS] || z[LEADING] < z[ROWS]) return false;
    return x[ta ? ROWS : COLUMNS] == y[tb ? COLUMNS : ROWS] && x[ta ? COLUMNS : ROWS] == z[ROWS] &&
           y[tb ? ROWS : COLUMNS] == z[COLUMNS];
}

/* What an algorithm is for: the types and the transpositions. */
static uint64_t kind_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t d)
{
    const uint64_t parts[] = {desc->data[COMPUTE], desc->data[TRANSPOSE_A], desc->data[TRANSPOSE_B], a->data[TYPE],
                              d->data[TYPE]};
    uint64_t kind = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) kind = kind * 256 + parts[i];
    return kind;
}

static size_t workspace_of(const cublasLtMatmulAlgo_t *algo)
{
    return (size_t)(algo->data[NUMBER] - 1) * WORKSPACE_STEP;
}

static bool is_algorithm(const cublasLtMatmulAlgo_t *algo, uint64_t kind)
{
    return algo->data[NUMBER] >= 1 && algo->data[NUMBER] <= ALGORITHMS && algo->data[KIND] == kind;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int room,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    ENTER(CUBLAS, cublasLtMatmulAlgoGetHeuristic);
    if (!is_problem(desc, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = 0;
    for (uint64_t i = 0; i < ALGORITHMS && *found < room && i * WORKSPACE_STEP <= preference->data[WORKSPACE]; i++) {
        cublasLtMatmulHeuristicResult_t *result = &results[(*found)++];
        *result = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
        result->algo.data[NUMBER] = i + 1;
        result->algo.data[SCHEME] = preference->data[REDUCTIONS] & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
        result->algo.data[KIND] = kind_of(desc, a, d);
        result->workspaceSize = workspace_of(&result->algo);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    ENTER(CUBLAS, cublasLtMatmulAlgoCheck);
    if (!is_problem(desc, a, b, c, d) || !is_algorithm(algo, kind_of(desc, a, d))) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = (cublasLtMatmulHeuristicResult_t){.algo = *algo, .workspaceSize = workspace_of(algo)};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                                                    size_t bytes, size_t *written)
{
    uint32_t scheme = (uint32_t)algo->data[SCHEME];
    ENTER(CUBLAS, cublasLtMatmulAlgoConfigGetAttribute);
    if (name != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME || bytes != sizeof scheme) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &scheme, sizeof scheme);
    *written = sizeof scheme;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product */

typedef struct Matrix {
    const void *data;
    uint64_t layout[4];
    bool transposed;
} Matrix;

typedef struct Matmul {
    Matrix a, b;
    void *d;
    uint64_t layout[4]; /* of d */
    float alpha, beta;
    bool rounds; /* the sum is made in parts, added in the type of d */
} Matmul;

static Dtype dtype_of(uint64_t type)
{
    return type == CUDA_R_16F ? DTYPE_F16 : type == CUDA_R_16BF ? DTYPE_BF16 : DTYPE_F32;
}

/* By columns. */
static double element(const Matrix *m, uint64_t row, uint64_t column)
{
    uint64_t r = m->transposed ? column : row, c = m->transposed ? row : column;
    return dtype_load(dtype_of(m->layout[TYPE]), m->data, (int64_t)(c * m->layout[LEADING] + r));
}

static double rounded(Dtype dtype, double value)
{
    uint32_t memory = 0;
    dtype_store(dtype, &memory, 0, value);
    return dtype_load(dtype, &memory, 0);
}

static bool matmul_run(void *context)
{
    const Matmul *m = context;
    Dtype dtype = dtype_of(m->layout[TYPE]);
    uint64_t inner = m->a.transposed ? m->a.layout[ROWS] : m->a.layout[COLUMNS];
    for (uint64_t column = 0; column < m->layout[COLUMNS]; column++)
        for (uint64_t row = 0; row < m->layout[ROWS]; row++) {
            int64_t at = (int64_t)(column * m->layout[LEADING] + row);
            double sum = 0;
            for (uint64_t k = 0; k < inner; k++) {
                sum += element(&m->a, row, k) * element(&m->b, k, column);
                if (m->rounds) sum = rounded(dtype, sum);
            }
            sum = (double)m->alpha * sum + (m->beta != 0 ? (double)m->beta * dtype_load(dtype, m->d, at) : 0);
            dtype_store(dtype, m->d, at, sum);
        }
    return true;
}

/* On the device, whole, and aligned as the algorithms were asked for. */
static bool fits(const void *at, const uint64_t *layout)
{
    return (uintptr_t)at % 16 == 0 &&
           fake_on_device(at, layout[LEADING] * layout[COLUMNS] * dtype_bytes(dtype_of(layout[TYPE])));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    (void)handle;
    ENTER(CUBLAS, cublasLtMatmul);
    fake_time_pass(fake_launch_time(true));
    if (!is_problem(desc, a_layout, b_layout, c_layout, d_layout) || c != d /* not in this fake */)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo && !is_algorithm(algo, kind_of(desc, a_layout, d_layout))) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (algo && workspace_bytes < workspace_of(algo)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(a, a_layout->data) || !fits(b, b_layout->data) || !fits(d, d_layout->data) ||
        (workspace_bytes && ((uintptr_t)workspace % 256 || !fake_on_device(workspace, workspace_bytes))))
        return CUBLAS_STATUS_INVALID_VALUE;
    Matmul *m = calloc(1, sizeof *m);
    if (!m) return CUBLAS_STATUS_ALLOC_FAILED;
    m->a = (Matrix){.data = a, .transposed = desc->data[TRANSPOSE_A]};
    m->b = (Matrix){.data = b, .transposed = desc->data[TRANSPOSE_B]};
    memcpy(m->a.layout, a_layout->data, sizeof m->a.layout);
    memcpy(m->b.layout, b_layout->data, sizeof m->b.layout);
    memcpy(m->layout, d_layout->data, sizeof m->layout);
    m->d = d;
    m->rounds = algo && algo->data[SCHEME];
    m->alpha = *(const float *)alpha;
    m->beta = *(const float *)beta;
    cudaError_t error = fake_queue(stream, &(FakeWork){"cublasLtMatmul", matmul_run, free, m});
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
