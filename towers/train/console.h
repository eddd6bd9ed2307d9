/* Console: the progress of a run, drawn by the supervisor from the ledger: a bar on a terminal, otherwise one plain
 * line per interval. Respects NO_COLOR, TERM=dumb and the terminal's width. Writes to stderr, because stdout is for
 * machine-readable results. */
#pragma once

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"

typedef struct Console {
    const TrainJob *job;  /* borrowed */
    const Ledger *ledger; /* borrowed */
    int64_t last_step, last_epoch, last_draw_ns, started_ns, first_step, notes;
    bool bar_shown, expected; /* expected: how long it takes has been printed */
    int bar_columns;          /* width of the bar when it was last drawn */
} Console;

void console_start(Console *console, const TrainJob *job, const Ledger *ledger);
void console_update(Console *console); /* call at least every 100 ms */
void console_warn(Console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));
void console_end(Console *console); /* print the last lines and remove the bar */
