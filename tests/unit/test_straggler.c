/* The tower that is reported as slow: the tower and activity that lose the time, under all kinds of noise that
 * machines make and for any shares; and none in runs without a slow tower, however large the noise. The search costs
 * little for many towers. */
#include "towers/record/statistics.h"
#include "towers/record/straggler.h"

#include <dlfcn.h>

#include "kernels/philox.h"
#include "tests/support/unit.h"

enum { TOWERS = 4, STEPS = STRAGGLER_WINDOW };

typedef struct Machine {
    double seconds[STRAGGLER_ACTIVITIES]; /* of one sample */
    double noise;                         /* share of an activity's time, exponentially distributed */
    double stalls, stall_seconds;         /* probability that an activity is interrupted, and for how long */
    int64_t samples[TOWERS];
    int tower, activity; /* that loses */
    double lost;         /* seconds each step */
} Machine;

static const Machine usual = {
    .seconds = {0.1e-3, 0.05e-3, 0.6e-3, 1.2e-3}, .noise = 0.05, .samples = {16, 16, 16, 16}, .tower = -1};

static double uniform(uint32_t *at)
{
    return ((double)philox(5, (*at)++, 0, 0, 0).v[0] + 0.5) / 4294967296.0;
}

static void window_make(const Machine *m, int towers, uint32_t *at, StragglerTimes *times)
{
    for (int s = 0; s < STEPS; s++)
        for (int t = 0; t < towers; t++) {
            StragglerTimes *row = &times[s * towers + t];
            row->samples = m->samples[t];
            for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) {
                double work = m->seconds[k] * (double)m->samples[t];
                row->seconds[k] = work * (1 - m->noise * log(uniform(at)));
                if (uniform(at) < m->stalls) row->seconds[k] += m->stall_seconds * -log(uniform(at));
                if (t == m->tower && k == m->activity) row->seconds[k] += m->lost;
            }
        }
}

/* Two windows in a row. */
static Straggler named_by(const Machine *m, int towers, uint32_t *at)
{
    StragglerTimes times[STEPS * TOWERS];
    StragglerWatch watch;
    straggler_start(&watch);
    for (int w = 0; w < 2; w++) {
        window_make(m, towers, at, times);
        Straggler found = straggler_find(times, STEPS, towers);
        straggler_window(&watch, &found, false, w * STEPS);
    }
    return watch.named;
}

TEST(test_every_tower_and_activity)
{
    uint32_t at = 0;
    for (int towers = 2; towers <= TOWERS; towers++)
        for (int t = 0; t < towers; t++)
            for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) {
                Machine m = usual;
                m.tower = t, m.activity = k, m.lost = 20e-3;
                Straggler named = named_by(&m, towers, &at);
                assert_int_equal(named.tower, t);
                assert_int_equal(named.activity, k);
                assert_true(fabs(named.seconds - named.others - 20e-3) < 4e-3);
            }
}

/* A machine on which other programs run: every third activity of any tower is interrupted, some for longer than
 * the step. */
TEST(test_noise_hides_nobody_and_accuses_nobody)
{
    uint32_t at = 1000000;
    for (int i = 0; i < 500; i++) {
        Machine m = usual;
        m.noise = 0.3, m.stalls = 0.3, m.stall_seconds = 30e-3;
        assert_int_equal(named_by(&m, 2 + i % 3, &at).tower, -1);
    }
    for (int i = 0; i < 20; i++) {
        Machine m = usual;
        m.noise = 0.1, m.stalls = 0.03, m.stall_seconds = 30e-3;
        m.tower = i % 3, m.activity = i % STRAGGLER_ACTIVITIES, m.lost = 20e-3;
        Straggler named = named_by(&m, 3, &at);
        assert_int_equal(named.tower, m.tower);
        assert_int_equal(named.activity, m.activity);
    }
}

/* A tower with more samples works longer, one with few has more to do per sample: neither is slow. */
TEST(test_shares_are_no_fault)
{
    uint32_t at = 2000000;
    for (int i = 0; i < 50; i++) {
        Machine m = usual;
        m.samples[0] = 48, m.samples[1] = 4, m.samples[2] = 0;
        assert_int_equal(named_by(&m, TOWERS, &at).tower, -1);
    }
    Machine m = usual;
    m.samples[0] = 48;
    m.tower = 1, m.activity = 2, m.lost = 30e-3; /* slower than it should be, but done before the other */
    assert_int_equal(named_by(&m, 2, &at).tower, -1);
    m.lost = 120e-3;
    assert_int_equal(named_by(&m, 2, &at).tower, 1);
}

TEST(test_too_little_is_nothing)
{
    uint32_t at = 3000000;
    Machine m = usual;
    m.tower = 1, m.activity = 2, m.lost = 2e-3; /* of a step of 31 */
    assert_int_equal(named_by(&m, TOWERS, &at).tower, -1);
    assert_int_equal(named_by(&m, 1, &at).tower, -1);
    StragglerTimes none[STEPS * TOWERS] = {{.samples = 0}};
    assert_int_equal(straggler_find(none, STEPS, TOWERS).tower, -1);
    assert_int_equal(straggler_find(none, 0, TOWERS).tower, -1);
}

