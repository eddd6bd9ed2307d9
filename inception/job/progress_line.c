/* Progress on a terminal; see progress_line.h. */
#include "inception/job/progress_line.h"

#include <unistd.h>

#include "kernels/base/clock.h"

static const int64_t EVERY_NS = 200000000;

ProgressLine progress_line(void)
{
    return (ProgressLine){.tty = isatty(STDERR_FILENO)};
}

bool progress_line_due(ProgressLine *line)
{
    int64_t now = clock_ns();
    if (!line->tty || now - line->shown_ns < EVERY_NS) return false;
    line->shown_ns = now;
    line->begun = true;
    fputc('\r', stderr);
    return true;
}

void progress_line_flush(void)
{
    fputs("\33[K", stderr);
    fflush(stderr);
}

void progress_line_end(const ProgressLine *line)
{
    if (line->tty && line->begun) fputs("\r\33[K", stderr);
}

void progress_line_message(const ProgressLine *line, const char *text)
{
    if (line->tty) fputs("\r\33[K", stderr);
    text_printf(stderr, "%s\n", text);
}

void progress_count_show(const char *what, const char *units, int64_t done, int64_t all)
{
    if (!isatty(STDERR_FILENO)) return;
    if (done < all)
        fprintf(stderr, "\r%s%" PRId64 " of %" PRId64 " %s", what, done, all, units);
    else
        fputs("\r\33[K", stderr);
    fflush(stderr);
}
