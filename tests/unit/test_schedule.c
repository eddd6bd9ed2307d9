/* Learning rates, compared with values computed by hand. */
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

TEST(test_one_cycle)
{
    Schedule s = {.kind = SCHEDULE_ONE_CYCLE, .lr = 1, .min_lr = 0.2, .warmup_epochs = 5};
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
