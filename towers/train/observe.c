/* Passing the weights of a run to its observer between two steps. */
#include "towers/train/observe.h"

#include "towers/replica/norm_running.h"

bool observation_is_due(const TowerProcess *p, bool epoch_ended)
{
    const TrainJob *job = p->job;
    int64_t every = job->observe_cycles * job_cycle(job);
    return job->observe && (epoch_ended || (every > 0 && p->run.step % every == 0));
}

Status observation_run(TowerProcess *p, double *kid)
{
    const TrainJob *job = p->job;
    Replica *r = p->replica;
    Observation seen = {.step = p->run.step,
                        .epoch = p->run.step / p->steps_per_epoch,
                        .device = &r->device,
                        .layout = r->layout,
                        .params = r->ema ? r->ema : r->arena[ARENA_PARAM],
                        .running = r->eval_running,
                        .run_dir = job->run_dir,
                        .metrics = p->metrics,
                        .kid = ABSENT};
    TRY(statistics_export(p));
    if (is_root(&p->place)) {
        process_activity(p, p->run.step, ACTIVITY_EVAL);
        TRY(job->observe(job->observe_context, &seen));
    }
    *kid = seen.kid;
    return comm_broadcast(p->comm, kid, sizeof *kid, 0);
}
