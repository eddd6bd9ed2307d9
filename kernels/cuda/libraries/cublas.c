/* cuBLASLt's matrices are column-major: our row-major [rows][ins] is its ins x rows matrix, so every product is
 * computed as its transpose, with the operands in the order (weights, activations). */
#include "kernels/cuda/libraries/cublas.h"
#include "kernels/base/text.h"

#include <cublasLt.h>

/* How the parts of a divided sum may be added. Left out: OUTPUT_TYPE and INPLACE, which add them in the type of the result
 * (cublasLt.h); INPLACE also adds them as they come. */
static const uint32_t REDUCTIONS = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

struct CublasLibrary {
    cublasLtHandle_t handle;
};

/* The parts of a problem; destroyed together. */
typedef struct Problem {
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, d;
} Problem;

struct ProductPlan {
    CublasLibrary *library; /* borrowed */
    ProductKind kind;
    float beta;
    Problem problem;
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
};

Status cublas_open(CublasLibrary **made)
{
    Status st = OK;
    CublasLibrary *library = calloc(1, sizeof *library);
    if (!library) return FAIL(ERR_MEMORY, "no memory for the cuBLASLt handle");
    TRY_CUBLAS_OUT(cublasLtCreate(&library->handle));
    *made = library;
    library = NULL;
out:
    free(library);
    return st;
}

void cublas_close(CublasLibrary *library)
{
    if (!library) return;
    cublasLtDestroy(library->handle);
    free(library);
}

/* CUBLAS_VERSION has two digits for the minor version and two for the patch. */
void cublas_describe(char *text, size_t bytes)
{
    size_t version = cublasLtGetVersion();
    snprintf(text, bytes, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
}

/* ---- problems */

static void problem_free(Problem *p)
{
    if (p->how) cublasLtMatmulDescDestroy(p->how);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
    *p = (Problem){0};
}

static cudaDataType_t data_type(Dtype dtype)
{
    return dtype == DTYPE_F16 ? CUDA_R_16F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static Status transpose(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t operand)
{
    cublasOperation_t yes = CUBLAS_OP_T;
    TRY_CUBLAS(cublasLtMatmulDescSetAttribute(how, operand, &yes, sizeof yes));
    return OK;
}

/* Matrices as cuBLASLt sees them: W is ins x outs, X is ins x rows, Y is outs x rows. */
static Status problem_create(const Product *p, Problem *made)
{
    cudaDataType_t type = data_type(p->dtype);
    cublasComputeType_t compute = p->dtype == DTYPE_F32 && p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    uint64_t w[2] = {(uint64_t)p->ins, (uint64_t)p->outs}, x[2] = {(uint64_t)p->ins, (uint64_t)p->rows},
             y[2] = {(uint64_t)p->outs, (uint64_t)p->rows};
    const uint64_t *a = p->kind == PRODUCT_DW ? x : w, *b = p->kind == PRODUCT_Y ? x : y,
                   *d = p->kind == PRODUCT_Y    ? y
                        : p->kind == PRODUCT_DX ? x
                                                : w;
    TRY_CUBLAS(cublasLtMatmulDescCreate(&made->how, compute, CUDA_R_32F));
    if (p->kind == PRODUCT_Y) TRY(transpose(made->how, CUBLASLT_MATMUL_DESC_TRANSA));  /* W^T X */
    if (p->kind == PRODUCT_DW) TRY(transpose(made->how, CUBLASLT_MATMUL_DESC_TRANSB)); /* X Y^T */
    TRY_CUBLAS(cublasLtMatrixLayoutCreate(&made->a, type, a[0], a[1], (int64_t)a[0]));
    TRY_CUBLAS(cublasLtMatrixLayoutCreate(&made->b, type, b[0], b[1], (int64_t)b[0]));
    TRY_CUBLAS(
        cublasLtMatrixLayoutCreate(&made->d, p->kind == PRODUCT_DW ? CUDA_R_32F : type, d[0], d[1], (int64_t)d[0]));
    return OK;
}

static Status preference_create(const Product *p, cublasLtMatmulPreference_t *made)
{
    uint32_t alignment = 16, reductions = REDUCTIONS;
    uint64_t workspace = p->workspace_max;
    const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    TRY_CUBLAS(cublasLtMatmulPreferenceCreate(made));
    TRY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(*made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                    sizeof workspace));
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++)
        TRY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(*made, aligned[i], &alignment, sizeof alignment));
    TRY_CUBLAS(cublasLtMatmulPreferenceSetAttribute(*made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                    sizeof reductions));
    return OK;
}

/* ---- plans */

