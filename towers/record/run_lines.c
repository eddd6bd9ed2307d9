/* The lines of a run's files; see run_lines.h. */
#include "towers/record/run_lines.h"
#include "kernels/array.h"

Status lines_open(const char *path, RunLines *lines, bool *open)
{
    int fd;
    *lines = (RunLines){.path = path};
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

char *lines_next(RunLines *lines)
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

void lines_close(RunLines *lines)
{
    fclose(lines->file);
    free(lines->line);
}

Status line_object(const RunLines *lines, const char *text, json_t **made)
{
    json_error_t error;
    *made = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(*made)) {
        json_decref(*made);
        *made = NULL;
        return LINE_FAIL(lines, "not a JSON object (%s)", error.text);
    }
    return OK;
}

bool read_real(const json_t *field, double *value)
{
    *value = json_is_number(field) ? json_number_value(field) : NAN;
    return json_is_number(field) || json_is_null(field);
}

bool read_count(const json_t *field, int64_t *value)
{
    *value = json_integer_value(field);
    return json_is_integer(field) && *value >= 0;
}

Status name_find(char ***names, int *count, const char *name, int *found)
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
