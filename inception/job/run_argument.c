/* From the folder of a run to options; see run_argument.h. */
#include "inception/job/run_argument.h"

#include "inception/job/run_settings.h"
#include "inception/models/models.h"
#include "inception/options/config.h"
#include "towers/data/sources/source.h"
#include "towers/files/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Keys of args.yaml that belong to the network or its input; the others concern training or the machine. */
static const char *const kept_keys[] = {"data-path",     "dataset",     "val-split", "label-base", "background",
                                        "interpolation", "eval-resize", "eval-crop", "exif",       "img-size",
                                        "classes",       "variant",     "width",     "amp",        "amp-dtype",
                                        "loss",          NULL};

static bool is_kept(const char *line)
{
    for (int i = 0; kept_keys[i]; i++)
        if (!strncmp(line, kept_keys[i], strlen(kept_keys[i])) && line[strlen(kept_keys[i])] == ':') return true;
    return false;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* --val-split divides the data of the run; of other data, which may have been kept apart, all images are evaluated. */
static void val_split_drop(Options *options, const Options *own)
{
    bool other = options->data_path && own->data_path && !is_same_file(options->data_path, own->data_path);
    if (!other || own->val_split <= 0 || option_origin(options, "val-split") > ORIGIN_RECIPE) return;
    options->val_split = 0;
    if (!options->quiet && !source_splits(options->data_path))
        fprintf(stderr,
                "all images of %s are evaluated: --val-split %g of the run divided %s; if the data have only moved, "
                "give it again\n",
                options->data_path, own->val_split, own->data_path);
}

static Status settings_apply(Options *options, const char *run)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    Options own;
    TRY(path_join(path, run, "args.yaml"));
    TRY(config_load(path, &text, &bytes));
    options_init(&own);
    own.verb = options->verb;
    /* Blank out all lines but those to keep, so that line numbers in messages stay correct. */
    for (char *line = text, *end = text + bytes; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        if (!is_kept(line)) memset(line, ' ', (size_t)(stop - line));
        line = stop + 1;
    }
    Status st = options_apply_bytes(options, text, bytes, ORIGIN_RECIPE, path);
    if (st == OK) st = options_apply_bytes(&own, text, bytes, ORIGIN_RECIPE, path);
    if (st == OK) val_split_drop(options, &own);
    options_close(&own);
    free(text);
    return st;
}

Status run_argument_apply(Options *options)
{
    struct stat info;
    const Model *model = NULL;
    char *run = options->argument_count ? options->arguments[0] : NULL;
    if (!run || model_find(run, &model) == OK) return OK; /* a model name takes precedence over a folder */
    if (stat(run, &info) != 0) {
        char unknown[512];
        if (strchr(run, '/')) return FAIL(ERR_ARG, "cannot open the run '%s': %s", run, strerror(errno));
        snprintf(unknown, sizeof unknown, "%s", status_message());
        return FAIL(ERR_ARG, "%s; and there is no run directory '%s' here", unknown, run);
    }
    if (!S_ISDIR(info.st_mode))
        return FAIL(
            ERR_ARG,
            "'%s' is a file, but a model or a run directory was expected (for a weights file, use MODEL --weights %s)",
            run, run);
    TRY(run_model(run, &model));
    TRY(settings_apply(options, run));
    options->arguments[0] = (char *)model->name;
    if (!options->weights) options->weights = run;
    return OK;
}

json_t *run_class_names(const char *weights)
{
    char folder[PATH_BYTES];
    const char *last = strrchr(weights, '/');
    snprintf(folder, sizeof folder, "%.*s", last > weights ? (int)(last - weights) : 1, last ? weights : ".");
    json_t *root = run_environment(folder), *names = json_incref(json_object_get(root, "class_names"));
    json_decref(root);
    return names;
}
