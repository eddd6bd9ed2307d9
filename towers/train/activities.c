/* The time of each tower's activities in a step, copied from the ledger to the records, and the detection of a slow
 * tower. Called by rank 0 after the towers have agreed on the step, when every tower's row is complete up to the
 * all-reduce, and those of other programs have been gathered. */
#include "towers/train/activities.h"
#include "nccl_sync/hosts/control.h"
#include "towers/train/step.h"

static const Activity work_activities[STRAGGLER_ACTIVITIES] = {ACTIVITY_DATA, ACTIVITY_COPY, ACTIVITY_FORWARD,
                                                               ACTIVITY_BACKWARD};

/* The first steps warm up caches and pages, and wait for the first batches. */
enum { WARM_STEPS = 10 };

static void window_read(const TowerProcess *p, int64_t last, StragglerTimes *times)
{
    int towers = p->ledger->towers;
    for (int s = 0; s < STRAGGLER_WINDOW; s++) {
        for (int t = 0; t < towers; t++) {
            const LedgerRow *row = ledger_row(p->ledger, t, last - STRAGGLER_WINDOW + 1 + s);
            StragglerTimes *to = &times[s * towers + t];
            to->samples = row->loss.count;
            for (int k = 0; k < STRAGGLER_ACTIVITIES; k++)
                to->seconds[k] = (double)row->activity_ns[work_activities[k]] * 1e-9;
        }
    }
}

/* "tower 5", or "tower 5 on HOST" in a run of several programs. */
static void tower_text(const TowerProcess *p, int tower, char *text, size_t bytes)
{
    const ControlPlane *control = p->job->control;
    snprintf(text, bytes, "tower %d%s%s", tower, control ? " on " : "",
             control ? control_host(control, job_tower_node(p->job, tower)) : "");
}

int64_t activities_telemetry(const TowerProcess *p, DeviceTelemetry *telemetry)
{
    int64_t newest = 0;
    for (int r = 0; p->job->backend->telemetry && r < p->job->processes; r++) {
        Placement place = job_placement(p->job, r);
        for (int t = place.first_tower; is_local_tower(&place, t); t++) {
            int64_t at = ledger_telemetry(p->ledger, r, &telemetry[t]);
            newest = at > newest ? at : newest;
        }
    }
    return newest;
}

/* "; its GPU runs at 1215 of 1980 MHz, ..."; "" if it is not known, or the loader is slow. */
static void device_text(const TowerProcess *p, const Straggler *slow, char *text, size_t bytes)
{
    DeviceTelemetry telemetry;
    *text = 0;
    if (work_activities[slow->activity] == ACTIVITY_DATA ||
        !ledger_telemetry(p->ledger, job_tower_rank(p->job, slow->tower), &telemetry))
        return;
    char state[160] = "";
    telemetry_text(&telemetry, state, sizeof state);
    if (*state) snprintf(text, bytes, "; %s", state);
}

static void straggler_report(TowerProcess *p, StragglerChange change, const Straggler *was, int64_t step)
{
    const Straggler *s = &p->watch.named;
    char text[544], who[128], device[176];
    tower_text(p, change == STRAGGLER_NAMED ? s->tower : was->tower, who, sizeof who);
    if (change == STRAGGLER_NAMED) {
        device_text(p, s, device, sizeof device);
        snprintf(text, sizeof text,
                 "%s is slow in %s: %.1f ms per step, the others need %.1f ms (median of %d steps up to %" PRId64
                 "); all towers wait for it%s",
                 who, straggler_activity_name(s->activity), s->seconds * 1e3, s->others * 1e3, STRAGGLER_WINDOW, step,
                 device);
    } else
        snprintf(text, sizeof text, "%s is no longer slow in %s (step %" PRId64 ")", who,
                 straggler_activity_name(was->activity), step);
    ledger_note(p->ledger, "%s", text);
    metrics_log(p->metrics, "%s", text);
}

static bool machine_loaded(void)
{
    double load;
    return getloadavg(&load, 1) == 1 && straggler_machine_loaded(load, (int)sysconf(_SC_NPROCESSORS_ONLN));
}

static Status window_check(TowerProcess *p, int64_t step)
{
    Straggler was = p->watch.named;
    size_t rows = (size_t)STRAGGLER_WINDOW * (size_t)p->ledger->towers;
    StragglerTimes *times = calloc(rows, sizeof *times);
    if (!times) return FAIL(ERR_MEMORY, "no memory for the times of %zu rows", rows);
    window_read(p, step, times);
    Straggler found = straggler_find(times, STRAGGLER_WINDOW, p->ledger->towers);
    free(times);
    bool elsewhere = found.tower >= 0 && p->place.node != job_tower_node(p->job, found.tower);
    bool loaded = elsewhere ? p->queue->elsewhere_loaded[found.tower] : machine_loaded();
    StragglerChange change = straggler_window(&p->watch, &found, loaded, step);
    if (change != STRAGGLER_SAME) straggler_report(p, change, &was, step);
    return OK;
}

