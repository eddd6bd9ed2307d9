/* Reading the file of a sweep and drawing its settings; see sweep_plan.h. */
#include "inception/commands/sweep_plan.h"

#include "inception/job/named_model.h"
#include "inception/options/config.h"
#include "inception/options/settle.h"
#include "inception/options/values.h"
#include "kernels/philox.h"

#include <ctype.h>

enum { DRAWS_MOST = 1000 /* of a setting that is new */, STREAM_SWEEP = 0x73776570 };

typedef struct PlanReader {
    const char *path;
    Options *options; /* of the sweep */
    Options train;    /* owned: the fixed settings, to check them */
    SweepPlan *plan;
    Draft text; /* of plan->text */
} PlanReader;

/* ---- a line */

static Status refuse(const PlanReader *r, const ConfigEntry *e, const char *what)
{
    return FAIL(ERR_ARG, "%s:%d:%d: '%s' %s", r->path, e->key_line, e->key_column, e->key, what);
}

/* Set an option as if the file had this value in the line of `e`, which messages then name. */
static Status value_apply(const PlanReader *r, const ConfigEntry *e, const char *value, Options *options)
{
    bool negated;
    Draft yaml;
    OptionId id = option_find(e->key, &negated);
    OptionType type = id == OPTION_ID_COUNT ? OPTION_IS_TEXT : option_info(id)->type;
    bool bare = !e->quoted && (type == OPTION_IS_INT || type == OPTION_IS_REAL || type == OPTION_IS_FLAG);
    TRY(draft_begin(&yaml, "the settings of a sweep"));
    for (int line = 1; line < e->key_line; line++) fputc('\n', yaml.to);
    text_printf(yaml.to, bare ? "%s: " : "%s: '", e->key);
    for (const char *p = value; *p; p++) fprintf(yaml.to, *p == '\'' && !bare ? "''" : "%c", *p);
    fputs(bare ? "\n" : "'\n", yaml.to);
    TRY(draft_end(&yaml, OK));
    Status st = options_apply_bytes(options, yaml.text, yaml.bytes, ORIGIN_CONFIG, r->path);
    free(yaml.text);
    return st;
}

/* Whether a value of a dimension could be that of the option. *as, which may be left out, receives it as records have it. */
static Status value_check(const PlanReader *r, const ConfigEntry *e, const char *value, char **as)
{
    Options one;
    bool negated;
    char text[OPTION_FORMAT_BYTES];
    options_init(&one);
    options_serve(&one, VERB_TRAIN);
    Status st = value_apply(r, e, value, &one);
    if (st == OK && as) *as = strdup(option_format(&one, option_find(e->key, &negated), text, sizeof text));
    options_close(&one);
    return st == OK && as && !*as ? FAIL(ERR_MEMORY, "no memory for the choices of '%s'", e->key) : st;
}

static char *trimmed(const char *from, size_t bytes)
{
    while (bytes && isspace((unsigned char)*from)) from++, bytes--;
    while (bytes && isspace((unsigned char)from[bytes - 1])) bytes--;
    return strndup(from, bytes);
}

/* Two ways to write one value, 0.1 and 1e-1, are one setting, which would be trained, ranked and compared as two. */
static Status choice_check(const PlanReader *r, const ConfigEntry *e, const Dimension *d, char *as[SWEEP_CHOICES])
{
    int last = d->choices - 1;
    TRY(value_check(r, e, d->choice[last], &as[last]));
    for (int k = 0; k < last; k++)
        if (!strcmp(as[k], as[last])) return refuse(r, e, "has the same choice twice");
    return OK;
}

