/* Reading a run directory; see run_read.h. Lines of JSON are read by jansson, which refuses duplicate keys; a step
 * needs every key, of its type, with arrays as long as there are towers (or empty, for what was not known). */
#include "towers/record/run_read.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "towers/files/files.h"

enum { TEXT_LIMIT = 1 << 20, CLASSES_LIMIT = 1000, TOWERS_LIMIT = 4096 };

/* ---- lines */

typedef struct Lines {
    FILE *file;
    const char *path; /* borrowed */
    char *line;       /* owned */
    size_t room;
    int64_t number;
    bool cut; /* the last line had no end */
} Lines;

/* *open is false if there is no such file. */
static Status lines_open(const char *path, Lines *lines, bool *open)
{
    int fd;
    uint64_t bytes;
    *lines = (Lines){.path = path};
    *open = false;
    if (access(path, F_OK) != 0 && errno == ENOENT) return OK;
    TRY(file_open(path, OF_RUN, ERR_FORMAT, UINT64_MAX, &fd, &bytes));
    lines->file = fdopen(fd, "r");
    if (!lines->file) {
        close(fd);
        return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", path);
    }
    *open = true;
    return OK;
}

/* The next whole line without its newline, or NULL at the end. */
static char *lines_next(Lines *lines)
{
    ssize_t count = getline(&lines->line, &lines->room, lines->file);
    if (count <= 0) return NULL;
    lines->number++;
    if (lines->line[count - 1] != '\n') {
        lines->cut = true;
        return NULL;
    }
    lines->line[count - 1] = 0;
    return lines->line;
}

static Status lines_end(const Lines *lines)
{
    return ferror(lines->file) ? FAIL(ERR_IO, "cannot read '%s': %s", lines->path, strerror(errno)) : OK;
}

static void lines_close(Lines *lines)
{
    if (lines->file) fclose(lines->file);
    free(lines->line);
}

__attribute__((format(printf, 2, 3))) static Status line_fail(const Lines *lines, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return FAIL(ERR_FORMAT, "'%s' line %lld: %s", lines->path, (long long)lines->number, what);
}

/* Room for one more element of a growing array whose count is a power of two or 0 before each growth. */
static Status room_for(void **array, int64_t count, size_t bytes)
{
    if (count & (count - 1)) return OK;
    if (count == 0 && *array) return OK;
    void *grown = realloc(*array, (size_t)(count ? 2 * count : 1) * bytes);
    if (!grown) return FAIL(ERR_MEMORY, "no memory for %lld records of a run", (long long)count);
    *array = grown;
    return OK;
}

static Status line_object(const Lines *lines, const char *text, json_t **made)
{
    json_error_t error;
    *made = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(*made)) {
        json_decref(*made);
        *made = NULL;
        return line_fail(lines, "not a JSON object (%s)", error.text);
    }
    return OK;
}

/* ---- fields */

static Status real_field(const Lines *lines, const json_t *object, const char *key, double *value)
{
    const json_t *field = json_object_get(object, key);
    if (!json_is_number(field) && !json_is_null(field))
        return line_fail(lines, "'%s' is %s, expected a number or null", key, field ? "of another type" : "missing");
    *value = json_is_null(field) ? NAN : json_number_value(field);
    return OK;
}

static Status whole_field(const Lines *lines, const json_t *object, const char *key, int64_t *value)
{
    const json_t *field = json_object_get(object, key);
    if (!json_is_integer(field) || json_integer_value(field) < 0)
        return line_fail(lines, "'%s' is %s, expected a whole number", key, field ? "of another type" : "missing");
    *value = json_integer_value(field);
    return OK;
}

/* An array with one element a tower; `optional`: it may be empty. */
static Status array_field(const Lines *lines, const json_t *object, const char *key, int towers, bool optional,
                          const json_t **array)
{
    *array = json_object_get(object, key);
    size_t count = json_array_size(*array);
    if (json_is_array(*array) && (count == (size_t)towers || (optional && count == 0))) return OK;
    return line_fail(lines, "'%s' needs %d elements", key, towers);
}