Status activities_watch(TowerProcess *p, int64_t step)
{
    int64_t first = atomic_load(&p->ledger->run.first_step) + WARM_STEPS, seen = step - first;
    if (p->ledger->towers == 1 || seen <= 0) return OK;
    if (seen == 1) straggler_start(&p->watch);
    return seen % STRAGGLER_WINDOW ? OK : window_check(p, step);
}

void activities_read(const TowerProcess *p, int64_t step, int64_t started_ns, ActivityRecord *record)
{
    for (int t = 0; t < p->ledger->towers; t++) {
        const LedgerRow *row = ledger_row(p->ledger, t, step);
        record->arrival_us[t] = (row->arrival_ns ? row->arrival_ns - started_ns : row->until_sum_ns) / 1000;
        for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) record->us[k][t] = row->activity_ns[work_activities[k]] / 1000;
    }
    record->slow_tower = p->watch.named.tower;
    record->slow_activity = p->watch.named.tower < 0 ? NULL : straggler_activity_name(p->watch.named.activity);
}

/* ---- other programs */

/* A message of one rank: {loaded, watched}, the telemetry of its device if the backend has any, then in microseconds
 * {until_sum, data, copy, forward, backward} of each step and tower. */
enum { TIMES_HEAD = 2, TIMES = 1 + STRAGGLER_ACTIVITIES, TELEMETRY_WORDS = sizeof(DeviceTelemetry) / sizeof(int32_t) };

static size_t telemetry_words(const TowerProcess *p)
{
    return p->job->backend->telemetry ? TELEMETRY_WORDS : 0;
}

static int32_t microseconds(int64_t ns)
{
    return (int32_t)(ns / 1000 < INT32_MAX ? ns / 1000 : INT32_MAX);
}

static void times_pack(const LedgerRow *row, int32_t *to)
{
    to[0] = microseconds(row->until_sum_ns);
    for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) to[1 + k] = microseconds(row->activity_ns[work_activities[k]]);
}

static void times_unpack(const int32_t *from, LedgerRow *row)
{
    row->until_sum_ns = from[0] * 1000ll;
    for (int k = 0; k < STRAGGLER_ACTIVITIES; k++) row->activity_ns[work_activities[k]] = from[1 + k] * 1000ll;
}

/* The message of this rank about steps first..last. */
static void message_fill(const TowerProcess *p, int64_t first, int64_t last, int32_t *at)
{
    DeviceTelemetry telemetry;
    *at++ = machine_loaded();
    *at++ = ledger_telemetry(p->ledger, p->place.rank, &telemetry) > 0;
    memcpy(at, &telemetry, telemetry_words(p) * sizeof *at);
    at += telemetry_words(p);
    for (int64_t step = first; step <= last; step++)
        for (int local = 0; local < p->place.local_towers; local++, at += TIMES)
            times_pack(ledger_row(p->ledger, p->place.first_tower + local, step), at);
}

/* That of rank r to this ledger, if it is of another program. */
static void message_take(TowerProcess *p, int r, int64_t first, int64_t last, const int32_t *from)
{
    DeviceTelemetry telemetry, before;
    Placement place = job_placement(p->job, r);
    bool loaded = from[0], watched = from[1];
    if (place.node == p->place.node) return; /* this ledger has them */
    from += TIMES_HEAD;
    memcpy(&telemetry, from, telemetry_words(p) * sizeof *from);
    (void)ledger_telemetry(p->ledger, r, &before);
    if (watched && memcmp(&before, &telemetry, sizeof telemetry) != 0) ledger_telemetry_put(p->ledger, r, &telemetry);
    from += telemetry_words(p);
    for (int t = place.first_tower; is_local_tower(&place, t); t++) p->queue->elsewhere_loaded[t] = loaded;
    for (int64_t step = first; step <= last; step++)
        for (int local = 0; local < place.local_towers; local++, from += TIMES)
            times_unpack(from, ledger_row(p->ledger, place.first_tower + local, step));
}

Status activities_gather(TowerProcess *p, int64_t first, int64_t last, int *number)
{
    bool root = is_root(&p->place);
    int ranks = p->job->processes;
    size_t most = 0;
    for (int r = 0; r < ranks; r++) {
        size_t towers = (size_t)job_placement(p->job, r).local_towers;
        most = towers > most ? towers : most;
    }
    size_t count = TIMES_HEAD + telemetry_words(p) + (size_t)(last - first + 1) * most * TIMES;
    int32_t *mine = calloc(root ? (size_t)ranks + 1 : 1, count * sizeof *mine), *all = root ? mine + count : NULL;
    if (!mine) return FAIL(ERR_MEMORY, "no memory for the times of %" PRId64 " steps", last - first + 1);
    message_fill(p, first, last, mine);
    Status st = comm_gather_root(p->comm, mine, count * sizeof *mine, all);
    for (int r = 0; st == OK && root && r < ranks; r++) message_take(p, r, first, last, all + (size_t)r * count);
    if (st == OK) st = comm_broadcast(p->comm, number, sizeof *number, 0);
    free(mine);
    return st;
}
