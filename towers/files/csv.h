/* CSV by RFC 4180: fields between commas, texts in quotes, with each quote in a text doubled. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* A text as a field, in quotes. Control characters become \xHH, as where names are printed: a row stays one
 * line, and two files or classes never get one name because of a blank. */
void csv_text(FILE *to, const char *text);

/* The next field of a row, unquoted in place; NULL at its end. *row is the rest of the row, without its line break: start
 * with the row, which is changed. What is no CSV gives some text, never anything outside of the row. */
char *csv_take(char **row);