static Status reals_field(const Lines *lines, const json_t *object, const char *key, int towers, bool optional,
                          double *to)
{
    const json_t *array;
    TRY(array_field(lines, object, key, towers, optional, &array));
    for (int t = 0; t < towers; t++) {
        const json_t *element = json_array_get(array, (size_t)t);
        if (element && !json_is_number(element) && !json_is_null(element))
            return line_fail(lines, "'%s' [%d] is not a number", key, t);
        to[t] = json_is_number(element) ? json_number_value(element) : NAN;
    }
    return OK;
}

/* An array that older runs do not have. */
static Status later_field(const Lines *lines, const json_t *object, const char *key, int towers, double *to)
{
    if (json_object_get(object, key)) return reals_field(lines, object, key, towers, true, to);
    for (int t = 0; t < towers; t++) to[t] = NAN;
    return OK;
}

/* ---- metrics.jsonl */

enum { TOWER_NUMBERS = 7 };
typedef struct TowerBlock {
    double *loss, *grad_norms, *arrival_us, *data_us, *copy_us, *forward_us, *backward_us;
    int64_t *count;
    bool *finite;
} TowerBlock;

/* One piece of memory for the arrays of a step, owned by the run. */
static Status block_create(Run *run, TowerBlock *block)
{
    size_t n = (size_t)run->towers;
    void *blocks = run->blocks;
    TRY(room_for(&blocks, run->block_count, sizeof *run->blocks));
    run->blocks = blocks;
    double *memory = calloc(n, TOWER_NUMBERS * sizeof(double) + sizeof(int64_t) + sizeof(double));
    if (!memory) return FAIL(ERR_MEMORY, "no memory for a step of %d towers", run->towers);
    run->blocks[run->block_count++] = memory;
    *block = (TowerBlock){.loss = memory,
                          .grad_norms = memory + n,
                          .arrival_us = memory + 2 * n,
                          .data_us = memory + 3 * n,
                          .copy_us = memory + 4 * n,
                          .forward_us = memory + 5 * n,
                          .backward_us = memory + 6 * n};
    block->count = (int64_t *)(memory + TOWER_NUMBERS * n);
    block->finite = (bool *)(block->count + n);
    return OK;
}

static Status towers_read(const Lines *lines, const json_t *object, int towers, TowerBlock *block)
{
    const json_t *counts, *finite;
    TRY(reals_field(lines, object, "tower_loss", towers, false, block->loss));
    TRY(reals_field(lines, object, "tower_grad_norm", towers, true, block->grad_norms));
    TRY(reals_field(lines, object, "arrival_us", towers, true, block->arrival_us));
    TRY(reals_field(lines, object, "data_us", towers, true, block->data_us));
    TRY(later_field(lines, object, "copy_us", towers, block->copy_us));
    TRY(later_field(lines, object, "forward_us", towers, block->forward_us));
    TRY(later_field(lines, object, "backward_us", towers, block->backward_us));
    TRY(array_field(lines, object, "tower_count", towers, false, &counts));
    TRY(array_field(lines, object, "finite", towers, false, &finite));
    for (int t = 0; t < towers; t++) {
        const json_t *count = json_array_get(counts, (size_t)t), *good = json_array_get(finite, (size_t)t);
        if (!json_is_integer(count) || json_integer_value(count) < 0 || !json_is_boolean(good))
            return line_fail(lines, "'tower_count' or 'finite' [%d] is of another type", t);
        block->count[t] = json_integer_value(count);
        block->finite[t] = json_is_true(good);
    }
    return OK;
}

/* Only there while a tower is slow. */
static Status slow_read(const Lines *lines, const json_t *object, int towers, RunStep *s)
{
    const json_t *tower = json_object_get(object, "slow_tower"), *activity = json_object_get(object, "slow_activity");
    if (!activity) activity = json_object_get(object, "slow_phase"); /* as records of 0.1.0-dev call it */
    if (!tower) return OK;
    if (!json_is_integer(tower) || json_integer_value(tower) < 0 || json_integer_value(tower) >= towers ||
        !json_is_string(activity))
        return line_fail(lines, "'slow_tower' or 'slow_activity' is of another type");
    s->slow_tower = (int)json_integer_value(tower);
    snprintf(s->slow_activity, sizeof s->slow_activity, "%s", json_string_value(activity));
    return OK;
}

