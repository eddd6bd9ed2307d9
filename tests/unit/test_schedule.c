/* Learning rates, compared with values computed by hand. */
#include "golden_onecycle.h"
#include "tests/support/unit.h"
#include "towers/replica/schedule.h"

static void expect_lr(const Schedule *s, int64_t step, int64_t per_epoch, int64_t total, double wanted)
{
    double found = schedule_lr(s, step, per_epoch, total);
    if (!(fabs(found - wanted) <= 1e-12)) fail_msg("step %ld: wanted %.15g, found %.15g", (long)step, wanted, found);
}

TEST(test_constant)
{
    Schedule s = {.kind = SCHEDULE_CONSTANT, .lr = 0.25};
    expect_lr(&s, 0, 10, 100, 0.25);
    expect_lr(&s, 1000, 10, 100, 0.25);
}

/* Inception's own: 0.045 falling by 0.94 every two epochs; then int(10 * 0.25) = 2 steps a stair. */
TEST(test_staircase)
{
    Schedule s = {.kind = SCHEDULE_EXPONENTIAL, .lr = 0.045, .decay_rate = 0.94, .decay_epochs = 2};
    expect_lr(&s, 19, 10, 100, 0.045);
    expect_lr(&s, 20, 10, 100, 0.045 * 0.94);
    expect_lr(&s, 65, 10, 100, 0.045 * 0.94 * 0.94 * 0.94);
    s = (Schedule){.kind = SCHEDULE_STEP, .lr = 1, .decay_rate = 0.5, .decay_epochs = 0.25, .min_lr = 0.2};
    expect_lr(&s, 1, 10, 100, 1);
    expect_lr(&s, 2, 10, 100, 0.5);
    expect_lr(&s, 5, 10, 100, 0.25);
    expect_lr(&s, 6, 10, 100, 0.2); /* not below min_lr */
    s.decay_epochs = 0.01;          /* less than a step: a stair is one step */
    expect_lr(&s, 1, 10, 100, 0.5);
    s.decay_epochs = 0; /* never */
    expect_lr(&s, 99, 10, 100, 1);
}

TEST(test_cosine)
{
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 1, .min_lr = 0.2};
    expect_lr(&s, 0, 10, 90, 1);
    expect_lr(&s, 30, 10, 90, 0.2 + 0.8 * 0.75); /* cos(60 degrees) = 1/2 */
    expect_lr(&s, 45, 10, 90, 0.6);
    expect_lr(&s, 90, 10, 90, 0.2);
    expect_lr(&s, 500, 10, 90, 0.2);
}

TEST(test_polynomial)
{
    Schedule s = {.kind = SCHEDULE_POLYNOMIAL, .lr = 1, .min_lr = 0.1, .power = 2};
    expect_lr(&s, 0, 10, 100, 1);
    expect_lr(&s, 50, 10, 100, 0.1 + 0.9 * 0.25);
    expect_lr(&s, 100, 10, 100, 0.1);
}

TEST(test_warmup)
{
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 1, .warmup_epochs = 2, .warmup_lr = 0.1};
    expect_lr(&s, 0, 5, 30, 0.1);
    expect_lr(&s, 5, 5, 30, 0.55);
    expect_lr(&s, 10, 5, 30, 1); /* no jump: the cosine begins here */
    expect_lr(&s, 20, 5, 30, 0.5);
    s = (Schedule){.kind = SCHEDULE_STEP, .lr = 1, .decay_rate = 0.1, .decay_epochs = 3, .warmup_epochs = 1};
    expect_lr(&s, 0, 5, 30, 0.2); /* from 0: no step has a rate of 0 */
    expect_lr(&s, 3, 5, 30, 0.8);
    expect_lr(&s, 5, 5, 30, 1);
    expect_lr(&s, 15, 5, 30, 0.1); /* stairs count from step 0 */
    s.warmup_epochs = 3;
    expect_lr(&s, 15, 5, 30, 0.1); /* the first step behind the warm-up has the schedule's rate */
    s = (Schedule){.kind = SCHEDULE_COSINE, .lr = 1, .warmup_epochs = 9};
    expect_lr(&s, 40, 5, 30, 41.0 / 45); /* longer than the training */
    expect_lr(&s, 45, 5, 30, 0);
}

TEST(test_rise_fall)
{
    Schedule s = {.kind = SCHEDULE_RISE_FALL, .lr = 1, .min_lr = 0.2, .warmup_epochs = 5};
    expect_lr(&s, 0, 10, 100, 0.2);
    expect_lr(&s, 15, 10, 100, 0.6);
    expect_lr(&s, 30, 10, 100, 1);
    expect_lr(&s, 65, 10, 100, 0.6);
    expect_lr(&s, 100, 10, 100, 0.2);
    s.min_lr = 0;
    expect_lr(&s, 0, 10, 100, 1 / 30.0);
    expect_lr(&s, 29, 10, 100, 1);
    expect_lr(&s, 30, 10, 100, 1);
}

/* Of runs of other lengths, whose phases end within a step, on one, or before the first. */
TEST(test_one_cycle_is_pytorchs)
{
    for (size_t k = 0; k < sizeof golden_onecycle / sizeof *golden_onecycle; k++) {
        Schedule s = {.kind = SCHEDULE_ONE_CYCLE, .lr = golden_onecycle[k].lr, .min_lr = 9, .warmup_epochs = 3};
        int total = golden_onecycle[k].total;
        for (int step = 0; step < total; step++) expect_lr(&s, step, 10, total, golden_onecycle[k].rate[step]);
        expect_lr(&s, total, 10, total, s.lr / 25 / 1e4);
    }
}

