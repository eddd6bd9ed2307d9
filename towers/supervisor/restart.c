/* Decide on, record and prepare a restart; see restart.h.
 *
 * A crash is the death of a tower process (a signal, an unexpected exit, silence beyond --comm-timeout), an error of its
 * device, or of storage. NaN, replicas that differ, errors of usage, data and memory, and stop signals are none: they
 * would return, or were wanted. The wait doubles from 1 s to 60 s as long as restarts reach no new step.
 *
 * The supervisor uses no device, so a device is tried in a process of its own. If one is gone, its towers move to the
 * others: a process holds one replica and any number of towers. With ordered sums, and GPUs of one kind, this
 * changes no bit. */
#include "towers/supervisor/restart.h"

#include "kernels/base/pause.h"
#include "nccl_sync/hosts/control.h"
#include "towers/files/append.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/store/checkpoint.h"
#include "towers/store/run_dir.h"
#include "towers/supervisor/stop_signals.h"
#include "towers/train/console.h"
#include "towers/train/outcome.h"

#include <sys/prctl.h>
#include <sys/wait.h>

static bool is_crash(Status st, bool begun)
{
    return st == ERR_COMM || (begun && (st == ERR_DEVICE || st == ERR_IO));
}

/* ---- devices */

/* A process that opens the device; negative: there is none, and the towers will notice. */
static pid_t device_try(const TrainJob *job, int ordinal)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) return pid;
    Device device = {0};
    DeviceConfig config = job->device;
    config.ordinal = ordinal;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(job->backend->open(&config, &device) == OK ? 0 : 1);
}

/* Which devices open. All are tried at once: each takes seconds, and one that is lost may hang until the deadline. */
static void devices_try(const TrainJob *job, const int *ordinals, int count, bool *works)
{
    pid_t pids[GPUS_MAX];
    int open = 0;
    for (int i = 0; i < count; i++) {
        pids[i] = device_try(job, ordinals[i]);
        works[i] = pids[i] < 0;
        open += pids[i] > 0;
    }
    /* A process that is blocked in the kernel outlives its kill and cannot be waited for. */
    for (int ms = 0; open > 0 && ms <= DEVICE_TRY_MS + DEVICE_TRY_LOOK_MS; ms += DEVICE_TRY_LOOK_MS) {
        for (int i = 0; i < count; i++) {
            if (pids[i] <= 0) continue;
            if (ms == DEVICE_TRY_MS) kill(pids[i], SIGKILL);
            int ending = 0;
            pid_t gone = waitpid(pids[i], &ending, WNOHANG);
            if (gone == 0) continue;
            works[i] = gone < 0 || (WIFEXITED(ending) && WEXITSTATUS(ending) == 0);
            pids[i] = 0;
            open--;
        }
        if (open > 0) pause_ms(DEVICE_TRY_LOOK_MS);
    }
}

/* Assign the towers to the GPUs that work: those of --gpus, else all that are visible. */
static Status devices_choose(TrainJob *job)
{
    int count = job->gpu_count, works = 0, gpu[GPUS_MAX];
    bool each_works[GPUS_MAX];
    if (job->backend->on_host) return OK;
    if (!count) TRY(backend_device_count(job->backend, &count));
    if (count > GPUS_MAX) count = GPUS_MAX;
    for (int i = 0; i < count; i++) gpu[i] = job->gpu_count ? job->gpu[i] : i;
    devices_try(job, gpu, count, each_works);
    for (int i = 0; i < count; i++)
        if (each_works[i]) gpu[works++] = gpu[i];
    if (works == 0) return FAIL(ERR_DEVICE, "no GPU works any more");
    if (works < job->processes && job->bn_stats == BN_STATS_SYNC && job->local_batches.towers > 1)
        return FAIL(ERR_DEVICE, "%d GPUs are left, and --bn-stats sync needs one for each of %d towers", works,
                    job->local_batches.towers);
    memcpy(job->gpu, gpu, sizeof gpu);
    job->gpu_count = works;
    if (works < job->processes) job->processes = works;
    return OK;
}

/* ---- the record */

