/* Read RUN/args.yaml back into options; see run_argument.h. The file is written by print_config.c and has lines
 * "key: value   # from ORIGIN". */
#include "inception/job/run_argument.h"

#include "inception/job/named_model.h"
#include "inception/options/config.h"
#include "towers/record/setting_line.h"

Status run_model(const char *run, const Model **model)
{
    json_t *root = json_of_run(run, "env.json");
    const char *name = json_word(root, "model");
    Status st = name ? model_kept(name, run, model)
                     : FAIL(ERR_ARG,
                            "'%s' is a folder, but not a run directory: it has no env.json that names a model (for a "
                            "checkpoint, use MODEL --weights %s)",
                            run, run);
    json_decref(root);
    return st;
}

/* Whether the user gave it, or a recipe that the run got by default. Since the run began, a model may ask for --winograd, and
 * the default of --reduce has changed, so these are taken over, whoever gave them. Options of one call only are not. */
static bool is_taken_over(const SettingLine *setting)
{
    static const char *const givers[] = {"command line", "environment", "file", "run", "default recipe"};
    bool negated;
    OptionId id = option_find(setting->key, &negated);
    bool given = id == OPTION_ID_winograd || id == OPTION_ID_reduce;
    for (size_t i = 0; i < sizeof givers / sizeof *givers; i++)
        given |= !strncmp(setting->origin, givers[i], strlen(givers[i]));
    return given && (id == OPTION_ID_COUNT || !option_is_of_the_call(id));
}

/* In place, in the blanks before the comment: the schedule that earlier versions called onecycle, PyTorch's name for another. */
static void names_of_today(char *text)
{
    static const char then[] = "sched: onecycle ", now[] = "sched: rise-fall";
    _Static_assert(sizeof then == sizeof now, "it takes the place of one blank more");
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, then, sizeof then - 1)) memcpy(line, now, sizeof now - 1);
    }
}

Status run_settings_load(const char *run, char path[PATH_BYTES], char **text, size_t *bytes)
{
    TRY(path_join(path, run, "args.yaml"));
    TRY(config_load(path, text, bytes));
    Status st = settings_whole(path, *text);
    if (st != OK)
        free(*text), *text = NULL;
    else
        names_of_today(*text);
    return st;
}

/* Whether a line begins with the key, or says in a comment that it is not set. */
static bool has_key(const char *text, const char *key)
{
    size_t bytes = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        line += strspn(line, "# ");
        if (!strncmp(line, key, bytes) && line[bytes] == ':') return true;
    }
    return false;
}

Status run_settings_before(Options *options, const char *text, OptionOrigin origin, const char *path)
{
    if (has_key(text, "join-equal")) return OK;
    return options_apply_yaml(options, "join-equal: false\n", origin, path);
}

Status run_settings_apply(Options *options, const char *run, char **text, size_t *bytes)
{
    char path[PATH_BYTES];
    SettingLine setting;
    TRY(path_join(path, run, "args.yaml"));
    if (access(path, F_OK) != 0) return OK;
    TRY(run_settings_load(run, path, text, bytes));
    TRY(run_settings_before(options, *text, ORIGIN_RUN, path));
    for (char *line = *text, *end = line + *bytes; line < end;) { /* keep line numbers for messages */
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        if (!setting_line_read(line, &setting) || !is_taken_over(&setting)) memset(line, ' ', (size_t)(stop - line));
        line = stop + 1;
    }
    return options_apply_bytes(options, *text, *bytes, ORIGIN_RUN, path);
}
