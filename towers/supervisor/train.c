/* Running a job; see train.h. */
#include "towers/supervisor/train.h"
#include "nccl_sync/hosts/control.h"
#include "towers/supervisor/restart.h"
#include "towers/supervisor/supervisor.h"
#include "towers/train/outcome.h"
#include "towers/train/process.h"

/* A directory that has gone may be noticed by a tower that cannot write there before the heartbeat looks again. */
static void directory_look(const TrainJob *job, TrainResult *result, Status *st)
{
    char why[MOVED_BYTES];
    if (result->moved || (*st != OK && *st != ERR_IO) || !job->run_dir || !run_dir_moved(job->run_dir, why)) return;
    result->moved = true;
    *st = FAIL(ERR_IO, "%s", why);
}

Status train_run(const TrainJob *job, TrainResult *result)
{
    TrainJob now = *job;
    if (now.control) now.max_restarts = 0; /* only the launcher can start all nodes again */
    Restarts restarts = {0};
    Status st;
    job_stage(&now, 0);
    do {
        st = supervise(&now, tower_process_train, result, NULL);
        directory_look(&now, result, &st);
    } while (stage_due(&now, result, &st) || restart_due(&restarts, &now, result, &st));
    carrier_end(now.comm.carrier); /* now, as those of the other nodes do */
    result->restarts = now.restarts;
    int rank = now.control ? control_rank(now.control) : 0;
    if ((result->begun || st == OK) && !result->complete && /* OK without a step: --epochs 0 */
        !outcome_write(&now, rank, now.control ? now.host : NULL, st, st == OK ? "" : status_message(), result))
        result->abandoned = true;
    return st;
}

Status train_timed(const TrainJob *job, int *signal_number)
{
    TrainResult result = {0};
    Status st = supervise(job, tower_process_timed, &result, NULL);
    *signal_number = result.signal;
    return st;
}

Status eval_run(const TrainJob *job, const char *weights, EvalResult *result, EvalSample *samples, float *scores,
                int *signal_number)
{
    TrainJob copy = *job;
    TrainResult ended = {0};
    Ledger *ledger = NULL;
    copy.initial_weights = weights;
    copy.bn_stats = BN_STATS_FIRST; /* all towers have the file's statistics */
    copy.quiet = true;
    Status st = supervise(&copy, tower_process_eval, &ended, &ledger);
    if (st == OK) *result = ledger->eval;
    if (st == OK) memcpy(samples, ledger->sample, (size_t)ledger->samples * sizeof *samples);
    if (st == OK && scores)
        memcpy(scores, ledger->score, (size_t)ledger->samples * (size_t)ledger->classes * sizeof *scores);
    *signal_number = ended.signal;
    ledger_destroy(ledger);
    return st;
}
