/* Reading a run directory; see run_read.h. */
#include "towers/record/run_read.h"
#include "kernels/base/array.h"
#include "kernels/base/place.h"
#include "towers/files/json.h"
#include "towers/record/run_steps.h"
#include "towers/record/setting_line.h"
#include "towers/record/thinning.h"

enum { CLASSES_LIMIT = 1000 };

/* ---- results.csv, confusion.csv */

/* The next number of a row, up to a comma or the end; C's words (nan, inf) for numbers that are not finite; an empty field
 * is absent. `*more`: a comma follows. */
static bool number_next(const char **at, Number *value, bool *more)
{
    char *end = (char *)*at;
    *value = ABSENT;
    if (**at == ' ') return false;
    if (**at && **at != ',') {
        *value = strtod(*at, &end);
        if (end == *at || (*end && *end != ',')) return false;
    }
    *more = *end == ',';
    *at = end + *more;
    return true;
}

/* Older versions wrote nan for what was not measured. Their rows have no empty field, which ours always have: no model has
 * both a test and a term of GANs. The training loss was always measured, and the test loss beside a score. */
static void older_nan_read(EpochRecord *epoch)
{
    for (int i = 0; i < EPOCH_COLUMNS; i++) {
        Number *number = epoch_number(epoch, i);
        bool measured = number == &epoch->train_loss || (number == &epoch->test_loss && isfinite(epoch->test_top1));
        if (isnan(*number) && !measured) *number = ABSENT;
    }
}

