/* Evaluates the conditions of options; see conditions.h. */
#include "inception/options/conditions.h"
#include "inception/options/options_internal.h"
#include "kernels/base/text.h"

#include <ctype.h>

/* A part of a condition: a word with its values, as "opt=adam,lamb". */
typedef struct Clause {
    bool negated;
    char word[NAME_BYTES], values[LABEL_BYTES]; /* "adam,lamb", or "" */
} Clause;

/* The words of `uses`, by their bits HYPER_... */
static const char *const hyper_words[] = {"momentum", "betas", "decay", "epsilon", "trust"};
enum { HYPER_WORDS = sizeof hyper_words / sizeof *hyper_words };

/* What a model must be or have, and what is said if it is not. */
static const struct {
    const char *word, *lacks, *those;
} model_words[] = {{"classifier", "predicts no classes", "classifiers"},
                   {"critic", "has no critic", "GANs"},
                   {"generator", "generates no images", "GANs"},
                   {"dropout", "has no dropout", "networks with dropout"},
                   {"drop-path", "has neither stochastic depth nor residual sums",
                    "networks with stochastic depth, and networks from FILE.onnx with residual sums"},
                   {"width", "has no such size", "GANs whose width can be chosen"},
                   {"penalty", "has no gradient penalty", "GANs with a gradient penalty"},
                   {"file", "is a network of this program, which begins from scratch", "networks from FILE.onnx"}};
enum { MODEL_WORDS = sizeof model_words / sizeof *model_words };

/* The clause that begins at `text`; returns what follows it. */
static const char *clause_take(const char *text, Clause *clause)
{
    *clause = (Clause){.negated = *text == '!'};
    text += clause->negated;
    int word = (int)strcspn(text, "=|! "), all = (int)strcspn(text, "| ");
    snprintf(clause->word, sizeof clause->word, "%.*s", word, text);
    int from = word + (text[word] == '=');
    snprintf(clause->values, sizeof clause->values, "%.*s", all - from, text + from);
    for (int k = 0; k < HYPER_WORDS && !strcmp(clause->word, "uses"); k++) {
        if (strcmp(clause->values, hyper_words[k]) != 0) continue;
        snprintf(clause->word, sizeof clause->word, "opt");
        Text values = text_start(clause->values, sizeof clause->values);
        for (OptimizerChoice opt = 0; opt < OPT_COUNT; opt++)
            if (optimizer_infos[optimizer_choices[opt].kind].uses >> k & 1)
                text_add(&values, "%s%s", *clause->values ? "," : "", optimizer_choices[opt].name);
    }
    return text + all;
}

static bool lists(const Clause *clause, const char *value)
{
    for (const char *p = clause->values; *p; p += *p == ',') {
        size_t bytes = strcspn(p, ",");
        if (strlen(value) == bytes && !memcmp(p, value, bytes)) return true;
        p += bytes;
    }
    return false;
}

static bool is_on(const Options *o, OptionId id)
{
    char text[OPTION_FORMAT_BYTES];
    const char *value = option_format(o, id, text, sizeof text);
    return *value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0 && strcmp(value, "none") != 0;
}

static bool is_asked(const Options *o, OptionId id)
{
    return o->origin[id] == ORIGIN_COMMAND_LINE && is_on(o, id);
}

static OptionId option_named(const char *flag)
{
    bool negated;
    return option_find(flag, &negated);
}

static bool clause_holds(const Options *o, const Clause *clause)
{
    char text[OPTION_FORMAT_BYTES];
    Verb verb = verb_find(clause->word);
    bool holds;
    if (verb != VERB_NONE && o->verb != verb) return true;
    if (verb != VERB_NONE && !strncmp(clause->values, "--", 2)) {
        holds = is_on(o, option_named(clause->values + 2));
    } else if (verb != VERB_NONE) {
        holds = o->argument_count && lists(clause, o->arguments[0]);
    } else {
        OptionId id = option_named(clause->word);
        if (!option_belongs(id, o->verb)) return true;
        holds = *clause->values ? lists(clause, option_format(o, id, text, sizeof text)) : is_on(o, id);
    }
    return holds != clause->negated;
}

/* "bench, show and convert" */
static void values_say(const Clause *clause, char *buffer, size_t bytes)
{
    Text text = text_start(buffer, bytes);
    for (const char *p = clause->values; *p; p += *p == ',') {
        int one = (int)strcspn(p, ",");
        text_add(&text, "%s%.*s", p == clause->values ? "" : p[one] ? ", " : " and ", one, p);
        p += one;
    }
}

