/* The settings of a run that comes from a store; see foreign_settings.h. */
#include "inception/job/foreign_settings.h"

#include "inception/job/run_argument.h"
#include "inception/options/recipe.h"
#include "inception/options/settle.h"
#include "inception/options/values.h"
#include "towers/record/setting_line.h"

/* Whether a value is to stay out: each word as its option reads it. "none" is no command and no file. */
static bool is_foreign(OptionId id, const char *value)
{
    double number;
    switch (option_info(id)->brought) {
    case BROUGHT_LEFT: return *value;
    case BROUGHT_COMMAND_OF_CALL: return *value && strcmp(value, "none") != 0;
    case BROUGHT_FILE_OF_CALL:
        if (id == OPTION_ID_recipe) return !recipe_is_built_in(value);
        return *value && strcmp(value, "auto") != 0 && text_to_real(value, &number) != VALUE_OK;
    case BROUGHT_OPEN:
    case BROUGHT_TAKEN: break;
    }
    return false;
}

static Status setting_refuse(const Options *call, OptionId id, const char *value)
{
    const OptionInfo *info = option_info(id);
    bool command = info->brought == BROUGHT_COMMAND_OF_CALL;
    return FAIL(ERR_ARG,
                "--resume %s: the run in the store has --%s '%s', and a %s from a store is not %s: give it%s with --%s",
                call->resume, info->flag, value, command ? "command" : "name of a file", command ? "run" : "followed",
                command ? ", or none," : "", info->flag);
}

/* Those that the settings of the run, as they are read, have. *found: there is one. `report` may be NULL. */
static Status settings_look(const Options *call, const Options *theirs,
                            void (*report)(void *context, const char *flag, const char *value), void *context,
                            bool *found)
{
    char text[OPTION_FORMAT_BYTES];
    *found = false;
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        bool given = theirs->origin[id] == ORIGIN_RUN && option_info(id)->type == OPTION_IS_TEXT;
        const char *value = given ? option_format(theirs, id, text, sizeof text) : "";
        if (!given || !is_foreign(id, value)) continue;
        *found = true;
        if (call->origin[id] > ORIGIN_RUN) continue;
        if (option_info(id)->brought != BROUGHT_LEFT) return setting_refuse(call, id, value);
        if (report) report(context, option_info(id)->flag, value);
    }
    return OK;
}

/* `theirs`, which the caller closes: what a resumed run takes of RUN/args.yaml. */
static Status theirs_read(const char *run, Options *theirs)
{
    char *settings = NULL;
    size_t bytes;
    options_init(theirs);
    options_serve(theirs, VERB_TRAIN);
    Status st = run_settings_apply(theirs, run, &settings, &bytes);
    free(settings);
    return st;
}

static Status settings_read(const Options *call, const char *run, bool *found,
                            void (*report)(void *context, const char *flag, const char *value), void *context)
{
    Options theirs;
    Status st = theirs_read(run, &theirs);
    if (st == OK) st = settings_look(call, &theirs, report, context, found);
    options_close(&theirs);
    return st;
}

Status foreign_commands_refuse(const Options *call, const char *run)
{
    Options theirs;
    char text[OPTION_FORMAT_BYTES];
    Status st = theirs_read(run, &theirs);
    for (OptionId id = 0; st == OK && id < OPTION_ID_COUNT; id++) {
        const OptionInfo *info = option_info(id);
        if (info->brought != BROUGHT_COMMAND_OF_CALL || theirs.origin[id] != ORIGIN_RUN ||
            call->origin[id] > ORIGIN_RUN)
            continue;
        const char *value = option_format(&theirs, id, text, sizeof text);
        if (is_foreign(id, value))
            st = FAIL(ERR_ARG,
                      "--resume %s: that run is in %s, too, which has --%s '%s'; whoever writes to the store may have "
                      "given it: give it, or none, with --%s, or give --resume %s if it is yours",
                      call->resume, run, info->flag, value, info->flag, run);
    }
    options_close(&theirs);
    return st;
}

static bool line_is_foreign(const char *line)
{
    SettingLine setting;
    bool negated;
    OptionId id = setting_line_read(line, &setting) ? option_find(setting.key, &negated) : OPTION_ID_COUNT;
    return id < OPTION_ID_COUNT && option_info(id)->brought > BROUGHT_TAKEN && is_foreign(id, setting.value);
}

static Status lines_comment(const char *run)
{
    char path[PATH_BYTES], *text, *made = NULL;
    size_t bytes, room = 0;
    TRY(run_settings_load(run, path, &text, &bytes));
    FILE *to = open_memstream(&made, &room);
    for (const char *line = text, *end = text + bytes; to && line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t length = (size_t)((stop ? stop : end) - line);
        fprintf(to, "%s%.*s\n", line_is_foreign(line) ? "# left out: " : "", (int)length, line);
        line += length + 1;
    }
    free(text);
    Status st = to && fclose(to) == 0 ? text_replace(run, "args.yaml", made)
                                      : FAIL(ERR_MEMORY, "no memory for the settings of a run");
    free(made);
    return st;
}

Status foreign_settings_close(const Options *call, const char *run,
                              void (*report)(void *context, const char *flag, const char *value), void *context)
{
    bool found = false;
    TRY(settings_read(call, run, &found, report, context));
    if (!found) return OK;
    TRY(lines_comment(run));
    TRY(settings_read(call, run, &found, NULL, NULL));
    if (!found) return OK;
    return FAIL(
        ERR_FORMAT,
        "--resume %s: args.yaml of the run in the store names commands or files in another way than this program "
        "writes them: it is not from --upload",
        call->resume);
}
