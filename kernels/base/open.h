/* Open files: the one door of the whole program (tests/support/check_map.py forbids the raw calls elsewhere). A name may
 * lead to a pipe or a device, at which a plain open(2) waits without end or has effects. */
#pragma once

#include <fcntl.h> /* the flags */
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* What regular_open returns for something that exists but is no regular file; it was not changed. */
enum { NOT_REGULAR = -2 };

/* Open a regular file with the flags of open(2); a new one gets mode 0666 without the umask's bits. Never blocks, and
 * closes on exec. `info` (may be NULL) receives its status. Returns the descriptor, which belongs to the caller; -1 with
 * errno; or NOT_REGULAR. */
int regular_open(const char *path, int flags, struct stat *info);

/* Read a file that the kernel makes up, such as those in /proc and /sys: up to bytes - 1 characters and a zero. Returns
 * their number; 0 if it cannot be read. */
size_t system_text(const char *path, char *text, size_t bytes);
/* The number behind `key` at the beginning of a line of such a file ("": at its very beginning); `otherwise` if there
 * is none in its first 16 KiB. */
int64_t system_number(const char *path, const char *key, int64_t otherwise);