static Status step_read(const Lines *lines, const json_t *object, RunStep *s)
{
    const json_t *skipped = json_object_get(object, "skipped");
    TRY(whole_field(lines, object, "step", &s->step));
    TRY(whole_field(lines, object, "epoch", &s->epoch));
    TRY(whole_field(lines, object, "images", &s->images));
    TRY(real_field(lines, object, "lr", &s->lr));
    TRY(real_field(lines, object, "images_per_sec", &s->images_per_sec));
    TRY(real_field(lines, object, "mean_loss", &s->mean_loss));
    TRY(real_field(lines, object, "total_loss", &s->total_loss));
    TRY(real_field(lines, object, "last_tower_loss", &s->last_loss));
    TRY(real_field(lines, object, "grad_norm", &s->grad_norm));
    TRY(real_field(lines, object, "top1", &s->top1));
    if (!json_is_boolean(skipped)) return line_fail(lines, "'skipped' is not true or false");
    s->skipped = json_is_true(skipped);
    return OK;
}

static Status step_add(Run *run, const Lines *lines, const json_t *object)
{
    TowerBlock block = {0};
    RunStep s = {0};
    void *steps = run->step;
    size_t towers = json_array_size(json_object_get(object, "tower_loss"));
    if (!run->towers) {
        if (towers < 1 || towers > TOWERS_LIMIT) return line_fail(lines, "%zu towers", towers);
        run->towers = (int)towers;
    }
    TRY(step_read(lines, object, &s));
    TRY(slow_read(lines, object, run->towers, &s));
    if (run->steps && s.step <= run->step[run->steps - 1].step)
        return line_fail(lines, "step %lld after step %lld", (long long)s.step,
                         (long long)run->step[run->steps - 1].step);
    TRY(block_create(run, &block));
    TRY(towers_read(lines, object, run->towers, &block));
    s.loss = block.loss;
    s.grad_norms = block.grad_norms;
    s.arrival_us = block.arrival_us;
    s.data_us = block.data_us;
    s.copy_us = block.copy_us;
    s.forward_us = block.forward_us;
    s.backward_us = block.backward_us;
    s.count = block.count;
    s.finite = block.finite;
    TRY(room_for(&steps, run->steps, sizeof *run->step));
    run->step = steps;
    run->step[run->steps++] = s;
    return OK;
}

static Status steps_read(Run *run, const char *path)
{
    Status st = OK;
    Lines lines;
    bool open;
    json_t *object = NULL;
    TRY(lines_open(path, &lines, &open));
    if (!open) return FAIL(ERR_FORMAT, "'%s' is not a run: it has no metrics.jsonl", run->path);
    for (const char *line; (line = lines_next(&lines));) {
        TRY_OUT(line_object(&lines, line, &object));
        TRY_OUT(step_add(run, &lines, object));
        json_decref(object);
        object = NULL;
    }
    run->cut = lines.cut;
    TRY_OUT(lines_end(&lines));
out:
    json_decref(object);
    lines_close(&lines);
    return st;
}

/* ---- results.csv, confusion.csv */

/* The next number of a row, up to a comma or the end; words of C for those that are not finite. */
static bool number_next(const char **at, double *value)
{
    char *end;
    if (!**at || **at == ' ') return false;
    *value = strtod(*at, &end);
    if (end == *at || (*end && *end != ',')) return false;
    *at = *end ? end + 1 : end;
    return true;
}

static Status epoch_add(Run *run, const Lines *lines, const char *line)
{
    enum { COLUMNS = 10 };
    double v[COLUMNS];
    void *epochs = run->epoch;
    for (int i = 0; i < COLUMNS; i++)
        if (!number_next(&line, &v[i])) return line_fail(lines, "column %d is not a number", i + 1);
    if (*line) return line_fail(lines, "more than %d columns", COLUMNS);
    if (!(v[0] >= 0 && v[0] < 1e15 && v[1] >= 0 && v[1] < 1e15)) return line_fail(lines, "epoch or step out of range");
    TRY(room_for(&epochs, run->epochs, sizeof *run->epoch));
    run->epoch = epochs;
    run->epoch[run->epochs++] =
        (EpochRecord){(int64_t)v[0], (int64_t)v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]};
    return OK;
}

