/* Reading a run directory; see run_read.h. Lines of JSON are read by jansson, which refuses duplicate keys; a step
 * needs the NEEDED keys of metrics.def, of their types, with arrays of one element per tower (or empty if unknown). */
#include "towers/record/run_read.h"
#include "kernels/array.h"

#include <jansson.h>

#include "towers/files/files.h"
#include "towers/record/setting_line.h"

enum { CLASSES_LIMIT = 1000, TOWERS_LIMIT = 4096 };

/* ---- lines */

typedef struct Lines {
    FILE *file;
    const char *path; /* borrowed */
    char *line;       /* owned */
    size_t room;
    int64_t number;
    uint64_t bytes, at; /* of the file when it was opened; of the lines up to this one */
    bool cut;           /* the last line had no end */
} Lines;

/* *open is false if there is no such file. */
static Status lines_open(const char *path, Lines *lines, bool *open)
{
    int fd;
    *lines = (Lines){.path = path};
    *open = false;
    if (access(path, F_OK) != 0 && errno == ENOENT) return OK;
    TRY(file_open(path, OF_RUN, ERR_FORMAT, UINT64_MAX, &fd, &lines->bytes));
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
    lines->at += (uint64_t)count;
    if (lines->line[count - 1] != '\n') {
        lines->cut = true;
        return NULL;
    }
    lines->line[count - 1] = 0;
    return lines->line;
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

typedef enum Need { LATER = 0, NEEDED } Need;

static Status field_find(const Lines *lines, const json_t *object, const char *key, Need need, const json_t **field)
{
    *field = json_object_get(object, key);
    if (!*field && !strcmp(key, "slow_activity")) *field = json_object_get(object, "slow_phase"); /* in 0.1.0-dev */
    return *field || need == LATER ? OK : line_fail(lines, "'%s' is missing", key);
}

static bool read_real(const json_t *field, double *value)
{
    *value = json_is_number(field) ? json_number_value(field) : NAN;
    return json_is_number(field) || json_is_null(field);
}

static bool read_count(const json_t *field, int64_t *value)
{
    *value = json_integer_value(field);
    return json_is_integer(field) && *value >= 0;
}

static bool read_flag(const json_t *field, bool *value)
{
    *value = json_is_true(field);
    return json_is_boolean(field);
}

static bool read_word(const json_t *field, char value[16])
{
    if (json_is_string(field)) snprintf(value, 16, "%s", json_string_value(field));
    return json_is_string(field);
}

#define READ_REAL(field, value) read_real(field, value)
#define READ_WHOLE(field, value) read_real(field, value)
#define READ_COUNT(field, value) read_count(field, value)
#define READ_FLAG(field, value) read_flag(field, value)
#define READ_WORD(field, value) read_word(field, value[0])
#define KIND_REAL "a number or null"
#define KIND_WHOLE "a number"
#define KIND_COUNT "a whole number from 0"
#define KIND_FLAG "true or false"
#define KIND_WORD "a word"

/* An array with an element for each tower. Only numbers may be unknown: then it is empty, or older runs do not have
 * it. */
static Status array_find(const Lines *lines, const json_t *object, const char *key, Need need, bool numbers, int towers,
                         const json_t **array)
{
    TRY(field_find(lines, object, key, need, array));
    size_t count = json_array_size(*array);
    if (!*array || (json_is_array(*array) && (count == (size_t)towers || (numbers && count == 0)))) return OK;
    return line_fail(lines, "'%s' needs %d elements", key, towers);
}

/* ---- metrics.jsonl */

enum {
    TOWER_ARRAYS = 0
#define TOWER_DERIVED(type, key, value, known, read, tag, text) +1
#define VITAL(key, tag, text)
#include "towers/record/metrics.def"
};

enum { REAL_IS_NUMBER = true, WHOLE_IS_NUMBER = true, COUNT_IS_NUMBER = false, FLAG_IS_NUMBER = false };

/* `memory`: TOWER_ARRAYS times 8 bytes for each tower. */
static Status towers_read(const Lines *lines, const json_t *object, int towers, double *memory, RunStep *s)
{
    const json_t *array;
#define UNKNOWN_REAL NAN
#define UNKNOWN_WHOLE NAN
#define UNKNOWN_COUNT 0
#define UNKNOWN_FLAG false
#define TOWER_DERIVED(type, key, value, known, read, tag, text)                                                        \
    RUN_C_##type(*key) = (void *)memory;                                                                               \
    s->key = key;                                                                                                      \
    memory += towers;                                                                                                  \
    TRY(array_find(lines, object, #key, read, type##_IS_NUMBER, towers, &array));                                      \
    for (int t = 0; t < towers; t++) {                                                                                 \
        const json_t *element = json_array_get(array, (size_t)t);                                                      \
        key[t] = UNKNOWN_##type;                                                                                       \
        if (element && !READ_##type(element, &key[t]))                                                                 \
            return line_fail(lines, "'%s' [%d] is not " KIND_##type, #key, t);                                         \
    }
#define VITAL(key, tag, text)
#include "towers/record/metrics.def"
    return OK;
}

/* `s` is zeroed. */
static Status step_read(const Lines *lines, const json_t *object, RunStep *s)
{
    const json_t *field;
#define MISSING_REAL(key) s->key = NAN;
#define MISSING_COUNT(key)
#define MISSING_FLAG(key)
#define MISSING_WORD(key)
#define DERIVED(type, key, value, when, read, tag, text)                                                               \
    TRY(field_find(lines, object, #key, read, &field));                                                                \
    MISSING_##type(key) if (field && !READ_##type(field, &s->key)) return line_fail(lines, "'%s' is not " KIND_##type, \
                                                                                    #key);
#include "towers/record/metrics.def"
    return OK;
}

/* The number of a name in a list, which grows if it is new. */
static Status name_find(char ***names, int *count, const char *name, int *found)
{
    for (int i = 0; i < *count; i++)
        if (!strcmp((*names)[i], name)) {
            *found = i;
            return OK;
        }
    TRY(array_grow(names, *count, sizeof **names, "the names of a run"));
    char *copy = strdup(name);
    if (!copy) return FAIL(ERR_MEMORY, "no memory for the names of a run");
    *found = *count;
    (*names)[(*count)++] = copy;
    return OK;
}

/* Memory of a run for `count` numbers, which run_destroy frees. */
static Status block_add(Run *run, size_t count, double **made)
{
    TRY(array_grow(&run->blocks, run->block_count, sizeof *run->blocks, "the steps of a run"));
    *made = calloc(count, sizeof **made);
    if (!*made) return FAIL(ERR_MEMORY, "no memory for a step of %d towers", run->towers);
    run->blocks[run->block_count++] = *made;
    return OK;
}

/* "terms": {NAME: mean, ...} and "tower_terms": {NAME: [of each tower], ...}, of models with several phases. */
static Status terms_read(Run *run, const Lines *lines, json_t *object, int64_t step)
{
    const char *name;
    json_t *value, *terms = json_object_get(object, "terms"), *all_towers = json_object_get(object, "tower_terms");
    if (terms && !json_is_object(terms)) return line_fail(lines, "'terms' is not an object");
    json_object_foreach(terms, name, value)
    {
        RunTerm term = {.step = step};
        double *tower;
        json_t *of_towers = json_object_get(all_towers, name);
        if (!read_real(value, &term.mean)) return line_fail(lines, "'terms': '%s' is not a number or null", name);
        if (of_towers && json_array_size(of_towers) != (size_t)run->towers)
            return line_fail(lines, "'tower_terms': '%s' needs %d elements", name, run->towers);
        TRY(block_add(run, (size_t)run->towers, &tower));
        term.tower = tower;
        for (int t = 0; t < run->towers; t++) {
            const json_t *element = json_array_get(of_towers, (size_t)t);
            tower[t] = NAN;
            if (element && !read_real(element, &tower[t]))
                return line_fail(lines, "'tower_terms': '%s' [%d] is not a number or null", name, t);
        }
        TRY(name_find(&run->term_name, &run->term_names, name, &term.name));
        TRY(array_grow(&run->term, run->terms, sizeof *run->term, "the terms of a run"));
        run->term[run->terms++] = term;
    }
    return OK;
}

static Status step_add(Run *run, const Lines *lines, json_t *object)
{
    RunStep s = {0};
    double *memory;
    size_t towers = json_array_size(json_object_get(object, "tower_loss"));
    if (!run->towers) {
        if (towers < 1 || towers > TOWERS_LIMIT) return line_fail(lines, "%zu towers", towers);
        run->towers = (int)towers;
    }
    if (towers != (size_t)run->towers) return line_fail(lines, "'tower_loss': expected %d elements", run->towers);
    TRY(step_read(lines, object, &s));
    if (s.slow_tower >= run->towers || (json_object_get(object, "slow_tower") && !s.slow_activity[0]))
        return line_fail(lines, "'slow_tower' is not the number of a tower, or 'slow_activity' is missing");
    if (run->steps && s.step <= run->step[run->steps - 1].step)
        return line_fail(lines, "step %lld follows step %lld: expected increasing steps", (long long)s.step,
                         (long long)run->step[run->steps - 1].step);
    TRY(block_add(run, (size_t)run->towers * TOWER_ARRAYS, &memory));
    TRY(towers_read(lines, object, run->towers, memory, &s));
    TRY(terms_read(run, lines, object, s.step));
    TRY(array_grow(&run->step, run->steps, sizeof *run->step, "the steps of a run"));
    run->step[run->steps++] = s;
    return OK;
}

/* ---- rows of a large metrics.jsonl that are left out */

enum { PHASES = 8, ENDING_ROWS = 200, UNUSUAL_ROWS = 1000 };

typedef struct Thinning {
    int64_t stride; /* of each phase, the first of so many rows is kept */
    uint64_t whole; /* rows that end behind so many bytes are kept, too */
    int64_t unusual;
    struct {
        char name[16];
        int64_t rows;
    } phase[PHASES];
} Thinning;

static bool row_is_unusual(const char *line)
{
    const char *finite = strstr(line, "\"finite\":["), *no = finite ? strstr(finite, "false") : NULL;
    return (no && no < finite + strcspn(finite, "]")) || strstr(line, "\"skipped\":true") ||
           strstr(line, "\"grad_norm\":null");
}

/* The number of a row among those of its phase. */
static int64_t row_of_phase(Thinning *thin, const char *line)
{
    static const char key[] = "\"phase\":\"";
    char name[16] = "";
    const char *at = strstr(line, key), *comma = strchr(line, ',');
    if (at && at == comma + 1)
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + sizeof key - 1, "\""), at + sizeof key - 1);
    int k = 0;
    while (k < PHASES - 1 && *thin->phase[k].name && strcmp(thin->phase[k].name, name) != 0) k++;
    snprintf(thin->phase[k].name, sizeof thin->phase[k].name, "%s", name);
    return thin->phase[k].rows++;
}

static bool row_is_kept(Thinning *thin, const Lines *lines, int64_t limit)
{
    if (lines->number == 1) {
        uint64_t ending = ENDING_ROWS * lines->at;
        thin->stride = limit ? 1 + (int64_t)(lines->bytes / (uint64_t)limit) : 1;
        thin->whole = lines->bytes > ending ? lines->bytes - ending : 0;
    }
    if (thin->stride == 1 || row_of_phase(thin, lines->line) % thin->stride == 0 || lines->at > thin->whole)
        return true;
    return row_is_unusual(lines->line) && thin->unusual++ < UNUSUAL_ROWS;
}

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

static Status epoch_add(Run *run, const Lines *lines, const char *line)
{
    enum { OLDEST = 8 /* numbers that every version wrote */ };
    EpochRecord epoch;
    double place[2];
    if (lines->number == 1) {
        run->several = epoch_header_known(line, true);
        return run->several || epoch_header_known(line, false) ? OK
                                                               : line_fail(lines, "expected the header of results.csv");
    }
    epoch_clear(&epoch);
    for (int i = 0; i < 2 + OLDEST || (i < 2 + EPOCH_COLUMNS && *line); i++)
        if (!number_next(&line, i < 2 ? &place[i] : epoch_number(&epoch, i - 2)))
            return line_fail(lines, "column %d is not a number", i + 1);
    if (*line) return line_fail(lines, "more than %d columns", 2 + EPOCH_COLUMNS);
    if (!(place[0] >= 0 && place[0] < 1e15 && place[1] >= 0 && place[1] < 1e15))
        return line_fail(lines, "epoch or step out of range");
    epoch.epoch = (int64_t)place[0];
    epoch.step = (int64_t)place[1];
    epoch.several = run->several;
    TRY(array_grow(&run->epoch, run->epochs, sizeof *run->epoch, "the epochs of a run"));
    run->epoch[run->epochs++] = epoch;
    return OK;
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
static Status confusion_row(Run *run, const Lines *lines, const char *line)
{
    int row = (int)lines->number - 1 - run->confusion_named;
    if (row == 0 && !run->confusion) {
        run->confusion_named = !strncmp(line, "class,", strlen("class,"));
        run->classes = !run->confusion_named;
        for (const char *at = field_end(line); *at; at = field_end(at)) run->classes++;
        if (run->classes > CLASSES_LIMIT) return line_fail(lines, "%d classes", run->classes);
        run->confusion = calloc((size_t)run->classes * (size_t)run->classes, sizeof *run->confusion);
        if (!run->confusion) return FAIL(ERR_MEMORY, "no memory for the confusion matrix of %d classes", run->classes);
    }
    if (run->confusion_named && lines->number == 1) return OK;
    if (run->confusion_named) line = field_end(line);
    if (row >= run->classes) return line_fail(lines, "expected as many rows as columns");
    for (int c = 0; c < run->classes; c++) {
        double value;
        if (!number_next(&line, &value) || !(value >= 0 && value < 1e15 && value == floor(value)))
            return line_fail(lines, "column %d is not a count", c + 1);
        run->confusion[row * run->classes + c] = (int64_t)value;
    }
    return *line ? line_fail(lines, "more than %d columns", run->classes) : OK;
}

static Status confusion_end(Run *run, const Lines *lines)
{
    if (lines->number == run->classes + run->confusion_named) return OK;
    return line_fail(lines, "the file ends after this row: expected %d rows", run->classes);
}

/* ---- layers.jsonl: {"step": 100, "layers": {"conv1.weight": [weight, gradient], ...}}, and norms.jsonl like it */

static Status layer_add(Run *run, int64_t step, const char *name, const double values[2])
{
    RunLayer layer = {.step = step, .weight = values[0], .gradient = values[1]};
    TRY(name_find(&run->layer_name, &run->layer_names, name, &layer.name));
    TRY(array_grow(&run->layer, run->layers, sizeof *run->layer, "the layers of a run"));
    run->layer[run->layers++] = layer;
    return OK;
}

static Status norm_add(Run *run, int64_t step, const char *name, const double values[2])
{
    RunNorm norm = {.step = step, .mean = values[0], .variance = values[1]};
    TRY(name_find(&run->norm_name, &run->norm_names, name, &norm.name));
    TRY(array_grow(&run->norm, run->norms, sizeof *run->norm, "the norms of a run"));
    run->norm[run->norms++] = norm;
    return OK;
}

typedef Status PairAdd(Run *run, int64_t step, const char *name, const double values[2]);

static Status pairs_add(Run *run, const Lines *lines, json_t *object, const char *key, PairAdd *add)
{
    int64_t step = 0;
    const char *name;
    json_t *pair, *pairs = json_object_get(object, key);
    if (!read_count(json_object_get(object, "step"), &step)) return line_fail(lines, "'step' is not " KIND_COUNT);
    if (!json_is_object(pairs)) return line_fail(lines, "'%s' is not an object", key);
    json_object_foreach(pairs, name, pair)
    {
        double values[2];
        if (json_array_size(pair) != 2) return line_fail(lines, "'%s': expected two numbers", name);
        for (size_t i = 0; i < 2; i++) {
            const json_t *value = json_array_get(pair, i);
            if (!json_is_number(value) && !json_is_null(value))
                return line_fail(lines, "'%s': expected two numbers", name);
            values[i] = json_is_null(value) ? NAN : json_number_value(value);
        }
        TRY(add(run, step, name, values));
    }
    return OK;
}

static Status layers_add(Run *run, const Lines *lines, json_t *object)
{
    return pairs_add(run, lines, object, "layers", layer_add);
}

static Status norms_add(Run *run, const Lines *lines, json_t *object)
{
    return pairs_add(run, lines, object, "norms", norm_add);
}

/* ---- generated.jsonl; a line without "kid" is of a grid that was not measured */

static Status kid_add(Run *run, const Lines *lines, json_t *object)
{
    RunKid kid = {0};
    const json_t *value = json_object_get(object, "kid"), *features = json_object_get(object, "features"),
                 *deviation = json_object_get(object, "kid_deviation");
    if (!read_count(json_object_get(object, "step"), &kid.step)) return line_fail(lines, "'step' is not " KIND_COUNT);
    if (!value) return OK;
    if (!read_real(value, &kid.kid)) return line_fail(lines, "'kid' is not " KIND_REAL);
    if (!deviation || !read_real(deviation, &kid.deviation))
        return line_fail(lines, "'kid_deviation' is not " KIND_REAL);
    if (!json_is_string(features)) return line_fail(lines, "'features' is not " KIND_WORD);
    TRY(name_find(&run->features_name, &run->features_names, json_string_value(features), &kid.features));
    TRY(array_grow(&run->kid, run->kids, sizeof *run->kid, "the KIDs of a run"));
    run->kid[run->kids++] = kid;
    return OK;
}

/* ---- files of lines */

/* A file, and one of these for each of its lines: an object of JSON, or a text. */
typedef struct LineFile {
    const char *name;
    Status (*object)(Run *run, const Lines *lines, json_t *object);
    Status (*text)(Run *run, const Lines *lines, const char *line);
    Status (*end)(Run *run, const Lines *lines); /* behind the last line; may be NULL */
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
    Lines lines;
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
    fclose(lines.file);
    free(lines.line);
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

/* The name of a phase by the order of first steps; NULL behind the last. */
static const char *phase_name(const Run *run, int phase)
{
    const char *names[PHASES];
    int count = 0;
    for (int64_t i = 0; i < run->steps && count < PHASES; i++) {
        int k = 0;
        while (k < count && strcmp(names[k], run->step[i].phase) != 0) k++;
        if (k == count) names[count++] = run->step[i].phase;
        if (count > phase) return names[phase];
    }
    return phase == 0 && !count ? "" : NULL;
}

Status run_phase(const Run *run, int phase, Run *view, bool *found)
{
    const char *name = phase_name(run, phase);
    *found = name != NULL;
    *view = *run;
    view->step = NULL;
    if (!name) return OK;
    view->phase = *name ? name : NULL;
    view->kids = phase == 0 ? run->kids : 0;
    view->steps = 0;
    view->step = calloc((size_t)run->steps + 1, sizeof *view->step);
    if (!view->step) return FAIL(ERR_MEMORY, "no memory for %lld steps", (long long)run->steps);
    for (int64_t i = 0; i < run->steps; i++)
        if (!strcmp(run->step[i].phase, name)) view->step[view->steps++] = run->step[i];
    return OK;
}

Status run_term(const Run *phase, int name, Run *view, bool *found)
{
    int64_t k = 0;
    *view = *phase;
    view->steps = 0;
    view->step = calloc((size_t)phase->steps + 1, sizeof *view->step);
    if (!view->step) return FAIL(ERR_MEMORY, "no memory for %lld steps", (long long)phase->steps);
    for (int64_t i = 0; i < phase->steps; i++) {
        int64_t at = phase->step[i].step;
        while (k < phase->terms &&
               (phase->term[k].step < at || (phase->term[k].step == at && phase->term[k].name != name)))
            k++;
        if (k == phase->terms || phase->term[k].step != at) continue;
        RunStep *step = &view->step[view->steps++];
        *step = phase->step[i];
        step->mean_loss = phase->term[k].mean;
        step->tower_loss = phase->term[k].tower;
        step->last_tower_loss = phase->term[k].tower[phase->towers - 1];
    }
    *found = view->steps > 0;
    return OK;
}

void run_view_free(Run *view)
{
    free(view->step);
    view->step = NULL;
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
    TRY(text_read(path, &run->args));
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

void run_destroy(Run *run)
{
    if (!run) return;
    for (int64_t i = 0; i < run->block_count; i++) free(run->blocks[i]);
    for (int i = 0; i < run->layer_names; i++) free(run->layer_name[i]);
    free(run->blocks);
    for (int i = 0; i < run->norm_names; i++) free(run->norm_name[i]);
    for (int i = 0; i < run->term_names; i++) free(run->term_name[i]);
    for (int i = 0; i < run->features_names; i++) free(run->features_name[i]);
    free(run->term_name);
    free(run->term);
    free(run->features_name);
    free(run->kid);
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