static Status choices_read(const PlanReader *r, const ConfigEntry *e, const char *inside, Dimension *d)
{
    char *as[SWEEP_CHOICES] = {NULL};
    Status st = OK;
    for (const char *at = inside;;) {
        size_t bytes = strcspn(at, "|");
        bool last = !at[bytes];
        if (d->choices == SWEEP_CHOICES) TRY_OUT(refuse(r, e, "has more than 64 choices"));
        char *value = trimmed(at, bytes - last); /* without the parenthesis */
        if (!value) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the choices of '%s'", e->key));
        d->choice[d->choices++] = value;
        if (!*value) TRY_OUT(refuse(r, e, "has an empty choice; expected choices(A | B | C)"));
        TRY_OUT(choice_check(r, e, d, as));
        if (last) break;
        at += bytes + 1;
    }
out:
    for (int k = 0; k < SWEEP_CHOICES; k++) free(as[k]);
    return st;
}

static Status range_read(const PlanReader *r, const ConfigEntry *e, const char *inside, Dimension *d)
{
    char *ends[2] = {NULL};
    double *to[2] = {&d->low, &d->high};
    OptionType type = option_info(d->id)->type;
    Status st = OK;
    const char *comma = strchr(inside, ',');
    if (type != OPTION_IS_INT && type != OPTION_IS_REAL) return refuse(r, e, "is no number; use choices(A | B)");
    for (int i = 0; i < 2 && comma; i++) {
        ends[i] = i ? trimmed(comma + 1, strlen(comma) - 2) : trimmed(inside, (size_t)(comma - inside));
        if (!ends[i]) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the range of '%s'", e->key));
        if (text_to_real(ends[i], to[i]) != VALUE_OK) comma = NULL;
    }
    if (!comma || d->low >= d->high) TRY_OUT(refuse(r, e, "needs two numbers, the lower one first: uniform(0, 0.1)"));
    if (d->kind == DIMENSION_LOG_UNIFORM && d->low <= 0)
        TRY_OUT(refuse(r, e, "needs a range above 0: log-uniform(1e-4, 0.1)"));
    for (int i = 0; i < 2; i++) TRY_OUT(value_check(r, e, ends[i], NULL));
out:
    free(ends[0]);
    free(ends[1]);
    return st;
}

/* After the line has been taken: no line before it has set the same option. */
static Status once_check(const PlanReader *r, const ConfigEntry *e, OptionId id)
{
    int found = 0;
    for (int k = 0; k < r->plan->fixes; k++) found += r->plan->fixed[k].id == id;
    for (int k = 0; k < r->plan->dimensions; k++) found += r->plan->dimension[k].id == id;
    return found > 1 ? refuse(r, e, "is set twice") : OK;
}

static const char *const kind_words[] = {
    [DIMENSION_CHOICES] = "choices(", [DIMENSION_UNIFORM] = "uniform(", [DIMENSION_LOG_UNIFORM] = "log-uniform("};

static Status dimension_read(PlanReader *r, const ConfigEntry *e, OptionId id, DimensionKind kind)
{
    SweepPlan *plan = r->plan;
    const char *inside = e->value + strlen(kind_words[kind]);
    if (plan->dimensions == SWEEP_DIMENSIONS) return refuse(r, e, "is one option too many: a sweep varies at most 16");
    Dimension *d = &plan->dimension[plan->dimensions++];
    *d = (Dimension){.id = id, .kind = kind, .repeats = id == OPTION_ID_seed || id == OPTION_ID_fold};
    TRY(once_check(r, e, id));
    if (!*inside || e->value[strlen(e->value) - 1] != ')') return refuse(r, e, "lacks the ')' at its end");
    if (d->repeats && kind != DIMENSION_CHOICES) return refuse(r, e, "is a repetition; use choices(1 | 2 | 3)");
    return kind == DIMENSION_CHOICES ? choices_read(r, e, inside, d) : range_read(r, e, inside, d);
}