static Status refuse(const Options *o, OptionId id, const Clause *clause)
{
    char values[LABEL_BYTES], text[OPTION_FORMAT_BYTES];
    const char *flag = option_info(id)->flag;
    Verb verb = verb_find(clause->word);
    values_say(clause, values, sizeof values);
    if (verb != VERB_NONE && !strncmp(values, "--", 2))
        return FAIL(ERR_ARG, "--%s has no effect without %s", flag, values);
    if (verb != VERB_NONE)
        return FAIL(ERR_ARG, "--%s has no effect with towers %s %s; it applies only to %s", flag, clause->word,
                    o->argument_count ? o->arguments[0] : "", values);
    if (!*clause->values)
        return FAIL(ERR_ARG, "--%s has no effect %s --%s", flag, clause->negated ? "with" : "without", clause->word);
    return FAIL(ERR_ARG, "--%s has no effect with --%s %s%s%s", flag, clause->word,
                option_format(o, option_named(clause->word), text, sizeof text),
                clause->negated ? "" : "; it applies only to ", clause->negated ? "" : values);
}

Status conditions_check(const Options *o)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *when = option_info(id)->when;
        if (!when || !is_asked(o, id)) continue;
        while (*when) {
            Clause first, clause;
            when = clause_take(when, &first);
            bool holds = !strcmp(first.word, "model") || clause_holds(o, &first);
            while (*when == '|') {
                when = clause_take(when + 1, &clause);
                holds |= clause_holds(o, &clause);
            }
            if (!holds) return refuse(o, id, &first);
            when += *when == ' ';
        }
    }
    return OK;
}

/* ---- clauses about the model */

static bool model_is(const Model *model, const char *word)
{
    if (!strcmp(word, "classifier")) return !model->phases;
    if (!strcmp(word, "dropout")) return !model->phases || model->dropout > 0;
    if (!strcmp(word, "drop-path")) return model->drop_path > 0 || model->residuals > 0;
    if (!strcmp(word, "width")) return model->width > 0;
    if (!strcmp(word, "penalty")) return model->penalty_weight > 0;
    if (!strcmp(word, "file")) return model->file != NULL;
    return model->phases; /* critic, generator */
}

/* The word that the option asks of the model, as a row of model_words; -1 if none. */
static int model_word(OptionId id)
{
    Clause clause = {0};
    const char *when = option_info(id)->when ? strstr(option_info(id)->when, "model=") : NULL;
    if (when) (void)clause_take(when, &clause);
    for (int k = 0; k < MODEL_WORDS; k++)
        if (when && lists(&clause, model_words[k].word)) return k;
    return -1;
}

bool option_concerns(OptionId id, const Model *model)
{
    int k = model_word(id);
    if (k < 0) return true;
    return model ? model_is(model, model_words[k].word)
                 : !strcmp(model_words[k].word, "classifier") || !strcmp(model_words[k].word, "dropout");
}

static Status phases_check(const Options *o, const Model *model)
{
    if (o->verb == VERB_EVAL || o->verb == VERB_PREDICT)
        return FAIL(ERR_UNSUPPORTED, "%s predicts no classes, so it cannot be evaluated as a classifier", model->name);
    if (o->accumulate > 1)
        return FAIL(ERR_UNSUPPORTED,
                    "--accumulate: %s trains in phases, whose steps take one batch each; use a larger batch",
                    model->name);
    if (o->verb == VERB_TRAIN && o->log_style == LOG_TF2016)
        return FAIL(ERR_UNSUPPORTED, "--log-style tf2016: its lines have one loss, but %s has one for each phase",
                    model->name);
    if (o->bad_samples && strcmp(o->bad_samples, "stop") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "--bad-samples %s: the losses of %s cannot leave out single images; remove the "
                    "damaged ones (towers data check DIR lists them)",
                    o->bad_samples, model->name);
    if (o->amp && o->amp_dtype != AMP_TF32)
        return FAIL(ERR_UNSUPPORTED,
                    "--amp-dtype %s: %s trains in fp32 (or TF32) only, because the sums of its gradient "
                    "penalty would be rounded to 16 bits",
                    o->amp_dtype == AMP_BF16 ? "bf16" : "fp16", model->name);
    return OK;
}

Status conditions_of_model_check(const Options *o, const Model *model)
{
    if (model->phases) TRY(phases_check(o, model));
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        int k = is_asked(o, id) ? model_word(id) : -1;
        if (k < 0 || model_is(model, model_words[k].word)) continue;
        if (!strcmp(model_words[k].word, "generator") && o->verb != VERB_TRAIN)
            continue; /* fid: features of a classifier */
        return FAIL(ERR_ARG, "--%s has no effect: %s %s", option_info(id)->flag, model->name, model_words[k].lacks);
    }
    return OK;
}

const char *option_optimizers(OptionId id, char *text, size_t bytes)
{
    Clause clause;
    const char *when = option_info(id)->when;
    *text = 0;
    if (!when || strncmp(when, "uses=", 5) != 0) return text;
    (void)clause_take(when, &clause);
    values_say(&clause, text, bytes);
    return text;
}