typedef struct KindCase {
    const char *name;
    Schedule schedule;
    int top; /* the step of the highest rate if it rises by itself, without a warm-up */
} KindCase;

/* Behind a warm-up the rate is lr and rises no more; without one it is lr from the first step. A schedule of each kind. */
TEST(test_every_kind_behind_a_warmup)
{
    enum { EPOCH = 7, TOTAL = 70 };
    static const KindCase cases[] = {
        {"constant", {.kind = SCHEDULE_CONSTANT}, 0},
        {"exponential", {.kind = SCHEDULE_EXPONENTIAL, .decay_rate = 0.9, .decay_epochs = 4}, 0},
        {"step", {.kind = SCHEDULE_STEP, .decay_rate = 0.5, .decay_epochs = 4}, 0},
        {"piecewise", {.kind = SCHEDULE_PIECEWISE, .pieces = 2, .piece_lr = {1, 0.2}, .piece_epoch = {0, 5}}, 0},
        {"cosine", {.kind = SCHEDULE_COSINE, .min_lr = 0.01}, 0},
        {"polynomial", {.kind = SCHEDULE_POLYNOMIAL, .power = 2}, 0},
        {"plateau", {.kind = SCHEDULE_PLATEAU, .plateau_lr = NAN}, 0},
        {"rise-fall", {.kind = SCHEDULE_RISE_FALL}, 20},
        {"one-cycle", {.kind = SCHEDULE_ONE_CYCLE}, 20},
    };
    assert_int_equal(sizeof cases / sizeof *cases, SCHEDULE_ONE_CYCLE + 1); /* the last kind */
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int warm = 0; warm < 2; warm++) {
            Schedule s = cases[k].schedule;
            s.lr = 1;
            s.warmup_lr = 0.1;
            s.warmup_epochs = warm ? 2.5 : 0;
            int64_t first = (int64_t)schedule_warmup(&s, EPOCH), top = 0;
            assert_int_equal(first, warm && !cases[k].top ? 17 : 0);
            double before = 0;
            for (int64_t step = 0; step < TOTAL; step++) {
                double lr = schedule_lr(&s, step, EPOCH, TOTAL);
                bool up = step < first || step <= cases[k].top;
                if (!(lr <= 1) || !(lr >= 0) || (up ? lr < before : lr > before && step > first))
                    fail_msg("%s, %s warm-up, step %d: %g behind %g", cases[k].name, warm ? "a" : "no", (int)step, lr,
                             before);
                if (lr == 1 && !top) top = step + 1;
                before = lr;
            }
            if (top - 1 != (cases[k].top ? cases[k].top : first))
                fail_msg("%s, %s warm-up: lr is reached in step %d", cases[k].name, warm ? "a" : "no", (int)top - 1);
        }
}

TEST(test_pieces)
{
    Schedule s = {.min_lr = 0.5, .warmup_epochs = 1};
    assert_int_equal(schedule_parse_pieces("0.1;2.5;1e-2;4;0", &s), OK);
    assert_int_equal(s.kind, SCHEDULE_PIECEWISE);
    assert_int_equal(s.pieces, 3);
    assert_true(s.lr == 0.1);
    expect_lr(&s, 4, 10, 100, 0.05); /* warm-up to the first rate */
    expect_lr(&s, 24, 10, 100, 0.1);
    expect_lr(&s, 25, 10, 100, 0.01);
    expect_lr(&s, 39, 10, 100, 0.01);
    expect_lr(&s, 40, 10, 100, 0);
    expect_lr(&s, 4000, 10, 100, 0);
    assert_int_equal(schedule_parse_pieces("7", &s), OK);
    assert_int_equal(s.pieces, 1);
    expect_lr(&s, 99, 10, 100, 7);
}

TEST(test_pieces_refused)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "character 1: expected a number"},
        {"x", "character 1: expected a number"},
        {"0.1;", "character 5: expected a number"},
        {"0.1;2", "character 6: expected ';'"},
        {"0.1;2;", "character 7: expected a number"},
        {"0.1;0;0.2", "character 5: expected an epoch after 0, found 0"},
        {"0.1;3;0.2;3;0.1", "character 11: expected an epoch after 3, found 3"},
        {"-1", "expected a number >= 0"},
        {"nan", "expected a number"},
        {"1e999", "expected a number"},
        {"0x10", "character 1: expected a number"},
        {" 1", "expected a number"},
        {"1e", "expected a number"},
        {"0.1,5", "character 4: expected ';'"},
        {"1;1;1;2;1;3;1;4;1;5;1;6;1;7;1;8;1;9;1;10;1;11;1;12;1;13;1;14;1;15;1;16;1", "more than 16 pieces"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Schedule s = {.lr = 3}, before = s;
        assert_int_equal(schedule_parse_pieces(cases[i].text, &s), ERR_ARG);
        if (!strstr(status_message(), cases[i].message))
            fail_msg("'%s': wanted '%s' in '%s'", cases[i].text, cases[i].message, status_message());
        assert_memory_equal(&s, &before, sizeof s);
    }
}
