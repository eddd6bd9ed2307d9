/* The heartbeat and the outcome of a run; see outcome.h. */
#include "towers/train/outcome.h"

#include "kernels/clock.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

#include <pthread.h>

enum { BEAT_SECONDS = 10, LEAVE_SECONDS = 10 };

void now_text(char text[32])
{
    time_t now = time(NULL);
    struct tm utc;
    text[0] = 0;
    if (gmtime_r(&now, &utc)) strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* ---- the heartbeat */

struct Heartbeat {
    char run_dir[PATH_BYTES];
    const Ledger *ledger;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    bool ending;
};

static void *heartbeat_run(void *context)
{
    Heartbeat *beat = context;
    const LedgerRun *run = &beat->ledger->run;
    pthread_mutex_lock(&beat->lock);
    while (!beat->ending) {
        char now[32];
        struct timespec until;
        now_text(now);
        pthread_mutex_unlock(&beat->lock);
        json_t *root = json_pack("{s:s, s:I, s:I, s:i}", "time", now, "step", (json_int_t)atomic_load(&run->step),
                                 "steps", (json_int_t)atomic_load(&run->steps), "pid", (int)getpid());
        (void)!json_replace(beat->run_dir, "heartbeat.json", root, JSON_COMPACT); /* records report failing storage */
        until = clock_deadline(BEAT_SECONDS);
        pthread_mutex_lock(&beat->lock);
        for (int error = 0; !beat->ending && error == 0;)
            error = pthread_cond_clockwait(&beat->ends, &beat->lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&beat->lock);
    return NULL;
}

Heartbeat *heartbeat_start(const TrainJob *job, const Ledger *ledger)
{
    Heartbeat *beat = job->run_dir && job->group == 0 ? calloc(1, sizeof *beat) : NULL;
    if (!beat) return NULL;
    beat->ledger = ledger;
    snprintf(beat->run_dir, sizeof beat->run_dir, "%s", job->run_dir);
    pthread_mutex_init(&beat->lock, NULL);
    pthread_cond_init(&beat->ends, NULL);
    if (pthread_create(&beat->thread, NULL, heartbeat_run, beat) == 0) return beat;
    free(beat);
    return NULL;
}

bool heartbeat_end(Heartbeat *beat)
{
    char path[PATH_BYTES];
    if (!beat) return true;
    pthread_mutex_lock(&beat->lock);
    beat->ending = true;
    pthread_cond_signal(&beat->ends);
    pthread_mutex_unlock(&beat->lock);
    struct timespec until = clock_deadline(LEAVE_SECONDS);
    if (pthread_clockjoin_np(beat->thread, NULL, CLOCK_MONOTONIC, &until) != 0) return false;
    if (path_join(path, beat->run_dir, "heartbeat.json") == OK) unlink(path);
    free(beat);
    return true;
}

/* ---- the outcome */

void outcome_forget(const char *run_dir)
{
    char path[PATH_BYTES];
    if (path_join(path, run_dir, "outcome.json") == OK) unlink(path);
}

void outcome_write(const TrainJob *job, int rank, const char *host, Status status, const char *message,
                   const TrainResult *result)
{
    char now[32], who[128] = "", line[2048], path[PATH_BYTES];
    bool ended = status == OK, stopped = status == ERR_INTERRUPTED;
    const char *word = !ended ? (stopped ? "stopped" : "failed") : *result->ending ? "ended early" : "finished";
    const char *why = ended ? result->ending : message;
    if (!job->run_dir || (rank > 0 && access(job->run_dir, W_OK) != 0)) return;
    now_text(now);
    if (host) snprintf(who, sizeof who, "rank %d on %.64s: ", rank, host);
    Text text = text_start(line, sizeof line - 1);
    text_add(&text, "%s %s%s after step %" PRId64 "%s", now, who, word, result->step, *why ? ": " : "");
    for (const char *at = why; *at; at++) text_add(&text, "%c", (unsigned char)*at < ' ' || *at == 127 ? '|' : *at);
    strcat(line, "\n");
    StatusText kept;
    status_keep(&kept);
    if (path_join(path, job->run_dir, "log.txt") == OK) (void)!run_file_append(path, line, strlen(line));
    if (rank == 0)
        (void)!json_replace(job->run_dir, "outcome.json",
                            json_pack("{s:s, s:s, s:i, s:o, s:I, s:I, s:i}", "outcome", word, "time", now, "exit_code",
                                      ended ? 0 : status_exit_code(status), "message", json_text(why), "step",
                                      (json_int_t)result->step, "restarts", (json_int_t)job->restarts, "signal",
                                      result->signal),
                            JSON_COMPACT);
    if (status != OK) (void)!status_restore(status, &kept);
}