static Status fixed_read(PlanReader *r, const ConfigEntry *e, OptionId id, bool negated)
{
    SweepPlan *plan = r->plan;
    TRY(value_apply(r, e, e->value, &r->train));
    if (id == OPTION_ID_COUNT) return OK; /* one that there was: it is passed over */
    if (plan->fixes == SWEEP_FIXED) return refuse(r, e, "is one line too many");
    SweepFixed *fixed = &plan->fixed[plan->fixes];
    *fixed = (SweepFixed){id, negated, strdup(e->value)};
    if (!fixed->value) return FAIL(ERR_MEMORY, "no memory for the settings of '%s'", r->path);
    plan->fixes++;
    return once_check(r, e, id);
}

/* Why the file of a sweep cannot have an option of train or sweep; NULL: it can. */
static const char *senseless_in_file(OptionId id)
{
    switch (id) {
    case OPTION_ID_resume:
    case OPTION_ID_stop_epoch:
    case OPTION_ID_preempt_exit: return "is set by the sweep for each run; remove the line";
    case OPTION_ID_dry_run:
    case OPTION_ID_json: return "is about one call, not about the runs; give it to towers sweep on the command line";
    case OPTION_ID_towers_view: return "is for a terminal, which the runs of a sweep do not have; remove the line";
    case OPTION_ID_upload:
        return "is the place of one run, and each run of a sweep needs its own: copy the folder of the sweep by a tool "
               "of the store, as --after-checkpoint may; remove the line";
    case OPTION_ID_prometheus: return "names one file, which all runs would replace; remove the line";
    default: return NULL;
    }
}

static Status line_read(void *context, const ConfigEntry *e);

/* [A, B] is another way to write choices(A | B). */
static Status list_read(PlanReader *r, const ConfigEntry *e)
{
    Draft written;
    TRY(draft_begin(&written, "a list of values"));
    fputs(kind_words[DIMENSION_CHOICES], written.to), fputs(e->value, written.to), fputc(')', written.to);
    TRY(draft_end(&written, OK));
    ConfigEntry entry = *e;
    entry.value = written.text;
    entry.list = false;
    Status st = line_read(r, &entry);
    free(written.text);
    return st;
}

static Status line_read(void *context, const ConfigEntry *e)
{
    PlanReader *r = context;
    bool negated;
    if (e->list) return list_read(r, e);
    OptionId id = option_find(e->key, &negated);
    for (const char *p = e->value; *p; p++)
        if (iscntrl((unsigned char)*p)) return refuse(r, e, "has a control character in its value");
    if (!strcmp(e->key, "model")) {
        const Model *model;
        TRY(model_named(e->value, &model));
        snprintf(r->plan->model, sizeof r->plan->model, "%s", model_argument(model));
        text_printf(r->text.to, "model: %s\n", model->name);
        if (model->digest) text_printf(r->text.to, "network: %s\n", model->digest);
        return OK;
    }
    const char *senseless = senseless_in_file(id);
    if (senseless) return refuse(r, e, senseless);
    if (id != OPTION_ID_COUNT && option_belongs(id, VERB_SWEEP)) return value_apply(r, e, e->value, r->options);
    text_printf(r->text.to, "%s: %s\n", e->key, e->value);
    for (DimensionKind kind = 0; id != OPTION_ID_COUNT && kind <= DIMENSION_LOG_UNIFORM; kind++)
        if (!strncmp(e->value, kind_words[kind], strlen(kind_words[kind])))
            return negated ? refuse(r, e, "has several values; write it without \"no-\": choices(true | false)")
                           : dimension_read(r, e, id, kind);
    if (id != OPTION_ID_COUNT && !option_belongs(id, VERB_TRAIN)) return refuse(r, e, "is no option of towers train");
    return fixed_read(r, e, id, negated); /* an unknown option is refused there */
}

/* ---- the settings */

