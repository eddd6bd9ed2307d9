/* The learning rate on a plateau, compared with torch.optim.lr_scheduler.ReduceLROnPlateau (tests/golden/plateau.py). */
#include "towers/train/stopping.h"

#include "golden_plateau.h"
#include "tests/support/unit.h"

TEST(a_plateau_is_pytorchs)
{
    for (size_t k = 0; k < sizeof golden_plateau / sizeof *golden_plateau; k++) {
        StoppingRules rules = {.plateau_patience = golden_plateau[k].patience,
                               .plateau_cooldown = golden_plateau[k].cooldown,
                               .plateau_threshold = golden_plateau[k].threshold,
                               .plateau_mode = golden_plateau[k].mode};
        Schedule schedule = {.kind = SCHEDULE_PLATEAU,
                             .lr = GOLDEN_START,
                             .min_lr = golden_plateau[k].min_lr,
                             .decay_rate = golden_plateau[k].factor};
        RunState run;
        double before = schedule.lr;
        run_state_clear(&run);
        for (int i = 0; i < GOLDEN_VALUES; i++) {
            double wanted = golden_plateau[k].rate[i];
            bool falls =
                plateau_step(&rules, &schedule, golden_plateau[k].higher, golden_plateau[k].value[i], &run.stopping);
            schedule.plateau_lr = run.stopping.plateau_lr;
            double lr = schedule_lr(&schedule, 0, 1, 100);
            if (lr != wanted || falls != (lr < before))
                fail_msg("case %zu, value %d: wanted %.17g, found %.17g", k, i, wanted, lr);
            before = lr;
        }
    }
}

/* The warm-up rises to --lr, whatever an evaluation has decided. */
TEST(a_warm_up_comes_first)
{
    Schedule schedule = {.kind = SCHEDULE_PLATEAU, .lr = 0.8, .warmup_epochs = 2, .warmup_lr = 0.2, .plateau_lr = 0.1};
    assert_true(schedule_warmup(&schedule, 3) == 6);
    assert_true(fabs(schedule_lr(&schedule, 3, 3, 100) - 0.5) < 1e-15);
    assert_true(schedule_lr(&schedule, 6, 3, 100) == 0.1);
    schedule.plateau_lr = NAN;
    assert_true(schedule_lr(&schedule, 6, 3, 100) == 0.8);
}

/* A job that says nothing of it decides nothing. */
TEST(nothing_is_decided_by_default)
{
    static TrainJob job;
    assert_true(stopping_is_off(&job));
}
