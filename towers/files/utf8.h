/* UTF-8 (RFC 3629) in untrusted text: on Linux, names of files and folders are arbitrary bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the code point at *p and advances *p. Invalid UTF-8 gives -1 and advances by one byte; the end gives -2. */
int32_t utf8_point(const unsigned char **p);
bool utf8_valid(const char *text);
/* Bytes of the mark with which Windows' programs begin a text; 0 without one. */
size_t utf8_mark(const char *text);
/* Copy `from` to `to` (`room` bytes), with bytes that are not valid UTF-8 as \xNN; truncated at a character boundary.
 * Returns the length of the whole result without the NUL, as snprintf does. */
size_t utf8_escape(char *to, size_t room, const char *from);