static double draw(const SweepPlan *plan, const Dimension *d, uint64_t seed, int setting, int attempt)
{
    Philox bits = philox(seed, (uint32_t)setting, (uint32_t)attempt, (uint32_t)(d - plan->dimension), STREAM_SWEEP);
    double u = ((double)bits.v[0] + 0.5) / 4294967296.0;
    char text[32];
    if (d->kind == DIMENSION_CHOICES) return floor(u * d->choices);
    double value = d->kind == DIMENSION_UNIFORM ? d->low + u * (d->high - d->low) : d->low * pow(d->high / d->low, u);
    if (option_info(d->id)->type == OPTION_IS_INT) return round(value);
    snprintf(text, sizeof text, "%.4g", value); /* numbers that a person can repeat */
    return fmin(fmax(strtod(text, NULL), d->low), d->high);
}

static bool is_new(const SweepPlan *plan, int setting)
{
    for (int s = 0; s < setting; s++)
        if (!memcmp(plan->at[s], plan->at[setting], sizeof *plan->at)) return false;
    return true;
}

static Status settings_draw(SweepPlan *plan, const char *path, int64_t trials, uint64_t seed)
{
    for (int s = 0; s < trials; s++) {
        int attempt = 0;
        do {
            if (attempt == DRAWS_MOST)
                return FAIL(ERR_ARG,
                            "%s: there are no %" PRId64 " different settings of these choices; use fewer --trials",
                            path, trials);
            for (int d = 0; d < plan->dimensions; d++)
                if (!plan->dimension[d].repeats) plan->at[s][d] = draw(plan, &plan->dimension[d], seed, s, attempt);
        } while (attempt++, !is_new(plan, s));
    }
    return OK;
}

/* The last option of the file varies first. */
static void settings_lay(SweepPlan *plan)
{
    for (int s = 0; s < plan->settings; s++) {
        int rest = s;
        for (int d = plan->dimensions - 1; d >= 0; d--) {
            const Dimension *one = &plan->dimension[d];
            if (one->repeats) continue;
            plan->at[s][d] = rest % one->choices;
            rest /= one->choices;
        }
    }
}

static Status settings_make(SweepPlan *plan, const char *path, const Options *o)
{
    int64_t grid = 1, repeats = 1;
    bool ranges = false;
    for (int d = 0; d < plan->dimensions; d++) {
        const Dimension *one = &plan->dimension[d];
        int64_t *count = one->repeats ? &repeats : &grid;
        if (one->choices && *count <= SWEEP_MOST) *count *= one->choices;
        ranges |= one->kind != DIMENSION_CHOICES;
    }
    int64_t settings = o->trials ? o->trials : grid;
    if (ranges && !o->trials)
        return FAIL(ERR_ARG, "%s has a range, of which settings are drawn at random: say how many with trials: N",
                    path);
    if (settings * repeats > SWEEP_MOST)
        return FAIL(ERR_ARG, "%s: a sweep has at most %d runs; use fewer choices, or trials: N", path, SWEEP_MOST);
    plan->settings = (int)settings;
    plan->repeats = (int)repeats;
    plan->at = calloc((size_t)settings, sizeof *plan->at);
    if (!plan->at) return FAIL(ERR_MEMORY, "no memory for %" PRId64 " settings", settings);
    if (o->trials) return settings_draw(plan, path, o->trials, (uint64_t)o->trial_seed);
    settings_lay(plan);
    return OK;
}

/* Rungs: --first-rung epochs, then --halving times as many, and so on up to the end. */
static Status rungs_make(SweepPlan *plan, const char *path, const Options *o, const Options *train)
{
    plan->halving = o->halving;
    plan->rung[plan->rungs++] = INT64_MAX;
    if (!o->halving) return OK;
    for (int d = 0; d < plan->dimensions; d++)
        if (plan->dimension[d].id == OPTION_ID_epochs)
            return FAIL(ERR_ARG, "%s: with halving all runs have the same number of epochs; give one number", path);
    if (train->origin[OPTION_ID_epochs] != ORIGIN_CONFIG)
        return FAIL(ERR_ARG, "%s: halving needs a line 'epochs: N', the length of the runs that reach the end", path);
    if (train->max_steps >= 0)
        return FAIL(ERR_ARG, "%s: halving counts epochs; use 'epochs: N' without max-steps", path);
    int64_t next = o->first_rung;
    for (plan->rungs = 0; next < train->epochs && plan->rungs < SWEEP_RUNGS - 1; next *= o->halving) {
        if (train->eval_interval > 0 && next % train->eval_interval)
            return FAIL(ERR_ARG,
                        "%s: there is no evaluation after %" PRId64
                        " epochs, where settings are compared; use a --first-rung that is a multiple of eval-interval",
                        path, next);
        plan->rung[plan->rungs++] = next;
    }
    plan->rung[plan->rungs++] = train->epochs;
    return OK;
}

