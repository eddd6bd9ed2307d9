/* The learning rate on a plateau, compared with torch.optim.lr_scheduler.ReduceLROnPlateau (tests/golden/plateau.py). */
#include "towers/train/stopping.h"

#include "golden_plateau.h"
#include "tests/support/unit.h"
#include "towers/data/sources/reader.h"

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

/* ---- the end of a run */

enum { VALUES_MOST = 8, EPOCH_STEPS = 3 };

typedef struct RulesCase {
    const char *name;
    StoppingRules rules;
    ScheduleKind sched;
    double values[VALUES_MOST]; /* of the evaluations, up to a 9 */
    int ends, falls;            /* behind which it ends, and the rate falls first; 0: never */
} RulesCase;

#define NONE .stop_at = -1
static const RulesCase rules_cases[] = {
    {"patience", {.monitor = MONITOR_ACCURACY, .patience = 2, NONE}, 0, {.5, .6, .6, .6, .7, 9}, 4, 0},
    {"a better one begins anew", {.monitor = MONITOR_ACCURACY, .patience = 2, NONE}, 0, {.5, .4, .6, .5, .5, 9}, 5, 0},
    {"patience of a loss", {.monitor = MONITOR_LOSS, .patience = 2, NONE}, 0, {.5, .4, .5, .6, 9}, 4, 0},
    {"as good is not better", {.monitor = MONITOR_LOSS, .patience = 1, NONE}, 0, {.5, .5, 9}, 2, 0},
    {"min-delta exactly",
     {.monitor = MONITOR_ACCURACY, .patience = 1, .min_delta = .125, NONE},
     0,
     {.5, .625, 9},
     2,
     0},
    {"above min-delta", {.monitor = MONITOR_ACCURACY, .patience = 1, .min_delta = .125, NONE}, 0, {.5, .626, 9}, 0, 0},
    {"NaN first", {.monitor = MONITOR_ACCURACY, .patience = 2, NONE}, 0, {NAN, NAN, 9}, 2, 0},
    {"NaN, then a number", {.monitor = MONITOR_LOSS, .patience = 2, NONE}, 0, {NAN, .5, .6, .6, 9}, 4, 0},
    {"NaN in between", {.monitor = MONITOR_LOSS, .patience = 2, NONE}, 0, {.5, NAN, .4, NAN, NAN, 9}, 5, 0},
    {"infinite first", {.monitor = MONITOR_LOSS, .patience = 2, NONE}, 0, {INFINITY, INFINITY, 9}, 2, 0},
    {"accuracy at stop-at", {.monitor = MONITOR_ACCURACY, .stop_at = .75}, 0, {.5, .7499, .75, 9}, 3, 0},
    {"loss at stop-at", {.monitor = MONITOR_LOSS, .stop_at = .25}, 0, {.5, .2501, .25, 9}, 3, 0},
    {"stop-at 0 of a loss", {.monitor = MONITOR_LOSS, .stop_at = 0}, 0, {.5, NAN, .1, 9}, 0, 0},
    {"a KID below 0", {.monitor = MONITOR_KID, .stop_at = 0}, 0, {.5, -.01, 9}, 2, 0},
    {"stop-epoch", {.stop_epoch = 3, NONE}, 0, {.5, .5, .5, .5, 9}, 3, 0},
    {"plateau: two epochs of warm-up do not count",
     {.monitor = MONITOR_ACCURACY, NONE},
     SCHEDULE_PLATEAU,
     {.9, .5, .4, 9},
     0,
     3},
    {"plateau: nor do bad ones", {.monitor = MONITOR_ACCURACY, NONE}, SCHEDULE_PLATEAU, {.9, .5, .6, .5, 9}, 0, 4},
    {"plateau: patience counts in the warm-up",
     {.monitor = MONITOR_ACCURACY, .patience = 2, NONE},
     SCHEDULE_PLATEAU,
     {.9, .5, .6, 9},
     3,
     0},
};

static EpochRecord evaluated(Monitor monitor, double value)
{
    EpochRecord epoch;
    epoch_clear(&epoch);
    if (monitor == MONITOR_ACCURACY) epoch.test_top1 = value;
    if (monitor == MONITOR_LOSS) epoch.test_loss = value;
    if (monitor == MONITOR_KID) epoch.kid = value;
    return epoch;
}

/* On a rank that has no console: the decisions alone. */
TEST(the_epoch_at_which_a_run_ends)
{
    static const Model model = {.name = "none"};
    Source data = {.info = {.name = "none", .count = EPOCH_STEPS}};
    for (size_t k = 0; k < sizeof rules_cases / sizeof *rules_cases; k++) {
        const RulesCase *c = &rules_cases[k];
        static TrainJob job;
        int ends = 0, falls = 0;
        job = (TrainJob){.program.model = &model, .train = &data, .accumulate = 1, .epochs = 100, .max_steps = -1};
        job.local_batches = (LocalBatches){.towers = 1, .batch = (const int32_t[]){1}};
        job.stopping = c->rules;
        job.schedule = (Schedule){.kind = c->sched, .lr = .8, .decay_rate = .5, .warmup_epochs = c->sched ? 2 : 0};
        static TowerProcess p;
        p = (TowerProcess){
            .job = &job, .place = {.rank = 1, .ranks = 2}, .steps_per_epoch = EPOCH_STEPS, .total_steps = 300};
        run_state_clear(&p.run);
        for (int i = 0; c->values[i] != 9; i++) {
            EpochRecord epoch = evaluated(c->rules.monitor, c->values[i]);
            p.run.step += EPOCH_STEPS;
            stopping_take(&p, &epoch);
            bool due = stopping_is_due(&p);
            stopping_decide(&p);
            assert_int_equal(due, p.total_steps == p.run.step);
            if (!falls && !isnan(p.run.stopping.plateau_lr)) falls = i + 1;
            if (!ends && due) ends = i + 1;
            if (due) break;
        }
        if (ends != c->ends || falls != c->falls)
            fail_msg("%s: ends behind %d instead of %d, falls behind %d instead of %d", c->name, ends, c->ends, falls,
                     c->falls);
    }
}

/* A job that says nothing of it decides nothing. */
TEST(nothing_is_decided_by_default)
{
    static TrainJob job;
    assert_true(stopping_is_off(&job));
}
