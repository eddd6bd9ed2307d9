/* Reading a run directory; see run_read.h. */
#include "towers/record/run_read.h"
#include "kernels/array.h"
#include "towers/record/run_steps.h"
#include "towers/record/setting_line.h"
#include "towers/record/thinning.h"

enum { CLASSES_LIMIT = 1000 };

/* ---- results.csv, confusion.csv */

/* The next number of a row, up to a comma or the end; C's words (nan, inf) for numbers that are not finite. */
static bool number_next(const char **at, double *value)
{
    char *end;
    if (!**at || **at == ' ') return false;
    *value = strtod(*at, &end);
    if (end == *at || (*end && *end != ',')) return false;
    *at = *end ? end + 1 : end;
    return true;
}

static Status epoch_add(Run *run, const RunLines *lines, const char *line)
{
    enum { OLDEST = 8 /* numbers that every version wrote */ };
    EpochRecord epoch;
    double place[2];
    if (lines->number == 1) {
        run->several = epoch_header_known(line, true);
        return run->several || epoch_header_known(line, false) ? OK
                                                               : LINE_FAIL(lines, "expected the header of results.csv");
    }
    epoch_clear(&epoch);
    for (int i = 0; i < 2 + OLDEST || (i < 2 + EPOCH_COLUMNS && *line); i++)
        if (!number_next(&line, i < 2 ? &place[i] : epoch_number(&epoch, i - 2)))
            return LINE_FAIL(lines, "column %d is not a number", i + 1);
    if (*line) return LINE_FAIL(lines, "more than %d columns", 2 + EPOCH_COLUMNS);
    if (!(place[0] >= 0 && place[0] < 1e15 && place[1] >= 0 && place[1] < 1e15))
        return LINE_FAIL(lines, "epoch or step out of range");
    epoch.epoch = (int64_t)place[0];
    epoch.step = (int64_t)place[1];
    epoch.several = run->several;
    return ARRAY_ADD(run->epoch, run->epochs, "the epochs of a run", epoch);
}

/* The end of a field in quotes, or of one without, behind its comma. */
static const char *field_end(const char *line)
{
    bool quoted = false;
    for (; *line && (quoted || *line != ','); line++) quoted ^= *line == '"';
    return line + (*line == ',');
}

/* Names of the classes precede the counts of each row, and stand in a row above them; older versions wrote counts
 * alone. */
static Status confusion_row(Run *run, const RunLines *lines, const char *line)
{
    int row = (int)lines->number - 1 - run->confusion_named;
    if (row == 0 && !run->confusion) {
        run->confusion_named = !strncmp(line, "class,", strlen("class,"));
        run->classes = !run->confusion_named;
        for (const char *at = field_end(line); *at; at = field_end(at)) run->classes++;
        if (run->classes > CLASSES_LIMIT) return LINE_FAIL(lines, "%d classes", run->classes);
        run->confusion = calloc((size_t)run->classes * (size_t)run->classes, sizeof *run->confusion);
        if (!run->confusion) return FAIL(ERR_MEMORY, "no memory for the confusion matrix of %d classes", run->classes);
    }
    if (run->confusion_named && lines->number == 1) return OK;
    if (run->confusion_named) line = field_end(line);
    if (row >= run->classes) return LINE_FAIL(lines, "expected as many rows as columns");
    for (int c = 0; c < run->classes; c++) {
        double value;
        if (!number_next(&line, &value) || !(value >= 0 && value < 1e15 && value == floor(value)))
            return LINE_FAIL(lines, "column %d is not a count", c + 1);
        run->confusion[row * run->classes + c] = (int64_t)value;
    }
    return *line ? LINE_FAIL(lines, "more than %d columns", run->classes) : OK;
}

static Status confusion_end(Run *run, const RunLines *lines)
{
    if (lines->number == run->classes + run->confusion_named) return OK;
    return LINE_FAIL(lines, "the file ends after this row: expected %d rows", run->classes);
}

