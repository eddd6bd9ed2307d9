/* Removing abandoned downloads; see abandoned.h. */
#include "towers/remote/abandoned.h"

#include <fts.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/open.h"

enum { DAYS = 30, SECONDS_A_DAY = 86400 };

static void abandoned_look(const char *path)
{
    struct stat info;
    int fd = regular_open(path, O_WRONLY | O_NOFOLLOW, &info);
    if (fd < 0) return;
    bool old = time(NULL) - info.st_mtime > (time_t)DAYS * SECONDS_A_DAY;
    if (old && flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(path);
    close(fd);
}

void abandoned_remove(const char *folder, bool (*is_beginning)(const char *name))
{
    char *roots[] = {(char *)folder, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) return;
    for (const FTSENT *entry; (entry = fts_read(walk)) != NULL;)
        if (entry->fts_info == FTS_F && is_beginning(entry->fts_name)) abandoned_look(entry->fts_path);
    fts_close(walk);
}