static Status epoch_add(Run *run, const RunLines *lines, const char *line)
{
    enum { OLDEST = 8 /* numbers that every version wrote */ };
    EpochRecord epoch;
    Number place[2];
    bool more = true, empty = false;
    if (lines->number == 1) {
        run->multi_label = epoch_header_known(line, true);
        return run->multi_label || epoch_header_known(line, false)
                   ? OK
                   : LINE_FAIL(lines, "expected the header of results.csv");
    }
    epoch_clear(&epoch);
    for (int i = 0; i < 2 + OLDEST || (i < 2 + EPOCH_COLUMNS && more); i++) {
        Number *number = i < 2 ? &place[i] : epoch_number(&epoch, i - 2);
        if (!more || !number_next(&line, number, &more)) return LINE_FAIL(lines, "column %d is not a number", i + 1);
        empty |= is_absent(*number);
    }
    if (!empty) older_nan_read(&epoch);
    if (more) return LINE_FAIL(lines, "more than %d columns", 2 + EPOCH_COLUMNS);
    if (!(place[0] >= 0 && place[0] < 1e15 && place[1] >= 0 && place[1] < 1e15))
        return LINE_FAIL(lines, "epoch or step out of range");
    const Number shares[] = {epoch.train_top1, epoch.test_top1, epoch.test_top5};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (shares[i] < 0 || shares[i] > 1) return LINE_FAIL(lines, "a share of %g: expected 0 to 1", shares[i]);
    epoch.epoch = (int64_t)place[0];
    epoch.step = (int64_t)place[1];
    epoch.multi_label = run->multi_label;
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
    bool more = true;
    for (int c = 0; c < run->classes; c++) {
        Number value;
        if (!more || !number_next(&line, &value, &more) || !(value >= 0 && value < 1e15 && value == floor(value)))
            return LINE_FAIL(lines, "column %d is not a count", c + 1);
        run->confusion[row * run->classes + c] = (int64_t)value;
    }
    return more ? LINE_FAIL(lines, "more than %d columns", run->classes) : OK;
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

/* ---- images seen, of older versions */

/* What the rows of older versions lack: the images seen, if steps without a row are of no doubt. Without such steps they are
 * the sum; else they follow from the number of training images, if all rows are as an epoch over all of them makes them:
 * full steps, and a last one with the rest. */
static void run_seen_derive(Run *run)
{
    json_t *environment = json_loads(run->environment, 0, NULL);
    int64_t images = json_whole(json_object_get(environment, "training_data"), "images"), full = 1, before = 0,
            seen = 0;
    bool summed = true, regular = images > 0 && (double)images <= SEEN_LIMIT;
    json_decref(environment);
    for (int64_t i = 0; i < run->steps; i++)
        if (run->step[i].images > full) full = run->step[i].images;
    int64_t steps = regular ? (images - 1) / full + 1 : 0;
    for (int64_t i = 0; regular && i < run->steps; i++) {
        bool fits = (double)run->step[i].epoch * (double)images <= SEEN_LIMIT;
        int64_t at = fits ? run->step[i].step - run->step[i].epoch * steps : 0;
        regular = at >= 1 && at <= steps && run->step[i].images == (at < steps ? full : images - (steps - 1) * full);
    }
    for (int64_t i = 0; i < run->steps; i++) {
        RunStep *step = &run->step[i];
        int64_t done = regular ? step->step - step->epoch * steps : 0;
        bool fits = (double)seen + (double)step->images <= SEEN_LIMIT;
        summed = step->images_seen > 0 || (summed && fits && step->step - 1 == before);
        if (!step->images_seen && summed) step->images_seen = seen + step->images;
        if (!step->images_seen && regular)
            step->images_seen = step->epoch * images + (done < steps ? done * full : images);
        before = step->step;
        seen = step->images_seen;
        summed &= seen > 0 || !step->images;
    }
}

/* ---- files of lines */

/* A file, and one of these for each of its lines: an object of JSON, or a text. */
typedef struct LineFile {
    const char *name;
    Status (*object)(Run *run, const RunLines *lines, json_t *object);
    Status (*text)(Run *run, const RunLines *lines, const char *line);
    Status (*end)(Run *run, const RunLines *lines); /* behind the last line; may be NULL */
    bool listed;                                    /* a list of runs needs it */
} LineFile;

/* Of metrics.jsonl: about how many bytes are kept (0: all), or the ending alone. */
typedef struct ReadPart {
    int64_t limit;
    bool ending;
} ReadPart;

static const LineFile line_files[] = {
    {"metrics.jsonl", step_add, NULL, NULL, true},
    {"results.csv", NULL, epoch_add, NULL, true},
    {"confusion.csv", NULL, confusion_row, confusion_end},
    {"layers.jsonl", layers_add, NULL, NULL},
    {"norms.jsonl", norms_add, NULL, NULL},
    {"generated.jsonl", kid_add, NULL, NULL},
};

static Status lines_read(Run *run, const LineFile *file, ReadPart part)
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
    if (part.ending && file == line_files) TRY_OUT(lines_skip(&lines, ENDING_BYTES));
    for (const char *line; (line = lines_next(&lines));) {
        run->rows += file == line_files;
        if (file == line_files && !row_is_kept(&thin, &lines, part.limit)) continue;
        if (file->object) TRY_OUT(line_object(&lines, line, &object));
        TRY_OUT(file->object ? file->object(run, &lines, object) : file->text(run, &lines, line));
        json_decref(object);
        object = NULL;
    }
    TRY_OUT(lines.trouble);
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
    if (place_stat(path, &info) != 0 && errno == ENOENT) {
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

static Status files_read(Run *run, ReadPart part)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof line_files / sizeof *line_files; i++)
        if (line_files[i].listed || !part.ending) TRY(lines_read(run, &line_files[i], part));
    TRY(path_join(path, run->path, "args.yaml"));
    bool there = place_access(path, F_OK) == 0; /* before it is read: a run may just begin */
    TRY(text_read(path, &run->args));
    if (there) TRY(settings_whole(path, run->args));
    TRY(path_join(path, run->path, "env.json"));
    TRY(text_read(path, &run->environment));
    run_seen_derive(run);
    return OK;
}

static Status part_read(const char *directory, ReadPart part, Run **made)
{
    Status st = OK;
    struct stat info;
    Run *run = NULL;
    if (place_stat(directory, &info) != 0) return FAIL(ERR_ARG, "no run '%s': %s", directory, strerror(errno));
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
    TRY_OUT(files_read(run, part));
    *made = run;
    run = NULL;
out:
    run_destroy(run);
    return st;
}

Status run_read(const char *directory, int64_t limit, Run **made)
{
    return part_read(directory, (ReadPart){.limit = limit}, made);
}

Status run_read_ending(const char *directory, Run **made)
{
    return part_read(directory, (ReadPart){.ending = true}, made);
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
