/* The parser of options.h: command line, environment and YAML entries all end in set_option.
 *
 * An option is looked up by flag or alias; dashes and underscores are equal. A value is first read into a Value, so
 * that a bad one is refused even where a higher origin has already decided, then stored if no higher origin
 * has spoken. */
#include "inception/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "inception/config.h"
#include "inception/values.h"

enum { NAME_BYTES = 64, LABEL_BYTES = 512, VERBS_BYTES = 128, TEXT_MOST = 3000 /* a path, with names below it */ };

enum {
    NO_VERB = 1 << VERB_NONE,
#define VERB(id, name, arguments, most, summary) id = 1 << VERB_##id,
#define HIDDEN_VERB(id, name, arguments, most, summary) id = 1 << VERB_##id,
#include "inception/options.def"
    EVERY_VERB = (1 << VERB_COUNT) - 1,
    NOT_IN_CONFIG = OPTION_NOT_IN_CONFIG,
    ONLY_TYPED = OPTION_ONLY_TYPED,
};

#define CHOICES_BEGIN(type) static const char *const type##_names[] = {
#define CHOICE(value, name) [value] = name,
#define CHOICES_END(type)                                                                                              \
    NULL                                                                                                               \
    }                                                                                                                  \
    ;
#define CHOICES_OF(type) static const char *const type##_names[] = {
#define CHOICE_OF(value, name) [value] = name,
#define CHOICES_OF_END(type)                                                                                           \
    NULL                                                                                                               \
    }                                                                                                                  \
    ;
#include "inception/options.def"

#define OPTION_CHOICE(type, field, ...) _Static_assert(sizeof(type) == sizeof(int), "a choice is stored as an int");
#include "inception/options.def"

static const Options defaults = {
#define OPTION_INT(field, flag, letter, aliases, value, ...) .field = value,
#define OPTION_REAL(field, flag, letter, aliases, value, ...) .field = value,
#define OPTION_FLAG(field, flag, letter, aliases, value, ...) .field = value,
#define OPTION_CHOICE(type, field, flag, letter, aliases, value, ...) .field = value,
#define OPTION_TEXT(field, flag, letter, aliases, value, ...) .field = value,
#include "inception/options.def"
};

#define COMMON(kind, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_)                                  \
    .type = kind, .flag = flag_, .letter = letter_, .aliases = aliases_, .verbs = (uint32_t)(verbs_),                  \
    .level = LEVEL_##level_, .group = GROUP_##group_, .help = help_, .offset = offsetof(Options, field_),              \
    .bytes = sizeof(((Options *)0)->field_)