/* The reference: the others of each step, sorted anew for each tower. */
static double others_of(const StragglerTimes *times, int towers, int tower, int activity)
{
    double of_step[STEPS], value[64];
    int steps = 0;
    for (int s = 0; s < STEPS; s++) {
        const StragglerTimes *step = times + s * towers;
        int count = 0;
        for (int u = 0; u < towers; u++)
            if (u != tower && step[u].samples) value[count++] = step[u].seconds[activity] / (double)step[u].samples;
        if (step[tower].samples && count) of_step[steps++] = series_median(value, count) * (double)step[tower].samples;
    }
    return series_median(of_step, steps);
}

/* An even and an odd number of towers, equal times, towers without samples in some steps. */
TEST(test_others_are_those_of_each_tower)
{
    enum { MOST = 8 };
    uint32_t at = 4000000;
    StragglerTimes times[STEPS * MOST];
    for (int towers = 2; towers <= MOST; towers++)
        for (int i = 0; i < STRAGGLER_ACTIVITIES * towers; i++) {
            int slow = i % towers, activity = i / towers;
            for (int k = 0; k < STEPS * towers; k++) {
                times[k].samples = k % towers != slow && uniform(&at) < 0.1 ? 0 : 4;
                for (int a = 0; a < STRAGGLER_ACTIVITIES; a++)
                    times[k].seconds[a] = floor(uniform(&at) * 4) * 1e-3 + (k % towers == slow && a == activity) * 0.05;
            }
            Straggler found = straggler_find(times, STEPS, towers);
            assert_int_equal(found.tower, slow);
            assert_int_equal(found.activity, activity);
            assert_true(found.others == others_of(times, towers, slow, activity));
        }
}

static size_t sorted; /* values so far */

void qsort(void *base, size_t count, size_t bytes, int (*compare)(const void *, const void *))
{
    static void (*real)(void *, size_t, size_t, int (*)(const void *, const void *));
    sorted += count;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "qsort");
    real(base, count, bytes, compare);
}

static size_t values_sorted(int towers)
{
    StragglerTimes *times = calloc((size_t)towers * STEPS, sizeof *times);
    assert_non_null(times);
    for (int i = 0; i < towers * STEPS; i++) times[i] = (StragglerTimes){{1, 1, 1, 1}, 1};
    sorted = 0;
    straggler_find(times, STEPS, towers);
    free(times);
    return sorted;
}

TEST(test_many_towers)
{
    size_t few = values_sorted(64), many = values_sorted(4096);
    if (few == 0 || many > 64 * few) fail_msg("64 towers: %zu values are sorted, 4096: %zu", few, many);
}

/* One window is not enough; a note comes once, again after many steps, and when it is over. */
TEST(test_notes)
{
    StragglerWatch watch;
    Straggler nobody = {.tower = -1}, one = {.tower = 1, .activity = 2}, other = {.tower = 1, .activity = 0};
    straggler_start(&watch);
    assert_int_equal(straggler_window(&watch, &nobody, false, 0), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &one, false, 40), STRAGGLER_SAME);
    assert_int_equal(watch.named.tower, -1);
    assert_int_equal(straggler_window(&watch, &one, false, 80), STRAGGLER_NAMED);
    assert_int_equal(watch.named.tower, 1);
    assert_int_equal(straggler_window(&watch, &one, false, 120), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &other, false, 160), STRAGGLER_SAME);
    assert_int_equal(watch.named.activity, 2);
    assert_int_equal(straggler_window(&watch, &other, false, 200), STRAGGLER_NAMED);
    assert_int_equal(straggler_window(&watch, &other, false, 1199), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &other, false, 1200), STRAGGLER_NAMED);
    assert_int_equal(straggler_window(&watch, &nobody, false, 1240), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &nobody, false, 1280), STRAGGLER_GONE);
    assert_int_equal(straggler_window(&watch, &nobody, false, 1320), STRAGGLER_SAME);
}

/* Many programs on few cores: a tower that is short of a core for four windows is not named, one that is slow for good
 * is, and one that was named is reported as over after two. */
TEST(test_loaded_machine)
{
    const Straggler nobody = {.tower = -1}, one = {.tower = 0, .activity = 2};
    StragglerWatch watch;
    straggler_start(&watch);
    for (int w = 1; w <= 4; w++) assert_int_equal(straggler_window(&watch, &one, true, w * STEPS), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &nobody, true, 5 * STEPS), STRAGGLER_SAME);
    for (int w = 6; w <= 10; w++) assert_int_equal(straggler_window(&watch, &one, true, w * STEPS), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &one, true, 11 * STEPS), STRAGGLER_NAMED);
    assert_int_equal(straggler_window(&watch, &nobody, true, 12 * STEPS), STRAGGLER_SAME);
    assert_int_equal(straggler_window(&watch, &nobody, true, 13 * STEPS), STRAGGLER_GONE);
    assert_false(straggler_machine_loaded(2.2, 2)); /* what training alone makes */
    assert_true(straggler_machine_loaded(2.6, 2));
}
