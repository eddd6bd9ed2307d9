/* UTF-8 (RFC 3629) of texts that may be anything: names of files and folders, on Linux, are bytes. */
#ifndef TOWERS_FILES_UTF8_H
#define TOWERS_FILES_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The code point at *p, which moves on; -1 if it is not UTF-8 (one byte is passed), -2 at the end. */
int32_t utf8_point(const unsigned char **p);
/* `from` into `to` of `room` bytes: every byte that is no part of UTF-8 as \xNN, cut where a character begins. Returns the
 * bytes that all of it takes, without the NUL. */
size_t utf8_escape(char *to, size_t room, const char *from);

#endif
