/* Outlets: standard streams whose writers never wait for a reader.
 *
 * A console may stop reading for any time (Ctrl-S, less, a frozen ssh, a log collector). What is written to an outlet goes to a
 * queue in memory, from which a thread writes it; if the queue is full, it is left out, and the stream says so once it is read
 * again. At the end of the process what is queued leaves, unless for a second nobody reads any of it; a thread that is merely late
 * is waited for. A forked process writes directly. */
#pragma once

#include "kernels/base/status.h"

typedef enum OutletStream { OUTLET_STDOUT = 0, OUTLET_STDERR, OUTLETS } OutletStream;

/* Make an outlet of a standard stream of this process; it writes directly until outlets_resume. Once is enough. */
void outlet_open(OutletStream stream);
/* End the threads before a fork, but for one that waits for a reader, and start them after it. */
void outlets_pause(void);
void outlets_resume(void);
/* Whether something waits to be read, so that a frame that will be drawn anew can be left out. */
bool outlet_waits(OutletStream stream);
/* Let what is queued leave; done by itself at exit. */
void outlets_finish(void);

/* The end of a command whose results go to standard output, with the status `st`: ERR_IO if they could not be written, or if
 * nobody reads them. If the reader has left (`| head`), the command has ended by SIGPIPE: ERR_INTERRUPTED, in *ending, too. */
NODISCARD Status output_end(Status st, Ending *ending);
