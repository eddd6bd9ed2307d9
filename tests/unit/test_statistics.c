/* Statistics of dependent series: known quantiles, known inefficiency, and intervals with the coverage that they
 * claim. */

#include "tests/support/noise.h"
#include "tests/support/unit.h"
#include "towers/record/statistics.h"

static void near(double got, double wanted, double tolerance)
{
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("got %.9g, wanted %.9g within %g", got, wanted, tolerance);
}

TEST(quantiles)
{
    near(student_quantile(0.975, 1), 12.7062047, 1e-6); /* tables of Student's t */
    near(student_quantile(0.975, 9), 2.26215716, 1e-7);
    near(student_quantile(0.995, 30), 2.74999565, 1e-7);
    near(student_quantile(0.025, 9), -2.26215716, 1e-7);
    near(student_quantile(0.975, INFINITY), 1.95996398, 1e-7);
    near(student_tail(2.26215716, 9), 0.05, 1e-8);
    near(student_tail(0, 5), 1, 1e-12);
    near(student_tail(1e8, 3), 0, 1e-12);
}

TEST(medians)
{
    double odd[] = {3, -1, 7}, even[] = {4, 1, 3, 2};
    assert_true(series_median(odd, 3) == 3);
    assert_true(series_median(even, 4) == 2.5);
    for (int i = 0; i < 4; i++) assert_true(even[i] == i + 1); /* sorted by then */
    assert_true(isnan(series_median(even, 0)));
}

/* Kendall's exact probabilities: of n! orders that many have at most so many inversions. */
TEST(rising)
{
    static const double up[] = {1, 2, 3, 4, 5, 6}, one_swap[] = {1, 3, 2, 4, 5}, level[] = {2, 2, 2, 2, 2},
                        even[] = {1, 1, 2, 3, 4};
    near(series_rising(up, 5), 1.0 / 120, 1e-15);
    near(series_rising(up, 6), 1.0 / 720, 1e-15);
    near(series_rising(one_swap, 5), 5.0 / 120, 1e-15);
    near(series_rising(even, 5), 5.0 / 120, 1e-15); /* equal ones are no rise */
    assert_true(series_rising(level, 5) > 0.5);
    assert_true(series_rising(up, 1) == 1);
    double down[RISING_MOST + 1], long_way[RISING_MOST + 1];
    for (int i = 0; i <= RISING_MOST; i++) down[i] = -i, long_way[i] = i;
    near(series_rising(down, RISING_MOST), 1, 1e-9);
    assert_true(series_rising(long_way, RISING_MOST) < 1e-30);
    assert_true(series_rising(long_way, RISING_MOST + 1) == 1);
    near(series_slope(up, 6), 1, 0);
    near(series_slope(one_swap, 5), 1, 0);
    near(series_slope(down, 3), -1, 0);
    assert_true(isnan(series_slope(up, 1)));
}

/* Wilson's interval, as statsmodels has it. */
TEST(share_intervals)
{
    Estimate e = share_estimate(90, 100), none = share_estimate(0, 10);
    near(e.mean, 0.9, 1e-15);
    near(e.low, 0.82563, 1e-5);
    near(e.high, 0.94477, 1e-5);
    near(none.low, 0, 1e-12);
    near(none.high, 0.27753, 1e-5);
    assert_true(is_absent(share_estimate(0, 0).mean));
}

TEST(variances)
{
    double few[] = {3, -1, 7, 3};
    near(series_variance(few, 4), 32.0 / 3, 1e-12); /* unbiased */
    near(series_variance(few, 2), 8, 1e-12);
    assert_true(isnan(series_variance(few, 1)));
}

TEST(inefficiency)
{
    enum { N = 200000 };
    static const double memory[] = {0, 0.5, 0.9};
    double *x = malloc(N * sizeof *x);
    for (int k = 0; k < 3; k++) {
        double wanted = (1 + memory[k]) / (1 - memory[k]);
        noise_series(7, memory[k], x, N);
        near(series_inefficiency(x, N), wanted, 0.08 * wanted);
    }
    for (int i = 0; i < N; i++) x[i] = i % 2; /* alternating: never below 1 */
    near(series_inefficiency(x, N), 1, 0);
    free(x);
}