static Status plan_fill(PlanReader *r)
{
    char *bytes = NULL;
    size_t count = 0;
    SweepPlan *plan = r->plan;
    TRY(config_load(r->path, &bytes, &count));
    Status st = config_parse_lists(r->path, bytes, count, line_read, r);
    free(bytes);
    TRY(st);
    if (!*plan->model) return FAIL(ERR_ARG, "%s names no model; add a line such as 'model: fashion_cnn'", r->path);
    if (!plan->dimensions)
        return FAIL(ERR_ARG, "%s varies nothing; give an option several values, such as 'lr: choices(0.01 | 0.1)'",
                    r->path);
    fprintf(r->text.to, "trial-seed: %" PRId64 "\nhalving: %" PRId64 "\nfirst-rung: %" PRId64 "\n",
            r->options->trial_seed, r->options->halving, r->options->first_rung);
    TRY(settings_make(plan, r->path, r->options));
    return rungs_make(plan, r->path, r->options, &r->train);
}

Status sweep_plan_read(const char *path, Options *options, SweepPlan **made)
{
    Status st = OK;
    PlanReader r = {.path = path, .options = options, .plan = calloc(1, sizeof *r.plan)};
    options_init(&r.train);
    options_serve(&r.train, VERB_TRAIN);
    if (!r.plan) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the sweep of '%s'", path));
    TRY_OUT(draft_begin(&r.text, "the lines of a sweep"));
    TRY_OUT(draft_end(&r.text, plan_fill(&r)));
    r.plan->text = r.text.text;
    *made = r.plan;
    r.plan = NULL;
out:
    options_close(&r.train);
    sweep_plan_destroy(r.plan);
    return st;
}

void sweep_plan_destroy(SweepPlan *plan)
{
    if (!plan) return;
    for (int d = 0; d < plan->dimensions; d++)
        for (int k = 0; k < plan->dimension[d].choices; k++) free(plan->dimension[d].choice[k]);
    for (int k = 0; k < plan->fixes; k++) free(plan->fixed[k].value);
    free(plan->at);
    free(plan->text);
    free(plan);
}

const char *sweep_value(const SweepPlan *plan, int setting, int repeat, int dimension, char text[SWEEP_VALUE])
{
    const Dimension *d = &plan->dimension[dimension];
    double at = plan->at[setting][dimension];
    if (d->repeats) {
        for (int k = dimension + 1; k < plan->dimensions; k++)
            if (plan->dimension[k].repeats) repeat /= plan->dimension[k].choices;
        return d->choice[repeat % d->choices];
    }
    if (d->kind == DIMENSION_CHOICES) return d->choice[(int)at];
    if (option_info(d->id)->type == OPTION_IS_INT)
        snprintf(text, SWEEP_VALUE, "%" PRId64, (int64_t)at);
    else
        real_to_text(at, text, SWEEP_VALUE);
    return text;
}

json_t *sweep_setting_json(const SweepPlan *plan, int setting)
{
    char text[SWEEP_VALUE];
    json_t *made = json_object();
    for (int d = 0; d < plan->dimensions; d++)
        if (!plan->dimension[d].repeats)
            json_object_set_new(made, option_info(plan->dimension[d].id)->flag,
                                json_string(sweep_value(plan, setting, 0, d, text)));
    return made;
}
