/* Merges all origins of options: command line, environment and YAML entries all pass through set_option.
 *
 * An option is found by flag or alias; dashes and underscores are equal. A value is parsed first, so that an invalid
 * one is rejected even if a higher origin has set the option, and stored only if none has. */
#include "inception/options/options_internal.h"

#include <ctype.h>

#include "inception/models/near_name.h"
#include "inception/options/config.h"
#include "inception/options/values.h"
#include "kernels/base/text.h"
#include "towers/remote/address.h"

enum { VERBS_BYTES = 128 };

struct OptionText {
    OptionText *next;
    char text[];
};

/* The origin of a value: `label` starts messages ("train.yaml:3:9: lr"), `where` is recorded ("train.yaml:3"). */
typedef struct OptionSource {
    OptionOrigin origin;
    const char *label, *where;
} OptionSource;

/* ---- strings that live as long as the options */

Status keep_text(Options *options, const char *text, const char **kept)
{
    size_t bytes = strlen(text) + 1;
    OptionText *made = malloc(sizeof *made + bytes);
    if (!made) return FAIL(ERR_MEMORY, "no memory for the options");
    memcpy(made->text, text, bytes);
    made->next = options->texts;
    options->texts = made;
    *kept = made->text;
    return OK;
}

void options_init(Options *options)
{
    *options = option_defaults;
}

void options_close(Options *options)
{
    while (options->texts) {
        OptionText *next = options->texts->next;
        free(options->texts);
        options->texts = next;
    }
    free(options->arguments);
    *options = option_defaults;
}

/* ---- set_option: all origins meet here */

/* The higher origin of an exclusive pair wins; two of the same origin are an error. *wins: `id` may be stored. */
static Status settle_pair(Options *options, OptionId id, OptionId other, const OptionSource *source, bool *wins)
{
    OptionOrigin theirs = options->origin[other];
    if (theirs == source->origin)
        return FAIL(ERR_ARG, "%s: --%s and --%s exclude each other; use only one of them (the other one comes from %s)",
                    source->label, option_info(id)->flag, option_info(other)->flag, options->where[other]);
    if (theirs > source->origin) *wins = false;
    if (theirs != ORIGIN_DEFAULT && theirs < source->origin) {
        const OptionInfo *info = option_info(other);
        memcpy((char *)options + info->offset, (const char *)&option_defaults + info->offset, info->bytes);
        options->origin[other] = ORIGIN_DEFAULT;
        options->where[other] = NULL;
    }
    return OK;
}

static Status set_option(Options *options, OptionId id, bool negated, const char *text, const OptionSource *source)
{
    const OptionInfo *info = option_info(id);
    OptionValue value;
    TRY(read_value(info, text, source->label, &value));
    bool wins = option_belongs(id, options->verb) && source->origin >= options->origin[id];
    if (wins) {
        OptionId other;
        for (int k = 0; (other = option_rival(id, k)) != OPTION_ID_COUNT; k++)
            TRY(settle_pair(options, id, other, source, &wins));
        options->displaced[id] |= !wins && source->origin == ORIGIN_RUN && strcmp(text, "none") != 0;
    }
    if (!wins) return OK;
    if (info->type == OPTION_IS_FLAG) value.flag ^= negated;
    if (info->type == OPTION_IS_TEXT) TRY(keep_text(options, text, &value.text));
    TRY(keep_text(options, source->where, &options->where[id]));
    memcpy((char *)options + info->offset, &value, info->bytes);
    options->origin[id] = source->origin;
    return OK;
}

/* ---- the command line */

typedef struct ArgumentScan {
    int argc, next; /* argv[next] is read next */
    char *const *argv;
    Options *options;
} ArgumentScan;

