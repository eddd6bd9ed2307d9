/* state.json to text and back, by the table of run_state.def; see run_state.h. */
#include "towers/replica/run_state.h"
#include "towers/files/json.h"

/* The numbers of a RunState. A real that is not finite is written as null, because JSON has no NaN. */
typedef struct StateField {
    const char *name;
    size_t offset;
    bool real;
    enum { NEEDED, LATER } missing; /* run_state.def */
} StateField;

static const StateField state_fields[] = {
#define RUN_MEMBER(member, key, real, missing) {key, offsetof(RunState, member), real, missing},
#include "towers/replica/run_state.def"
};
enum { STATE_FIELDS = sizeof state_fields / sizeof *state_fields };

/* Fields of a phase. A classifier's only phase has them above, where older checkpoints have them. */
static const StateField phase_fields[] = {
    {"updates", offsetof(RunPhase, updates), false, NEEDED},
    {"loss_scale", offsetof(RunPhase, loss_scale), true, LATER},
    {"scale_good", offsetof(RunPhase, scale_good), false, LATER},
};
enum { PHASE_FIELDS = sizeof phase_fields / sizeof *phase_fields };

static json_t *field_json(const void *state, const StateField *field)
{
    const char *at = (const char *)state + field->offset;
    if (!field->real) return json_integer(*(const int64_t *)at);
    return json_finite(*(const double *)at);
}

/* null: not finite, or absent where a new run has ABSENT. */
static Status field_read(void *state, const StateField *field, const json_t *value, const char *path)
{
    char *at = (char *)state + field->offset;
    if (!value && field->missing == LATER) return OK;
    if (!field->real && json_is_integer(value))
        *(int64_t *)at = json_integer_value(value);
    else if (field->real && (json_is_number(value) || json_is_null(value)))
        *(double *)at = !json_is_null(value) ? json_number_value(value) : is_absent(*(double *)at) ? ABSENT : NAN;
    else
        return FAIL(ERR_CHECKPOINT, "%s/state.json: '%s' is missing or not a number", path, field->name);
    return OK;
}

static int phase_add(json_t *to, const RunPhase *phase)
{
    int failed = 0;
    for (int i = 0; i < PHASE_FIELDS; i++)
        failed |= json_object_set_new(to, phase_fields[i].name, field_json(phase, &phase_fields[i]));
    return failed;
}

/* "phases": {"critic": {...}, ...}, or the fields of the only phase. */
static int phases_add(const TowerProcess *p, json_t *root)
{
    int failed = 0;
    json_t *all = json_object();
    if (p->replica->phases == 1) {
        json_decref(all);
        return phase_add(root, &p->run.phase[0]);
    }
    for (int i = 0; i < p->replica->phases; i++) {
        json_t *one = json_object();
        failed |= phase_add(one, &p->run.phase[i]);
        failed |= json_object_set_new(all, job_phase(p->job, i)->name, one);
    }
    return failed | json_object_set_new(root, "phases", all);
}

