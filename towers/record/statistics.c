/* Means, intervals and noise of dependent series; see statistics.h. The incomplete beta function is the continued
 * fraction of Abramowitz and Stegun 26.5.8, evaluated after Lentz. */
#include "towers/record/statistics.h"

enum { BLOCKS = 12, FEW_BLOCKS = 6, RATIO_BLOCKS = 20, RATIO_LEAST = 6, LEAST = 8 };

/* ---- Student's t */

static double away_from_zero(double value)
{
    return fabs(value) < 1e-300 ? 1e-300 : value;
}

static double beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), h = d;
    for (int m = 1; m < 500; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        h *= d * c;
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return h;
}

double student_tail(double t, double freedom)
{
    if (!isfinite(freedom)) return erfc(fabs(t) / sqrt(2));
    double a = freedom / 2;
    double x = freedom / (freedom + t * t);
    if (x <= 0 || x >= 1) return x >= 1;
    double front = exp(lgamma(a + 0.5) - lgamma(a) - lgamma(0.5) + a * log(x) + 0.5 * log1p(-x));
    return x < (a + 1) / (a + 0.5 + 2) ? front * beta_fraction(a, 0.5, x) / a
                                       : 1 - front * beta_fraction(0.5, a, 1 - x) / 0.5;
}

double student_quantile(double p, double freedom)
{
    double tail = p < 0.5 ? 2 * p : 2 * (1 - p), low = 0, high = 1;
    while (student_tail(high, freedom) > tail && high < 1e15) high *= 2;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        if (student_tail(middle, freedom) > tail)
            low = middle;
        else
            high = middle;
    }
    return p < 0.5 ? -high : high;
}

/* ---- one series */

double series_mean(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i];
    return count ? sum / (double)count : ABSENT;
}

/* The sum of products of deviations from `mean`, `lag` apart; lag 0: of their squares. */
static double deviation_sum(const double *x, int64_t count, double mean, int64_t lag)
{
    double sum = 0;
    for (int64_t i = 0; i + lag < count; i++) sum += (x[i] - mean) * (x[i + lag] - mean);
    return sum;
}