static Status refuse_flag(Verb verb, const char *typed)
{
    char hint[LABEL_BYTES];
    const char *name = verb_info(verb)->name, *gap = verb == VERB_NONE ? "" : " ";
#define FLAG_REFUSED(flag, instead)                                                                                    \
    if (same_name(typed, flag, strlen(flag)))                                                                          \
        return FAIL(ERR_ARG, "--%s is not an option of 'towers%s%s': %s", typed, gap, name, instead);
#define FLAG_FORMER FLAG_REFUSED
#include "inception/options/options.def"
    suggest_option(verb, typed, "--", hint, sizeof hint);
    return FAIL(ERR_ARG, "--%s is not an option of 'towers%s%s'%s ('towers%s%s --help-all' lists all options)", typed,
                gap, name, hint, gap, name);
}

static Status refuse_verb(Verb verb, OptionId id, const char *typed)
{
    char owners[VERBS_BYTES];
    list_verbs(id, owners, sizeof owners);
    if (!*owners) return FAIL(ERR_ARG, "--%s cannot follow a command; use: towers --%s", typed, typed);
    if (verb == VERB_NONE) return FAIL(ERR_ARG, "--%s must follow a command that has this option: %s", typed, owners);
    return FAIL(ERR_ARG, "--%s is not an option of 'towers %s'; the commands that have it: %s", typed,
                verb_info(verb)->name, owners);
}

/* The value of an option: the attached text, or the next argument unless it looks like an option. */
static Status take_value(ArgumentScan *scan, const char *label, const OptionInfo *info, const char *attached,
                         const char **value)
{
    const char *next = scan->next < scan->argc ? scan->argv[scan->next] : NULL;
    *value = attached;
    if (attached) return OK;
    bool option = next && next[0] == '-' && next[1] && !isdigit((unsigned char)next[1]) && next[1] != '.';
    if (!next || option)
        return FAIL(ERR_ARG, "%s needs a value: %s%s%s (%s)", label, label, label[1] == '-' ? "=" : " ",
                    info->metavar ? info->metavar : info->choices[0], info->help);
    *value = next;
    scan->next++;
    return OK;
}

static Status scan_long(ArgumentScan *scan, const char *argument)
{
    char name[NAME_BYTES], label[NAME_BYTES + 2];
    const char *equals = strchr(argument, '='), *value = "true";
    bool negated = false;
    snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - argument : (ptrdiff_t)sizeof name), argument);
    OptionId id = option_find(name, &negated);
    Verb verb = scan->options->verb;
    if (id == OPTION_ID_COUNT) return refuse_flag(verb, name);
    if (!option_belongs(id, verb)) return refuse_verb(verb, id, name);
    snprintf(label, sizeof label, "--%s", name);
    if (option_info(id)->type != OPTION_IS_FLAG)
        TRY(take_value(scan, label, option_info(id), equals ? equals + 1 : NULL, &value));
    else if (equals)
        value = equals + 1;
    return set_option(scan->options, id, negated, value, &(OptionSource){ORIGIN_COMMAND_LINE, label, label});
}

static OptionId letter_find(char letter, Verb verb)
{
    OptionId id = 0;
    while (id < OPTION_ID_COUNT && (option_info(id)->letter != letter || !option_belongs(id, verb))) id++;
    return id;
}

static Status refuse_letter(Verb verb, const char *argument)
{
    char owners[VERBS_BYTES];
    const VerbInfo *info = verb_info(verb);
    Text text = text_start(owners, sizeof owners);
    for (Verb other = VERB_NONE + 1; other < VERB_COUNT; other++)
        if (letter_find(argument[0], other) != OPTION_ID_COUNT)
            text_add(&text, "%s%s", text.used ? ", " : "", verb_info(other)->name);
    if (!*owners) return FAIL(ERR_ARG, "-%s is not an option; long options start with two dashes, e.g. --lr", argument);
    if (verb == VERB_NONE)
        return FAIL(ERR_ARG, "-%c must follow a command that has this option: %s", argument[0], owners);
    return FAIL(ERR_ARG,
                "-%c is not an option of 'towers %s'; the commands that have it: %s; usage: towers %s%s%s [OPTIONS]",
                argument[0], info->name, owners, info->name, info->arguments[0] ? " " : "", info->arguments);
}

