/* Plain loops over rows of batch norm; see norm_rows.h. */
#include "kernels/cpu/norm/norm_rows.h"

enum { TOGETHER = 4 }; /* rows whose sums are read and written once */

VECTOR_INLINE void stat_group(Dtype dtype, int group, const NormRows *r, int64_t row, float *sum, float *square)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < r->width; i++) {
        float first = 0, second = 0;
        for (int k = 0; k < group; k++) {
            float a = load(dtype, r->x, (row + k) * r->x_stride + i) - r->mean[i];
            first += a;
            second += a * a;
        }
        sum[i] += first;
        square[i] += second;
    }
}

VECTOR_INLINE void stat_rows(Dtype dtype, const NormRows *rows, float *sum, float *square)
{
    const NormRows r = *rows; /* a copy that no store can change */
    int64_t row = 0;
    for (; row + TOGETHER <= r.rows; row += TOGETHER) stat_group(dtype, TOGETHER, &r, row, sum, square);
    for (; row < r.rows; row++) stat_group(dtype, 1, &r, row, sum, square);
}

/* max(y, floor) that keeps NaN, so that the loss of a bad batch shows it. */
VECTOR_INLINE void apply_rows(Dtype dtype, const NormRows *rows)
{
    const NormRows r = *rows; /* a copy that no store can change */
    for (int64_t row = 0; row < r.rows; row++) {
        VECTOR_LOOP
        for (int64_t i = 0; i < r.width; i++) {
            float value = (load(dtype, r.x, row * r.x_stride + i) - r.mean[i]) * r.scale[i] + r.beta[i];
            store(dtype, r.y, row * r.y_stride + i, r.floor > value ? r.floor : value);
        }
    }
}

/* dy where the ReLU passes y, whose sign is computed as in apply_rows. */
VECTOR_INLINE float masked(float dy, float centered, float scale, float beta, float floor)
{
    return centered * scale + beta > floor ? dy : 0.0f;
}

VECTOR_INLINE void grad_sum_group(Dtype dtype, int group, const NormRows *r, int64_t row, float *sum, float *product)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < r->width; i++) {
        float first = 0, second = 0;
        for (int k = 0; k < group; k++) {
            float a = load(dtype, r->x, (row + k) * r->x_stride + i) - r->mean[i];
            float g = masked(load(dtype, r->dy, (row + k) * r->dy_stride + i), a, r->scale[i], r->beta[i], r->floor);
            first += g;
            second += g * a;
        }
        sum[i] += first;
        product[i] += second;
    }
}

VECTOR_INLINE void grad_sum_rows(Dtype dtype, const NormRows *rows, float *sum, float *product)
{
    const NormRows r = *rows;
    int64_t row = 0;
    for (; row + TOGETHER <= r.rows; row += TOGETHER) grad_sum_group(dtype, TOGETHER, &r, row, sum, product);
    for (; row < r.rows; row++) grad_sum_group(dtype, 1, &r, row, sum, product);
}

VECTOR_INLINE void grad_rows(Dtype dtype, const NormRows *rows)
{
    const NormRows r = *rows; /* a copy that no store can change */
    for (int64_t row = 0; row < r.rows; row++) {
        VECTOR_LOOP
        for (int64_t i = 0; i < r.width; i++) {
            float a = load(dtype, r.x, row * r.x_stride + i) - r.mean[i];
            float g = masked(load(dtype, r.dy, row * r.dy_stride + i), a, r.scale[i], r.beta[i], r.floor);
            store(dtype, r.y, row * r.y_stride + i, g * r.scale[i] + (a * r.slope[i] + r.offset[i]));
        }
    }
}

CPU_CLONES void norm_rows_plain(NormPass pass, const NormRows *r, float *sum, float *second)
{
    switch (pass) {
    case NORM_STAT: BY_DTYPE(r->dtype, stat_rows, r, sum, second); break;
    case NORM_APPLY: BY_DTYPE(r->dtype, apply_rows, r); break;
    case NORM_GRAD_SUM: BY_DTYPE(r->dtype, grad_sum_rows, r, sum, second); break;
    case NORM_GRAD: BY_DTYPE(r->dtype, grad_rows, r); break;
    }
}

void norm_rows_run(NormPass pass, const NormRows *r, float *sum, float *second)
{
    if (!norm_rows_avx512(pass, r, sum, second)) norm_rows_plain(pass, r, sum, second);
}
