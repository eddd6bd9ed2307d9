/* The matrices of Winograd's algorithms along one dimension, for the kind of vectors whose header (lanes_*.h) was included
 * before: y = A' ((G w) (B' x)) and dw = G' ((A dy) (B' x)), point by point. The algorithm is a constant argument.
 *
 * F(2, 3) has the points 0, 1, -1 and infinity:
 *     B' = {1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1}
 *     G  = {1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1}      A' = {1 1 1 0; 0 1 -1 -1}
 * In weight gradients the last row of A and the last column of G' have the opposite sign, so that A is {1 0; 1 1; 1 -1; 0 1}.
 * F(4, 7) is F(2, 3) in both dimensions of a square without two of its points (README.md): the functions of 1-D tiles.
 *
 * F(4, 3) and F(2, 5) have alpha = 6 points: 0, p, -p, q, -q and infinity with p = 5/8 and q = 3/2. Lavin and Gray's 1 and 2
 * round twice as coarsely; these have matrices without rounding, but for G. By interpolation, as in Barabasz et al.,
 * arXiv:1803.10986:
 *     B' = {ppqq 0 -(pp + qq) 0 1 0; 0 -pqq -qq p 1 0; 0 pqq -qq -p 1 0; 0 -ppq -pp q 1 0; 0 ppq -pp -q 1 0;
 *           0 ppqq 0 -(pp + qq) 0 1}
 *     G  = {1/ppqq 0 0; n(1 p pp); n(1 -p pp); f(1 q qq); f(1 -q qq); 0 0 1},
 *          n = 1/(2pp (pp - qq)), f = 1/(2qq (qq - pp))
 *     A' = {1 1 1 1 1 0; 0 p -p q -q 0; 0 pp pp qq qq 0; 0 ppp -ppp qqq -qqq 1}
 * For five taps, rows of G go on with ppp and pppp, and A' ends with {0 p -p q -q 1}. */
#pragma once

#include "kernels/cpu/conv/winograd.h"

#define POINT_P 0.625f
#define POINT_Q 1.5f
#define SCALE_P (1 / (2 * POINT_P * POINT_P * (POINT_P * POINT_P - POINT_Q * POINT_Q))) /* n */
#define SCALE_Q (1 / (2 * POINT_Q * POINT_Q * (POINT_Q * POINT_Q - POINT_P * POINT_P))) /* f */

/* ---- G w: taps are `from` vectors apart, points `step` vectors */

TILE_INLINE void w_transform_4(Vector a, Vector b, Vector c, Vector *to, int step)
{
    Vector outer = 0.5f * (a + c), inner = 0.5f * b;
    to[0] = a;
    to[step] = outer + inner;
    to[2 * step] = outer - inner;
    to[3 * step] = c;
}

/* F(4, 7): the taps are the matrix {h0 h1 .; h2 h3 h4; . h5 h6}. */
TILE_INLINE void w_transform_1d(const Vector *h, Vector to[F4_7_POINTS])
{
    const Vector zero = (Vector){0};
    Vector columns[3][4], row[4];
    w_transform_4(h[0], h[2], zero, columns[0], 1);
    w_transform_4(h[1], h[3], h[5], columns[1], 1);
    w_transform_4(zero, h[4], h[6], columns[2], 1);
    w_transform_4(columns[0][0], columns[1][0], zero, row, 1);
    for (int i = 0; i < 3; i++) to[i] = row[i];
    w_transform_4(columns[0][1], columns[1][1], columns[2][1], to + 3, 1);
    w_transform_4(columns[0][2], columns[1][2], columns[2][2], to + 7, 1);
    w_transform_4(zero, columns[1][3], columns[2][3], row, 1);
    for (int i = 1; i < 4; i++) to[10 + i] = row[i];
}

TILE_INLINE void w_transform_6(const int taps, const Vector *w, int from, Vector *to, int step)
{
    const float pp = POINT_P * POINT_P, qq = POINT_Q * POINT_Q;
    Vector outer_p = add_times(w[0], w[2 * from], pp), inner_p = w[from];
    Vector outer_q = add_times(w[0], w[2 * from], qq), inner_q = w[from];
    if (taps == 5) {
        outer_p = add_times(outer_p, w[4 * from], pp * pp), inner_p = add_times(inner_p, w[3 * from], pp);
        outer_q = add_times(outer_q, w[4 * from], qq * qq), inner_q = add_times(inner_q, w[3 * from], qq);
    }
    outer_p = SCALE_P * outer_p, inner_p = SCALE_P * POINT_P * inner_p;
    outer_q = SCALE_Q * outer_q, inner_q = SCALE_Q * POINT_Q * inner_q;
    to[0] = 1 / (pp * qq) * w[0];
    to[step] = outer_p + inner_p;
    to[2 * step] = outer_p - inner_p;
    to[3 * step] = outer_q + inner_q;
    to[4 * step] = outer_q - inner_q;
    to[5 * step] = w[(taps - 1) * from];
}

