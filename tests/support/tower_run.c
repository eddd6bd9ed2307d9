/* See tower_run.h. */
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/process.h"

static void nothing(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    (void)context, (void)ledger, (void)step, (void)seconds, (void)loss;
}

void tower_run_open(TowerRun *run, const Backend *backend, const Model *model, int towers)
{
    *run = (TowerRun){0};
    assert_int_equal(source_synthetic(64, 10, 28, 28, 1, 1, &run->data), OK);
    run->job = (TrainJob){
        .program = {.model = model,
                    .options = {.classes = 10, .side = 28, .channels = 1, .variant = ""},
                    .data_channels = 1,
                    .canvas = 28},
        .train = run->data,
        .backend = backend,
        .shares = {.towers = towers},
        .processes = 1,
        .device = {DEVICE_USUAL, .threads = 1},
        .optimizer = {.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f},
        .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 0.001},
        .epochs = 3,
        .max_steps = -1,
        .accumulate = 1,
        .gate.bn_decay = 0.9,
        .gate.check = NAN_CHECK_ALL,
        .gate.skips_max = 10,
        .comm.timeout_ms = 30000,
        .on_step = nothing,
    };
    for (int t = 0; t < towers; t++) run->job.shares.batch[t] = 16 / towers;
}

void tower_run_live(TowerRun *run)
{
    Program program;
    Layout *layout;
    Ledger *ledger;
    CommShared *shared;
    int towers = run->job.shares.towers;
    ProgramConfig config = run->job.program;
    config.training = true;
    assert_int_equal(program_graph(&config, 1, &program), OK);
    assert_int_equal(layout_create(program.graph, &layout), OK);
    assert_int_equal(ledger_create(towers, 1, &ledger), OK);
    assert_int_equal(comm_shared_create(towers, 1, job_comm_room(&run->job, layout), &shared), OK);
    run->status = tower_process_timed(&run->job, 0, ledger, shared);
    ledger_destroy(ledger);
    comm_shared_destroy(shared);
    layout_destroy(layout);
    program_destroy(&program);
}

void tower_run_close(TowerRun *run)
{
    source_close(run->data);
}
