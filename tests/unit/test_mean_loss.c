/* Loss accounting against values computed by hand: two towers with the losses [2, 3] and [4, 5], the uneven case [2,
 * 3] and [4], and towers whose loss is NaN or Inf, under every report. */
#include "nccl_sync/mean_loss.h"
#include "tests/support/unit.h"
#include "towers/files/files.h"

/* A tower that saw these losses. */
static TowerLoss tower_of(const double *losses, int count)
{
    TowerLoss tower = {.finite = true};
    for (int i = 0; i < count; i++) tower.sum += losses[i];
    tower.count = count;
    tower.finite = isfinite(tower.sum);
    return tower;
}

static void even_towers(TowerLoss towers[2])
{
    towers[0] = tower_of((double[]){2, 3}, 2);
    towers[1] = tower_of((double[]){4, 5}, 2);
}

static void is(double got, double wanted)
{
    if (!(got == wanted)) fail_msg("%.17g instead of %.17g", got, wanted);
}

static double reported(const TowerLoss *towers, int count, LossReport report)
{
    return reported_loss(towers, count, report, LOSS_DIVISOR_SAMPLES, 4);
}

/* A tower's loss as its gradients see it: the sum of its samples' losses times the factor of each. */
static double scaled(const TowerLoss *tower, int64_t samples)
{
    return tower->sum * loss_scale(samples, LOSS_DIVISOR_SAMPLES, samples);
}

/* docs/guide/loss.md has this row. */
__attribute__((format(printf, 1, 2))) static void page_has(const char *format, ...)
{
    char row[256], *page;
    size_t count;
    va_list args;
    va_start(args, format);
    vsnprintf(row, sizeof row, format, args);
    va_end(args);
    assert_int_equal(file_load(TOWERS_SOURCE_DIR "/docs/guide/loss.md", OF_USER, ERR_IO, 1 << 20, &page, &count), OK);
    if (!strstr(page, row)) fail_msg("docs/guide/loss.md lacks the row '%s'", row);
    free(page);
}

TEST(test_reports)
{
    TowerLoss towers[2];
    even_towers(towers);
    is(tower_loss_mean(&towers[0]), 2.5);
    is(tower_loss_mean(&towers[1]), 4.5);
    is(reported(towers, 2, LOSS_REPORT_LAST), 4.5);
    is(reported(towers, 2, LOSS_REPORT_FIRST), 2.5);
    is(reported(towers, 2, LOSS_REPORT_MEAN), 3.5);
    is(reported(towers, 2, LOSS_REPORT_ALL), 3.5);
    is(reported(towers, 2, LOSS_REPORT_WORST), 4.5);
    TowerLoss swapped[2] = {towers[1], towers[0]};
    is(reported(swapped, 2, LOSS_REPORT_LAST), 2.5);
    is(reported(swapped, 2, LOSS_REPORT_WORST), 4.5);
    is(reported(swapped, 2, LOSS_REPORT_MEAN), 3.5);
}

/* The numbers that other frameworks report for the same four losses. */
TEST(test_scaled_per_replica)
{
    TowerLoss towers[2];
    even_towers(towers);
    double a = scaled(&towers[0], 4), b = scaled(&towers[1], 4);
    is(a, 1.25);
    is(b, 2.25);
    is(a + b, 3.5);              /* reduce(SUM) */
    double metric = (a + b) / 2; /* a Mean metric that is fed scaled losses: wrong by the number of replicas */
    is(metric, 1.75);
    is(metric * 2, 3.5); /* what multiplying by num_replicas repairs */
    double unscaled = (tower_loss_mean(&towers[0]) + tower_loss_mean(&towers[1])) / 2 * 2;
    is(unscaled, 7.0); /* and spoils, if the losses were not scaled */
    assert_true(unscaled != mean_loss(towers, 2, LOSS_DIVISOR_SAMPLES, 4));
    page_has("| the last tower's mean, the first tower's | %g, %g |", reported(towers, 2, LOSS_REPORT_LAST),
             reported(towers, 2, LOSS_REPORT_FIRST));
    page_has("| sum of shares: each tower's sum divided by the global batch, added | %g |", a + b);
    page_has("| mean over scaled losses: these shares in a `Mean` metric | %g |", metric);
    page_has("| sum of the towers' own means | %g |", unscaled);
}