/* -b 32 or -b32; letters are not bundled. */
static Status scan_letter(ArgumentScan *scan, const char *argument)
{
    char label[3] = {'-', argument[0], 0};
    const char *value = "true";
    OptionId id = letter_find(argument[0], scan->options->verb);
    if (id == OPTION_ID_COUNT) return refuse_letter(scan->options->verb, argument);
    if (option_info(id)->type != OPTION_IS_FLAG)
        TRY(take_value(scan, label, option_info(id), argument[1] ? argument + 1 : NULL, &value));
    else if (argument[1])
        return FAIL(ERR_ARG, "-%s: %s takes no value; give single-letter options separately", argument, label);
    return set_option(scan->options, id, false, value, &(OptionSource){ORIGIN_COMMAND_LINE, label, label});
}

/* Whether the usage has an address in the place of the next argument: "info|check PATH|ADDRESS [DIR]". */
static bool takes_address(const VerbInfo *verb, int argument)
{
    const char *word = verb->arguments, *more = strchr(word, ' ');
    for (; argument > 0 && more; argument--, more = strchr(word, ' ')) word = more + 1;
    const char *found = strstr(word, "ADDRESS");
    return found && (!more || found < more);
}

enum { ARGUMENT_BYTES = 256 };

/* An argument in a message: an address without what may be a secret. */
static const char *argument_shown(const char *argument, char text[ARGUMENT_BYTES])
{
    const char *scheme = strstr(argument, "://");
    snprintf(text, ARGUMENT_BYTES, "%.*s%s", scheme ? (int)(scheme - argument) : ARGUMENT_BYTES - 1, argument,
             scheme ? "://..." : "");
    return text;
}

static Status add_argument(Options *options, char *argument)
{
    char shown[ARGUMENT_BYTES];
    const VerbInfo *verb = verb_info(options->verb);
    if (verb->most >= 0 && options->argument_count >= verb->most)
        return FAIL(ERR_ARG, "unexpected argument '%s'; usage: towers %s%s%s [OPTIONS]",
                    argument_shown(argument, shown), options->verb == VERB_NONE ? "COMMAND" : verb->name,
                    verb->arguments[0] ? " " : "", verb->arguments);
    if (!is_address(argument) || !takes_address(verb, options->argument_count))
        TRY(address_check(argument, verb->name));
    options->arguments[options->argument_count++] = argument;
    return OK;
}

static Status scan_verb(ArgumentScan *scan)
{
    char shown[ARGUMENT_BYTES];
    const char *names[VERB_COUNT];
    int count = 0;
    if (scan->argc < 2 || scan->argv[1][0] == '-') return OK;
    scan->options->verb = verb_find(scan->argv[1]);
    scan->next = 2;
    if (scan->options->verb != VERB_NONE) return OK;
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++)
        if (!verb_info(verb)->hidden) names[count++] = verb_info(verb)->name;
    const char *near = nearest_name(scan->argv[1], names, count);
    return FAIL(ERR_ARG, "unknown command '%s'%s%s%s ('towers --help' lists all commands)",
                argument_shown(scan->argv[1], shown), near ? "; did you mean '" : "", near ? near : "",
                near ? "'?" : "");
}

/* ---- the environment */

/* An environment variable whose name almost matches an option is an error: ignoring it would silently train with other
 * settings than intended. */
static Status check_stray(const char *variable, const char *name)
{
    int limit = strlen(name) >= 5 ? 2 : 1;
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *flag = option_info(id)->flag;
        if (option_info(id)->verbs & OPTION_ONLY_TYPED || edit_distance(name, flag, limit) > limit) continue;
        return FAIL(ERR_ARG,
                    "the environment variable %s does not match an option; did you mean --%s? Rename or unset it",
                    variable, flag);
    }
    return OK;
}