TILE_INLINE void w_transform(const WinogradAlgorithm a, const Vector *w, int from, Vector *to, int step)
{
    if (winograd_alpha(a) == 1)
        to[0] = w[0];
    else if (winograd_alpha(a) == 4)
        w_transform_4(w[0], w[from], w[2 * from], to, step);
    else
        w_transform_6(winograd_r(a), w, from, to, step);
}

/* ---- B' x */

TILE_INLINE void x_transform_4(const Vector *x, Vector *to)
{
    to[0] = x[0] - x[2];
    to[1] = x[1] + x[2];
    to[2] = x[2] - x[1];
    to[3] = x[1] - x[3];
}

/* F(4, 7): the last step, out of the four transformed rows of a tile. */
TILE_INLINE void x_transform_1d(Vector rows[4][4], Vector to[F4_7_POINTS])
{
    for (int i = 0; i < 3; i++) to[i] = rows[0][i] - rows[2][i];
    for (int i = 0; i < 4; i++) to[3 + i] = rows[1][i] + rows[2][i];
    for (int i = 0; i < 4; i++) to[7 + i] = rows[2][i] - rows[1][i];
    for (int i = 1; i < 4; i++) to[10 + i] = rows[1][i] - rows[3][i];
}

/* With operators, here and in A dy: a compiler fuses them to what add_times does, and weight gradients round as they always have. */
TILE_INLINE void x_transform_6(const Vector *x, Vector *to)
{
    const float p = POINT_P, q = POINT_Q, pp = p * p, qq = q * q;
    Vector even = x[4] - qq * x[2], odd = x[3] - qq * x[1];
    to[0] = x[4] - (pp + qq) * x[2] + pp * qq * x[0];
    to[1] = even + p * odd;
    to[2] = even - p * odd;
    even = x[4] - pp * x[2], odd = x[3] - pp * x[1];
    to[3] = even + q * odd;
    to[4] = even - q * odd;
    to[5] = x[5] - (pp + qq) * x[3] + pp * qq * x[1];
}

TILE_INLINE void x_transform(const WinogradAlgorithm a, const Vector *x, Vector *to)
{
    if (winograd_alpha(a) == 1)
        to[0] = x[0];
    else if (winograd_alpha(a) == 4)
        x_transform_4(x, to);
    else
        x_transform_6(x, to);
}

/* ---- A' m */

/* The rows of F(2, 3): of the first output, which has no infinity, and of the second, which has no 0. */
TILE_INLINE Vector y_even(Vector a, Vector b, Vector c)
{
    return a + b + c;
}

TILE_INLINE Vector y_odd(Vector b, Vector c, Vector d)
{
    return b - c - d;
}

TILE_INLINE void y_transform(const WinogradAlgorithm a, const Vector *m, Vector *to)
{
    const float p = POINT_P, q = POINT_Q;
    if (a == POINTWISE) {
        to[0] = m[0];
    } else if (winograd_alpha(a) == 4) {
        to[0] = y_even(m[0], m[1], m[2]);
        to[1] = y_odd(m[1], m[2], m[3]);
    } else if (a == F2_5) {
        to[0] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
        to[1] = add_times(add_times(m[5], m[1] - m[2], p), m[3] - m[4], q);
    } else {
        Vector even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
        to[0] = m[0] + even_p + even_q;
        to[1] = add_times(p * odd_p, odd_q, q);
        to[2] = add_times(p * p * even_p, even_q, q * q);
        to[3] = add_times(add_times(m[5], odd_p, p * p * p), odd_q, q * q * q);
    }
}

/* F(4, 7), to four outputs. */
TILE_INLINE void y_transform_1d(const Vector m[F4_7_POINTS], Vector to[F4_7_OUTPUTS])
{
    Vector even[4], odd[4];
    even[0] = y_even(m[0], m[1], m[2]), odd[0] = m[1] - m[2];
    for (int k = 1; k < 3; k++) {
        const Vector *row = m + 4 * k - 1;
        even[k] = y_even(row[0], row[1], row[2]);
        odd[k] = y_odd(row[1], row[2], row[3]);
    }
    even[3] = m[11] + m[12], odd[3] = y_odd(m[11], m[12], m[13]);
    to[0] = y_even(even[0], even[1], even[2]);
    to[1] = y_even(odd[0], odd[1], odd[2]);
    to[2] = y_odd(even[1], even[2], even[3]);
    to[3] = y_odd(odd[1], odd[2], odd[3]);
}

