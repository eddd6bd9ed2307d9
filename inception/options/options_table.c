/* The rows of options.def as tables, and lookup of names: exact, aliases, and similar ones for suggestions. */
#include "inception/models/near_name.h"
#include "inception/options/options_internal.h"
#include "kernels/base/text.h"
#include "towers/replica/job.h"

/* The words of the rows. */
enum {
    NO_VERB = 1 << VERB_NONE,
#define COMMAND(id, ...) id = 1 << VERB_##id,
#include "inception/options/commands.def"
    LEARN = TRAIN | LR_FIND,
    EVERY_VERB = (1 << VERB_COUNT) - 1,
};
#define BASIC LEVEL_BASIC
#define DEBUG LEVEL_DEBUG
#define SAME RESUME_SAME
#define TOTAL RESUME_TOTAL
#define MADE RESUME_MADE
#define TAKEN BROUGHT_TAKEN
#define LEFT BROUGHT_LEFT
#define FILE_OF_CALL BROUGHT_FILE_OF_CALL
#define COMMAND_OF_CALL BROUGHT_COMMAND_OF_CALL
#define JOB(member)                                                                                                      \
    {                                                                                                                    \
        .type = _Generic(((TrainJob *)0)->member,                                                                      \
            bool: FILL_BOOL,                                                                                           \
            int: FILL_INT,                                                                                             \
            unsigned: FILL_INT, /* and enums */                                                                        \
            int64_t: FILL_INT64,                                                                                       \
            uint64_t: FILL_INT64,                                                                                      \
            float: FILL_FLOAT,                                                                                         \
            double: FILL_DOUBLE,                                                                                       \
            const char *: FILL_TEXT),                                                                                  \
        .offset = offsetof(TrainJob, member) \
    }
#define NOT_IN_CONFIG OPTION_NOT_IN_CONFIG
#define ONLY_TYPED OPTION_ONLY_TYPED
_Static_assert(VERB_COUNT < 31, "a set of commands is an int");

#define CHOICE(value, name, about) [value] = name,
#define CHOICES(type, ...) static const char *const type##_names[] = {__VA_ARGS__ NULL};
#define CHOICES_OF CHOICES
#include "inception/options/options.def"
#undef CHOICE
#define CHOICE(value, name, about) [value] = about,
#define CHOICES(type, ...) static const char *const type##_abouts[] = {__VA_ARGS__ NULL};
#define CHOICES_OF CHOICES
#include "inception/options/options.def"

static const char *const OptimizerChoice_names[] = {
#define OPTIMIZER(KIND, rule, name, ...) name,
#define OPTIMIZER_AS(CHOICE, name, ...) name,
#include "kernels/optimizers.def"
    NULL,
};
static const char *const OptimizerChoice_abouts[] = {
#define OPTIMIZER(KIND, rule, name, states, start, uses, momentum, epsilon, about) about,
#define OPTIMIZER_AS(CHOICE, name, KIND, momentum, nesterov, about) about,
#include "kernels/optimizers.def"
    NULL,
};

#define OPTION_CHOICE(type, ...) _Static_assert(sizeof(type) == sizeof(int), "a choice is stored as an int");
#include "inception/options/options.def"

const Options option_defaults = {
#define OPTION_INT(field, value, ...) .field = value,
#define OPTION_REAL(field, value, ...) .field = value,
#define OPTION_FLAG(field, value, ...) .field = value,
#define OPTION_CHOICE(type, field, value, ...) .field = value,
#define OPTION_TEXT(field, value, ...) .field = value,
#include "inception/options/options.def"
};

