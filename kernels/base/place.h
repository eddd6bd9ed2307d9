/* Places: the files of a folder that is held open, wherever it goes.
 *
 * A run writes to its directory for days, and somebody may rename or remove that meanwhile. Names below a held directory are
 * looked up from its descriptor, so they always lead into that very directory, never into another one that has taken its name.
 * Other names are looked up as ever. tests/support/check_map.py forbids the raw calls in the rooms that write runs. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Hold the directory `path`, by which name its files are then called, in this process and in those that it forks. One at a time:
 * another one takes its place. Returns 0 or an errno. */
int place_hold(const char *path);

typedef enum PlaceState { PLACE_HERE = 0, PLACE_MOVED, PLACE_REMOVED } PlaceState;
/* Whether the name still leads to the held directory. If not, `now` receives the name that it has, if it is known, else "". What
 * cannot be found out (storage does not answer) counts as here. */
PlaceState place_state(char *now, size_t bytes);

/* A file for the system calls with a descriptor and a name (openat, renameat, fstatat, ...). `name` is borrowed from `path`. */
typedef struct FilePlace {
    int at;
    const char *name;
} FilePlace;
FilePlace place_of(const char *path);

/* The calls of these names, which fail with errno; storage may delay them (STORAGE of progress.h). place_open closes on exec, and a
 * new file has mode 0666. */
int place_open(const char *path, int flags);
int place_rename(const char *from, const char *to, unsigned flags); /* renameat2 */
int place_unlink(const char *path);
int place_mkdir(const char *path);
int place_stat(const char *path, struct stat *info);
int place_lstat(const char *path, struct stat *info);
int place_access(const char *path, int mode);
int place_statvfs(const char *path, struct statvfs *info);
DIR *place_list(const char *path);       /* opendir */
struct dirent *place_next(DIR *listing); /* readdir */
/* Remove a file or a whole directory; never follows a link. Returns 0, also if there is none, or an errno. */
int place_remove(const char *path);
