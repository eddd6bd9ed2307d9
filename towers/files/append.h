/* A file that grows record by record and survives a full disk. Records wait in memory until a flush. If a write fails
 * half way, the file is truncated to its last whole record, and the next flush writes the records that came since. The
 * file therefore never holds half a record, except the last one of a process that was killed. */
#pragma once

#include "kernels/status.h"

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
