/* The functions of cuBLASLt that are used, from a library that the first call loads. Linked with, it would be loaded by every
 * start of the program, also where there is no GPU, and the addresses that the loader writes into it take longer than all else
 * that a short command does. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* F(without, result, name, parameters, arguments); `without` is the result if there is no library. */
#define STATUS(F, name, parameters, arguments)                                                                         \
    F(CUBLAS_STATUS_NOT_INITIALIZED, cublasStatus_t, name, parameters, arguments)
#define FUNCTIONS(F)                                                                                                   \
    F(0, size_t, cublasLtGetVersion, (void), ())                                                                       \
    F(loaded.error, const char *, cublasLtGetStatusString, (cublasStatus_t status), (status))                          \
    STATUS(F, cublasLtCreate, (cublasLtHandle_t * made), (made))                                                       \
    STATUS(F, cublasLtDestroy, (cublasLtHandle_t handle), (handle))                                                    \
    STATUS(F, cublasLtMatmulDescCreate,                                                                                \
           (cublasLtMatmulDesc_t * made, cublasComputeType_t compute, cudaDataType_t scale), (made, compute, scale))   \
    STATUS(F, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc), (desc))                                          \
    STATUS(F, cublasLtMatmulDescSetAttribute,                                                                          \
           (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name, const void *value, size_t bytes),          \
           (desc, name, value, bytes))                                                                                 \
    STATUS(F, cublasLtMatrixLayoutCreate,                                                                              \
           (cublasLtMatrixLayout_t * made, cudaDataType type, uint64_t rows, uint64_t columns, int64_t leading),       \
           (made, type, rows, columns, leading))                                                                       \
    STATUS(F, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))                                  \
    STATUS(F, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * made), (made))                             \
    STATUS(F, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))                  \
    STATUS(F, cublasLtMatmulPreferenceSetAttribute,                                                                    \
           (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name, const void *value,       \
            size_t bytes),                                                                                             \
           (preference, name, value, bytes))                                                                           \
    STATUS(F, cublasLtMatmulAlgoGetHeuristic,                                                                          \
           (cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,     \
            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,     \
            cublasLtMatmulHeuristicResult_t results[], int *found),                                                    \
           (handle, how, a, b, c, d, preference, wanted, results, found))                                              \
    STATUS(F, cublasLtMatmulAlgoCheck,                                                                                 \
           (cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,     \
            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,                      \
            cublasLtMatmulHeuristicResult_t *result),                                                                  \
           (handle, how, a, b, c, d, algo, result))                                                                    \
    STATUS(F, cublasLtMatmulAlgoConfigGetAttribute,                                                                    \
           (const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t name, void *value, size_t bytes,    \
            size_t *written),                                                                                          \
           (algo, name, value, bytes, written))                                                                        \
    STATUS(F, cublasLtMatmul,                                                                                          \
           (cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha, const void *a,                       \
            cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta, const void *c,  \
            cublasLtMatrixLayout_t of_c, void *d, cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algo,       \
            void *workspace, size_t bytes, cudaStream_t stream),                                                       \
           (handle, how, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algo, workspace, bytes, stream))

static struct {
    char error[256]; /* why there is no library; else empty */
#define FIELD(without, result, name, parameters, arguments) result(*name) parameters;
    FUNCTIONS(FIELD)
} loaded;

#define WORDS_(word) #word
#define WORDS(word) WORDS_(word)

static void load(void)
{
    void *library = dlopen("libcublasLt.so." WORDS(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_LOCAL);
#define FIND(without, result, name, parameters, arguments)                                                             \
    loaded.name = library ? (result(*) parameters)dlsym(library, #name) : NULL;                                        \
    if (!loaded.name && !*loaded.error) snprintf(loaded.error, sizeof loaded.error, "%s", dlerror());
    FUNCTIONS(FIND)
}

static bool is_loaded(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    return pthread_once(&once, load) == 0 && !*loaded.error;
}

/* Hidden, so that the library never finds these in place of its own. */
#define DEFINE(without, result, name, parameters, arguments)                                                           \
    __attribute__((visibility("hidden"))) result name parameters                                                       \
    {                                                                                                                  \
        return is_loaded() ? loaded.name arguments : (without);                                                        \
    }
FUNCTIONS(DEFINE)
