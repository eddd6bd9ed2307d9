/* Reads classes.txt; see class_names.h. An empty line is an error, because it would shift the names after it. */
#include "towers/data/sources/class_names.h"

#include "towers/files/utf8.h"

enum { CLASSES_LIMIT = 1 << 20 /* bytes */ };

Status class_names_set(Names *names, int count, const char *const *from)
{
    Status st = OK;
    names_free(names);
    for (int i = 0; st == OK && i < count; i++) st = names_add(names, from ? from[i] : "");
    return st;
}

/* Remove the line's end, which may be another system's; -1 if the line contains control characters. */
static int line_trim(char *line)
{
    line[strcspn(line, "\r\n")] = 0;
    for (const char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) return -1;
    return (int)strlen(line);
}

static Status names_read(FILE *from, const char *path, int most, Names *names)
{
    Status st = OK;
    char *line = NULL;
    size_t room = 0;
    while (st == OK && getline(&line, &room, from) > 0) {
        char *text = line + (names->count ? 0 : utf8_mark(line));
        int length = line_trim(text);
        if (length < 1)
            st = FAIL(ERR_FORMAT, "'%s': line %d: expected the name of class %d, found %s", path, names->count + 1,
                      names->count, length ? "control characters" : "nothing");
        else if (names->count == most)
            st = FAIL(ERR_FORMAT, "'%s': expected at most %d classes, one per line", path, most);
        else {
            char name[1024];
            utf8_escape(name, sizeof name, text);
            st = names_add(names, name);
        }
    }
    if (st == OK && ferror(from)) st = FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    if (st == OK && names->count == 0) st = FAIL(ERR_FORMAT, "'%s' is empty: expected one class name per line", path);
    free(line);
    return st;
}

bool class_names_find(const char *folder, char path[PATH_BYTES])
{
    static const char *const files[] = {"classes.txt", "classnames.txt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (path_join(path, folder, files[i]) == OK && (access(path, F_OK) == 0 || errno != ENOENT)) return true;
    return false;
}

Status class_names_read(const char *folder, int most, Names *names)
{
    char path[PATH_BYTES];
    int fd;
    uint64_t bytes;
    if (!class_names_find(folder, path)) return OK;
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
