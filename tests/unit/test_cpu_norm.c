/* The passes of batch norm over rows (kernels/cpu/norm/norm_rows.h), vectorized and plain, against sums in double: widths
 * with and without a remainder, few and many rows, rows with gaps, results larger than the caches, NaN. */

#include "kernels/cpu/norm/norm_rows.h"
#include "kernels/philox.h"
#include "tests/support/unit.h"

enum { WIDTH_MOST = 256, ROWS_MOST = 261, APART = 32, ELEMENTS = ROWS_MOST * (WIDTH_MOST + APART) };

typedef void Way(NormPass pass, const NormRows *r, float *sum, float *second);

static float vectors[5][WIDTH_MOST];
static _Alignas(64) uint32_t x[ELEMENTS], dy[ELEMENTS], y[ELEMENTS]; /* of either dtype */

static void way_avx512(NormPass pass, const NormRows *r, float *sum, float *second)
{
    if (norm_rows_avx512(pass, r, sum, second)) return;
    skip("this processor has no AVX-512 for %s", dtype_name(r->dtype));
}

static void fill(Dtype dtype, void *to, uint32_t salt, int count)
{
    for (int i = 0; i < count; i++)
        store(dtype, to, i, 2 * (float)philox_unit(philox(salt, (uint32_t)i, 0, 0, 0).v[0]) - 1);
}

/* The result of a pass for one element, and its contributions to the two sums. */
static double expected(NormPass pass, const NormRows *r, int64_t row, int64_t i, double *first, double *second)
{
    double a = (double)(load(r->dtype, x, row * r->x_stride + i) - r->mean[i]);
    double value = a * (double)r->scale[i] + (double)r->beta[i];
    double g = value > (double)r->floor ? (double)load(r->dtype, dy, row * r->dy_stride + i) : 0;
    *first = pass == NORM_STAT ? a : g;
    *second = *first * a;
    if (pass == NORM_APPLY) return fmax(value, (double)r->floor);
    return g * (double)r->scale[i] + a * (double)r->slope[i] + (double)r->offset[i];
}

static bool is_sum(NormPass pass)
{
    return pass == NORM_STAT || pass == NORM_GRAD_SUM;
}

static void check_rows(NormPass pass, const NormRows *r, const float *sum, const float *second)
{
    const double exact = r->dtype == DTYPE_F32 ? 1e-6 : 1.0 / 256, summed = 1e-6 * (double)(r->rows + 1);
    for (int64_t i = 0; i < r->width; i++) {
        double first_sum = 0.5, second_sum = 0.25, one, two;
        for (int64_t row = 0; row < r->rows; row++) {
            double value = expected(pass, r, row, i, &one, &two);
            first_sum += one, second_sum += two;
            if (!is_sum(pass))
                assert_true(fabs((double)load(r->dtype, r->y, row * r->y_stride + i) - value) <=
                            exact * (1 + fabs(value)));
        }
        if (!is_sum(pass)) continue;
        assert_true(fabs((double)sum[i] - first_sum) <= summed);
        assert_true(fabs((double)second[i] - second_sum) <= summed);
    }
}

/* Nothing beside the rows is written. */
static void check_between(const NormRows *r)
{
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t i = r->width; i < r->y_stride; i++) assert_true(load(r->dtype, r->y, row * r->y_stride + i) == -7);
}

static void run(Way *way, NormPass pass, NormRows *r)
{
    float sum[WIDTH_MOST], second[WIDTH_MOST];
    for (int64_t i = 0; i < r->rows * r->y_stride; i++) store(r->dtype, y, i, -7);
    for (int i = 0; i < WIDTH_MOST; i++) sum[i] = 0.5f, second[i] = 0.25f;
    way(pass, r, sum, second);
    check_rows(pass, r, sum, second);
    if (!is_sum(pass)) check_between(r);
}

static void check_way(Way *way, Dtype dtype)
{
    const int widths[] = {1, 17, 64, 80, 255, WIDTH_MOST}, rows[] = {1, 7, 32, ROWS_MOST};
    fill(dtype, x, 11, ELEMENTS);
    fill(dtype, dy, 12, ELEMENTS);
    for (int k = 0; k < 5; k++) fill(DTYPE_F32, vectors[k], (uint32_t)k, WIDTH_MOST);
    for (int w = 0; w < 6; w++)
        for (int n = 0; n < 4; n++)
            for (int pass = NORM_STAT; pass <= NORM_GRAD; pass++)
                for (int kind = 0; kind < 4; kind++) {
                    int64_t stride = widths[w] + (kind & 1 ? APART : 0);
                    NormRows r = {dtype,  rows[n],    widths[w],  x,          dy,         y,          stride,   stride,
                                  stride, vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], -INFINITY};
                    if (kind & 2) r.floor = 0, r.away = true;
                    run(way, (NormPass)pass, &r);
                }
}

TEST(test_plain_f32)
{
    check_way(norm_rows_plain, DTYPE_F32);
}

TEST(test_plain_bf16)
{
    check_way(norm_rows_plain, DTYPE_BF16);
}

TEST(test_avx512_f32)
{
    check_way(way_avx512, DTYPE_F32);
}

TEST(test_avx512_bf16)
{
    check_way(way_avx512, DTYPE_BF16);
}

/* A bad batch is seen: NaN comes out of y, and no ReLU hides it. */
static void check_nan(Way *way, Dtype dtype)
{
    enum { ROWS = 6, WIDTH = 40 };
    float zeros[WIDTH] = {0}, ones[WIDTH];
    for (int i = 0; i < WIDTH; i++) ones[i] = 1;
    NormRows r = {dtype, ROWS, WIDTH, x, x, y, WIDTH, WIDTH, WIDTH, zeros, ones, zeros, zeros, zeros, 0};
    for (int i = 0; i < ROWS * WIDTH; i++) store(dtype, x, i, NAN);
    way(NORM_APPLY, &r, NULL, NULL);
    for (int i = 0; i < ROWS * WIDTH; i++) assert_true(isnan(load(dtype, y, i)));
}

TEST(test_nan_stays)
{
    check_nan(norm_rows_plain, DTYPE_F32);
    check_nan(norm_rows_plain, DTYPE_BF16);
    check_nan(way_avx512, DTYPE_F32);
    check_nan(way_avx512, DTYPE_BF16);
}