static Status epochs_read(Run *run, const char *path)
{
    static const char header[] =
        "epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds";
    Status st = OK;
    Lines lines;
    bool open;
    TRY(lines_open(path, &lines, &open));
    if (!open) return OK;
    for (const char *line; (line = lines_next(&lines));) {
        if (lines.number == 1 && strcmp(line, header) != 0) {
            st = line_fail(&lines, "not the header of results.csv");
            goto out;
        }
        if (lines.number > 1) TRY_OUT(epoch_add(run, &lines, line));
    }
    TRY_OUT(lines_end(&lines));
out:
    lines_close(&lines);
    return st;
}

static Status confusion_row(Run *run, const Lines *lines, const char *line)
{
    int row = (int)lines->number - 1;
    if (row == 0) {
        run->classes = 1;
        for (const char *at = line; (at = strchr(at, ',')); at++) run->classes++;
        if (run->classes > CLASSES_LIMIT) return line_fail(lines, "%d classes", run->classes);
        run->confusion = calloc((size_t)run->classes * (size_t)run->classes, sizeof *run->confusion);
        if (!run->confusion) return FAIL(ERR_MEMORY, "no memory for confusion of %d classes", run->classes);
    }
    if (row >= run->classes) return line_fail(lines, "more rows than columns");
    for (int c = 0; c < run->classes; c++) {
        double value;
        if (!number_next(&line, &value) || !(value >= 0 && value < 1e15 && value == floor(value)))
            return line_fail(lines, "column %d is not a count", c + 1);
        run->confusion[row * run->classes + c] = (int64_t)value;
    }
    return *line ? line_fail(lines, "more than %d columns", run->classes) : OK;
}

static Status confusion_read(Run *run, const char *path)
{
    Status st = OK;
    Lines lines;
    bool open;
    TRY(lines_open(path, &lines, &open));
    if (!open) return OK;
    for (const char *line; (line = lines_next(&lines));) TRY_OUT(confusion_row(run, &lines, line));
    TRY_OUT(lines_end(&lines));
    if (lines.number != run->classes) st = line_fail(&lines, "the file ends after this of %d rows", run->classes);
out:
    lines_close(&lines);
    return st;
}

/* ---- layers.jsonl: {"step": 100, "layers": {"conv1.weight": [weight, gradient], ...}}, and norms.jsonl like it */

static Status layer_name(char ***names, int *count, const char *name, int *found)
{
    for (int i = 0; i < *count; i++)
        if (!strcmp((*names)[i], name)) {
            *found = i;
            return OK;
        }
    void *grown = *names;
    TRY(room_for(&grown, *count, sizeof **names));
    *names = grown;
    char *copy = strdup(name);
    if (!copy) return FAIL(ERR_MEMORY, "no memory for name of a layer");
    *found = *count;
    (*names)[(*count)++] = copy;
    return OK;
}

static Status layer_add(Run *run, int64_t step, const char *name, const double values[2])
{
    RunLayer layer = {.step = step, .weight = values[0], .gradient = values[1]};
    void *all = run->layer;
    TRY(layer_name(&run->layer_name, &run->layer_names, name, &layer.name));
    TRY(room_for(&all, run->layers, sizeof *run->layer));
    run->layer = all;
    run->layer[run->layers++] = layer;
    return OK;
}

static Status norm_add(Run *run, int64_t step, const char *name, const double values[2])
{
    RunNorm norm = {.step = step, .mean = values[0], .variance = values[1]};
    void *all = run->norm;
    TRY(layer_name(&run->norm_name, &run->norm_names, name, &norm.name));
    TRY(room_for(&all, run->norms, sizeof *run->norm));
    run->norm = all;
    run->norm[run->norms++] = norm;
    return OK;
}

typedef Status PairAdd(Run *run, int64_t step, const char *name, const double values[2]);

static Status pairs_add(Run *run, const Lines *lines, json_t *object, const char *key, PairAdd *add)
{
    int64_t step = 0;
    const char *name;
    json_t *pair, *pairs = json_object_get(object, key);
    TRY(whole_field(lines, object, "step", &step));
    if (!json_is_object(pairs)) return line_fail(lines, "'%s' is not an object", key);
    json_object_foreach(pairs, name, pair)
    {
        double values[2];
        if (json_array_size(pair) != 2) return line_fail(lines, "'%s' needs two numbers", name);
        for (size_t i = 0; i < 2; i++) {
            const json_t *value = json_array_get(pair, i);
            if (!json_is_number(value) && !json_is_null(value)) return line_fail(lines, "'%s' needs two numbers", name);
            values[i] = json_is_null(value) ? NAN : json_number_value(value);
        }
        TRY(add(run, step, name, values));
    }
    return OK;
}