/* The line of `text` with the key of `line`; *bytes 0: there is none. */
static const char *setting_find(const char *text, const char *line, int *bytes)
{
    size_t key = strcspn(line, ":");
    while (*text && (strncmp(text, line, key) != 0 || text[key] != ':')) {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    *bytes = (int)strcspn(text, "\n");
    return text;
}

/* The settings of the job; a restart on fewer devices (--max-restarts) has changed the number of processes since. */
static char *settings_text(const TrainJob *job)
{
    int bytes;
    char *text = NULL;
    const char *line = setting_find(job->settings, "processes:", &bytes);
    if (!bytes) return strdup(job->settings);
    int made = asprintf(&text, "%.*sprocesses: %d%s", (int)(line - job->settings), job->settings, job->processes,
                        line + bytes);
    return made < 0 ? NULL : text;
}

char *run_state_text(const TowerProcess *p)
{
    char *settings = settings_text(p->job);
    json_t *root = settings ? json_pack("{s:s, s:s, s:i, s:I, s:s}", "format", "towers checkpoint 1", "model",
                                        p->job->program.model->name, "towers", p->ledger->towers, "steps_per_epoch",
                                        (json_int_t)p->steps_per_epoch, "settings", settings)
                            : NULL;
    free(settings);
    for (int i = 0; root && i < STATE_FIELDS; i++) {
        if (json_object_set_new(root, state_fields[i].name, field_json(&p->run, &state_fields[i])) == 0) continue;
        json_decref(root);
        root = NULL;
    }
    json_t *left_out = json_array();
    int failed = phases_add(p, root);
    for (int64_t i = 0; i < p->run.rollbacks; i++)
        failed |= json_array_append_new(left_out, json_integer(p->run.left_out[i]));
    failed |= json_object_set_new(root, "left_out", left_out);
    char *text = root && !failed ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

/* The steps skipped by rollbacks; missing in checkpoints of runs without a rollback. */
static Status left_out_read(RunState *run, const json_t *list, const char *path)
{
    if (!list) return OK;
    if (!json_is_array(list) || json_array_size(list) > ROLLBACKS_MAX)
        return FAIL(ERR_CHECKPOINT, "%s/state.json: 'left_out' is not a list of at most %d steps", path, ROLLBACKS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++)
        run->left_out[run->rollbacks++] = json_integer_value(json_array_get(list, i));
    return OK;
}

/* The value of a line "key: value" for messages; `bytes` 0: there is no line. Unset values are empty or -1. */
static void setting_text(const char *line, int bytes, char *text, size_t room)
{
    int colon = (int)strcspn(line, ":");
    bool unset = bytes > colon && (bytes == colon + 2 || (bytes == colon + 4 && !strncmp(line + colon, ": -1", 4)));
    if (bytes == 0)
        snprintf(text, room, "nothing");
    else
        snprintf(text, room, "%.*s%s", unset ? colon + 2 : bytes, line, unset ? "not set" : "");
}

static void change_add(Text *table, const char *then, int then_bytes, const char *now, int now_bytes)
{
    char old[256], new[256];
    if (then_bytes == now_bytes && strncmp(then, now, (size_t)then_bytes) == 0) return;
    setting_text(then, then_bytes, old, sizeof old);
    setting_text(now, now_bytes, new, sizeof new);
    text_add(table, "\n  then %s, now %s", old, new);
}

/* A line of an earlier version in today's words: the schedule that was called onecycle, PyTorch's name for another one. */
static const char *setting_today(const char *line, int *bytes)
{
    static const char then[] = "sched: onecycle", now[] = "sched: rise-fall";
    if (*bytes != (int)sizeof then - 1 || strncmp(line, then, sizeof then - 1) != 0) return line;
    *bytes = (int)sizeof now - 1;
    return now;
}

/* OK if the settings of this run are those of the checkpoint. One that the checkpoint lacks has come with a later version
 * of the program; it passes with its default, which is what older versions do. So does the number of processes after a
 * restart, which takes the devices that are left, and what only the checkpoint has and defaults name: an option of an earlier
 * version. Otherwise every setting that differs is named, including those that only the checkpoint has. */
static Status settings_compare(const TrainJob *job, const char *path, const char *then)
{
    char text[2048];
    Text table = text_start(text, sizeof text);
    int before, after, usual;
    for (const char *line = job->settings; *line; line += after, line += *line == '\n') {
        const char *found = setting_find(then, line, &before),
                   *common = setting_find(job->setting_defaults, line, &usual);
        after = (int)strcspn(line, "\n");
        bool later = before == 0 && after == usual && strncmp(line, common, (size_t)after) == 0,
             restarted = job->restarts > 0 && !strncmp(line, "processes:", strlen("processes:"));
        found = setting_today(found, &before);
        if (!later && !restarted) change_add(&table, found, before, line, after);
    }
    for (const char *line = then; *line; line += before, line += *line == '\n') {
        const char *found = setting_find(job->settings, line, &after);
        setting_find(job->setting_defaults, line, &usual);
        before = (int)strcspn(line, "\n");
        if (after == 0 && usual == 0) change_add(&table, line, before, found, 0);
    }
    if (!*text) return OK;
    return FAIL(ERR_ARG,
                "%s was written with other settings, so a resumed run would differ:%s\n  (use the old values, or "
                "start a new run from these weights with --pretrained)",
                path, text);
}

Status run_state_parse(TowerProcess *p, const char *text, const char *path)
{
    Status st = OK;
    json_error_t error;
    RunState run;
    json_t *root;
    run_state_clear(&run);
    TRY(json_parse(text, strlen(text), &root, &error));
    if (!root) return FAIL(ERR_CHECKPOINT, "%s/state.json:%d: %s", path, error.line, error.text);
    /* The settings come first, because the other fields depend on the model. */
    const char *settings = json_string_value(json_object_get(root, "settings"));
    if (!settings) TRY_OUT(FAIL(ERR_CHECKPOINT, "%s/state.json: 'settings' is missing or not a text", path));
    TRY_OUT(settings_compare(p->job, path, settings));
    for (int i = 0; i < STATE_FIELDS; i++)
        TRY_OUT(field_read(&run, &state_fields[i], json_object_get(root, state_fields[i].name), path));
    /* Older checkpoints lack these; the last step of an epoch may be short. */
    int64_t full = global_batch_of(&p->job->local_batches) * p->job->accumulate;
    if (run.best[SCORE_ACCURACY] < 0) run.best[SCORE_ACCURACY] = ABSENT; /* as older versions wrote it */
    if (!json_object_get(root, "epoch_weight")) run.epoch_weight = (double)run.epoch_count;
    if (!json_object_get(root, "images_seen")) run.images_seen = -1;
    if (!json_object_get(root, "epoch_steps")) run.epoch_steps = (run.epoch_count + full - 1) / full;
    if (!json_object_get(root, "epoch_told") && !run.epoch_count) run.epoch_told = run.step;
    const json_t *all = json_object_get(root, "phases");
    for (int i = 0; i < p->replica->phases; i++) {
        const json_t *one = p->replica->phases == 1 ? root : json_object_get(all, job_phase(p->job, i)->name);
        for (int k = 0; k < PHASE_FIELDS; k++)
            TRY_OUT(field_read(&run.phase[i], &phase_fields[k], json_object_get(one, phase_fields[k].name), path));
    }
    TRY_OUT(left_out_read(&run, json_object_get(root, "left_out"), path));
    p->run = run;
out:
    json_decref(root);
    return st;
}
