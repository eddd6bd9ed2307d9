/* Console: what a person sees of a run, drawn by the supervisor from the ledger. A bar on a terminal, one plain line
 * per interval elsewhere; NO_COLOR, TERM=dumb and the width are honoured. Writes to stderr: stdout belongs to machine
 * data. */
#ifndef TOWERS_TRAIN_CONSOLE_H
#define TOWERS_TRAIN_CONSOLE_H

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"
#include "towers/train/train.h"

typedef struct Console {
    const TrainJob *job;  /* borrowed */
    const Ledger *ledger; /* borrowed */
    int64_t last_step, last_epoch, last_draw_ns, started_ns, first_step, notes;
    bool bar_shown;
    int bar_columns; /* of the last drawing, the first line */
} Console;

void console_start(Console *console, const TrainJob *job, const Ledger *ledger);
void console_update(Console *console); /* call at least every 100 ms */
void console_warn(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_end(Console *console); /* the last lines, and the bar goes away */

#endif