static const OptionInfo infos[OPTION_ID_COUNT] = {
#define OPTION_INT(field_, flag_, letter_, aliases_, value_, least_, most_, verbs_, level_, group_, metavar_, help_)   \
    [OPTION_ID_##field_] = {COMMON(OPTION_IS_INT, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_),    \
                            .metavar = metavar_, .least = least_, .most = most_},
#define OPTION_REAL(field_, flag_, letter_, aliases_, value_, least_, most_, verbs_, level_, group_, metavar_, help_)  \
    [OPTION_ID_##field_] = {COMMON(OPTION_IS_REAL, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_),   \
                            .metavar = metavar_, .real_least = least_, .real_most = most_},
#define OPTION_FLAG(field_, flag_, letter_, aliases_, value_, verbs_, level_, group_, help_)                           \
    [OPTION_ID_##field_] = {COMMON(OPTION_IS_FLAG, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_)},
#define OPTION_CHOICE(type_, field_, flag_, letter_, aliases_, value_, verbs_, level_, group_, help_)                  \
    [OPTION_ID_##field_] = {COMMON(OPTION_IS_CHOICE, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_), \
                            .choices = type_##_names},
#define OPTION_LIST(field_, flag_, letter_, aliases_, least_, most_, verbs_, level_, group_, metavar_, help_)          \
    [OPTION_ID_##field_] = {COMMON(OPTION_IS_LIST, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_),   \
                            .metavar = metavar_, .least = least_, .most = most_},
#define OPTION_TEXT(field_, flag_, letter_, aliases_, value_, verbs_, level_, group_, metavar_, help_)                 \
    [OPTION_ID_##field_] = {COMMON(OPTION_IS_TEXT, field_, flag_, letter_, aliases_, verbs_, level_, group_, help_),   \
                            .metavar = metavar_},
#include "inception/options.def"
};

static const VerbInfo verbs[VERB_COUNT] = {
    [VERB_NONE] = {"", "", "", 0, true},
#define VERB(id, name_, arguments_, most_, summary_) [VERB_##id] = {name_, arguments_, summary_, most_, false},
#define HIDDEN_VERB(id, name_, arguments_, most_, summary_) [VERB_##id] = {name_, arguments_, summary_, most_, true},
#include "inception/options.def"
};

static const char *const group_titles[GROUP_COUNT] = {
#define OPTION_GROUP_ROW(id, title) [GROUP_##id] = title,
#include "inception/options.def"
};

static const OptionId exclusive[][2] = {
#define EXCLUSIVE(a, b) {OPTION_ID_##a, OPTION_ID_##b},
#include "inception/options.def"
};

struct OptionText {
    OptionText *next;
    char text[];
};

/* Where a value comes from: `label` opens messages ("train.yaml:3:9: lr"), `where` is kept ("train.yaml:3"). */
typedef struct Source {
    OptionOrigin origin;
    const char *label, *where;
} Source;

typedef union Value {
    int64_t integer;
    double real;
    bool flag;
    int choice;
    IntList list;
    const char *text;
} Value;

/* ---- the table */

const OptionInfo *option_info(OptionId id)
{
    return &infos[id];
}

const VerbInfo *verb_info(Verb verb)
{
    return &verbs[verb];
}

const char *group_title(OptionGroup group)
{
    return group_titles[group];
}

bool option_belongs(OptionId id, Verb verb)
{
    return infos[id].verbs & (1u << verb);
}

Verb verb_find(const char *name)
{
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++)
        if (!strcmp(verbs[verb].name, name)) return verb;
    return VERB_NONE;
}

/* Equal up to dashes and underscores; `b` has `bytes` characters. */
static bool same_name(const char *a, const char *b, size_t bytes)
{
    if (strlen(a) != bytes) return false;
    for (size_t k = 0; k < bytes; k++)
        if ((a[k] == '_' ? '-' : a[k]) != b[k]) return false;
    return true;
}

static bool has_alias(const char *name, const char *aliases)
{
    for (const char *p = aliases; *p;) {
        size_t bytes = strcspn(p, ",");
        if (same_name(name, p, bytes)) return true;
        p += bytes + (p[bytes] == ',');
    }
    return false;
}

static OptionId find_exact(const char *name)
{
    OptionId id = 0;
    while (id < OPTION_ID_COUNT && !same_name(name, infos[id].flag, strlen(infos[id].flag)) &&
           !has_alias(name, infos[id].aliases))
        id++;
    return id;
}

OptionId option_find(const char *name, bool *negated)
{
    OptionId id = find_exact(name);
    *negated = false;
    if (id < OPTION_ID_COUNT || strncmp(name, "no", 2) || (name[2] != '-' && name[2] != '_')) return id;
    id = find_exact(name + 3);
    if (id == OPTION_ID_COUNT || infos[id].type != OPTION_IS_FLAG) return OPTION_ID_COUNT;
    *negated = true;
    return id;
}

/* ---- near names */

const char *nearest_name(const char *typed, const char *const *names, int count)
{
    int limit = strlen(typed) >= 4 ? 2 : 1, best = limit + 1;
    const char *nearest = NULL;
    for (int k = 0; k < count; k++) {
        int distance = edit_distance(typed, names[k], limit);
        bool begins = strlen(typed) >= 2 && !strncmp(typed, names[k], strlen(typed));
        if (begins && distance > 1) distance = 1;
        if (distance < best) {
            best = distance;
            nearest = names[k];
        }
    }
    return nearest;
}

static int choice_count(const OptionInfo *info)
{
    int count = 0;
    while (info->choices[count]) count++;
    return count;
}

/* All names of the verb's options, flags first, aliases after them; names point into `space`. */
static int verb_names(Verb verb, const char **names, int most, char *space, size_t bytes)
{
    int count = 0;
    for (OptionId id = 0; id < OPTION_ID_COUNT && count < most; id++)
        if (option_belongs(id, verb)) names[count++] = infos[id].flag;
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        if (!option_belongs(id, verb)) continue;
        int used = snprintf(space, bytes, "%s", infos[id].aliases);
        if (used < 0 || (size_t)used >= bytes) break;
        for (char *rest = space, *name; count < most && (name = strsep(&rest, ","));)
            if (*name) names[count++] = name;
        space += used + 1;
        bytes -= (size_t)used + 1;
    }
    return count;
}