static Status apply_variable(Options *options, const char *entry)
{
    char variable[NAME_BYTES], name[NAME_BYTES];
    const char *equals = strchr(entry, '=');
    bool negated = false;
    if (strncmp(entry, "TOWERS_", 7) || !equals || !equals[1]) return OK; /* empty counts as unset */
    if ((size_t)(equals - entry) >= sizeof variable) return OK;           /* longer than any flag */
    snprintf(variable, sizeof variable, "%.*s", (int)(equals - entry), entry);
    snprintf(name, sizeof name, "%s", variable + 7);
    for (char *p = name; *p; p++) *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    OptionId id = option_find(name, &negated);
    if (id == OPTION_ID_COUNT) return check_stray(variable, name);
    if (option_info(id)->verbs & OPTION_ONLY_TYPED) return OK;
    return set_option(options, id, negated, equals + 1, &(OptionSource){ORIGIN_ENVIRONMENT, variable, variable});
}

/* ---- YAML entries */

typedef struct Entries {
    Options *options;
    const char *name;
    OptionOrigin origin;
    int line[OPTION_ID_COUNT]; /* where each option was set; 0: not yet */
} Entries;

static bool is_former(const char *key)
{
#define FLAG_FORMER(flag, instead)                                                                                     \
    if (same_name(key, flag, strlen(flag))) return true;
#include "inception/options/options.def"
    return false;
}

static Status visit_entry(void *context, const ConfigEntry *entry)
{
    Entries *entries = context;
    char label[LABEL_BYTES], where[LABEL_BYTES];
    bool negated = false;
    OptionId id = option_find(entry->key, &negated);
    if (id == OPTION_ID_COUNT && is_former(entry->key)) return OK;
    if (id == OPTION_ID_COUNT) {
        char hint[LABEL_BYTES];
        suggest_option(entries->options->verb, entry->key, "", hint, sizeof hint);
        return FAIL(ERR_ARG, "%s:%d:%d: unknown option '%s'%s", entries->name, entry->key_line, entry->key_column,
                    entry->key, hint);
    }
    bool bare = option_info(id)->type == OPTION_IS_INT || option_info(id)->type == OPTION_IS_REAL ||
                option_info(id)->type == OPTION_IS_FLAG;
    if (option_info(id)->verbs & (OPTION_NOT_IN_CONFIG | OPTION_ONLY_TYPED))
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' is not allowed in a file; give it on the command line", entries->name,
                    entry->key_line, entry->key_column, entry->key);
    if (entries->line[id])
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' is set twice, first in line %d", entries->name, entry->key_line,
                    entry->key_column, entry->key, entries->line[id]);
    if (bare && entry->quoted)
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' expects %s, but a quoted value is text; remove the quotes", entries->name,
                    entry->line, entry->column, entry->key,
                    option_info(id)->type == OPTION_IS_FLAG ? "true or false" : "a number");
    bool value;
    if (option_info(id)->type == OPTION_IS_TEXT && !entry->quoted && !isdigit((unsigned char)*entry->value) &&
        text_to_flag(entry->value, &value) == VALUE_OK)
        return FAIL(ERR_ARG,
                    "%s:%d:%d: '%s' expects text, but %s without quotes is true or false: leave the line out to keep "
                    "the default, or put the text into quotes",
                    entries->name, entry->line, entry->column, entry->key, entry->value);
    entries->line[id] = entry->key_line;
    snprintf(label, sizeof label, "%s:%d:%d: %s", entries->name, entry->line, entry->column, entry->key);
    snprintf(where, sizeof where, "%s:%d", entries->name, entry->key_line);
    return set_option(entries->options, id, negated, entry->value, &(OptionSource){entries->origin, label, where});
}

Status options_apply_bytes(Options *options, const void *bytes, size_t count, OptionOrigin origin, const char *name)
{
    Entries entries = {.options = options, .name = name, .origin = origin};
    return config_parse(name, bytes, count, visit_entry, &entries);
}

