/* A file that only grows, record by record, and survives a full disk: records wait in memory until a flush, a write
 * that fails half way is taken back by truncating to the last whole record, and the next flush tries again with what
 * came since. So the file never holds half a record, except the last one of a process that was killed. */
#ifndef TOWERS_FILES_APPEND_H
#define TOWERS_FILES_APPEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

typedef struct AppendFile AppendFile;
/* `exclusive`: the file must not exist. Else it is created, or continued at its end. */
NODISCARD Status append_open(const char *path, bool exclusive, AppendFile **made);
/* Takes a whole record; flushes by itself now and then. Errors: those of append_flush, after which the record
 * is gone. */
NODISCARD Status append_record(AppendFile *file, const void *bytes, size_t count);
/* ERR_IO: what waited is lost, the file is as it was before this flush. */
NODISCARD Status append_flush(AppendFile *file);
void append_close(AppendFile *file); /* flushes; NULL is fine */

#endif