/* " did you mean --batch-size?", or "". `dashes` is "--" or "". */
static void suggest_option(Verb verb, const char *typed, const char *dashes, char *text, size_t bytes)
{
    const char *names[3 * OPTION_ID_COUNT];
    char space[32 * OPTION_ID_COUNT], plain[NAME_BYTES];
    int count = verb_names(verb, names, 3 * OPTION_ID_COUNT, space, sizeof space);
    snprintf(plain, sizeof plain, "%s", typed);
    for (char *p = plain; *p; p++) *p = *p == '_' ? '-' : *p;
    bool negated = !strncmp(plain, "no-", 3);
    const char *near = nearest_name(plain, names, count), *no = "";
    if (!near && negated) {
        bool again;
        near = nearest_name(plain + 3, names, count);
        no = near && infos[option_find(near, &again)].type == OPTION_IS_FLAG ? "no-" : "";
    }
    if (near)
        snprintf(text, bytes, "; did you mean %s%s%s?", dashes, no, near);
    else
        text[0] = 0;
}

/* "train, bench" */
static void list_verbs(OptionId id, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT && used < bytes; verb++)
        if (option_belongs(id, verb))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", verbs[verb].name);
}

/* ---- texts that live as long as the options */

static Status keep_text(Options *options, const char *text, const char **kept)
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
    *options = defaults;
}

void options_close(Options *options)
{
    while (options->texts) {
        OptionText *next = options->texts->next;
        free(options->texts);
        options->texts = next;
    }
    free(options->arguments);
    *options = defaults;
}

/* ---- one value */

static bool takes_max(const OptionInfo *info)
{
    const char *bar = info->metavar ? strrchr(info->metavar, '|') : NULL;
    return bar && !strcmp(bar, "|max");
}

static void int_range(const OptionInfo *info, char *text, size_t bytes)
{
    if (info->most == INT64_MAX)
        snprintf(text, bytes, "at least %lld", (long long)info->least);
    else
        snprintf(text, bytes, "%lld to %lld%s", (long long)info->least, (long long)info->most,
                 takes_max(info) ? ", or max" : "");
}

static Status read_int(const OptionInfo *info, const char *text, const char *label, int64_t *value)
{
    char range[64];
    if (takes_max(info) && !strcmp(text, "max")) {
        *value = OPTION_MAX;
        return OK;
    }
    ValueVerdict verdict = text_to_int(text, value);
    int_range(info, range, sizeof range);
    if (verdict == VALUE_MALFORMED) return FAIL(ERR_ARG, "%s: '%s' is not a whole number (%s)", label, text, range);
    if (verdict == VALUE_TOO_LARGE || *value < info->least || *value > info->most)
        return FAIL(ERR_ARG, "%s: %s is out of range (%s)", label, text, range);
    return OK;
}