/* ---- layers.jsonl: {"step": 100, "layers": {"conv1.weight": [weight, gradient], ...}}, and norms.jsonl like it */

static Status pairs_add(RunPairs *to, const RunLines *lines, json_t *object, const char *key)
{
    RunPair row = {0};
    const char *name;
    json_t *pair, *pairs = json_object_get(object, key);
    if (!read_count(json_object_get(object, "step"), &row.step)) return LINE_FAIL(lines, "'step' is not " KIND_COUNT);
    if (!json_is_object(pairs)) return LINE_FAIL(lines, "'%s' is not an object", key);
    json_object_foreach(pairs, name, pair)
    {
        if (json_array_size(pair) != 2 || !read_real(json_array_get(pair, 0), &row.value[0]) ||
            !read_real(json_array_get(pair, 1), &row.value[1]))
            return LINE_FAIL(lines, "'%s': expected two numbers", name);
        TRY(name_find(&to->name, &to->names, name, &row.name));
        TRY(ARRAY_ADD(to->pair, to->count, "the layers of a run", row));
    }
    return OK;
}

static Status layers_add(Run *run, const RunLines *lines, json_t *object)
{
    return pairs_add(&run->layers, lines, object, "layers");
}

static Status norms_add(Run *run, const RunLines *lines, json_t *object)
{
    return pairs_add(&run->norms, lines, object, "norms");
}

/* ---- generated.jsonl; a line without "kid" is of a grid that was not measured */

static Status kid_add(Run *run, const RunLines *lines, json_t *object)
{
    RunKid kid = {0};
    const json_t *value = json_object_get(object, "kid"), *features = json_object_get(object, "features"),
                 *deviation = json_object_get(object, "kid_deviation");
    if (!read_count(json_object_get(object, "step"), &kid.step)) return LINE_FAIL(lines, "'step' is not " KIND_COUNT);
    if (!value) return OK;
    if (!read_real(value, &kid.kid)) return LINE_FAIL(lines, "'kid' is not " KIND_REAL);
    if (!deviation || !read_real(deviation, &kid.deviation))
        return LINE_FAIL(lines, "'kid_deviation' is not " KIND_REAL);
    if (!json_is_string(features)) return LINE_FAIL(lines, "'features' is not " KIND_WORD);
    TRY(name_find(&run->features_name, &run->features_names, json_string_value(features), &kid.features));
    return ARRAY_ADD(run->kid, run->kids, "the KIDs of a run", kid);
}

/* ---- files of lines */

/* A file, and one of these for each of its lines: an object of JSON, or a text. */
typedef struct LineFile {
    const char *name;
    Status (*object)(Run *run, const RunLines *lines, json_t *object);
    Status (*text)(Run *run, const RunLines *lines, const char *line);
    Status (*end)(Run *run, const RunLines *lines); /* behind the last line; may be NULL */
} LineFile;

static const LineFile line_files[] = {
    {"metrics.jsonl", step_add, NULL, NULL},
    {"results.csv", NULL, epoch_add, NULL},
    {"confusion.csv", NULL, confusion_row, confusion_end},
    {"layers.jsonl", layers_add, NULL, NULL},
    {"norms.jsonl", norms_add, NULL, NULL},
    {"generated.jsonl", kid_add, NULL, NULL},
};

static Status lines_read(Run *run, const LineFile *file, int64_t limit)
{
    Status st = OK;
    char path[PATH_BYTES];
    RunLines lines;
    bool open;
    Thinning thin = {0};
    json_t *object = NULL;
    TRY(path_join(path, run->path, file->name));
    TRY(lines_open(path, &lines, &open));
    if (!open && file == line_files)
        return FAIL(ERR_FORMAT, "'%s' is not a run directory: it has no metrics.jsonl", run->path);
    if (!open) return OK;
    for (const char *line; (line = lines_next(&lines));) {
        run->rows += file == line_files;
        if (file == line_files && !row_is_kept(&thin, &lines, limit)) continue;
        if (file->object) TRY_OUT(line_object(&lines, line, &object));
        TRY_OUT(file->object ? file->object(run, &lines, object) : file->text(run, &lines, line));
        json_decref(object);
        object = NULL;
    }
    if (ferror(lines.file)) TRY_OUT(FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno)));
    if (file == line_files) run->cut = lines.cut;
    if (file->end) TRY_OUT(file->end(run, &lines));
