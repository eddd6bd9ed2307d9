/* The call stack of a tower process, written by backtrace(3) in a signal handler; see stack.h. */
#include "towers/guard/stack.h"

#include <execinfo.h>
#include <fcntl.h>

#include "kernels/base/place.h"
#include "towers/files/files.h"
#include "towers/replica/tower_process.h"

enum { FRAMES = 128 };

static char stack_file[PATH_BYTES], stack_title[512];
static _Atomic bool *stack_written;

Status stack_path(const TrainJob *job, int rank, char *path)
{
    char name[64];
    if (!job->run_dir) return FAIL(ERR_ARG, "no run directory for the call stack of process %d", rank);
    snprintf(name, sizeof name, "stack-tower-%d.txt", job_placement(job, rank).first_tower);
    return path_join(path, job->run_dir, name);
}

/* Only calls that are allowed in a signal handler; backtrace is, once it has been called before. */
static void stack_write(int number)
{
    void *frames[FRAMES];
    int error = errno, count = backtrace(frames, FRAMES);
    size_t bytes = strlen(stack_title);
    (void)number;
    (void)place_unlink(stack_file); /* left by an earlier process of this run; O_EXCL follows no link */
    int fd = place_open(stack_file, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0 && write(fd, stack_title, bytes) == (ssize_t)bytes) {
        backtrace_symbols_fd(frames, count, fd);
        atomic_store(stack_written, count > 0);
    }
    if (fd >= 0) close(fd);
    errno = error;
}

void stack_watch(const TrainJob *job, int rank, Ledger *ledger)
{
    char who[64];
    void *frame;
    signal(STACK_SIGNAL, SIG_IGN);
    if (stack_path(job, rank, stack_file) != OK) return;
    towers_text(job, rank, who, sizeof who);
    snprintf(
        stack_title, sizeof stack_title,
        "Call stack of %s, innermost call first. addr2line -fie PROGRAM 0xOFFSET prints function and line of an entry "
        "with +0xOFFSET.\n",
        who);
    stack_written = &ledger->process[rank].stack_written;
    (void)backtrace(&frame, 1); /* the first call loads a library, which a signal handler must not do */
    signal(STACK_SIGNAL, stack_write);
}
