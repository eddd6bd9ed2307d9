/* The lines of a run's files; see run_lines.h. */
#include "towers/record/run_lines.h"
#include "kernels/base/array.h"
#include "kernels/base/place.h"

Status lines_open(const char *path, RunLines *lines, bool *open)
{
    int fd;
    *lines = (RunLines){.path = path};
    *open = false;
    if (place_access(path, F_OK) != 0 && errno == ENOENT) return OK;
    TRY(file_open(path, OF_RUN, ERR_FORMAT, UINT64_MAX, &fd, &lines->bytes));
    lines->file = fdopen(fd, "r");
    if (!lines->file) {
        close(fd);
        return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", path);
    }
    *open = true;
    return OK;
}

/* Reads up to the end of a line into lines->line; *bytes: how many, with the newline if there is one. */
static Status line_read(RunLines *lines, size_t *bytes)
{
    int byte = 0;
    for (*bytes = 0; byte != '\n' && (byte = getc_unlocked(lines->file)) != EOF;) {
        if (*bytes + 1 >= lines->room) {
            if (lines->room > LINE_MOST)
                return FAIL(ERR_FORMAT, "'%s': a line of more than %d MiB is no record", lines->path, LINE_MOST >> 20);
            size_t room = lines->room ? 2 * lines->room : 4096;
            char *more = realloc(lines->line, room);
            if (!more) return FAIL(ERR_MEMORY, "no memory for a line of '%s'", lines->path);
            lines->line = more;
            lines->room = room;
        }
        lines->line[(*bytes)++] = (char)byte;
    }
    return ferror(lines->file) ? FAIL(ERR_IO, "cannot read '%s': %s", lines->path, strerror(errno)) : OK;
}

char *lines_next(RunLines *lines)
{
    size_t count;
    lines->trouble = line_read(lines, &count);
    if (lines->trouble != OK || !count) return NULL;
    lines->number++;
    lines->at += count;
    lines->cut = lines->line[count - 1] != '\n';
    lines->line[count - !lines->cut] = 0;
    return lines->cut ? NULL : lines->line;
}

Status lines_skip(RunLines *lines, uint64_t bytes)
{
    if (lines->bytes <= bytes) return OK;
    if (fseeko(lines->file, (off_t)(lines->bytes - bytes), SEEK_SET) != 0)
        return FAIL(ERR_IO, "cannot read '%s': %s", lines->path, strerror(errno));
    lines->at = lines->bytes - bytes;
    lines->ending = true;
    if (!lines_next(lines)) /* the rest of a line, or all of one */
        return lines->trouble != OK
                   ? lines->trouble
                   : FAIL(ERR_FORMAT, "'%s' has no line in its last %" PRIu64 " bytes", lines->path, bytes);
    lines->number = 0;
    return OK;
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

bool read_real(const json_t *field, Number *value)
{
    *value = json_is_number(field) ? json_number_value(field) : json_is_null(field) ? NAN : ABSENT;
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
