/* Room for a checkpoint; see disk_check.h. */
#include "towers/guard/disk_check.h"

#include "towers/files/files.h"
#include "towers/graph/program.h"

Status disk_check_bytes(const TrainJob *job, uint64_t *bytes)
{
    Layout *layout;
    bool averaged = job->gate.ema_decay > 0;
    uint64_t weights = 0, trained = 0, running = 0, towers = (uint64_t)job->local_batches.towers;
    TRY(program_layout(&job->program, 1, &layout));
    for (int i = 0; i < layout->param_count; i++) {
        weights += layout->params[i].count;
        if (i < layout->trained_count) trained += layout->params[i].count;
    }
    for (int i = 0; i < layout->running_count; i++) running += layout->running[i].count;
    layout_destroy(layout);
    uint64_t of_optimizer = (uint64_t)optimizer_infos[job->optimizer.kind].states;
    *bytes = sizeof(float) *
             (weights * (averaged ? 2 : 1) + of_optimizer * trained + running * (1 + towers * (averaged ? 2 : 1)));
    return OK;
}

Status disk_check(const TrainJob *job)
{
    uint64_t bytes, spare;
    TRY(disk_check_bytes(job, &bytes));
    TRY(disk_spare(job->run_dir, &spare));
    if (spare >= bytes) return OK;
    return FAIL(ERR_IO,
                "%s: a checkpoint of this run takes %.1f MiB, but its disk has only %.1f MiB free: make room, or use "
                "another --output-dir",
                job->run_dir, (double)bytes / (1 << 20), (double)spare / (1 << 20));
}
