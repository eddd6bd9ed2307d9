/* A file that grows record by record and survives a full disk. Records wait in memory until a flush. If a write fails
 * half way, the file is truncated to its last whole record, and the next flush writes the records that came since. The
 * file therefore never holds half a record, except the last one of a process that was killed.
 *
 * Files of one AppendQueue are written by its thread, in the order in which their records were added, so that who has a record
 * does not wait for storage: a file server may be away for any time. What the queue cannot hold waits for storage, as a process that
 * waits for its calls does (kernels/base/progress.h): no record is left out. */
#pragma once

#include "kernels/base/status.h"

typedef struct AppendFile AppendFile;
/* Create the file, or append to it if it exists. With `exclusive` the file must not exist. */
NODISCARD Status append_open(const char *path, bool exclusive, AppendFile **made);
/* Append a whole record; flushes when the buffer is full. Errors: those of append_flush, after which the record is
 * lost. */
NODISCARD Status append_record(AppendFile *file, const void *bytes, size_t count);
/* ERR_IO: the buffered records are lost; the file is as it was before this flush. */
NODISCARD Status append_flush(AppendFile *file);
/* fsync of what has been flushed; any thread may call it. Errors: ERR_IO. */
NODISCARD Status append_sync(const AppendFile *file);
void append_close(AppendFile *file); /* flushes; NULL is fine */

typedef struct AppendQueue AppendQueue;
/* Start the thread. It waits with at most `bound` bytes, but always takes one record. */
NODISCARD Status append_queue_open(size_t bound, AppendQueue **made);
/* From now on the thread writes this file. append_record and append_flush then return at once, without an error of storage, which
 * append_queue_report has; append_sync and append_close wait for the thread. The queue is borrowed. */
void append_through(AppendFile *file, AppendQueue *queue);
/* Wait until all that was added before is written, or has failed to be. */
void append_queue_settle(AppendQueue *queue);

/* What storage did since the last report. */
typedef struct AppendReport {
    int64_t failed;                 /* writes */
    char why[STATUS_MESSAGE_BYTES]; /* the first of them */
    bool written;                   /* something has reached storage after the last failure */
    int64_t longest_ns;             /* how long a write took */
} AppendReport;
void append_queue_report(AppendQueue *queue, AppendReport *report);
/* For how long (ns) the thread has waited for storage; 0: it does not. */
int64_t append_queue_waiting(AppendQueue *queue);
/* After its files are closed; NULL is fine. */
void append_queue_close(AppendQueue *queue);