static Status pairs_read(Run *run, const char *path, const char *key, PairAdd *add)
{
    Status st = OK;
    Lines lines;
    bool open;
    json_t *object = NULL;
    TRY(lines_open(path, &lines, &open));
    if (!open) return OK;
    for (const char *line; (line = lines_next(&lines));) {
        TRY_OUT(line_object(&lines, line, &object));
        TRY_OUT(pairs_add(run, &lines, object, key, add));
        json_decref(object);
        object = NULL;
    }
    TRY_OUT(lines_end(&lines));
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
    return file_read(path, TEXT_LIMIT, text, &count);
}

bool run_argument(const Run *run, const char *key, char *text, size_t bytes)
{
    size_t length = strlen(key);
    for (const char *line = run->args; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, key, length) != 0 || line[length] != ':') continue;
        const char *from = line + length + 1 + strspn(line + length + 1, " ");
        bool quoted = *from == '"';
        size_t count = quoted ? strcspn(++from, "\"\n") : strcspn(from, " \n");
        if (!count || *from == '#') return false;
        snprintf(text, bytes, "%.*s", (int)count, from);
        return true;
    }
    return false;
}

/* ---- the whole */

static Status names_copy(Run *run, const char *directory)
{
    run->path = strdup(directory);
    if (!run->path) return FAIL(ERR_MEMORY, "no memory for name of a run");
    size_t end = strlen(run->path);
    while (end > 1 && run->path[end - 1] == '/') run->path[--end] = 0;
    const char *slash = strrchr(run->path, '/');
    run->name = strdup(slash && slash[1] ? slash + 1 : run->path);
    return run->name ? OK : FAIL(ERR_MEMORY, "no memory for name of a run");
}

static Status files_read(Run *run)
{
    char path[PATH_BYTES];
    TRY(path_join(path, run->path, "metrics.jsonl"));
    TRY(steps_read(run, path));
    TRY(path_join(path, run->path, "results.csv"));
    TRY(epochs_read(run, path));
    TRY(path_join(path, run->path, "confusion.csv"));
    TRY(confusion_read(run, path));
    TRY(path_join(path, run->path, "layers.jsonl"));
    TRY(pairs_read(run, path, "layers", layer_add));
    TRY(path_join(path, run->path, "norms.jsonl"));
    TRY(pairs_read(run, path, "norms", norm_add));
    TRY(path_join(path, run->path, "args.yaml"));
    TRY(text_read(path, &run->args));
    TRY(path_join(path, run->path, "env.json"));
    return text_read(path, &run->environment);
}

Status run_read(const char *directory, Run **made)
{
    Status st = OK;
    struct stat info;
    Run *run = NULL;
    if (stat(directory, &info) != 0) return FAIL(ERR_ARG, "no run '%s': %s", directory, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return FAIL(ERR_ARG, "'%s' is not a folder: a run is named by its folder", directory);
    run = calloc(1, sizeof *run);
    if (!run) return FAIL(ERR_MEMORY, "no memory for a run");
    TRY_OUT(names_copy(run, directory));
    TRY_OUT(files_read(run));
    *made = run;
    run = NULL;
out:
    run_destroy(run);
    return st;
}

void run_destroy(Run *run)
{
    if (!run) return;
    for (int64_t i = 0; i < run->block_count; i++) free(run->blocks[i]);
    for (int i = 0; i < run->layer_names; i++) free(run->layer_name[i]);
    free(run->blocks);
    for (int i = 0; i < run->norm_names; i++) free(run->norm_name[i]);
    free(run->layer_name);
    free(run->layer);
    free(run->norm_name);
    free(run->norm);
    free(run->step);
    free(run->epoch);
    free(run->confusion);
    free(run->args);
    free(run->environment);
    free(run->path);
    free(run->name);
    free(run);
}
