/* Moments by blocks of rows, and roots of matrices by their eigenvectors, through BLAS and LAPACK; see frechet.h. */
#include "inception/quality/frechet.h"

enum { ROWS = 256 /* vectors that are centered and multiplied at a time */ };

/* The Fortran interfaces (netlib.org/lapack): every argument is a pointer, matrices are stored column by column, and the
 * lengths of character arguments follow at the end. */
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
             const int *lwork, int *iwork, const int *liwork, int *info, size_t jobz_length, size_t uplo_length);
void dsyrk_(const char *uplo, const char *trans, const int *n, const int *k, const double *alpha, const double *a,
            const int *lda, const double *beta, double *c, const int *ldc, size_t uplo_length, size_t trans_length);
void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k, const double *alpha,
            const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc, size_t transa_length, size_t transb_length);

static Status mean_compute(const FeatureSet *set, double *mean)
{
    for (int64_t i = 0; i < set->count; i++)
        for (int32_t k = 0; k < set->d; k++) mean[k] += (double)set->at[i * set->d + k];
    for (int32_t k = 0; k < set->d; k++) {
        mean[k] /= (double)set->count;
        if (!isfinite(mean[k])) return FAIL(ERR_NUMERIC, "feature %d is not finite in every image", k);
    }
    return OK;
}

/* Adds the products of centered rows to the lower triangle (of a matrix that is stored column by column), then mirrors
 * it. */
static Status covariance_compute(const FeatureSet *set, const double *mean, double *covariance)
{
    int d = set->d;
    size_t pitch = (size_t)d;
    double scale = 1 / (double)(set->count - 1), one = 1;
    double *rows = malloc(ROWS * pitch * sizeof *rows);
    if (!rows) return FAIL(ERR_MEMORY, "no memory for a covariance of %d features", d);
    for (int64_t first = 0; first < set->count; first += ROWS) {
        int n = (int)(set->count - first < ROWS ? set->count - first : ROWS);
        for (size_t i = 0; i < (size_t)n * pitch; i++)
            rows[i] = (double)set->at[(size_t)first * pitch + i] - mean[i % pitch];
        dsyrk_("L", "N", &d, &n, &scale, rows, &d, &one, covariance, &d, 1, 1);
    }
    for (size_t i = 0; i < pitch; i++)
        for (size_t k = 0; k < i; k++) covariance[i * pitch + k] = covariance[k * pitch + i];
    free(rows);
    return OK;
}

Status moments_compute(const FeatureSet *set, Moments *moments)
{
    Status st = OK;
    size_t d = (size_t)set->d;
    *moments = (Moments){.d = set->d};
    if (set->count < 2)
        return FAIL(ERR_ARG, "FID needs at least 2 images in each set, but one has %" PRId64, set->count);
    moments->mean = calloc(d, sizeof(double));
    moments->covariance = calloc(d * d, sizeof(double));
    if (!moments->mean || !moments->covariance)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for a covariance of %zu features", d));
    TRY_OUT(mean_compute(set, moments->mean));
    TRY_OUT(covariance_compute(set, moments->mean, moments->covariance));
out:
    if (st != OK) moments_free(moments);
    return st;
}

void moments_free(Moments *moments)
{
    free(moments->mean);
    free(moments->covariance);
    *moments = (Moments){0};
}

/* Eigenvalues of the symmetric matrix a in ascending order; with `vectors`, a becomes its eigenvectors, one per column. */
static Status eigen_compute(int n, double *a, bool vectors, double *values)
{
    const char *job = vectors ? "V" : "N";
    double work_size;
    int info, integers_size, ask = -1;
    dsyevd_(job, "L", &n, a, &n, values, &work_size, &ask, &integers_size, &ask, &info, 1, 1);
    int work_count = (int)work_size;
    double *work = malloc((size_t)work_count * sizeof *work);
    int *integers = malloc((size_t)integers_size * sizeof *integers);
    Status st = OK;
    if (!work || !integers)
        st = FAIL(ERR_MEMORY, "no memory for the eigenvalues of a matrix of %d x %d", n, n);
    else
        dsyevd_(job, "L", &n, a, &n, values, work, &work_count, integers, &integers_size, &info, 1, 1);
    free(work);
    free(integers);
    if (st == OK && info) st = FAIL(ERR_NUMERIC, "LAPACK finds no eigenvalues of a covariance (dsyevd: %d)", info);
    return st;
}

/* Sum of the roots of the eigenvalues of S1^(1/2) S2 S1^(1/2). With S1 = V D V^T that matrix is similar to
 * (V D^(1/2))^T S2 (V D^(1/2)). Eigenvalues that rounding made negative count as zero. */
static Status root_trace(const Moments *a, const Moments *b, double *trace)
{
    Status st = OK;
    int d = a->d;
    size_t n = (size_t)d;
    double one = 1, zero = 0, sum = 0;
    double *root = malloc(n * n * sizeof *root), *half = malloc(n * n * sizeof *half),
           *whole = malloc(n * n * sizeof *whole), *values = malloc(n * sizeof *values);
    if (!root || !half || !whole || !values)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for the roots of a matrix of %d x %d", d, d));
    memcpy(root, a->covariance, n * n * sizeof *root);
    TRY_OUT(eigen_compute(d, root, true, values));
    for (size_t i = 0; i < n * n; i++) root[i] *= sqrt(values[i / n] > 0 ? values[i / n] : 0);
    dgemm_("N", "N", &d, &d, &d, &one, b->covariance, &d, root, &d, &zero, half, &d, 1, 1);
    dgemm_("T", "N", &d, &d, &d, &one, root, &d, half, &d, &zero, whole, &d, 1, 1);
    TRY_OUT(eigen_compute(d, whole, false, values));
    for (size_t i = 0; i < n; i++) sum += sqrt(values[i] > 0 ? values[i] : 0);
    *trace = sum;
out:
    free(root);
    free(half);
    free(whole);
    free(values);
    return st;
}

Status frechet_distance(const Moments *a, const Moments *b, double *distance)
{
    double root, sum = 0;
    if (a->d != b->d)
        return FAIL(ERR_ARG, "FID: the features of one set have %d numbers, those of the other %d", a->d, b->d);
    TRY(root_trace(a, b, &root));
    for (size_t i = 0, d = (size_t)a->d; i < d; i++) {
        double shift = a->mean[i] - b->mean[i];
        sum += shift * shift + a->covariance[i * d + i] + b->covariance[i * d + i];
    }
    *distance = sum - 2 * root;
    return OK;
}