/* ---- A dy */

TILE_INLINE void dy_transform_4(Vector a, Vector b, Vector to[4])
{
    to[0] = a;
    to[1] = a + b;
    to[2] = a - b;
    to[3] = b;
}

/* Of four or two pixels. */
TILE_INLINE void dy_transform_6(const int m, const Vector *y, Vector *to)
{
    const float p = POINT_P, q = POINT_Q;
    const Vector third = m == 4 ? y[2] : (Vector){0}, fourth = m == 4 ? y[3] : (Vector){0};
    Vector even = y[0] + p * p * third, odd = p * y[1] + p * p * p * fourth;
    to[0] = y[0];
    to[1] = even + odd;
    to[2] = even - odd;
    even = y[0] + q * q * third, odd = q * y[1] + q * q * q * fourth;
    to[3] = even + odd;
    to[4] = even - odd;
    to[5] = y[m - 1];
}

TILE_INLINE void dy_transform(const WinogradAlgorithm a, const Vector *y, Vector *to)
{
    if (winograd_alpha(a) == 4)
        dy_transform_4(y[0], y[1], to);
    else
        dy_transform_6(winograd_m(a), y, to);
}

/* F(4, 7), of four outputs. */
TILE_INLINE void dy_transform_1d(const Vector y[F4_7_OUTPUTS], Vector to[F4_7_POINTS])
{
    Vector row[4];
    dy_transform_4(y[0], y[1], row);
    for (int i = 0; i < 3; i++) to[i] = row[i];
    dy_transform_4(y[0] + y[2], y[1] + y[3], to + 3);
    dy_transform_4(y[0] - y[2], y[1] - y[3], to + 7);
    dy_transform_4(y[2], y[3], row);
    for (int i = 1; i < 4; i++) to[10 + i] = row[i];
}

/* ---- G' m: points are `step` vectors apart, taps `to_step` vectors */

TILE_INLINE void dw_transform_4(const Vector *m, int step, Vector *to, int to_step)
{
    Vector mean = 0.5f * (m[step] + m[2 * step]);
    to[0] = m[0] + mean;
    to[to_step] = 0.5f * (m[step] - m[2 * step]);
    to[2 * to_step] = mean - m[3 * step];
}

TILE_INLINE void dw_transform_6(const int taps, const Vector *m, int step, Vector *to, int to_step)
{
    const float p = POINT_P, q = POINT_Q, pp = p * p, qq = q * q;
    Vector even_p = SCALE_P * (m[step] + m[2 * step]), odd_p = SCALE_P * p * (m[step] - m[2 * step]);
    Vector even_q = SCALE_Q * (m[3 * step] + m[4 * step]), odd_q = SCALE_Q * q * (m[3 * step] - m[4 * step]);
    to[0] = add_times(even_p + even_q, m[0], 1 / (pp * qq));
    to[to_step] = odd_p + odd_q;
    to[2 * to_step] = add_times(pp * even_p, even_q, qq);
    if (taps == 5) {
        to[3 * to_step] = add_times(pp * odd_p, odd_q, qq);
        to[4 * to_step] = add_times(pp * pp * even_p, even_q, qq * qq);
    }
    to[(taps - 1) * to_step] += m[5 * step];
}

TILE_INLINE void dw_transform(const WinogradAlgorithm a, const Vector *m, int step, Vector *to, int to_step)
{
    if (winograd_alpha(a) == 4)
        dw_transform_4(m, step, to, to_step);
    else
        dw_transform_6(winograd_r(a), m, step, to, to_step);
}

/* F(4, 7), to seven taps. */
TILE_INLINE void dw_transform_1d(const Vector m[F4_7_POINTS], Vector to[F4_7_TAPS])
{
    static const int8_t points_at[F4_7_POINTS] = {0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15};
    static const int8_t taps_at[F4_7_TAPS] = {0, 1, 3, 4, 5, 7, 8};
    Vector square[16], rows[12], all[9];
    square[3] = square[12] = (Vector){0};
    for (int i = 0; i < F4_7_POINTS; i++) square[points_at[i]] = m[i];
    for (int r = 0; r < 4; r++) dw_transform_4(square + 4 * r, 1, rows + 3 * r, 1);
    for (int i = 0; i < 3; i++) dw_transform_4(rows + i, 3, all + i, 3);
    for (int i = 0; i < F4_7_TAPS; i++) to[i] = all[taps_at[i]];
}
