/* Text: a message built piece by piece in a buffer of fixed size. A piece that does not fit is cut at a byte and sets
 * `truncated`; the text always ends with a zero byte and never exceeds its buffer. Use it instead of several snprintf to
 * one buffer. */
#pragma once

#include <stdarg.h>

#include "kernels/base/status.h"

typedef struct Text {
    char *at;           /* borrowed; NULL if bytes is 0 */
    size_t bytes, used; /* room, and characters so far: used < bytes, or both 0 */
    bool truncated;
} Text;

Text text_start(char *buffer, size_t bytes);  /* an empty one */
Text text_behind(char *buffer, size_t bytes); /* appends to the string in the buffer */
void text_add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_hex(Text *text, const unsigned char *bytes, size_t count); /* "0aff": two digits for each */
void text_vadd(Text *text, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* The shortest of 15, 16 and 17 digits that reads back as `value`, in the locale of the caller. Needs 32 bytes. */
void text_real(double value, char *text, size_t bytes);

/* "SIGINT"; "signal 40" for one without a name. */
enum { SIGNAL_TEXT_BYTES = 24 };
const char *signal_text(int number, char text[SIGNAL_TEXT_BYTES]);

/* `from` with its control characters as \xHH, but for line breaks before two spaces, which begin the lines of a list. */
void text_escape(char *text, size_t bytes, const char *from);
/* The columns that UTF-8 takes on a terminal. */
int text_columns(const char *text);
/* Print untrusted text (file names, words from a run's records): control characters, which could drive a terminal, are
 * escaped as \xHH; newlines and tabs stay. */
void text_print(FILE *to, const char *text);
/* fprintf for what a command prints: the text of each %s is untrusted and stays on its line, so newlines and tabs in it
 * are escaped too; its width, and a precision beside it, count columns of the terminal. Knows the conversions d, i, u,
 * x, c, s, p, e, f and g with the lengths h, l, ll, z and t, and a width or precision of *; others stop the program. What
 * other threads print does not come between. */
void text_printf(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(FILE *to, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* text_vprintf with other escapes: `put` prints the text of each %s. */
typedef void TextPut(FILE *to, const char *text);
void text_vput(FILE *to, TextPut *put, const char *format, va_list args) __attribute__((format(printf, 3, 0)));

/* A word as a shell reads it back: in single quotes, if it has characters that a shell would take for its own, and as $'...' with
 * escapes, which bash, zsh and POSIX.1-2024 know, if it has some that a terminal would obey. */
void text_shell(FILE *to, const char *word);

/* A file whose text the build has compiled into the program. */
typedef struct EmbeddedText {
    const char *name, *text; /* of the file, without its ending */
} EmbeddedText;

/* "40 seconds", "12 minutes", "7.5 hours", "3.2 days": as exact as an estimate is. */
enum { DURATION_TEXT = 32 };
const char *duration_text(double seconds, char text[DURATION_TEXT]);
