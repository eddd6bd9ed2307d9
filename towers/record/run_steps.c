/* Rows of metrics.jsonl; see run_steps.h. */
#include "towers/record/run_steps.h"
#include "kernels/base/array.h"

enum { TOWERS_LIMIT = 4096 };

static bool read_maybe(const json_t *field, Number *value)
{
    *value = json_is_number(field) ? json_number_value(field) : ABSENT;
    return json_is_number(field) || json_is_null(field);
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
#define READ_MAYBE(field, value) read_maybe(field, value)
#define READ_LOSS(field, value) read_real(field, value)
#define READ_WHOLE(field, value) read_real(field, value)
#define READ_COUNT(field, value) read_count(field, value)
#define READ_FLAG(field, value) read_flag(field, value)
#define READ_WORD(field, value) read_word(field, value[0])
#define KIND_MAYBE KIND_REAL
#define KIND_LOSS KIND_REAL
#define KIND_WHOLE "a number"
#define KIND_FLAG "true or false"

typedef enum Need { LATER = 0, NEEDED } Need;

static Status field_find(const RunLines *lines, const json_t *object, const char *key, Need need, const json_t **field)
{
    *field = json_object_get(object, key);
    if (!*field && !strcmp(key, "slow_activity")) *field = json_object_get(object, "slow_phase"); /* in 0.1.0-dev */
    return *field || need == LATER ? OK : LINE_FAIL(lines, "'%s' is missing", key);
}

/* An array with an element for each tower. Only numbers may be unknown: then it is empty, or older runs do not have
 * it. */
static Status array_find(const RunLines *lines, const json_t *object, const char *key, Need need, bool numbers,
                         int towers, const json_t **array)
{
    TRY(field_find(lines, object, key, need, array));
    size_t count = json_array_size(*array);
    if (!*array || (json_is_array(*array) && (count == (size_t)towers || (numbers && count == 0)))) return OK;
    return LINE_FAIL(lines, "'%s' needs %d elements", key, towers);
}

enum {
    TOWER_ARRAYS = 0
#define TOWER_DERIVED(type, key, value, known, read, tag, text) +1
#define TELEMETRY(key, tag, text)
#include "towers/record/metrics.def"
};

enum {
    REAL_IS_NUMBER = true,
    MAYBE_IS_NUMBER = true,
    WHOLE_IS_NUMBER = true,
    COUNT_IS_NUMBER = false,
    FLAG_IS_NUMBER = false
};

/* The samples of each tower. */
static Status counts_read(const RunLines *lines, const json_t *object, int towers, int64_t *count)
{
    const json_t *array;
    TRY(array_find(lines, object, "tower_count", NEEDED, false, towers, &array));
    for (int t = 0; t < towers; t++)
        if (!read_count(json_array_get(array, (size_t)t), &count[t]))
            return LINE_FAIL(lines, "'tower_count' [%d] is not " KIND_COUNT, t);
    return OK;
}

/* Losses of the towers that have samples, by `count`; in older runs of all towers, with null for the others. */
static Status losses_read(const RunLines *lines, const json_t *array, const char *key, int towers, const int64_t *count,
                          Number *loss)
{
    size_t given = json_array_size(array), fed = 0, next = 0;
    for (int t = 0; t < towers; t++) fed += count[t] > 0;
    if (!json_is_array(array) || (given != fed && given != (size_t)towers))
        return LINE_FAIL(lines, "'%s' needs an element for each of %zu towers with samples", key, fed);
    for (int t = 0; t < towers; t++) {
        const json_t *element = count[t] > 0 || given == (size_t)towers ? json_array_get(array, next++) : NULL;
        if (!read_real(element, &loss[t]) && element)
            return LINE_FAIL(lines, "'%s' [%zu] is not " KIND_LOSS, key, next - 1);
        if (count[t] == 0) loss[t] = ABSENT;
    }
    return OK;
}

/* `memory`: TOWER_ARRAYS times 8 bytes for each tower. */
static Status towers_read(const RunLines *lines, const json_t *object, int towers, const int64_t *count, double *memory,
                          RunStep *s)
{
    const json_t *array;
#define READ_LIST(type, key, read)                                                                                     \
    TRY(array_find(lines, object, #key, read, type##_IS_NUMBER, towers, &array));                                      \
    for (int t = 0; t < towers; t++) {                                                                                 \
        const json_t *element = json_array_get(array, (size_t)t);                                                      \
        if (!READ_##type(element, &key[t]) && element)                                                                 \
            return LINE_FAIL(lines, "'%s' [%d] is not " KIND_##type, #key, t);                                         \
    }
#define LIST_REAL(key, read) READ_LIST(REAL, key, read)
#define LIST_WHOLE(key, read) READ_LIST(WHOLE, key, read)
#define LIST_COUNT(key, read) READ_LIST(COUNT, key, read)
#define LIST_FLAG(key, read) READ_LIST(FLAG, key, read)
#define LIST_LOSS(key, read)                                                                                           \
    TRY(field_find(lines, object, #key, read, &array));                                                                \
    TRY(losses_read(lines, array, #key, towers, count, key));
#define TOWER_DERIVED(type, key, value, known, read, tag, text)                                                        \
    RUN_C_##type(*key) = (void *)memory;                                                                               \
    s->key = key;                                                                                                      \
    memory += towers;                                                                                                  \
    LIST_##type(key, read)
#define TELEMETRY(key, tag, text)
#include "towers/record/metrics.def"
    return OK;
}

/* `s` is zeroed. */
static Status step_read(const RunLines *lines, const json_t *object, RunStep *s)
{
    const json_t *field;
#define DERIVED(type, key, value, when, read, tag, text)                                                               \
    TRY(field_find(lines, object, #key, read, &field));                                                                \
    if (!READ_##type(field, &s->key) && field) return LINE_FAIL(lines, "'%s' is not " KIND_##type, #key);
#include "towers/record/metrics.def"
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

/* The devices' telemetry, all of them or none. */
static Status telemetry_read(Run *run, const RunLines *lines, const json_t *object, RunStep *s)
{
    enum { NUMBERS = sizeof(DeviceTelemetry) / sizeof(double) };
    double *memory;
    const json_t *array;
    if (!json_object_get(object, "gpu_watts")) return OK;
    TRY(block_add(run, (size_t)run->towers * NUMBERS, &memory));
    DeviceTelemetry *telemetry = (void *)memory;
    s->telemetry = telemetry;
#define TELEMETRY(key, tag, text)                                                                                      \
    TRY(array_find(lines, object, #key, LATER, true, run->towers, &array));                                            \
    for (int t = 0; t < run->towers; t++) {                                                                            \
        const json_t *element = json_array_get(array, (size_t)t);                                                      \
        if (!read_maybe(element, &telemetry[t].key) && element)                                                        \
            return LINE_FAIL(lines, "'%s' [%d] is not " KIND_REAL, #key, t);                                           \
    }
#include "kernels/telemetry.def"
    return OK;
}

/* "terms": {NAME: mean, ...} and "tower_terms": {NAME: [of each tower], ...}, of models with several phases. */
static Status terms_read(Run *run, const RunLines *lines, json_t *object, const int64_t *count, int64_t step)
{
    const char *name;
    json_t *value, *terms = json_object_get(object, "terms"), *all_towers = json_object_get(object, "tower_terms");
    if (terms && !json_is_object(terms)) return LINE_FAIL(lines, "'terms' is not an object");
    json_object_foreach(terms, name, value)
    {
        RunTerm term = {.step = step};
        double *tower;
        json_t *of_towers = json_object_get(all_towers, name);
        if (!read_real(value, &term.mean)) return LINE_FAIL(lines, "'terms': '%s' is not a number or null", name);
        TRY(block_add(run, (size_t)run->towers, &tower));
        term.tower = tower;
        for (int t = 0; t < run->towers; t++) tower[t] = ABSENT;
        if (of_towers) TRY(losses_read(lines, of_towers, name, run->towers, count, tower));
        TRY(name_find(&run->term_name, &run->term_names, name, &term.name));
        TRY(ARRAY_ADD(run->term, run->terms, "the terms of a run", term));
    }
    return OK;
}

Status step_add(Run *run, const RunLines *lines, json_t *object)
{
    RunStep s = {0};
    double *memory;
    size_t towers = json_array_size(json_object_get(object, "tower_count"));
    if (!run->towers) {
        if (towers < 1 || towers > TOWERS_LIMIT) return LINE_FAIL(lines, "%zu towers", towers);
        run->towers = (int)towers;
    }
    if (towers != (size_t)run->towers) return LINE_FAIL(lines, "'tower_count': expected %d elements", run->towers);
    TRY(step_read(lines, object, &s));
    if (s.slow_tower >= run->towers || (json_object_get(object, "slow_tower") && !s.slow_activity[0]))
        return LINE_FAIL(lines, "'slow_tower' is not the number of a tower, or 'slow_activity' is missing");
    if (run->steps && s.step <= run->step[run->steps - 1].step)
        return LINE_FAIL(lines, "step %" PRId64 " follows step %" PRId64 ": expected increasing steps", s.step,
                         run->step[run->steps - 1].step);
    if ((double)s.step * (double)s.images > SEEN_LIMIT) return LINE_FAIL(lines, "'step' or 'images' is out of range");
    TRY(block_add(run, (size_t)run->towers * (TOWER_ARRAYS + 1), &memory));
    int64_t *count = (int64_t *)memory;
    memory += run->towers;
    TRY(counts_read(lines, object, run->towers, count));
    TRY(towers_read(lines, object, run->towers, count, memory, &s));
    TRY(telemetry_read(run, lines, object, &s));
    TRY(terms_read(run, lines, object, count, s.step));
    if (s.images == 0) s.mean_loss = s.base_loss = s.total_loss = s.main_loss = s.last_tower_loss = ABSENT;
    return ARRAY_ADD(run->step, run->steps, "the steps of a run", s);
}
