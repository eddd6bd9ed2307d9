/* Reads classes.txt; see class_names.h. A line without a name is refused: it would move the names behind it. */
#include "towers/data/class_names.h"

#include "towers/files/files.h"
#include "towers/files/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLASSES_LIMIT = 1 << 20 /* bytes */ };

/* The line without its end, which may be that of another system; -1 for one that holds control characters. */
static int line_trim(char *line)
{
    line[strcspn(line, "\r\n")] = 0;
    for (const char *at = line; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f) return -1;
    return (int)strlen(line);
}

static Status names_read(FILE *from, const char *path, int most, DatasetInfo *info)
{
    Status st = OK;
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    while (st == OK && getline(&line, &room, from) > 0) {
        int length = line_trim(line);
        if (length < 1)
            st = FAIL(ERR_FORMAT, "'%s': line %d: expected the name of class %d, found %s", path, count + 1, count,
                      length ? "control characters" : "nothing");
        else if (count == most)
            st = FAIL(ERR_FORMAT, "'%s': expected at most %d classes, one a line", path, most);
        else if (count < DATASET_NAMES)
            utf8_escape(info->class_names[count], sizeof *info->class_names, line);
        count++;
    }
    if (st == OK && ferror(from)) st = FAIL(ERR_IO, "reading '%s': %s", path, strerror(errno));
    if (st == OK && count == 0) st = FAIL(ERR_FORMAT, "'%s' is empty: expected the name of a class in each line", path);
    free(line);
    if (st == OK) info->classes = count;
    return st;
}

Status class_names_read(const char *folder, int most, DatasetInfo *info)
{
    char path[PATH_BYTES];
    TRY(path_join(path, folder, "classes.txt"));
    int fd;
    uint64_t bytes;
    if (access(path, F_OK) != 0 && errno == ENOENT) return OK;
    TRY(file_open(path, OF_USER, ERR_FORMAT, CLASSES_LIMIT, &fd, &bytes));
    FILE *from = fdopen(fd, "r");
    if (!from) {
        close(fd);
        return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", path);
    }
    memset(info->class_names, 0, sizeof info->class_names);
    Status st = names_read(from, path, most, info);
    fclose(from);
    return st;
}