static Status read_real(const OptionInfo *info, const char *text, const char *label, double *value)
{
    char least[32], most[32];
    ValueVerdict verdict = text_to_real(text, value);
    real_to_text(info->real_least, least, sizeof least);
    real_to_text(info->real_most, most, sizeof most);
    if (verdict == VALUE_MALFORMED)
        return FAIL(ERR_ARG, "%s: '%s' is not a number (%s to %s, as 0.1 or 1e-3)", label, text, least, most);
    if (verdict == VALUE_TOO_LARGE || *value < info->real_least || *value > info->real_most)
        return FAIL(ERR_ARG, "%s: %s is out of range (%s to %s)", label, text, least, most);
    return OK;
}

static Status read_choice(const OptionInfo *info, const char *text, const char *label, int *value)
{
    char names[LABEL_BYTES];
    size_t used = 0;
    int count = choice_count(info);
    for (int k = 0; k < count; k++) {
        if (same_name(text, info->choices[k], strlen(info->choices[k]))) {
            *value = k;
            return OK;
        }
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", k ? ", " : "", info->choices[k]);
    }
    const char *near = nearest_name(text, info->choices, count);
    return FAIL(ERR_ARG, "%s: there is no '%s'%s%s%s (one of %s)", label, text, near ? "; did you mean " : "",
                near ? near : "", near ? "?" : "", names);
}

static Status read_list(const OptionInfo *info, const char *text, const char *label, IntList *list)
{
    *list = (IntList){0};
    for (const char *p = text;; p++) {
        char element[32];
        size_t bytes = strcspn(p, ",");
        if (bytes >= sizeof element) return FAIL(ERR_ARG, "%s: '%s' is not a list of numbers, as 1,2", label, text);
        snprintf(element, sizeof element, "%.*s", (int)bytes, p);
        if (list->count == OPTION_LIST_MAX) return FAIL(ERR_ARG, "%s: more than %d numbers", label, OPTION_LIST_MAX);
        TRY(read_int(info, element, label, &list->value[list->count]));
        list->count++;
        p += bytes;
        if (!*p) return OK;
    }
}

static Status read_flag(const char *text, const char *label, bool *value)
{
    if (text_to_flag(text, value) == VALUE_OK) return OK;
    return FAIL(ERR_ARG, "%s: '%s' is neither true nor false", label, text);
}

static Status read_value(const OptionInfo *info, const char *text, const char *label, Value *value)
{
    switch (info->type) {
    case OPTION_IS_INT: return read_int(info, text, label, &value->integer);
    case OPTION_IS_REAL: return read_real(info, text, label, &value->real);
    case OPTION_IS_FLAG: return read_flag(text, label, &value->flag);
    case OPTION_IS_CHOICE: return read_choice(info, text, label, &value->choice);
    case OPTION_IS_LIST: return read_list(info, text, label, &value->list);
    case OPTION_IS_TEXT: break;
    }
    if (!*text) return FAIL(ERR_ARG, "%s: the value is empty", label);
    if (strlen(text) > TEXT_MOST) return FAIL(ERR_ARG, "%s: the value has more than %d bytes", label, TEXT_MOST);
    value->text = text;
    return OK;
}

/* ---- set_option: where all origins meet */

static void reset_option(Options *options, OptionId id)
{
    memcpy((char *)options + infos[id].offset, (const char *)&defaults + infos[id].offset, infos[id].bytes);
    options->origin[id] = ORIGIN_DEFAULT;
    options->where[id] = NULL;
}

/* Of an exclusive pair the higher origin wins; two of one origin are a contradiction. *wins: may `id` be stored? */
static Status settle_pair(Options *options, OptionId id, OptionId other, const Source *source, bool *wins)
{
    OptionOrigin theirs = options->origin[other];
    if (theirs == source->origin)
        return FAIL(ERR_ARG, "%s: --%s and --%s exclude each other; give one of them (the other came from %s)",
                    source->label, infos[id].flag, infos[other].flag, options->where[other]);
    if (theirs > source->origin) *wins = false;
    if (theirs != ORIGIN_DEFAULT && theirs < source->origin) reset_option(options, other);
    return OK;
}