out:
    json_decref(object);
    lines_close(&lines);
    return st;
}

/* ---- texts */

static Status text_read(const char *path, char **text)
{
    struct stat info;
    size_t count;
    if (stat(path, &info) != 0 && errno == ENOENT) {
        *text = strdup("");
        return *text ? OK : FAIL(ERR_MEMORY, "no memory for an empty text");
    }
    return file_read(path, RUN_TEXT_BYTES, text, &count);
}

bool run_argument(const Run *run, const char *key, char *text, size_t bytes)
{
    SettingLine setting;
    for (const char *line = run->args; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (!setting_line_read(line, &setting) || strcmp(setting.key, key) != 0) continue;
        snprintf(text, bytes, "%s", setting.value);
        return true;
    }
    return false;
}

void run_host(const Run *run, int tower, char host[RUN_HOST_BYTES])
{
    json_t *root = run->environment ? json_loads(run->environment, 0, NULL) : NULL;
    const json_t *hosts = json_object_get(root, "hosts");
    const char *name =
        (int)json_array_size(hosts) == run->towers ? json_string_value(json_array_get(hosts, (size_t)tower)) : NULL;
    snprintf(host, RUN_HOST_BYTES, "%s", name ? name : "");
    json_decref(root);
}

/* ---- the whole */

static Status files_read(Run *run, int64_t limit)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof line_files / sizeof *line_files; i++) TRY(lines_read(run, &line_files[i], limit));
    TRY(path_join(path, run->path, "args.yaml"));
    bool there = access(path, F_OK) == 0; /* before it is read: a run may just begin */
    TRY(text_read(path, &run->args));
    if (there) TRY(settings_whole(path, run->args));
    TRY(path_join(path, run->path, "env.json"));
    return text_read(path, &run->environment);
}

Status run_read(const char *directory, int64_t limit, Run **made)
{
    Status st = OK;
    struct stat info;
    Run *run = NULL;
    if (stat(directory, &info) != 0) return FAIL(ERR_ARG, "no run '%s': %s", directory, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return FAIL(ERR_ARG, "'%s' is not a folder: expected a run directory", directory);
    run = calloc(1, sizeof *run);
    if (!run) return FAIL(ERR_MEMORY, "no memory for a run");
    run->path = strdup(directory);
    if (!run->path) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the name of a run"));
    size_t end = strlen(run->path);
    while (end > 1 && run->path[end - 1] == '/') run->path[--end] = 0;
    const char *slash = strrchr(run->path, '/');
    run->name = strdup(slash && slash[1] ? slash + 1 : run->path);
    TRY_OUT(run->name ? OK : FAIL(ERR_MEMORY, "no memory for the name of a run"));
    TRY_OUT(files_read(run, limit));
    *made = run;
    run = NULL;
out:
    run_destroy(run);
    return st;
}

static void names_free(char **names, int count)
{
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

void run_destroy(Run *run)
{
    if (!run) return;
    for (int64_t i = 0; i < run->block_count; i++) free(run->blocks[i]);
    free(run->blocks);
    names_free(run->layers.name, run->layers.names);
    free(run->layers.pair);
    names_free(run->norms.name, run->norms.names);
    free(run->norms.pair);
    names_free(run->term_name, run->term_names);
    free(run->term);
    names_free(run->features_name, run->features_names);
    free(run->kid);
    free(run->step);
    free(run->epoch);
    free(run->confusion);
    free(run->args);
    free(run->environment);
    free(run->path);
    free(run->name);
    free(run);
}