double series_variance(const double *x, int64_t count)
{
    double sum = deviation_sum(x, count, series_mean(x, count), 0);
    return count > 1 ? sum / (double)(count - 1) : ABSENT;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void series_sort(double *x, int64_t count)
{
    qsort(x, (size_t)count, sizeof *x, by_value);
}

double series_median(double *x, int64_t count)
{
    if (count == 0) return ABSENT;
    series_sort(x, count);
    return count % 2 ? x[count / 2] : (x[count / 2 - 1] + x[count / 2]) / 2;
}

Scatter series_scatter(double *x, int64_t count)
{
    double square = deviation_sum(x, count, series_mean(x, count), 0);
    double middle = series_median(x, count); /* sorts x */
    for (int64_t i = 0; i < count; i++) x[i] = fabs(x[i] - middle);
    return (Scatter){sqrt(square) / (double)count, 1.4826 * series_median(x, count)};
}

/* Kendall's S of a series in random order is k (k - 1) / 2 - 2 I, with the number I of inversions: adding the k-th value adds
 * 0 to k - 1 of them, each equally often. */
double series_rising(const double *x, int64_t count)
{
    enum { INVERSIONS = RISING_MOST * (RISING_MOST - 1) / 2 + 1 };
    double share[2][INVERSIONS] = {{1}}, below = 0;
    int64_t falls = 0, level = 0, most = 0;
    if (count < 2 || count > RISING_MOST) return 1;
    for (int64_t k = 1; k < count; k++) {
        const double *before = share[(k + 1) % 2];
        double *now = share[k % 2];
        for (int64_t i = 0; i <= most + k; i++) {
            now[i] = 0;
            for (int64_t from = i > k ? i - k : 0; from <= i && from <= most; from++)
                now[i] += before[from] / (double)(k + 1);
        }
        most += k;
        for (int64_t i = 0; i < k; i++) falls += x[k] < x[i], level += x[k] == x[i];
    }
    int64_t inversions = falls + (level + 1) / 2;
    for (int64_t i = 0; i <= inversions && i <= most; i++) below += share[(count - 1) % 2][i];
    return fmin(below, 1);
}

Number series_slope(const double *x, int64_t count)
{
    double slope[RISING_MOST * (RISING_MOST - 1) / 2];
    int64_t slopes = 0;
    if (count > RISING_MOST) return ABSENT;
    for (int64_t k = 1; k < count; k++)
        for (int64_t i = 0; i < k; i++) slope[slopes++] = (x[k] - x[i]) / (double)(k - i);
    return series_median(slope, slopes);
}

double series_inefficiency(const double *x, int64_t count)
{
    double mean = series_mean(x, count), variance = deviation_sum(x, count, mean, 0), g = 1;
    if (!(variance > 0)) return 1;
    for (int64_t lag = 1; lag < count / 3 && (double)lag < 5 * g; lag++) {
        g += 2 * deviation_sum(x, count, mean, lag) / variance;
        if (g < 1) return 1;
    }
    return g;
}

/* g of a series whose autocorrelation is r after one step and then decays by a factor of `decay` per step. */
static double forgetting_inefficiency(double r, double decay, int64_t count)
{
    double most = (double)count / 2, g = decay < 1 ? 1 + 2 * r / (1 - decay) : most;
    return g < 1 ? 1 : g < most ? g : most;
}

static double autocorrelation(const double *x, int64_t count, int64_t lag)
{
    double mean = series_mean(x, count), all = deviation_sum(x, count, mean, 0);
    double r = all > 0 ? deviation_sum(x, count, mean, lag) / all : 0;
    return r + (1 + 4 * r) / (double)count; /* the estimate is biased low in a short series (Kendall) */
}

/* The error of the mean from the means of blocks, which are nearly independent. */
static double block_error(const double *x, int64_t count, int blocks)
{
    double mean[BLOCKS];
    for (int b = 0; b < blocks; b++) {
        int64_t first = count * b / blocks, end = count * (b + 1) / blocks;
        mean[b] = series_mean(x + first, end - first);
    }
    return sqrt(series_variance(mean, blocks) / blocks);
}

static Estimate estimate_of(double mean, double error, double freedom, int64_t count)
{
    double reach = error > 0 ? error * student_quantile(0.975, freedom) : 0;
    return (Estimate){
        .mean = mean,
        .error = error,
        .freedom = freedom,
        .low = mean - reach,
        .high = mean + reach,
        .p = error > 0 ? student_tail(mean / error, freedom) : mean == 0,
        .count = count,
    };
}

Estimate unknown_estimate(Number mean, int64_t count)
{
    return (Estimate){mean, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT, count};
}

/* The wider interval of the two. */
static Estimate wider(Estimate a, Estimate b)
{
    Estimate more = b.high - b.low > a.high - a.low ? b : a;
    more.p = a.p > b.p ? a.p : b.p;
    return more;
}

static Estimate by_inefficiency(const double *x, int64_t count, double mean, double g)
{
    double effective = fmax((double)count / g, 2);
    return estimate_of(mean, sqrt(series_variance(x, count) / (effective - 1)), effective - 1, count);
}

static Estimate by_blocks(const double *x, int64_t count, double mean, int blocks)
{
    return estimate_of(mean, block_error(x, count, blocks), blocks - 1, count);
}

Estimate series_estimate(const double *x, int64_t count)
{
    double mean = series_mean(x, count);
    if (count < LEAST) return unknown_estimate(mean, count);
    double r1 = autocorrelation(x, count, 1), r2 = autocorrelation(x, count, 2), noise = 3 / sqrt((double)count);
    Estimate e = by_inefficiency(x, count, mean, series_inefficiency(x, count));
    e = wider(e, by_inefficiency(x, count, mean, forgetting_inefficiency(r1, r1, count)));
    if (r1 > noise) e = wider(e, by_inefficiency(x, count, mean, forgetting_inefficiency(r1, r2 / r1, count)));
    if (count >= 4 * BLOCKS) e = wider(e, by_blocks(x, count, mean, BLOCKS));
    return wider(e, by_blocks(x, count, mean, FEW_BLOCKS));
}

/* ---- two series */

Estimate series_difference(const double *a, int64_t a_count, const double *b, int64_t b_count)
{
    Estimate x = series_estimate(a, a_count), y = series_estimate(b, b_count);
    double vx = x.error * x.error, vy = y.error * y.error, both = vx + vy, mean = x.mean - y.mean;
    int64_t count = a_count < b_count ? a_count : b_count;
    if (!isfinite(both)) return unknown_estimate(mean, count);
    if (both == 0) return estimate_of(mean, 0, 1, count);
    return estimate_of(mean, sqrt(both), both * both / (vx * vx / x.freedom + vy * vy / y.freedom), count);
}

Estimate repeated_mean(const double *x, int64_t count, double shared)
{
    if (count < 1) return unknown_estimate(ABSENT, 0);
    const double SAME = 1e-9; /* scores are rounded, so that equal differences are equal within this */
    double mean = series_mean(x, count), variance = count > 1 ? series_variance(x, count) : 0;
    if (count < 2 || (mean != 0 && sqrt(variance) <= SAME * fabs(mean))) return unknown_estimate(mean, count);
    return estimate_of(mean, sqrt((1 / (double)count + shared) * variance), (double)count - 1, count);
}

Estimate normal_estimate(double mean, Number error)
{
    return error > 0 ? estimate_of(mean, error, INFINITY, 0) : unknown_estimate(mean, 0);
}

/* ln of the number of ways to choose k of n. */
static double choose_log(int64_t n, int64_t k)
{
    return lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
}

/* Fisher's exact test, two-sided: all tables with these margins that are at most as probable as this one. */
static double fisher_p(int64_t a, int64_t a_count, int64_t b, int64_t b_count)
{
    const double LIKE = 1e-7; /* rounding: as R and scipy, equal within this */
    int64_t all = a + b, least = all > b_count ? all - b_count : 0, most = all < a_count ? all : a_count;
    double base = choose_log(a_count + b_count, all), sum = 0,
           own = choose_log(a_count, a) + choose_log(b_count, b) - base;
    for (int64_t k = least; k <= most; k++) {
        double one = choose_log(a_count, k) + choose_log(b_count, all - k) - base;
        if (one <= own + LIKE) sum += exp(one);
    }
    return fmin(sum, 1);
}

Estimate share_estimate(int64_t successes, int64_t count)
{
    if (count < 1) return unknown_estimate(ABSENT, 0);
    double n = (double)count, share = (double)successes / n, z = student_quantile(0.975, INFINITY), more = z * z / n;
    double middle = (share + more / 2) / (1 + more),
           reach = z * sqrt(share * (1 - share) / n + more / n / 4) / (1 + more);
    Estimate e = unknown_estimate(share, count);
    e.low = middle - reach, e.high = middle + reach;
    return e;
}

Estimate share_difference(int64_t a_successes, int64_t a_count, int64_t b_successes, int64_t b_count)
{
    if (a_count < 1 || b_count < 1) return unknown_estimate(ABSENT, 0);
    double p = (double)a_successes / (double)a_count, q = (double)b_successes / (double)b_count,
           all = (double)(a_successes + b_successes) / (double)(a_count + b_count);
    double error = sqrt(all * (1 - all) * (1 / (double)a_count + 1 / (double)b_count));
    Estimate e = estimate_of(p - q, error, INFINITY, a_count < b_count ? a_count : b_count),
             x = share_estimate(a_successes, a_count), y = share_estimate(b_successes, b_count);
    e.low = e.mean - hypot(p - x.low, y.high - q);
    e.high = e.mean + hypot(x.high - p, q - y.low);
    if ((double)e.count * fmin(all, 1 - all) < FEW_EXPECTED) e.p = fisher_p(a_successes, a_count, b_successes, b_count);
    return e;
}

/* P(K <= k) of `count` coin tosses. */
static double tosses_below(int64_t k, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i <= k; i++) sum += exp(choose_log(count, i) - (double)count * log(2));
    return sum;
}