static Status settle_pairs(Options *options, OptionId id, const Source *source, bool *wins)
{
    for (size_t k = 0; k < sizeof exclusive / sizeof exclusive[0]; k++) {
        if (exclusive[k][0] == id) TRY(settle_pair(options, id, exclusive[k][1], source, wins));
        if (exclusive[k][1] == id) TRY(settle_pair(options, id, exclusive[k][0], source, wins));
    }
    return OK;
}

static Status set_option(Options *options, OptionId id, bool negated, const char *text, const Source *source)
{
    const OptionInfo *info = &infos[id];
    Value value;
    TRY(read_value(info, text, source->label, &value));
    bool wins = option_belongs(id, options->verb) && source->origin >= options->origin[id];
    if (wins) TRY(settle_pairs(options, id, source, &wins));
    if (!wins) return OK;
    if (info->type == OPTION_IS_FLAG) value.flag ^= negated;
    if (info->type == OPTION_IS_TEXT) TRY(keep_text(options, text, &value.text));
    TRY(keep_text(options, source->where, &options->where[id]));
    memcpy((char *)options + info->offset, &value, info->bytes);
    options->origin[id] = source->origin;
    return OK;
}

/* ---- the command line */

typedef struct Scan {
    int argc, next; /* argv[next] is read next */
    char *const *argv;
    Options *options;
} Scan;

static Status refuse_flag(Verb verb, const char *typed)
{
    char hint[LABEL_BYTES];
    const char *name = verbs[verb].name, *gap = verb == VERB_NONE ? "" : " ";
    suggest_option(verb, typed, "--", hint, sizeof hint);
    return FAIL(ERR_ARG, "--%s is not an option of 'towers%s%s'%s ('towers%s%s --help-all' shows all)", typed, gap,
                name, hint, gap, name);
}

static Status refuse_verb(Verb verb, OptionId id, const char *typed)
{
    char owners[VERBS_BYTES];
    list_verbs(id, owners, sizeof owners);
    if (verb == VERB_NONE) return FAIL(ERR_ARG, "--%s comes after the command, one of: %s", typed, owners);
    return FAIL(ERR_ARG, "--%s is not an option of 'towers %s', but of: %s", typed, verbs[verb].name, owners);
}

/* The value of an option that needs one: what is attached, or the next argument unless that looks like an option. */
static Status take_value(Scan *scan, const char *label, const OptionInfo *info, const char *attached,
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

static Status scan_long(Scan *scan, const char *argument)
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
    if (infos[id].type != OPTION_IS_FLAG)
        TRY(take_value(scan, label, &infos[id], equals ? equals + 1 : NULL, &value));
    else if (equals)
        value = equals + 1;
    return set_option(scan->options, id, negated, value, &(Source){ORIGIN_COMMAND_LINE, label, label});
}

/* -b 32 or -b32; letters are not bundled. */
static Status scan_letter(Scan *scan, const char *argument)
{
    char label[3] = {'-', argument[0], 0};
    const char *value = "true";
    OptionId id = 0;
    Verb verb = scan->options->verb;
    while (id < OPTION_ID_COUNT && infos[id].letter != argument[0]) id++;
    if (id == OPTION_ID_COUNT)
        return FAIL(ERR_ARG, "-%s is not an option; long ones have two dashes, as --lr", argument);
    if (!option_belongs(id, verb)) return refuse_verb(verb, id, infos[id].flag);
    if (infos[id].type != OPTION_IS_FLAG)
        TRY(take_value(scan, label, &infos[id], argument[1] ? argument + 1 : NULL, &value));
    else if (argument[1])
        return FAIL(ERR_ARG, "-%s: %s takes no value, and letters are not bundled", argument, label);
    return set_option(scan->options, id, false, value, &(Source){ORIGIN_COMMAND_LINE, label, label});
}

