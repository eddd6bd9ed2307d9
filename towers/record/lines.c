/* Return files of lines to an earlier step; see lines.h. */
#include "towers/record/lines.h"

#include <sys/mman.h>

#include "kernels/base/place.h"
#include "kernels/base/progress.h"
#include "towers/files/files.h"

int64_t line_number(const char *text, size_t count)
{
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < count && digits < 18 && text[digits] >= '0' && text[digits] <= '9'; digits++)
        value = value * 10 + (text[digits] - '0');
    return digits && digits < count && text[digits] == ',' ? value : -1;
}

Status lines_cut(const char *path, int64_t resume_step, LineStep *step_of)
{
    Status st = OK;
    struct stat info;
    int fd;
    TRY(run_file_open(path, false, false, &fd));
    if (fd < 0) return OK;
    if (STORAGE(fstat(fd, &info)) != 0)
        TRY_OUT(FAIL(ERR_IO, "cannot determine the size of '%s': %s", path, strerror(errno)));
    if (info.st_size == 0) goto out;
    char *text = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) TRY_OUT(FAIL(ERR_IO, "cannot map '%s': %s", path, strerror(errno)));
    /* The end of the last whole line of a step up to `resume_step`. */
    progress_storage_begin();
    const char *last = memrchr(text, '\n', (size_t)info.st_size);
    size_t end = last ? (size_t)(last - text) + 1 : 0;
    while (end) {
        const char *before = memrchr(text, '\n', end - 1);
        size_t start = before ? (size_t)(before - text) + 1 : 0;
        int64_t step = step_of(text + start, end - 1 - start);
        if (step >= 0 && step <= resume_step) break;
        end = start;
    }
    size_t kept = end;
    munmap(text, (size_t)info.st_size);
    (void)progress_storage_end(0);
    if (STORAGE(ftruncate(fd, (off_t)kept)) != 0)
        st = FAIL(ERR_IO, "cannot truncate '%s' after step %" PRId64 ": %s", path, resume_step, strerror(errno));
out:
    if (fd >= 0) (void)STORAGE(close(fd));
    return st;
}

Status lines_set_aside(const char *path, bool *moved)
{
    char aside[PATH_BYTES];
    struct stat info;
    if (place_stat(path, &info) != 0 || info.st_size == 0) return OK;
    for (int i = 1; i < 10000; i++) {
        if (snprintf(aside, sizeof aside, "%s.%d", path, i) >= (int)sizeof aside) break;
        if (place_access(aside, F_OK) == 0) continue;
        if (place_rename(path, aside, 0) != 0) break;
        *moved = true;
        return OK;
    }
    return FAIL(ERR_IO, "cannot rename '%s', the file of an earlier run: %s", path, strerror(errno));
}