Estimate paired_share_difference(int64_t only_a, int64_t only_b, int64_t count)
{
    if (count < 1) return unknown_estimate(ABSENT, 0);
    double n = (double)count + 2, either = (double)(only_a + only_b) + 1, middle = (double)(only_a - only_b) / n;
    double error = sqrt(either / n - middle * middle) / sqrt(n), reach = student_quantile(0.975, INFINITY) * error;
    return (Estimate){.mean = (double)(only_a - only_b) / (double)count,
                      .error = error,
                      .freedom = INFINITY,
                      .low = fmax(middle - reach, -1),
                      .high = fmin(middle + reach, 1),
                      .p = fmin(1, 2 * tosses_below(only_a < only_b ? only_a : only_b, only_a + only_b)),
                      .count = count};
}

/* ---- noise around a curve */

static double residual(const double *x, int64_t i)
{
    return (x[i] - 2 * x[i + 1] + x[i + 2]) / sqrt(6);
}

double noise_variance(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i + 2 < count; i++) sum += residual(x, i) * residual(x, i);
    return count > 2 ? sum / (double)(count - 2) : ABSENT;
}

static double block_correlation(const double *x, const double *y, int64_t first, int64_t end)
{
    double xx = 0, yy = 0, xy = 0;
    for (int64_t i = first; i < end; i++) {
        double a = residual(x, i), b = residual(y, i);
        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : ABSENT;
}

/* The number of blocks of at least RATIO_LEAST residuals, at most RATIO_BLOCKS. */
static int block_count(int64_t residuals)
{
    return residuals < RATIO_BLOCKS * RATIO_LEAST ? (int)(residuals / RATIO_LEAST) : RATIO_BLOCKS;
}

double noise_correlation(const double *x, const double *y, int64_t count)
{
    double sum = 0;
    int blocks = count > 2 ? block_count(count - 2) : 0;
    for (int k = 0; k < blocks; k++)
        sum += block_correlation(x, y, (count - 2) * k / blocks, (count - 2) * (k + 1) / blocks);
    return blocks ? sum / blocks : ABSENT;
}

static double square_sum(const double *x, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t i = first; i < end; i++) sum += residual(x, i) * residual(x, i);
    return sum;
}

