/* Reads classes.txt; see class_names.h. An empty line is an error, because it would shift the names after it. */
#include "towers/data/classes/class_names.h"

#include <ctype.h>

#include "towers/files/utf8.h"

enum { CLASSES_LIMIT = 1 << 20 /* bytes */ };

Status class_names_set(Names *names, int count, const char *const *from)
{
    Status st = OK;
    names_free(names);
    for (int i = 0; st == OK && i < count; i++) st = names_add(names, from ? from[i] : "");
    return st;
}

/* Remove the end of a line of so many bytes, which may be another system's; the length that is left, -1 if the line contains control
 * characters: a NUL of UTF-16, or a CR that alone ends lines. What is behind them would be lost. */
static int line_trim(char *line, size_t bytes)
{
    if (bytes && line[bytes - 1] == '\n') bytes--;
    while (bytes && line[bytes - 1] == '\r') bytes--;
    line[bytes] = 0;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) return -1;
    return (int)bytes;
}

#define NUMBERED "labels.txt" /* by TF-Slim: "0:daisy" */

/* The name behind the number of its line, where all names have one; NULL if this line has none. */
static const char *name_behind(const char *line, int number, bool numbered)
{
    char *end;
    if (!numbered) return line;
    long value = strtol(line, &end, 10);
    return end != line && *end == ':' && value == number ? end + 1 : NULL;
}

/* The number at the beginning of a name, before ':', ',', ';' or '='; -1: it has none. "16:9" and "1,4-xylene" are names. */
static long number_ahead(const char *name)
{
    size_t digits = strspn(name, "0123456789"), blanks = strspn(name + digits, " ");
    const char *mark = name + digits + blanks;
    bool listed = digits && digits < 10 && *mark && strchr(":,;=", *mark) && !isdigit((unsigned char)mark[1]);
    return listed ? strtol(name, NULL, 10) : -1;
}

/* A list that numbers its classes has them in this order, from 0 or 1. */
static Status numbers_check(const Names *names, const char *path)
{
    long first = names->count ? number_ahead(names->name[0]) : -1;
    int wrong = -1;
    for (int i = 0; i < names->count; i++) {
        long number = number_ahead(names->name[i]);
        if (number < 0) return OK;
        if (wrong < 0 && (first > 1 || number != first + i)) wrong = i;
    }
    return wrong < 0
               ? OK
               : FAIL(ERR_FORMAT,
                      "'%s': line %d: '%.100s' has another number than its place says: the first line is the name of "
                      "the first class, and so on; bring the lines into this order",
                      path, wrong + 1, names->name[wrong]);
}

static Status names_read(FILE *from, const char *path, int most, Names *names)
{
    Status st = OK;
    char *line = NULL;
    size_t room = 0;
    bool numbered = false;
    const char *slash = strrchr(path, '/');
    for (ssize_t bytes; st == OK && (bytes = getline(&line, &room, from)) > 0;) {
        char *text = line + (names->count ? 0 : utf8_mark(line));
        int length = line_trim(text, (size_t)(line + bytes - text));
        if (!names->count) numbered = !strcmp(slash ? slash + 1 : path, NUMBERED) && !strncmp(text, "0:", 2);
        const char *own = length < 1 ? text : name_behind(text, names->count, numbered);
        if (length >= 0 && !names->count && !strncmp(text, "# ", 2))
            st = FAIL(ERR_FORMAT,
                      "'%s': line 1: '%.100s' looks like a comment, but each line is the name of a class: remove it",
                      path, text);
        else if (!own || (numbered && !*own))
            st = FAIL(ERR_FORMAT, "'%s': line %d: expected \"%d:\" and the name of this class, as in the lines above",
                      path, names->count + 1, names->count);
        else if (length < 1)
            st = FAIL(ERR_FORMAT, "'%s': line %d: expected the name of class %d, found %s", path, names->count + 1,
                      names->count,
                      length ? "control characters: expected UTF-8, and lines that end in LF or CR LF" : "nothing");
        else if (names->count == most)
            st = FAIL(ERR_FORMAT, "'%s': expected at most %d classes, one per line", path, most);
        else {
            char name[1024];
            utf8_escape(name, sizeof name, own);
            st = names_add(names, name);
        }
    }
    if (st == OK && ferror(from)) st = FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    if (st == OK && names->count == 0) st = FAIL(ERR_FORMAT, "'%s' is empty: expected one class name per line", path);
    if (st == OK) st = numbers_check(names, path);
    free(line);
    return st;
}

enum { FILES = 4, FILES_USUAL = 2 /* the rest is for TFRecords */ };
static const char *const files[FILES] = {"classes.txt", "classnames.txt", "label.labels.txt", NUMBERED};

bool class_names_is(const char *file)
{
    for (int i = 0; i < FILES; i++)
        if (!strcmp(file, files[i])) return true;
    return false;
}

const char *class_names_file(int i, bool records)
{
    return i < (records ? FILES : FILES_USUAL) ? files[i] : NULL;
}

bool class_names_find(const char *folder, bool records, char path[PATH_BYTES])
{
    for (int i = 0; i < (records ? FILES : FILES_USUAL); i++)
        if (path_join(path, folder, files[i]) == OK && (access(path, F_OK) == 0 || errno != ENOENT)) return true;
    return false;
}

Status class_names_read(const char *folder, int most, Names *names)
{
    char path[PATH_BYTES];
    return class_names_find(folder, false, path) ? class_names_load(path, most, names) : OK;
}

Status class_names_load(const char *path, int most, Names *names)
{
    int fd;
    uint64_t bytes;
    TRY(file_open(path, OF_USER, ERR_FORMAT, CLASSES_LIMIT, &fd, &bytes));
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", path);
    }
    names_free(names);
    Status st = names_read(from, path, most, names);
    fclose(from);
    return st;
}
