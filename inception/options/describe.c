/* What is said about options and commands; see describe.h. */
#include "inception/options/describe.h"
#include "inception/options/conditions.h"
#include "inception/options/options_internal.h"
#include "inception/options/recipe.h"
#include "kernels/base/text.h"

static const char *const exits[] = {
    "success",
    "internal error, a bug in towers",
    "invalid usage or configuration",
    "invalid data files",
    "unusable checkpoint or weights file",
    "device, driver or memory failure, or a feature that this build or device lacks",
    "storage failure: a file could not be read or written",
    "a tower ended unexpectedly or timed out in a collective operation",
    "NaN or Inf, or towers whose weights differ",
};

const char exit_by_signal[] = "ended by signal n; train saves a checkpoint first";

const char *const configuration_words[] = {
    "Options are taken from, in decreasing order of precedence: the command line, the environment variable TOWERS_FLAG "
    "(in capitals, with underscores), the file of --config, the options given to the run that is resumed, the recipe, "
    "the model's own settings (inception_mini has a learning rate, a schedule and more), the default. --print-config "
    "prints every value and its origin in a form that --config can read.",
    "A configuration file is flat YAML: one 'flag: value' per line, comments after #, and quotes around text where "
    "YAML requires them. Tags, anchors, aliases, lists, nesting, tabs, null, octal numbers, unknown keys and duplicate "
    "keys are rejected with file, line and column.",
    NULL,
};

/* ---- the parts of a row */

bool option_visible(OptionId id)
{
    for (Verb verb = VERB_NONE; verb < VERB_COUNT; verb++)
        if (option_belongs(id, verb) && (verb == VERB_NONE || !verb_info(verb)->hidden)) return true;
    return false;
}

Verb option_home(OptionId id)
{
    Verb verb = VERB_NONE + 1;
    while (verb < VERB_COUNT && !option_belongs(id, verb)) verb++;
    return verb < VERB_COUNT ? verb : VERB_NONE;
}

static bool default_is_true(OptionId id)
{
    char value[OPTION_FORMAT_BYTES];
    return option_info(id)->type == OPTION_IS_FLAG &&
           !strcmp(option_format(&option_defaults, id, value, sizeof value), "true");
}

void option_usage(OptionId id, char *text, size_t bytes)
{
    const OptionInfo *info = option_info(id);
    const char *value = info->type == OPTION_IS_CHOICE ? "NAME" : info->metavar ? info->metavar : "";
    snprintf(text, bytes, "--%s%s%s%s", default_is_true(id) ? "[no-]" : "", info->flag, *value ? " " : "", value);
}

void option_usual(OptionId id, char *text, size_t bytes)
{
    char value[OPTION_FORMAT_BYTES];
    const char *usual = option_format(&option_defaults, id, value, sizeof value);
    if (option_info(id)->type == OPTION_IS_FLAG) usual = default_is_true(id) ? "on" : "";
    snprintf(text, bytes, "%s", usual);
}

/* Choices, or the optimizers that use a hyperparameter, are inserted after the concept, before the explanations that follow
 * the first semicolon. */
void option_story(OptionId id, char *text, size_t bytes)
{
    char value[OPTION_FORMAT_BYTES], choices[STORY_BYTES / 2], optimizers[STORY_BYTES / 2];
    const OptionInfo *info = option_info(id);
    bool of = *option_optimizers(id, optimizers, sizeof optimizers) != 0;
    int concept = (int)strcspn(info->help, info->choices || of ? ";" : "");
    option_usual(id, value, sizeof value);
    Text list = text_start(choices, sizeof choices); /* ": sgd, momentum, adam" */
    for (int k = 0; info->choices && info->choices[k]; k++) text_add(&list, "%s%s", k ? ", " : ": ", info->choices[k]);
    snprintf(text, bytes, "%.*s%s%s%s%s%s%s%s", concept, info->help, choices, of ? " of " : "", optimizers,
             info->help + concept, *value ? " (default: " : "", value, *value ? ")" : "");
}