/* Absence survives sums, and is no number that a computation gives. */
TEST(test_absent)
{
    char text[NUMBER_TEXT];
    volatile double zero = 0;
    Number number = ABSENT;
    assert_true(is_absent(number) && is_absent(number + 1) && is_absent(100 * number) && is_absent(-number));
    assert_true(!isfinite(number) && !is_not_finite(number));
    const double others[] = {NAN, -NAN, zero / zero, INFINITY - INFINITY, sqrt(-1 - zero), INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(!is_absent(others[i]) && is_not_finite(others[i]));
    assert_true(!is_absent(0) && !is_not_finite(0));
    assert_string_equal(number_text(number, "%.4f", text), "-");
    assert_string_equal(number_text(NAN, "%.1f", text), "nan");
    assert_string_equal(number_text(2.25, "%.1f", text), "2.2");
}

TEST(test_uneven)
{
    TowerLoss towers[2] = {tower_of((double[]){2, 3}, 2), tower_of((double[]){4}, 1)};
    is((tower_loss_mean(&towers[0]) + tower_loss_mean(&towers[1])) / 2, 3.25); /* the mean of means, which we are not */
    is(mean_loss(towers, 2, LOSS_DIVISOR_SAMPLES, 4), 3.0);
    is(mean_loss(towers, 2, LOSS_DIVISOR_GLOBAL_BATCH, 4), 2.25);
    is(scaled(&towers[0], 3) + scaled(&towers[1], 3), 3.0);
    is(loss_scale(3, LOSS_DIVISOR_GLOBAL_BATCH, 4), 0.25);
    is(loss_scale(4, LOSS_DIVISOR_SAMPLES, 8), 0.25);
    is(reported_loss(towers, 2, LOSS_REPORT_MEAN, LOSS_DIVISOR_GLOBAL_BATCH, 4), 2.25);
    is(reported_loss(towers, 2, LOSS_REPORT_LAST, LOSS_DIVISOR_GLOBAL_BATCH, 4), 4); /* a tower's own mean stays it */
}

TEST(test_empty_towers)
{
    const TowerLoss none = tower_of(NULL, 0);
    for (int at = 0; at < 3; at++) {
        TowerLoss towers[3], even[2];
        even_towers(even);
        for (int t = 0, k = 0; t < 3; t++) towers[t] = t == at ? none : even[k++];
        is(mean_loss(towers, 3, LOSS_DIVISOR_SAMPLES, 4), 3.5);
        is(mean_loss(towers, 3, LOSS_DIVISOR_GLOBAL_BATCH, 4), 3.5);
        is(reported(towers, 3, LOSS_REPORT_LAST), 4.5);
        is(reported(towers, 3, LOSS_REPORT_FIRST), 2.5);
        is(reported(towers, 3, LOSS_REPORT_WORST), 4.5);
    }
    assert_true(is_absent(tower_loss_mean(&none))); /* there is no loss to report, which is not a loss of NaN */
    assert_true(is_absent(mean_loss(&none, 1, LOSS_DIVISOR_SAMPLES, 4)));
    assert_true(is_absent(reported(&none, 1, LOSS_REPORT_LAST)) && is_absent(reported(&none, 1, LOSS_REPORT_WORST)));
    const TowerLoss lost = tower_of((double[]){NAN}, 1);
    assert_true(is_not_finite(tower_loss_mean(&lost)) && is_not_finite(mean_loss(&lost, 1, LOSS_DIVISOR_SAMPLES, 4)));
    is(loss_scale(0, LOSS_DIVISOR_SAMPLES, 4), 0);
    is(loss_scale(0, LOSS_DIVISOR_GLOBAL_BATCH, 4), 0);
}

/* An empty tower whose memory holds rubbish counts nothing. */
TEST(test_empty_tower_with_rubbish)
{
    TowerLoss towers[3];
    even_towers(towers);
    towers[2] = (TowerLoss){.sum = NAN, .count = 0, .finite = false};
    is(mean_loss(towers, 3, LOSS_DIVISOR_SAMPLES, 4), 3.5);
    is(reported(towers, 3, LOSS_REPORT_LAST), 4.5);
}

/* [bad, 3], [4, 5], whoever is bad: the mean and the worst are not finite, the other tower's own loss is. */
TEST(test_not_finite)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int t = 0; t < 2; t++) {
            TowerLoss towers[2];
            even_towers(towers);
            towers[t] = tower_of((double[]){bad[i], 3}, 2);
            assert_false(isfinite(mean_loss(towers, 2, LOSS_DIVISOR_SAMPLES, 4)));
            assert_false(isfinite(reported(towers, 2, LOSS_REPORT_WORST)));
            is(reported(towers, 2, t ? LOSS_REPORT_FIRST : LOSS_REPORT_LAST), t ? 2.5 : 4.5);
        }
}

/* Inf in one tower and -Inf in the other: the sum is NaN. */
TEST(test_opposite_infinities)
{
    TowerLoss towers[2] = {tower_of((double[]){INFINITY}, 1), tower_of((double[]){-INFINITY}, 1)};
    assert_true(isnan(mean_loss(towers, 2, LOSS_DIVISOR_SAMPLES, 2)));
}
