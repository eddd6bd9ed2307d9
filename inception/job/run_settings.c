/* Read RUN/args.yaml back into options; see run_settings.h. The file is written by print_config.c and has lines
 * "key: value   # from ORIGIN". */
#include "inception/job/run_settings.h"

#include "inception/models/models.h"
#include "inception/options/config.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Status run_model(const char *run, const Model **model)
{
    json_t *root = json_of_run(run, "env.json");
    const char *name = json_string_value(json_object_get(root, "model"));
    Status st = name ? model_find(name, model)
                     : FAIL(ERR_ARG,
                            "'%s' is a folder, but not a run directory: it has no env.json that names a model (for a "
                            "checkpoint, use MODEL --weights %s)",
                            run, run);
    json_decref(root);
    return st;
}

static bool is_of_the_call(const char *line)
{
    char key[64];
    bool negated;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(line, ":\n"), line);
    OptionId id = option_find(key, &negated);
    return id != OPTION_ID_COUNT && option_is_of_the_call(id);
}

/* "lr: 0.1   # from command line" -> "command line". A quoted text value may contain anything. */
static const char *origin_of(const char *line)
{
    const char *at = strchr(line, ':');
    while (at && *++at == ' ') continue;
    if (at && *at == '"')
        for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
    at = at ? strstr(at, "# from ") : NULL;
    return at ? at + strlen("# from ") : "";
}

static bool was_given(const char *line)
{
    static const char *const givers[] = {"command line", "environment", "file", "run"};
    for (size_t i = 0; i < sizeof givers / sizeof *givers; i++)
        if (!strncmp(origin_of(line), givers[i], strlen(givers[i]))) return true;
    return false;
}

Status run_settings_apply(Options *options, const char *run, char **text, size_t *bytes)
{
    char path[PATH_BYTES];
    TRY(path_join(path, run, "args.yaml"));
    if (access(path, F_OK) != 0) return OK;
    TRY(config_load(path, text, bytes));
    for (char *line = *text, *end = line + *bytes; line < end;) { /* keep line numbers for messages */
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        char last = *stop;
        *stop = 0;
        if (is_of_the_call(line) || !was_given(line)) memset(line, ' ', (size_t)(stop - line));
        *stop = last;
        line = stop + 1;
    }
    return options_apply_bytes(options, *text, *bytes, ORIGIN_RUN, path);
}
