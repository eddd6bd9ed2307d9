/* Text: a message put together piece by piece in a buffer of fixed size. What does not fit is cut off, at a byte, and
 * noted; the text always ends with a zero byte and no sum of lengths can lead outside. Use it wherever more than one
 * snprintf would write to a buffer. */
#ifndef TOWERS_KERNELS_TEXT_H
#define TOWERS_KERNELS_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct Text {
    char *at;           /* borrowed; NULL where bytes is 0 */
    size_t bytes, used; /* room, and characters so far: used < bytes, or both 0 */
    bool truncated;
} Text;

Text text_start(char *buffer, size_t bytes);  /* an empty one */
Text text_behind(char *buffer, size_t bytes); /* goes on behind the string that is there */
void text_add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vadd(Text *text, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* Print a text that may hold anything (names of files, words out of a run's records): control characters, which could
 * command a terminal, come as \xHH; newlines and tabs stay. */
void text_print(FILE *to, const char *text);

#endif