/* How often the 95 % interval misses the true mean, 0. */
static double miss_share(double memory, int64_t count, int trials)
{
    int missed = 0;
    double *x = malloc((size_t)count * sizeof *x);
    for (int k = 0; k < trials; k++) {
        noise_series(100 + (uint64_t)k, memory, x, count);
        Estimate e = series_estimate(x, count);
        missed += e.low > 0 || e.high < 0;
    }
    free(x);
    return (double)missed / trials;
}

TEST(intervals_cover)
{
    static const struct {
        double memory;
        int64_t count;
    } rows[] = {{0, 20}, {0, 100}, {0, 1000}, {0.5, 200}, {0.9, 400}, {0.9, 4000}, {0.97, 2000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double missed = miss_share(rows[i].memory, rows[i].count, 1000);
        if (missed > 0.065)
            fail_msg("memory %g, %" PRId64 " values: missed %.1f %%", rows[i].memory, rows[i].count, 100 * missed);
    }
    assert_true(miss_share(0, 1000, 1000) > 0.005); /* and not because they are endless */
}

TEST(short_and_still)
{
    double few[] = {1, 2, 3}, still[20];
    for (int i = 0; i < 20; i++) still[i] = 0.25;
    Estimate e = series_estimate(few, 3);
    near(e.mean, 2, 0);
    assert_true(is_absent(e.error) && is_absent(e.low) && is_absent(e.high) && is_absent(e.p)); /* not measured */
    assert_true(is_absent(series_difference(few, 3, still, 20).p));
    e = series_estimate(still, 20);
    near(e.low, 0.25, 0);
    near(e.high, 0.25, 0);
    near(e.p, 0, 0);
    e = series_difference(still, 20, still, 20);
    near(e.mean, 0, 0);
    near(e.p, 1, 0);
    assert_true(is_absent(series_estimate(NULL, 0).mean));
}

TEST(differences)
{
    double a[400], b[400];
    noise_series(1, 0, a, 400);
    noise_series(2, 0, b, 400);
    for (int i = 0; i < 400; i++) b[i] = 0.5 * b[i] + 1;
    Estimate e = series_difference(b, 400, a, 400);
    near(e.mean, 1, 0.2);
    assert_true(e.low < 1 && e.high > 1 && e.p < 1e-6);
    near(e.error, sqrt(1.25 / 400), 0.03);
}

/* statsmodels' proportions_ztest, scipy's fisher_exact where few are expected, statsmodels' mcnemar (exact). */
TEST(shares)
{
    static const struct {
        int64_t a, a_count, b, b_count;
        double p;
    } rows[] = {{900, 1000, 870, 1000, 0.03548845046647451},
                {58, 100, 70, 120, 0.960194635856245},
                {12, 2000, 1, 2000, 0.002244453341794891},
                {0, 3, 3, 3, 0.1},
                {3, 3, 0, 3, 0.1},
                {1, 9, 8, 10, 0.005477494641581328},
                {5, 5, 5, 5, 1},
                {0, 5, 0, 7, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        near(share_difference(rows[i].a, rows[i].a_count, rows[i].b, rows[i].b_count).p, rows[i].p, 1e-9);
    near(share_difference(900, 1000, 870, 1000).mean, 0.03, 1e-12);
    assert_true(is_absent(share_difference(0, 0, 5, 5).p)); /* no trial is no success */
    static const struct {
        int64_t only_a, only_b;
        double p;
    } pairs[] = {{5, 1, 0.21875}, {10, 25, 0.016673847800120715}, {0, 6, 0.03125}, {3, 3, 1},
                 {0, 0, 1},       {120, 80, 0.005685155996750306}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        Estimate e = paired_share_difference(pairs[i].only_a, pairs[i].only_b, 500);
        near(e.p, pairs[i].p, 1e-12);
        near(e.mean, (double)(pairs[i].only_a - pairs[i].only_b) / 500, 1e-15);
        assert_true(e.low < e.mean && e.mean < e.high); /* even if both are right for the same images */
    }
    Estimate e = paired_share_difference(10, 25, 100); /* (-15 -+ 1.96 sqrt(36 - 15^2 / 102)) / 102 */
    near(e.low, (-15 - 1.959963984540054 * sqrt(36 - 225 / 102.)) / 102, 1e-12);
    near(e.high, (-15 + 1.959963984540054 * sqrt(36 - 225 / 102.)) / 102, 1e-12);
    assert_true(is_absent(paired_share_difference(0, 0, 0).p));
}

/* Newcombe's own table (1998, method 10), and what no number of images can show. */
TEST(intervals_of_share_differences)
{
    static const struct {
        int64_t a, a_count, b, b_count;
        double low, high;
    } rows[] = {{56, 70, 48, 80, 0.0524, 0.3339}, {9, 10, 3, 10, 0.1705, 0.8090},  {6, 7, 2, 7, 0.0582, 0.8062},
                {5, 56, 0, 29, -0.0381, 0.1926},  {0, 10, 0, 20, -0.1611, 0.2775}, {0, 10, 0, 10, -0.2775, 0.2775},
                {10, 10, 0, 20, 0.6791, 1.0000},  {10, 10, 0, 10, 0.6075, 1.0000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Estimate e = share_difference(rows[i].a, rows[i].a_count, rows[i].b, rows[i].b_count);
        near(e.low, rows[i].low, 6e-5);
        near(e.high, rows[i].high, 6e-5);
    }
    for (int64_t n = 1; n < 30; n++) {
        Estimate all = share_difference(n, n, 0, n), paired = paired_share_difference(n, 0, n),
                 other = paired_share_difference(0, n, n);
        near(all.mean, 1, 0);
        assert_true(all.low < 1 && all.high <= 1 + 1e-12);
        assert_true(paired.low < 1 && paired.high <= 1 && other.high > -1 && other.low >= -1);
    }
}

TEST(noise_of_a_course)
{
    enum { N = 4000 };
    double *x = malloc(3 * N * sizeof *x), *y = x + N, *z = y + N;
    noise_series(3, 0, x, N);
    noise_series(4, 0, y, N);
    for (int i = 0; i < N; i++) {
        double course = 50 + 20 * cos(i / 200.0) - 0.01 * i;
        z[i] = course + (x[i] + y[i]) / 2; /* half the variance */
        x[i] += course;
        y[i] += course;
    }
    near(noise_variance(x, N), 1, 0.1);
    near(noise_correlation(x, y, N), 0, 0.06);
    near(noise_correlation(x, x, N), 1, 1e-12);
    Estimate e = noise_ratio(x, z, N);
    near(e.mean, 2, 0.2);
    assert_true(e.low < 2 && e.high > 2 && e.low > 1.7 && e.high < 2.35);
    assert_true(isnan(noise_ratio(x, z, 10).mean));
    Estimate inverse = noise_ratio(z, x, N); /* the same question */
    near(inverse.mean * e.mean, 1, 1e-12);
    near(inverse.low * e.high, 1, 1e-12);
    near(inverse.high * e.low, 1, 1e-12);
    free(x);
}

/* A loud beginning, a hundred times the variance, has no more say than any other stretch; and the interval covers. */
TEST(noise_that_fades)
{
    enum { N = 800, TRIALS = 300 };
    double *x = malloc(2 * N * sizeof *x), *y = x + N;
    int missed = 0;
    for (uint64_t k = 0; k < TRIALS; k++) {
        noise_series(2 * k, 0, x, N);
        noise_series(2 * k + 1, 0, y, N);
        for (int i = 0; i < N; i++) {
            double loud = 1 + 9 * exp(-i / 40.0), other = y[i];
            y[i] = loud * (x[i] + other) / 2;
            x[i] *= loud;
        }
        Estimate e = noise_ratio(x, y, N);
        near(e.mean, 2, 1);
        missed += e.low > 2 || e.high < 2;
    }
    if (missed > 0.09 * TRIALS) fail_msg("missed %d times in %d", missed, TRIALS);
    free(x);
}

TEST(windows)
{
    enum { N = 20000 };
    double *x = malloc(N * sizeof *x);
    noise_series(5, 0, x, N);
    assert_int_equal(smoothing_window(x, N, 1.1), 1);
    assert_int_equal(smoothing_window(x, N, 0.26), 4);
    assert_int_equal(smoothing_window(x, N, 0), 0);
    noise_series(5, 0.9, x, N);
    assert_true(smoothing_window(x, N, 0.26) > 20); /* memory makes averaging slow */
    free(x);
}