bool option_value_words(OptionId id, int k, ValueWords *words)
{
    const OptionInfo *info = option_info(id);
    int values = 0;
    while (info->choices && info->choices[values]) values++;
    while (id == OPTION_ID_recipe && recipes[values].name) values++;
    if (k >= values) return false;
    const char *about = info->choices ? info->abouts[k] : recipes[k].text + strspn(recipes[k].text, "# ");
    snprintf(words->name, sizeof words->name, "%s", info->choices ? info->choices[k] : recipes[k].name);
    snprintf(words->about, sizeof words->about, "%.*s", (int)strcspn(about, "\n"), about); /* a recipe's title */
    return true;
}

/* ---- an option as a whole */

static void add_commands(OptionId id, Text *text)
{
    if (option_belongs(id, VERB_NONE)) return; /* all have it */
    for (Verb verb = VERB_NONE + 1, k = 0; verb < VERB_COUNT; verb++)
        if (option_belongs(id, verb)) text_add(text, "%s%s", k++ ? ", " : "Commands: ", verb_info(verb)->name);
    text_add(text, ". ");
}

/* "Alias: --wd. " */
static void add_aliases(OptionId id, Text *text)
{
    const char *all = option_info(id)->aliases ? option_info(id)->aliases : "";
    for (const char *p = all; *p;) {
        int length = (int)strcspn(p, ",");
        text_add(text, "%s--%.*s", p > all ? ", " : strchr(p, ',') ? "Aliases: " : "Alias: ", length, p);
        p += length + (p[length] == ',');
    }
    if (*all) text_add(text, ". ");
}

static void add_rivals(OptionId id, Text *text)
{
    OptionId other;
    int k = 0;
    for (; (other = option_rival(id, k)) != OPTION_ID_COUNT; k++)
        text_add(text, "%s--%s", k ? ", " : "Not together with ", option_info(other)->flag);
    if (k) text_add(text, ". ");
}

/* Whether a resumed run may change the option. */
static const char *resume_note(OptionId id)
{
    switch (option_info(id)->resume) {
    case RESUME_SAME: return "Must not change on resume.";
    case RESUME_TOTAL: return "May change on resume unless the schedule depends on it.";
    case RESUME_MADE: return "May change on resume if its effect is the same.";
    default: return "";
    }
}

static void add_related(OptionId id, Text *text)
{
    for (OptionId other = 0; other < OPTION_ID_COUNT; other++)
        if (option_visible(other) && condition_asks(other, id))
            text_add(text, "%s--%s", text->used ? ", " : "", option_info(other)->flag);
}

void option_describe(OptionId id, Verb verb, OptionWords *words)
{
    char usage[USAGE_BYTES - 8];
    const OptionInfo *info = option_info(id);
    option_usage(id, usage, sizeof usage);
    if (info->letter)
        snprintf(words->term, sizeof words->term, "-%c, %s", info->letter, usage);
    else
        snprintf(words->term, sizeof words->term, "%s", usage);
    option_story(id, words->story, sizeof words->story);
    condition_say(id, verb, words->condition, sizeof words->condition);
    Text facts = text_start(words->facts, sizeof words->facts),
         related = text_start(words->related, sizeof words->related);
    add_commands(id, &facts);
    add_aliases(id, &facts);
    add_rivals(id, &facts);
    text_add(&facts, "%s", resume_note(id));
    for (size_t last = strlen(words->facts); last && words->facts[last - 1] == ' '; last--) words->facts[last - 1] = 0;
    add_related(id, &related);
}

/* ---- commands */

void verb_usage(Verb verb, char *text, size_t bytes)
{
    const VerbInfo *info = verb_info(verb);
    snprintf(text, bytes, "towers %s%s%s", info->name, *info->arguments ? " " : "", info->arguments);
}

const char *exit_meaning(int code)
{
    return code >= 0 && code < (int)(sizeof exits / sizeof *exits) ? exits[code] : NULL;
}

bool verb_exits(Verb verb, int code)
{
    return code <= 2 || strchr(verb_info(verb)->exits, '0' + code);
}

bool verb_exits_by_signal(Verb verb)
{
    return strchr(verb_info(verb)->exits, 'n');
}
