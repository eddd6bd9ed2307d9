/* The learning rate on a plateau, compared with torch.optim.lr_scheduler.ReduceLROnPlateau of PyTorch 1.13 (its rule
 * has not changed since): 16 values each, and the rate after each of them. */
#include "towers/train/stopping.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { VALUES = 16 };

static const struct {
    bool higher;
    ThresholdMode mode;
    double factor;
    int patience;
    double threshold;
    int cooldown;
    double min_lr, value[VALUES], lr[VALUES];
} cases[] = {
    {false,
     THRESHOLD_REL,
     0.5,
     1,
     0.1,
     0,
     0,
     {0.459, 0.305, 0.65, 0.221, 0.512, NAN, 0.181, 0.423, 0.153, INFINITY, 0.153, 0.155, 0.292, 0.442, 0.146, 0.175},
     {0.80000000000000004, 0.80000000000000004, 0.80000000000000004, 0.80000000000000004, 0.80000000000000004,
      0.40000000000000002, 0.40000000000000002, 0.40000000000000002, 0.40000000000000002, 0.40000000000000002,
      0.20000000000000001, 0.20000000000000001, 0.10000000000000001, 0.10000000000000001, 0.050000000000000003,
      0.050000000000000003}},
    {false,
     THRESHOLD_ABS,
     0.3,
     0,
     0.05,
     2,
     0.01,
     {0.702, 0.91, 0.597, 0.444, 0.799, NAN, 0.652, 0.301, 0.209, INFINITY, 0.268, 0.485, 0.186, 0.342, 0.347, 0.231},
     {0.80000000000000004, 0.23999999999999999, 0.23999999999999999, 0.23999999999999999, 0.071999999999999995,
      0.071999999999999995, 0.071999999999999995, 0.071999999999999995, 0.071999999999999995, 0.021599999999999998,
      0.021599999999999998, 0.021599999999999998, 0.01, 0.01, 0.01, 0.01}},
    {true,
     THRESHOLD_REL,
     0.1,
     2,
     0.0001,
     1,
     0,
     {0.638, 0.25, 0.248, 0.365, 0.744, 0.542, 0.451, 0.668, 0.563, 0.44, 0.836, 0.759, 0.395, 0.66, 0.62, 0.9},
     {0.80000000000000004, 0.80000000000000004, 0.80000000000000004, 0.080000000000000016, 0.080000000000000016,
      0.080000000000000016, 0.080000000000000016, 0.0080000000000000019, 0.0080000000000000019, 0.0080000000000000019,
      0.0080000000000000019, 0.0080000000000000019, 0.0080000000000000019, 0.00080000000000000026,
      0.00080000000000000026, 0.00080000000000000026}},
    {true,
     THRESHOLD_ABS,
     0.5,
     1,
     0.02,
     0,
     0.05,
     {0.784, 0.43, 0.984, 0.294, 0.534, 0.806, 0.322, 0.591, 0.231, 0.735, 0.812, 0.658, 0.9, 0.451, 0.756, 0.675},
     {0.80000000000000004, 0.80000000000000004, 0.80000000000000004, 0.80000000000000004, 0.40000000000000002,
      0.40000000000000002, 0.20000000000000001, 0.20000000000000001, 0.10000000000000001, 0.10000000000000001,
      0.050000000000000003, 0.050000000000000003, 0.050000000000000003, 0.050000000000000003, 0.050000000000000003,
      0.050000000000000003}},
};

static void a_plateau_is_pytorchs(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        StoppingRules rules = {.plateau_patience = cases[k].patience,
                               .plateau_cooldown = cases[k].cooldown,
                               .plateau_threshold = cases[k].threshold,
                               .plateau_mode = cases[k].mode};
        Schedule schedule = {
            .kind = SCHEDULE_PLATEAU, .lr = 0.8, .min_lr = cases[k].min_lr, .decay_rate = cases[k].factor};
        RunState run;
        double before = schedule.lr;
        run_state_clear(&run);
        for (int i = 0; i < VALUES; i++) {
            bool falls = plateau_step(&rules, &schedule, cases[k].higher, cases[k].value[i], &run.stopping);
            schedule.plateau_lr = run.stopping.plateau_lr;
            double lr = schedule_lr(&schedule, 0, 1, 100);
            if (fabs(lr - cases[k].lr[i]) > 1e-15 || falls != (lr < before))
                fail_msg("case %zu, value %d: wanted %.17g, found %.17g", k, i, cases[k].lr[i], lr);
            before = lr;
        }
    }
}

/* The warm-up rises to --lr, whatever an evaluation has decided. */
static void a_warm_up_comes_first(void **state)
{
    (void)state;
    Schedule schedule = {.kind = SCHEDULE_PLATEAU, .lr = 0.8, .warmup_epochs = 2, .warmup_lr = 0.2, .plateau_lr = 0.1};
    assert_true(schedule_warmup(&schedule, 3) == 6);
    assert_true(fabs(schedule_lr(&schedule, 3, 3, 100) - 0.5) < 1e-15);
    assert_true(schedule_lr(&schedule, 6, 3, 100) == 0.1);
    schedule.plateau_lr = NAN;
    assert_true(schedule_lr(&schedule, 6, 3, 100) == 0.8);
}

/* A job that says nothing of it decides nothing. */
static void nothing_is_decided_by_default(void **state)
{
    (void)state;
    static TrainJob job;
    assert_true(stopping_is_off(&job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plateau_is_pytorchs),
        cmocka_unit_test(a_warm_up_comes_first),
        cmocka_unit_test(nothing_is_decided_by_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
