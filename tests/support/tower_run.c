/* See tower_run.h. */
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/process.h"

static void nothing(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
}

TrainJob job_plain(const Backend *backend, const Model *model, const Source *data, int32_t side, int towers,
                   int32_t batch)
{
    const SourceInfo *info = source_info(data);
    TrainJob job = {
        .program = {.model = model,
                    .options = {.classes = info->classes, .side = side, .channels = info->c, .variant = ""},
                    .data_channels = info->c,
                    .canvas = side},
        .train = data,
        .backend = backend,
        .local_batches = batches_equal(towers, batch),
        .processes = 1,
        .device = {DEVICE_USUAL, .threads = 1},
        .optimizer = {.kind = OPTIMIZER_SGD},
        .schedule = {.kind = SCHEDULE_CONSTANT},
        .accumulate = 1,
        .epochs = 1,
        .max_steps = -1,
        .gate.check = NAN_CHECK_ALL,
        .comm.timeout_ms = 30000,
        .args_yaml = "# of a test\nquiet: true\n",
        .env_json = "{}",
        .checkpoint.keep = 1,
    };
    return job;
}

JobMemory job_memory(const TrainJob *job)
{
    Layout *layout;
    JobMemory memory;
    assert_int_equal(program_layout(&job->program, 1, &layout), OK);
    assert_int_equal(ledger_create(job->local_batches.towers, job->processes, &memory.ledger), OK);
    assert_int_equal(
        comm_shared_create(job->local_batches.towers, job->processes, job_comm_room(job, layout), &memory.shared), OK);
    layout_destroy(layout);
    return memory;
}

void job_memory_free(JobMemory *memory)
{
    ledger_destroy(memory->ledger);
    comm_shared_destroy(memory->shared);
}

void tower_run_open(TowerRun *run, const Backend *backend, const Model *model, int towers)
{
    *run = (TowerRun){0};
    assert_int_equal(source_synthetic(64, 10, 28, 28, 1, 1, &run->data), OK);
    run->job = job_plain(backend, model, run->data, 28, towers, 16 / towers);
    run->job.optimizer = (OptimizerHyper){.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f};
    run->job.schedule.lr = 0.001;
    run->job.epochs = 3;
    run->job.on_step = nothing;
    run->job.gate.bn_decay = 0.9;
    run->job.gate.skips_max = 10;
}

void tower_run_live(TowerRun *run)
{
    JobMemory memory = job_memory(&run->job);
    run->status = tower_process_timed(&run->job, 0, memory.ledger, memory.shared);
    job_memory_free(&memory);
}

void tower_run_close(TowerRun *run)
{
    source_close(run->data);
}