Status options_apply_yaml(Options *options, const char *text, OptionOrigin origin, const char *name)
{
    return options_apply_bytes(options, text, strlen(text), origin, name);
}

Status options_apply_file(Options *options, const char *path, OptionOrigin origin)
{
    char *bytes = NULL;
    size_t count = 0;
    TRY(config_load(path, &bytes, &count));
    Status st = options_apply_bytes(options, bytes, count, origin, path);
    free(bytes);
    return st;
}

/* ---- names as typed */

static void flag_replace(char *text, size_t bytes, const char *flag, const char *typed)
{
    char before[STATUS_MESSAGE_BYTES];
    size_t length = strlen(flag);
    snprintf(before, sizeof before, "%s", text);
    Text to = text_start(text, bytes);
    for (const char *at = before; *at;) {
        bool found = !strncmp(at, "--", 2) && !strncmp(at + 2, flag, length) && at[2 + length] != '-' &&
                     !isalnum((unsigned char)at[2 + length]);
        text_add(&to, found ? "%s" : "%.1s", found ? typed : at);
        at += found ? 2 + length : 1;
    }
}

Status options_as_typed(const Options *options, Status status)
{
    StatusText words;
    status_keep(&words);
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        const char *typed = options->where[id];
        if (typed && !strncmp(typed, "--", 2) && has_alias(typed + 2, option_info(id)->aliases))
            flag_replace(words.message, sizeof words.message, option_info(id)->flag, typed);
    }
    return status_restore(status, &words);
}

/* What `towers help` explains may be written with its dashes: towers help --sched. */
static bool is_explained(const Options *options, const char *argument)
{
    return options->verb == VERB_HELP && strncmp(argument, "--help", 6) != 0 && strcmp(argument, "-h") != 0;
}

/* ---- parsing everything */

Status options_parse(int argc, char *const *argv, char *const *environment, Options *options)
{
    Status st = OK;
    ArgumentScan scan = {.argc = argc, .next = 1, .argv = argv, .options = options};
    options_init(options);
    options->arguments = calloc((size_t)argc + 1, sizeof *options->arguments);
    if (!options->arguments) return FAIL(ERR_MEMORY, "no memory for the options");
    TRY_OUT(scan_verb(&scan));
    bool only_arguments = false;
    while (scan.next < scan.argc) {
        char *argument = scan.argv[scan.next++];
        if (only_arguments || argument[0] != '-' || !argument[1])
            TRY_OUT(add_argument(scan.options, argument));
        else if (!strcmp(argument, "--"))
            only_arguments = true;
        else if (is_explained(scan.options, argument))
            TRY_OUT(add_argument(scan.options, argument));
        else if (argument[1] == '-')
            TRY_OUT(scan_long(&scan, argument + 2));
        else
            TRY_OUT(scan_letter(&scan, argument + 1));
    }
    if (options->help || options->help_all || options->help_debug || options->version)
        goto out; /* in spite of errors */
    for (char *const *entry = environment; entry && *entry; entry++) TRY_OUT(apply_variable(options, *entry));
    if (options->config) TRY_OUT(options_apply_file(options, options->config, ORIGIN_CONFIG));
out:
    if (st != OK) st = options_as_typed(options, st);
    if (st != OK) options_close(options);
    return st;
}

OptionOrigin option_origin(const Options *options, const char *flag)
{
    bool negated;
    OptionId id = option_find(flag, &negated);
    return id == OPTION_ID_COUNT ? ORIGIN_DEFAULT : options->origin[id];
}

bool option_is_set(const Options *options, const char *flag)
{
    return option_origin(options, flag) != ORIGIN_DEFAULT;
}

OptionId option_replaced_by(const Options *options, OptionId id)
{
    OptionId other;
    for (int k = 0; (other = option_rival(id, k)) != OPTION_ID_COUNT; k++)
        if (options->origin[other] != ORIGIN_DEFAULT) return other;
    return OPTION_ID_COUNT;
}