static Status add_argument(Options *options, char *argument)
{
    const VerbInfo *verb = &verbs[options->verb];
    if (verb->most >= 0 && options->argument_count >= verb->most)
        return FAIL(ERR_ARG, "'%s' is one argument too many; usage: towers %s%s%s [OPTIONS]", argument, verb->name,
                    verb->arguments[0] ? " " : "", verb->arguments);
    options->arguments[options->argument_count++] = argument;
    return OK;
}

static Status scan_arguments(Scan *scan)
{
    bool only_arguments = false;
    while (scan->next < scan->argc) {
        char *argument = scan->argv[scan->next++];
        if (only_arguments || argument[0] != '-' || !argument[1])
            TRY(add_argument(scan->options, argument));
        else if (!strcmp(argument, "--"))
            only_arguments = true;
        else if (argument[1] == '-')
            TRY(scan_long(scan, argument + 2));
        else
            TRY(scan_letter(scan, argument + 1));
    }
    return OK;
}

static Status scan_verb(Scan *scan)
{
    const char *names[VERB_COUNT];
    int count = 0;
    if (scan->argc < 2 || scan->argv[1][0] == '-') return OK;
    scan->options->verb = verb_find(scan->argv[1]);
    scan->next = 2;
    if (scan->options->verb != VERB_NONE) return OK;
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++)
        if (!verbs[verb].hidden) names[count++] = verbs[verb].name;
    const char *near = nearest_name(scan->argv[1], names, count);
    return FAIL(ERR_ARG, "there is no command '%s'%s%s%s ('towers --help' shows all)", scan->argv[1],
                near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* ---- the environment */

/* A variable that nearly has an option's name: silence would train with other settings than the user believes. */
static Status check_stray(const char *variable, const char *name)
{
    for (OptionId id = 0; strlen(name) >= 5 && id < OPTION_ID_COUNT; id++) {
        if (infos[id].verbs & ONLY_TYPED || edit_distance(name, infos[id].flag, 2) > 2) continue;
        return FAIL(ERR_ARG, "%s in the environment names no option; did you mean the one of --%s? Unset or rename it",
                    variable, infos[id].flag);
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
    if (infos[id].verbs & ONLY_TYPED) return OK;
    return set_option(options, id, negated, equals + 1, &(Source){ORIGIN_ENVIRONMENT, variable, variable});
}

/* ---- YAML entries */

typedef struct Entries {
    Options *options;
    const char *name;
    OptionOrigin origin;
    int line[OPTION_ID_COUNT]; /* where each option was seen; 0: not yet */
} Entries;

static Status refuse_key(const Entries *entries, const ConfigEntry *entry)
{
    char hint[LABEL_BYTES];
    suggest_option(entries->options->verb, entry->key, "", hint, sizeof hint);
    return FAIL(ERR_ARG, "%s:%d:%d: there is no option '%s'%s", entries->name, entry->key_line, entry->key_column,
                entry->key, hint);
}

static Status check_entry(Entries *entries, const ConfigEntry *entry, OptionId id)
{
    bool bare = infos[id].type == OPTION_IS_INT || infos[id].type == OPTION_IS_REAL || infos[id].type == OPTION_IS_FLAG;
    if (infos[id].verbs & (NOT_IN_CONFIG | ONLY_TYPED))
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' cannot stand in a file; it belongs on the command line", entries->name,
                    entry->key_line, entry->key_column, entry->key);
    if (entries->line[id])
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' comes twice, first in line %d", entries->name, entry->key_line,
                    entry->key_column, entry->key, entries->line[id]);
    if (bare && entry->quoted)
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' wants a %s, but quotes make it a text; leave them out", entries->name,
                    entry->line, entry->column, entry->key,
                    infos[id].type == OPTION_IS_FLAG ? "true or false" : "number");
    entries->line[id] = entry->key_line;
    return OK;
}

