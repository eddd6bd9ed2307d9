/* The heartbeat and the outcome of a run; see outcome.h. */
#include "towers/train/outcome.h"

#include "kernels/base/clock.h"
#include "kernels/base/errand.h"
#include "kernels/base/place.h"
#include "kernels/base/timeouts.h"
#include "towers/files/files.h"
#include "towers/files/json.h"
#include "towers/store/run_dir.h"
#include "towers/train/console.h"

enum { LINE_BYTES = 2048 };

void now_text(char text[32])
{
    time_t now = time(NULL);
    struct tm utc;
    text[0] = 0;
    if (gmtime_r(&now, &utc)) strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* ---- the heartbeat */

struct Heartbeat {
    Errand errand;
    _Atomic bool moved; /* the run directory has gone from its name; written after `why` */
    char why[MOVED_BYTES];
    char run_dir[PATH_BYTES];
    const Ledger *ledger;
};

static void heartbeat_remove(const Heartbeat *beat)
{
    char path[PATH_BYTES];
    if (path_join(path, beat->run_dir, HEARTBEAT_FILE) == OK) place_unlink(path);
}

bool run_dir_moved(const char *run_dir, char why[MOVED_BYTES])
{
    char now[PATH_BYTES];
    PlaceState state = place_state(now, sizeof now);
    if (state == PLACE_REMOVED)
        snprintf(why, MOVED_BYTES, "the run directory %s was removed while the run trained, and its records with it",
                 run_dir);
    else if (state == PLACE_MOVED)
        snprintf(why, MOVED_BYTES,
                 "the run directory %s was renamed while the run trained: its records are in %s; continue there with "
                 "--resume %s",
                 run_dir, *now ? now : "a place that this system does not name", *now ? now : "RUN");
    return state != PLACE_HERE;
}

static void *heartbeat_run(void *context)
{
    Heartbeat *beat = context;
    const LedgerRun *run = &beat->ledger->run;
    for (int second = 0; second == 0 || !errand_asked(&beat->errand, 1); second++) {
        char now[32];
        if (!atomic_load(&beat->moved) && run_dir_moved(beat->run_dir, beat->why)) atomic_store(&beat->moved, true);
        if (second % HEARTBEAT_SECONDS) continue;
        now_text(now);
        json_t *root = json_pack("{s:s, s:I, s:I, s:i}", "time", now, "step", (json_int_t)atomic_load(&run->step),
                                 "steps", (json_int_t)atomic_load(&run->steps), "pid", (int)getpid());
        (void)!json_replace(beat->run_dir, HEARTBEAT_FILE, root, JSON_COMPACT); /* records report failing storage */
    }
    heartbeat_remove(beat);
    errand_done(&beat->errand);
    return NULL;
}

Heartbeat *heartbeat_start(const TrainJob *job, const Ledger *ledger)
{
    Heartbeat *beat = job->run_dir && job->node == 0 ? calloc(1, sizeof *beat) : NULL;
    if (!beat) return NULL;
    beat->ledger = ledger;
    snprintf(beat->run_dir, sizeof beat->run_dir, "%s", job->run_dir);
    return errand_start(&beat->errand, heartbeat_run, free) ? beat : NULL;
}

const char *heartbeat_moved(const Heartbeat *beat)
{
    return beat && atomic_load(&beat->moved) ? beat->why : NULL;
}

bool heartbeat_end(Heartbeat *beat)
{
    if (!beat) return true;
    errand_ask(&beat->errand);
    bool ended = errand_wait(&beat->errand, HEARTBEAT_LEAVE_MS);
    errand_leave(&beat->errand);
    return ended;
}

/* ---- the outcome */

static const char ENDED[] = "finished", ENDED_EARLY[] = "ended early";

bool outcome_completes(const char *run_dir, int64_t step)
{
    json_t *root = json_of_run(run_dir, "outcome.json");
    const char *word = json_word_or_empty(root, "outcome");
    bool complete = (!strcmp(word, ENDED) || !strcmp(word, ENDED_EARLY)) && json_whole(root, "step") == step;
    json_decref(root);
    return complete;
}

bool outcome_ends(const char *run_dir, int64_t steps)
{
    json_t *root = json_of_run(run_dir, "outcome.json");
    const char *word = json_word_or_empty(root, "outcome");
    bool ends = !strcmp(word, ENDED_EARLY) || (!strcmp(word, ENDED) && json_whole(root, "step") >= steps);
    json_decref(root);
    return ends;
}

void outcome_forget(const char *run_dir)
{
    char path[PATH_BYTES];
    if (path_join(path, run_dir, "outcome.json") == OK) place_unlink(path);
}

/* What is written: a line of log.txt, if there is one, and outcome.json, on rank 0. */
typedef struct Outcome {
    Errand errand;
    char run_dir[PATH_BYTES], line[LINE_BYTES];
    json_t *root; /* NULL: not rank 0 */
} Outcome;

static void *outcome_run(void *context)
{
    Outcome *outcome = context;
    char path[PATH_BYTES];
    bool here = outcome->root || place_access(outcome->run_dir, W_OK) == 0;
    if (here && *outcome->line && path_join(path, outcome->run_dir, "log.txt") == OK)
        (void)!run_file_append(path, outcome->line, strlen(outcome->line));
    if (outcome->root) (void)!json_replace(outcome->run_dir, "outcome.json", outcome->root, JSON_COMPACT);
    errand_done(&outcome->errand);
    return NULL;
}

static const char *outcome_word(Status status, const TrainResult *result)
{
    if (status == OK) return *result->ending ? ENDED_EARLY : ENDED;
    return status == ERR_INTERRUPTED ? "stopped" : "failed";
}

static json_t *outcome_json(const char *word, int exit_code, const char *why, const TrainJob *job,
                            const TrainResult *result)
{
    char now[32];
    const Offers *o = job->offers;
    now_text(now);
    json_t *root = json_pack("{s:s, s:s, s:i, s:o, s:I, s:I, s:i}", "outcome", word, "time", now, "exit_code",
                             exit_code, "message", json_text(why), "step", (json_int_t)result->step, "restarts",
                             (json_int_t)job->restarts, "signal", result->signal);
    if (root && o)
        json_object_set_new(root, job->upload && strcmp(job->upload, "none") != 0 ? "upload" : "after_checkpoint",
                            json_pack("{s:I, s:I, s:I}", "run", (json_int_t)atomic_load(&o->run), "failed",
                                      (json_int_t)atomic_load(&o->failed), "skipped",
                                      (json_int_t)atomic_load(&o->skipped)));
    return root;
}

/* Those who watch the console see the cause first, whatever storage does. */
static bool outcome_await(Outcome *outcome, const TrainJob *job, const char *what)
{
    int limit_ms = job->comm.timeout_ms > OUTCOME_WAIT_MS ? (int)job->comm.timeout_ms : OUTCOME_WAIT_MS;
    bool written = errand_wait(&outcome->errand, OUTCOME_ANSWER_MS);
    if (!written) {
        console_warn(
            &(Console){0},
            "%s; the storage of %s does not answer: waiting up to %d s to record this there; a signal ends the wait",
            what, job->run_dir, limit_ms / 1000);
        written = errand_wait(&outcome->errand, limit_ms);
    }
    errand_leave(&outcome->errand);
    return written;
}

static bool outcome_put(const TrainJob *job, json_t *root, const char *line, const char *what)
{
    Outcome *outcome = calloc(1, sizeof *outcome);
    if (!outcome) {
        json_decref(root);
        return true;
    }
    outcome->root = root;
    snprintf(outcome->run_dir, sizeof outcome->run_dir, "%s", job->run_dir);
    snprintf(outcome->line, sizeof outcome->line, "%s", line);
    if (errand_start(&outcome->errand, outcome_run, free)) return outcome_await(outcome, job, what);
    json_decref(root);
    return true;
}

bool outcome_write(const TrainJob *job, int rank, const char *host, Status status, const char *message,
                   const TrainResult *result)
{
    char now[32], who[128] = "", line[LINE_BYTES];
    const char *word = outcome_word(status, result), *why = status == OK ? result->ending : message;
    Ending ending = train_ending(job, result);
    if (!job->run_dir) return true;
    now_text(now);
    if (host) snprintf(who, sizeof who, "rank %d on %.64s: ", rank, host);
    Text text = text_start(line, sizeof line - 1);
    text_add(&text, "%s %s%s after step %" PRId64 "%s", now, who, word, result->step, *why ? ": " : "");
    for (const char *at = why; *at; at++) text_add(&text, "%c", (unsigned char)*at < ' ' || *at == 127 ? '|' : *at);
    strcat(line, "\n");
    StatusText kept;
    status_keep(&kept);
    json_t *root = rank == 0 ? outcome_json(word, ending_exit_code(status, &ending), why, job, result) : NULL;
    bool written = outcome_put(job, root, line, *why ? why : "the run has ended");
    if (status != OK) (void)!status_restore(status, &kept);
    return written;
}

void outcome_again(const TrainJob *job, const TrainResult *result, Status trained, Status status, int exit_code)
{
    StatusText kept;
    status_keep(&kept);
    const char *why = status == OK ? result->ending : kept.message;
    json_t *root = outcome_json(outcome_word(trained, result), exit_code, why, job, result);
    (void)outcome_put(job, root, "", *why ? why : "the run has ended");
    if (status != OK) (void)!status_restore(status, &kept);
}
