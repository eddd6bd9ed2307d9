/* Statistics of series of a run: means with confidence intervals, noise around a trend, comparisons.
 *
 * Steps of a run are correlated, so the standard error s / sqrt(n) is too small. Several estimates are computed and the
 * widest interval is used: the spread of the means of 12 and of 6 consecutive blocks, and s sqrt(g / n) with the statistical
 * inefficiency g = 1 + 2 sum of autocorrelations, summed in a window that ends at 5 g (Sokal), or estimated
 * from the first two for an exponential decay. Intervals are Student's t. The functions apply to any series. */
#pragma once

#include "kernels/base/absent.h"

/* A mean and its uncertainty, which is ABSENT with too few values: not measured. */
typedef struct Estimate {
    Number mean, error, freedom; /* standard error, degrees of freedom */
    Number low, high;            /* 95 % interval */
    Number p;                    /* probability of a mean at least this far from 0 if the true mean is 0 */
    int64_t count;
} Estimate;

/* Student's t: the value that a variable exceeds upward with probability 1 - p, and the two-sided tail beyond +-t. */
double student_quantile(double p, double freedom);
double student_tail(double t, double freedom);

double series_mean(const double *x, int64_t count);
double series_variance(const double *x, int64_t count);     /* divided by count - 1 */
void series_sort(double *x, int64_t count);                 /* ascending */
double series_median(double *x, int64_t count);             /* sorts x; NaN of none */
double series_inefficiency(const double *x, int64_t count); /* g >= 1 */

/* What tf_cnn_benchmarks prints: standard deviation / sqrt(count), and 1.4826 times the median absolute deviation.
 * Overwrites x. */
typedef struct Scatter {
    double error, jitter;
} Scatter;
Scatter series_scatter(double *x, int64_t count);

/* Whether a series rises: the probability that one in random order does so at least as much (Mann, "Nonparametric tests against
 * trend", 1945), exact for at most RISING_MOST values and 1 beyond; equal values count as neither, which makes it larger. And how
 * much it rises from a value to the next: the median of the slopes of all pairs (Theil and Sen). */
enum { RISING_MOST = 32 };
double series_rising(const double *x, int64_t count);
Number series_slope(const double *x, int64_t count); /* ABSENT of fewer than two, or more than RISING_MOST */

/* The mean of a series of dependent values. */
Estimate series_estimate(const double *x, int64_t count);
/* mean(a) - mean(b) of two independent series (Welch, with errors as above). */
Estimate series_difference(const double *a, int64_t a_count, const double *b, int64_t b_count);
/* The mean of what independent repetitions gave: Student's t. Of differences between two settings in the same seeds or folds it is the
 * paired t-test; `shared`: 1 / (N - 1) for N folds, whose training sets overlap, so that the variance of the mean is (1 / count +
 * shared) s^2 (Nadeau & Bengio, "Inference for the Generalization Error", 2003), else 0. Unknown of fewer than two, and of several
 * that are all the same but not 0: they show nothing of chance. */
Estimate repeated_mean(const double *x, int64_t count, double shared);
/* A mean whose standard error was measured elsewhere, of many values; unknown if it was not. */
Estimate normal_estimate(double mean, Number error);
/* Not measured. */
Estimate unknown_estimate(Number mean, int64_t count);
/* Wilson's 95 % interval of a share, successes of trials ("Probable inference", 1927). */
Estimate share_estimate(int64_t successes, int64_t count);
/* The difference of two shares, successes of trials each (two independent binomials): the test of two proportions, or
 * Fisher's exact test if fewer than FEW_EXPECTED successes or failures are expected in a cell; and the interval of Newcombe, of Wilson's
 * for each share ("Interval estimation for the difference between independent proportions", 1998, method 10), which lies within -1 and 1
 * and has a width where all or none have succeeded. */
enum { FEW_EXPECTED = 5 };
Estimate share_difference(int64_t a_successes, int64_t a_count, int64_t b_successes, int64_t b_count);
/* The difference of two shares of the same trials, of which only_a and only_b succeeded once: McNemar's test, exact (a sign
 * test), and the interval of Agresti and Min ("Simple improved confidence intervals for comparing matched proportions", 2005), cut off at
 * -1 and 1. */
Estimate paired_share_difference(int64_t only_a, int64_t only_b, int64_t count);

/* Noise around a smooth curve, by second differences: r = (x[t-1] - 2 x[t] + x[t+1]) / sqrt(6) has the variance of white
 * noise, and a curve that is straight over three steps cancels. */
double noise_variance(const double *x, int64_t count);
/* The mean of the correlations in 20 blocks of steps. */
double noise_correlation(const double *x, const double *y, int64_t count);
/* noise_variance(x) / noise_variance(y): the geometric mean of the ratios in 20 blocks of steps, so that a noisy part
 * (the first steps of a run) does not dominate; the interval is that of their logarithms. */
Estimate noise_ratio(const double *x, const double *y, int64_t count);

/* The shortest moving average that brings the variance of `x` down to `wanted`; 0 if none up to count / 4 does. */
int64_t smoothing_window(const double *x, int64_t count, double wanted);