static Status visit_entry(void *context, const ConfigEntry *entry)
{
    Entries *entries = context;
    char label[LABEL_BYTES], where[LABEL_BYTES];
    bool negated = false;
    OptionId id = option_find(entry->key, &negated);
    if (id == OPTION_ID_COUNT) return refuse_key(entries, entry);
    TRY(check_entry(entries, entry, id));
    snprintf(label, sizeof label, "%s:%d:%d: %s", entries->name, entry->line, entry->column, entry->key);
    snprintf(where, sizeof where, "%s:%d", entries->name, entry->key_line);
    return set_option(entries->options, id, negated, entry->value, &(Source){entries->origin, label, where});
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

Status options_apply_file(Options *options, const char *path)
{
    char *bytes = NULL;
    size_t count = 0;
    TRY(config_load(path, &bytes, &count));
    Status st = options_apply_bytes(options, bytes, count, ORIGIN_CONFIG, path);
    free(bytes);
    return st;
}

/* ---- all of it */

static Status apply_lower_origins(Options *options, char *const *environment)
{
    if (options->help || options->help_all || options->version) return OK; /* help must come, whatever is wrong */
    for (char *const *entry = environment; entry && *entry; entry++) TRY(apply_variable(options, *entry));
    if (options->config) TRY(options_apply_file(options, options->config));
    return OK;
}

Status options_parse(int argc, char *const *argv, char *const *environment, Options *options)
{
    Status st = OK;
    Scan scan = {.argc = argc, .next = 1, .argv = argv, .options = options};
    options_init(options);
    options->arguments = calloc((size_t)argc + 1, sizeof *options->arguments);
    if (!options->arguments) return FAIL(ERR_MEMORY, "no memory for the options");
    TRY_OUT(scan_verb(&scan));
    TRY_OUT(scan_arguments(&scan));
    TRY_OUT(apply_lower_origins(options, environment));
out:
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
    for (size_t k = 0; k < sizeof exclusive / sizeof exclusive[0]; k++) {
        if (exclusive[k][0] == id && options->origin[exclusive[k][1]] != ORIGIN_DEFAULT) return exclusive[k][1];
        if (exclusive[k][1] == id && options->origin[exclusive[k][0]] != ORIGIN_DEFAULT) return exclusive[k][0];
    }
    return OPTION_ID_COUNT;
}

/* ---- values as text */

static void format_list(const IntList *list, char *buffer, size_t bytes)
{
    size_t used = 0;
    buffer[0] = 0;
    for (int k = 0; k < list->count && used < bytes; k++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%lld", k ? "," : "", (long long)list->value[k]);
}

const char *option_format(const Options *options, OptionId id, char *buffer, size_t bytes)
{
    const OptionInfo *info = &infos[id];
    Value value = {0};
    memcpy(&value, (const char *)options + info->offset, info->bytes);
    buffer[0] = 0;
    switch (info->type) {
    case OPTION_IS_INT:
        if (value.integer >= info->least && value.integer <= info->most)
            snprintf(buffer, bytes, "%lld", (long long)value.integer);
        else if (value.integer == OPTION_MAX && takes_max(info))
            snprintf(buffer, bytes, "max");
        break;
    case OPTION_IS_REAL:
        if (value.real >= info->real_least && value.real <= info->real_most) real_to_text(value.real, buffer, bytes);
        break;
    case OPTION_IS_FLAG: snprintf(buffer, bytes, "%s", value.flag ? "true" : "false"); break;
    case OPTION_IS_CHOICE: snprintf(buffer, bytes, "%s", info->choices[value.choice]); break;
    case OPTION_IS_LIST: format_list(&value.list, buffer, bytes); break;
    case OPTION_IS_TEXT: return value.text ? value.text : buffer;
    }
    return buffer;
}

const char *option_default_text(OptionId id, char *buffer, size_t bytes)
{
    return option_format(&defaults, id, buffer, bytes);
}