/* ---- conditions in words */

/* "--sched step, exponential or plateau" */
static void option_clause_say(const Clause *clause, Text *text)
{
    text_add(text, "--%s", clause->word);
    for (const char *p = clause->values; *p; p += *p == ',') {
        int one = (int)strcspn(p, ",");
        text_add(text, "%s%.*s", p == clause->values ? " " : p[one] ? ", " : " or ", one, p);
        p += one;
    }
}

/* The commands that a clause is about. */
static uint64_t clause_verbs(OptionId id, const Clause *clause)
{
    Verb verb = verb_find(clause->word);
    uint64_t all = option_info(id)->verbs & ~(OPTION_NOT_IN_CONFIG | OPTION_ONLY_TYPED);
    OptionId of = option_named(clause->word);
    if (verb != VERB_NONE) return UINT64_C(1) << verb;
    return of < OPTION_ID_COUNT && !clause->negated ? all & option_info(of)->verbs : all;
}

/* One sentence for clauses of which one must hold. */
static void clauses_say(const Clause *clauses, int count, bool inside, Text *text)
{
    char values[LABEL_BYTES];
    const char *only = clauses->negated ? "not" : "only";
    text_add(text, "%c%s ", inside ? *only : toupper((unsigned char)*only), only + 1);
    if (verb_find(clauses->word) != VERB_NONE) {
        values_say(clauses, values, sizeof values);
        text_add(text, "%s%s.", *values == '-' ? "with " : "", values);
        return;
    }
    for (int k = 0; k < MODEL_WORDS && !strcmp(clauses->word, "model"); k++)
        if (lists(clauses, model_words[k].word)) text_add(text, "for %s.", model_words[k].those);
    if (!strcmp(clauses->word, "model")) return;
    for (int k = 0; k < count; k++) {
        text_add(text, "%s", !k ? "with " : k + 1 < count ? ", " : " or ");
        option_clause_say(&clauses[k], text);
    }
    text_add(text, ".");
}

/* "towers export: " */
static void verbs_say(uint64_t verbs, Text *text)
{
    const char *before = "towers ";
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        if (!(verbs >> verb & 1)) continue;
        text_add(text, "%s%s", before, verb_info(verb)->name);
        before = ", ";
    }
    text_add(text, ": ");
}

void condition_say(OptionId id, Verb verb, char *buffer, size_t bytes)
{
    enum { MOST = 4 };
    Text text = text_start(buffer, bytes);
    const char *when = option_info(id)->when ? option_info(id)->when : "";
    uint64_t all = option_info(id)->verbs & ~(OPTION_NOT_IN_CONFIG | OPTION_ONLY_TYPED);
    while (*when) {
        Clause clauses[MOST];
        int count = 0;
        bool optimizers = !strncmp(when, "uses=", 5); /* option_optimizers */
        for (when = clause_take(when, &clauses[count++]); *when == '|' && count < MOST;)
            when = clause_take(when + 1, &clauses[count++]);
        when += *when == ' ';
        uint64_t verbs = 0;
        for (int k = 0; k < count; k++) verbs |= clause_verbs(id, &clauses[k]);
        if (optimizers || (verb != VERB_NONE && !(verbs >> verb & 1))) continue;
        if (text.used) text_add(&text, " ");
        bool some = verb == VERB_NONE && verbs != all; /* only these commands of the option are meant */
        if (some) verbs_say(verbs, &text);
        clauses_say(clauses, count, some, &text);
    }
}

bool condition_asks(OptionId id, OptionId other)
{
    Clause clause;
    const char *when = option_info(id)->when ? option_info(id)->when : "";
    while (*when) {
        when = clause_take(when, &clause);
        if (!clause.negated && option_named(clause.word) == other) return true;
        when += *when != 0;
    }
    return false;
}

/* ---- the table's own check */

Status condition_read(OptionId id)
{
    const OptionInfo *info = option_info(id);
    for (const char *when = info->when ? info->when : ""; *when; when += *when != 0) {
        Clause clause;
        when = clause_take(when, &clause);
        Verb verb = verb_find(clause.word);
        bool read = !strcmp(clause.word, "model") ? model_word(id) >= 0 : verb != VERB_NONE;
        OptionId of = option_named(clause.word);
        if (of < OPTION_ID_COUNT) {
            OptionValue value;
            char one[NAME_BYTES];
            read = true;
            for (const char *p = clause.values; *p; p += strcspn(p, ","), p += *p == ',') {
                snprintf(one, sizeof one, "%.*s", (int)strcspn(p, ","), p);
                read &= read_value(option_info(of), one, info->flag, &value) == OK;
            }
        }
        if (!read) return FAIL(ERR_INTERNAL, "the condition of --%s cannot be read: %s", info->flag, info->when);
    }
    return OK;
}