Estimate noise_ratio(const double *x, const double *y, int64_t count)
{
    double ratio[RATIO_BLOCKS];
    int64_t n = count - 2;
    int blocks = block_count(n > 0 ? n : 0);
    if (n < 4 * RATIO_LEAST) return unknown_estimate(ABSENT, count);
    for (int k = 0; k < blocks; k++) {
        int64_t first = n * k / blocks, end = n * (k + 1) / blocks;
        double above = square_sum(x, first, end), below = square_sum(y, first, end);
        if (!(above > 0) || !(below > 0)) return unknown_estimate(ABSENT, count);
        ratio[k] = log(above / below);
    }
    Estimate e =
        estimate_of(series_mean(ratio, blocks), sqrt(series_variance(ratio, blocks) / blocks), blocks - 1, count);
    e.mean = exp(e.mean);
    e.error *= e.mean;
    e.low = exp(e.low);
    e.high = exp(e.high);
    return e;
}

static double averaged_variance(const double *sums, int64_t count, int64_t window, double mean)
{
    double square = 0;
    for (int64_t i = 0; i + window <= count; i++) {
        double value = (sums[i + window] - sums[i]) / (double)window - mean;
        square += value * value;
    }
    return square / (double)(count - window + 1);
}

int64_t smoothing_window(const double *x, int64_t count, double wanted)
{
    double *sums = calloc((size_t)count + 1, sizeof *sums);
    int64_t found = 0;
    if (!sums) return 0;
    for (int64_t i = 0; i < count; i++) sums[i + 1] = sums[i] + x[i];
    for (int64_t w = 1; w <= count / 4 && !found; w++)
        if (averaged_variance(sums, count, w, sums[count] / (double)count) <= wanted) found = w;
    free(sums);
    return found;
}