static Status restart_record(const TrainJob *job, int64_t step, const char *cause)
{
    char path[PATH_BYTES], when[32];
    AppendFile *file;
    now_text(when);
    json_t *row = json_pack("{s:I, s:I, s:s, s:i, s:o}", "step", (json_int_t)step, "restart", (json_int_t)job->restarts,
                            "time", when, "processes", job->processes, "cause", json_text(cause));
    char *line = row ? json_dumps(row, JSON_COMPACT) : NULL;
    json_decref(row);
    if (!line) return FAIL(ERR_MEMORY, "no memory for the record of a restart");
    Status st = path_join(path, job->run_dir, RESTARTS_FILE);
    if (st == OK) st = append_open(path, false, &file);
    if (st == OK) {
        size_t bytes = strlen(line);
        line[bytes] = '\n'; /* in place of the zero */
        st = append_record(file, line, bytes + 1);
        if (st == OK) st = append_flush(file);
        append_close(file);
    }
    free(line);
    return st;
}

/* ---- the restart */

/* Choose devices and wait; `stops` are blocked. OK: start again. Else the end of the run: `crash`, or ERR_INTERRUPTED
 * after a stop signal, which *number receives. */
static Status restart_wait(const Restarts *restarts, TrainJob *job, Status crash, const char *cause,
                           const sigset_t *stops, int *number)
{
    char name[SIGNAL_TEXT_BYTES];
    int processes = job->processes, seconds = restarts->fruitless > 5 ? RESTART_LONGEST_S : 1 << restarts->fruitless;
    if (job->restarts == job->max_restarts)
        return FAIL(crash, "%s (after %" PRId64 " restarts: --max-restarts)", cause, job->restarts);
    if (devices_choose(job) != OK) return FAIL(crash, "%s; not started again: %s", cause, status_message());
    if (job->processes < processes)
        console_warn(&(Console){0}, "%d of %d GPUs are left; the %d towers share them", job->processes, processes,
                     job->local_batches.towers);
    console_warn(&(Console){0}, "%s; restart %" PRId64 " of %" PRId64 " in %d s", cause, job->restarts + 1,
                 job->max_restarts, seconds);
    *number = sigtimedwait(stops, NULL, &(struct timespec){seconds, 0});
    if (*number <= 0) return OK;
    return FAIL(ERR_INTERRUPTED, "stopped by %s while waiting to start again after a crash: %s",
                signal_text(*number, name), cause);
}

static bool has_checkpoint(const TrainJob *job)
{
    RunSaved saved;
    return run_saved(job->run_dir, &saved) == OK && saved.checkpoints > 0;
}

static void resume_here(TrainJob *job)
{
    job->resume = true;
    job->resume_path = NULL; /* a branch now has checkpoints of its own */
    job->initial_weights = NULL;
}

bool restart_due(Restarts *restarts, TrainJob *job, TrainResult *result, Status *st)
{
    StatusText cause;
    sigset_t stops, before;
    int number = 0;
    restarts->begun |= result->begun;
    if (result->begun && result->step > restarts->furthest) {
        restarts->furthest = result->step;
        restarts->fruitless = 0;
    }
    if (!job->max_restarts || !is_crash(*st, restarts->begun) || result->signal || result->abandoned || result->moved ||
        result->unanswered)
        return false;
    status_keep(&cause);
    bool resumable = has_checkpoint(job);
    stop_signals(job, &stops);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    Status waited = restart_wait(restarts, job, *st, cause.message, &stops, &number);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number > 0) {
        result->signal = number;
        result->saved = resumable;
    }
    if (waited != OK) {
        *st = waited;
        return false;
    }
    restarts->fruitless++;
    job->restarts++;
    if (restart_record(job, result->begun ? result->step : restarts->furthest, cause.message) != OK ||
        run_dir_sweep(job->run_dir) != OK)
        console_warn(&(Console){0}, "%s", status_message());
    if (resumable) resume_here(job);
    return true;
}

bool stage_due(TrainJob *job, TrainResult *result, Status *st)
{
    int64_t step = result->stage - 1;
    if (*st != OK || step < 0) return false;
    bool resumable = result->begun || job->resume; /* in all nodes alike: others may see no checkpoint */
    if (result->signal) {
        char name[SIGNAL_TEXT_BYTES];
        result->saved = resumable;
        *st = FAIL(ERR_INTERRUPTED, "stopped by %s before epoch %" PRId64 "; --resume auto continues",
                   signal_text(result->signal, name), step / job_steps_per_epoch(job) + 1);
        return false;
    }
    if (result->begun) resume_here(job);
    if (job->control) control_again(job->control);
    job_stage(job, step);
    return true;
}