static Status plan_create(CublasLibrary *library, const Product *product, const cublasLtMatmulAlgo_t *algo,
                          size_t workspace_bytes, ProductPlan **made)
{
    Status st = OK;
    ProductPlan *plan = calloc(1, sizeof *plan);
    if (!plan) return FAIL(ERR_MEMORY, "no memory for the plan of a matrix product");
    plan->library = library;
    plan->kind = product->kind;
    plan->beta = product->accumulate ? 1 : 0;
    plan->algo = *algo;
    plan->workspace_bytes = workspace_bytes;
    TRY_OUT(problem_create(product, &plan->problem));
    *made = plan;
    plan = NULL;
out:
    product_plan_destroy(plan);
    return st;
}

Status product_plans(CublasLibrary *library, const Product *product, int wanted, ProductPlan **plans, int *found)
{
    Status st = OK;
    Problem problem = {0};
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t results[PRODUCT_PLANS];
    int offered = 0;
    *found = 0;
    TRY_OUT(problem_create(product, &problem));
    TRY_OUT(preference_create(product, &preference));
    cublasStatus_t answer =
        cublasLtMatmulAlgoGetHeuristic(library->handle, problem.how, problem.a, problem.b, problem.d, problem.d,
                                       preference, wanted < PRODUCT_PLANS ? wanted : PRODUCT_PLANS, results, &offered);
    if (answer == CUBLAS_STATUS_ALLOC_FAILED)
        TRY_OUT(cublas_failed(answer, __FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic"));
    if (answer != CUBLAS_STATUS_SUCCESS) offered = 0;
    for (int i = 0; i < offered; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
        TRY_OUT(plan_create(library, product, &results[i].algo, results[i].workspaceSize, &plans[*found]));
        (*found)++;
    }
out:
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    problem_free(&problem);
    while (st != OK && *found > 0) product_plan_destroy(plans[--*found]);
    return st;
}

void product_plan_destroy(ProductPlan *plan)
{
    if (plan) problem_free(&plan->problem);
    free(plan);
}

size_t product_plan_workspace(const ProductPlan *plan)
{
    return plan->workspace_bytes;
}

/* An algorithm may be written down and read back by the same version of the library. */
void product_plan_text(const ProductPlan *plan, char *buffer, size_t bytes)
{
    Text text = text_start(buffer, bytes);
    text_add(&text, "product %zu", plan->workspace_bytes);
    for (size_t i = 0; i < sizeof plan->algo.data / sizeof *plan->algo.data; i++)
        text_add(&text, " %" PRIx64, plan->algo.data[i]);
}

/* Sums that are not divided have CUBLASLT_REDUCTION_SCHEME_NONE, 0. */
static bool sums_are_f32(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t scheme = 0;
    size_t written = 0;
    return cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
                                                &written) == CUBLAS_STATUS_SUCCESS &&
           (scheme & ~REDUCTIONS) == 0;
}

Status product_plan_named(CublasLibrary *library, const Product *product, const char *text, ProductPlan **made)
{
    Status st = OK;
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulHeuristicResult_t result;
    ProductPlan *plan = NULL;
    size_t workspace;
    int used = 0;
    if (sscanf(text, "product %zu%n", &workspace, &used) != 1)
        return FAIL(ERR_FORMAT, "'%s' is not the name of a cuBLASLt plan", text);
    for (size_t i = 0; i < sizeof algo.data / sizeof *algo.data; i++) {
        int length = 0;
        if (sscanf(text + used, " %" SCNx64 "%n", &algo.data[i], &length) != 1)
            return FAIL(ERR_FORMAT, "'%s' is not the name of a cuBLASLt plan", text);
        used += length;
    }
    if (text[used]) return FAIL(ERR_FORMAT, "'%s' is not the name of a cuBLASLt plan", text);
    if (!sums_are_f32(&algo)) return FAIL(ERR_UNSUPPORTED, "the plan '%s' does not sum in f32", text);
    TRY_OUT(plan_create(library, product, &algo, workspace, &plan));
    TRY_CUBLAS_OUT(cublasLtMatmulAlgoCheck(library->handle, plan->problem.how, plan->problem.a, plan->problem.b,
                                           plan->problem.d, plan->problem.d, &algo, &result));
    plan->workspace_bytes = result.workspaceSize;
    *made = plan;
    plan = NULL;
out:
    product_plan_destroy(plan);
    return st;
}

Status product_run(const ProductPlan *plan, void *x, void *w, void *y, void *workspace, cudaStream_t stream)
{
    float alpha = 1;
    void *a = plan->kind == PRODUCT_DW ? x : w, *b = plan->kind == PRODUCT_Y ? x : y,
         *d = plan->kind == PRODUCT_Y    ? y
              : plan->kind == PRODUCT_DX ? x
                                         : w;
    const Problem *p = &plan->problem;
    TRY_CUBLAS(cublasLtMatmul(plan->library->handle, p->how, &alpha, a, p->a, b, p->b, &plan->beta, d, p->d, d, p->d,
                              &plan->algo, workspace, plan->workspace_bytes, stream));
    return OK;
}