#define FIELD(kind, field)                                                                                             \
    .type = kind, .flag = (char[]){#field}, .offset = offsetof(Options, field), .bytes = sizeof(((Options *)0)->field)

static OptionInfo infos[OPTION_ID_COUNT] = {
/* flag and group are completed below */
#define OPTION_INT(field, value, least_, most_, ...)                                                                   \
    [OPTION_ID_##field] = {FIELD(OPTION_IS_INT, field), .least = least_, .most = most_, __VA_ARGS__},
#define OPTION_REAL(field, value, least, most, ...)                                                                    \
    [OPTION_ID_##field] = {FIELD(OPTION_IS_REAL, field), .real_least = least, .real_most = most, __VA_ARGS__},
#define OPTION_FLAG(field, value, ...) [OPTION_ID_##field] = {FIELD(OPTION_IS_FLAG, field), __VA_ARGS__},
#define OPTION_CHOICE(type, field, value, ...)                                                                         \
    [OPTION_ID_##                                                                                                      \
        field] = {FIELD(OPTION_IS_CHOICE, field), .choices = type##_names, .abouts = type##_abouts, __VA_ARGS__},
#define OPTION_LIST(field, least_, most_, ...)                                                                         \
    [OPTION_ID_##field] = {FIELD(OPTION_IS_LIST, field), .least = least_, .most = most_, __VA_ARGS__},
#define OPTION_TEXT(field, value, ...) [OPTION_ID_##field] = {FIELD(OPTION_IS_TEXT, field), __VA_ARGS__},
#include "inception/options/options.def"
};

static const VerbInfo verbs[VERB_COUNT] = {
    [VERB_NONE] = {.name = "", .arguments = "", .summary = "", .hidden = true},
#define COMMAND(id, name_, open, run, ...) [VERB_##id] = {.name = name_, __VA_ARGS__},
#include "inception/options/commands.def"
};

static const struct {
    const char *title;
    OptionId first;
} groups[GROUP_COUNT] = {
#define OPTION_GROUP(id, title) [GROUP_##id] = {title, (OptionId)OPTION_FIRST_##id},
#include "inception/options/options.def"
};

static const OptionId exclusive[][2] = {
#define EXCLUSIVE(a, b) {OPTION_ID_##a, OPTION_ID_##b},
#include "inception/options/options.def"
};

/* ---- the tables */

/* Before main: a flag is its field with dashes, and its group the last one that begins before it. */
__attribute__((constructor)) static void rows_complete(void)
{
    OptionGroup group = 0;
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        while (group + 1 < GROUP_COUNT && groups[group + 1].first <= id) group++;
        infos[id].group = group;
        for (char *p = infos[id].flag; *p; p++) *p = *p == '_' ? '-' : *p;
    }
}

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
    return groups[group].title;
}

bool option_is_of_the_call(OptionId id)
{
    return id == OPTION_ID_resume || id == OPTION_ID_output_dir || id == OPTION_ID_experiment ||
           infos[id].group == GROUP_GENERAL;
}

bool option_belongs(OptionId id, Verb verb)
{
    return infos[id].verbs & (UINT64_C(1) << verb);
}

Use options_use(const Options *options)
{
    return verbs[options->verb].use;
}

const char *options_command(const Options *options)
{
    return verbs[options->verb].name;
}

bool option_is_shared(const Options *options, OptionId id)
{
    bool shared = !infos[id].local && infos[id].group != GROUP_GENERAL;
    return shared && (option_belongs(id, VERB_TRAIN) || option_belongs(id, options->verb));
}

Verb verb_find(const char *name)
{
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++)
        if (!strcmp(verbs[verb].name, name)) return verb;
#define COMMAND_ALIAS(alias, id)                                                                                       \
    if (!strcmp(alias, name)) return VERB_##id;
#include "inception/options/commands.def"
    return VERB_NONE;
}

bool same_name(const char *a, const char *b, size_t bytes)
{
    if (strlen(a) != bytes) return false;
    for (size_t k = 0; k < bytes; k++)
        if ((a[k] == '_' ? '-' : a[k]) != b[k]) return false;
    return true;
}

bool has_alias(const char *name, const char *aliases)
{
    for (const char *p = aliases; p && *p;) {
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

OptionId option_rival(OptionId id, int k)
{
    for (size_t pair = 0; pair < sizeof exclusive / sizeof *exclusive; pair++)
        for (int side = 0; side < 2; side++)
            if (exclusive[pair][side] == id && k-- == 0) return exclusive[pair][1 - side];
    return OPTION_ID_COUNT;
}

/* ---- similar names */

/* All names of the options of a set of commands, flags first, then aliases; names point into `space`. */
static int verb_names(uint64_t of, const char **names, int most, char *space, size_t bytes)
{
    int count = 0;
    for (OptionId id = 0; id < OPTION_ID_COUNT && count < most; id++)
        if (infos[id].verbs & of) names[count++] = infos[id].flag;
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        if (!(infos[id].verbs & of) || !infos[id].aliases) continue;
        int used = snprintf(space, bytes, "%s", infos[id].aliases);
        if (used < 0 || (size_t)used >= bytes) break;
        for (char *rest = space, *name; count < most && (name = strsep(&rest, ","));)
            if (*name) names[count++] = name;
        space += used + 1;
        bytes -= (size_t)used + 1;
    }
    return count;
}

void suggest_option(Verb verb, const char *typed, const char *dashes, char *text, size_t bytes)
{
    const char *names[3 * OPTION_ID_COUNT];
    char space[32 * OPTION_ID_COUNT], plain[NAME_BYTES];
    int count = verb_names(UINT64_C(1) << verb, names, 3 * OPTION_ID_COUNT, space, sizeof space);
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

void words_near(const char *word, char *buffer, size_t bytes)
{
    enum { MOST = 6, LONG_ENOUGH = 3 };
    const char *names[VERB_COUNT + 3 * OPTION_ID_COUNT];
    char space[32 * OPTION_ID_COUNT];
    Text text = text_start(buffer, bytes);
    int commands = 0, found = 0;
    uint64_t shown = 0;
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
        if (verbs[verb].hidden) continue;
        names[commands++] = verbs[verb].name;
        shown |= UINT64_C(1) << verb;
    }
    int count = commands + verb_names(shown, names + commands, 3 * OPTION_ID_COUNT, space, sizeof space);
    for (int k = commands; strlen(word) >= LONG_ENOUGH && k < count; k++)
        if (strstr(names[k], word) && found++ < MOST)
            text_add(&text, "%s--%s", found == 1 ? "; near it: " : ", ", names[k]);
    const char *near = found ? NULL : nearest_name(word, names, count);
    if (near) text_add(&text, "; did you mean 'towers help %s'?", near);
}

void list_verbs(OptionId id, char *buffer, size_t bytes)
{
    Text text = text_start(buffer, bytes);
    for (Verb verb = VERB_NONE + 1; verb < VERB_COUNT; verb++)
        if (option_belongs(id, verb)) text_add(&text, "%s%s", text.used ? ", " : "", verbs[verb].name);
}
