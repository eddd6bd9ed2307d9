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

/* The settings of the job; a restart on fewer devices (--max-restarts) has changed the number of processes since. Owned by
 * the caller; NULL: no memory. */
static json_t *settings_now(const TrainJob *job)
{
    char processes[16];
    json_t *made = job->settings ? json_deep_copy(job->settings) : json_object();
    snprintf(processes, sizeof processes, "%d", job->processes);
    if (json_object_get(made, "processes")) json_object_set_new(made, "processes", json_string(processes));
    return made;
}

char *run_state_text(const TowerProcess *p)
{
    json_t *root = json_pack("{s:s, s:s, s:i, s:I, s:o}", "format", "towers checkpoint 1", "model",
                             p->job->program.model->name, "towers", p->ledger->towers, "steps_per_epoch",
                             (json_int_t)p->steps_per_epoch, "settings", settings_now(p->job));
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

/* "key: value" for messages. Unset values are empty or -1. */
static void setting_text(const char *key, const char *value, char *text, size_t room)
{
    bool unset = value && (!*value || !strcmp(value, "-1"));
    if (!value)
        snprintf(text, room, "nothing");
    else
        snprintf(text, room, "%s: %s", key, unset ? "not set" : value);
}

static void change_add(Text *table, const char *key, const char *then, const char *now)
{
    char old[256], new[256];
    setting_text(key, then, old, sizeof old);
    setting_text(key, now, new, sizeof new);
    text_add(table, "\n  then %s, now %s", old, new);
}

/* A value of an earlier version in today's words: the schedule that was called onecycle, PyTorch's name for another one. */
static const char *setting_today(const char *key, const char *value)
{
    return value && !strcmp(key, "sched") && !strcmp(value, "onecycle") ? "rise-fall" : value;
}

/* OK if the settings of this run are those of the checkpoint. One that the checkpoint lacks has come with a later version
 * of the program; it passes with its default, which is what older versions do. So does the number of processes after a
 * restart, which takes the devices that are left, and what only the checkpoint has and defaults name: an option of an earlier
 * version. Otherwise every setting that differs is named, including those that only the checkpoint has. */
static Status settings_compare(const TrainJob *job, const char *path, json_t *then)
{
    char text[2048];
    Text table = text_start(text, sizeof text);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)job->settings, key, value)
    {
        const char *now = json_string_value(value), *usual = json_word(job->setting_defaults, key),
                   *before = json_word(then, key);
        bool later = !before && usual && !strcmp(now, usual),
             restarted = job->restarts > 0 && !strcmp(key, "processes");
        before = setting_today(key, before);
        if (!later && !restarted && (!before || strcmp(now, before) != 0)) change_add(&table, key, before, now);
    }
    json_object_foreach(then, key, value)
    {
        bool known = json_object_get(job->settings, key) || json_object_get(job->setting_defaults, key);
        if (!known) change_add(&table, key, json_string_value(value), NULL);
    }
    if (!*text) return OK;
    return FAIL(ERR_ARG,
                "%s was written with other settings, so a resumed run would differ:%s\n  (use the old values, or "
                "start a new run from these weights with --pretrained)",
                path, text);
}

/* Earlier versions wrote one text of lines "key: value". Owned by the caller; NULL: no memory. */
static json_t *settings_of_lines(const char *lines)
{
    int failed = 0;
    json_t *made = json_object();
    char *copy = strdup(lines), *rest = copy;
    for (char *key; (key = strsep(&rest, "\n"));) {
        char *value = key + strcspn(key, ":");
        if (!*key) continue;
        if (*value) *value++ = 0;
        failed |= json_object_set_new(made, key, json_string(value + (*value == ' ')));
    }
    if (!copy || failed) {
        json_decref(made);
        made = NULL;
    }
    free(copy);
    return made;
}

static Status settings_check(const TrainJob *job, const json_t *root, const char *path)
{
    const char *key;
    json_t *value, *given = json_object_get(root, "settings");
    if (!json_is_string(given) && !json_is_object(given))
        return FAIL(ERR_CHECKPOINT, "%s/state.json: 'settings' is missing or not an object", path);
    json_object_foreach(given, key, value)
    {
        if (!json_is_string(value))
            return FAIL(ERR_CHECKPOINT, "%s/state.json: the setting '%s' is not a text", path, key);
    }
    json_t *then = json_is_string(given) ? settings_of_lines(json_string_value(given)) : json_incref(given);
    if (!then) return FAIL(ERR_MEMORY, "no memory for the settings of %s", path);
    Status st = settings_compare(job, path, then);
    json_decref(then);
    return st;
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
    TRY_OUT(settings_check(p->job, root, path));
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
