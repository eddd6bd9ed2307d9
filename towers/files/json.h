/* JSON values for bytes that are not UTF-8 and for numbers that are not finite, written alike in every file and
 * output. */
#pragma once

#include <jansson.h>

#include "kernels/base/status.h"

json_t *json_text(const char *bytes); /* bytes that are not UTF-8 as \\xNN; NULL without memory; owned by the caller */
json_t *json_finite(double value);    /* null for NaN and Inf; owned by the caller */
json_t *json_counts(const int64_t *values, int64_t count); /* a list of them; owned by the caller */

/* The text, and the integer, that an object has under a key; NULL, and 0, if it has none. Borrowed. */
const char *json_word(const json_t *object, const char *key);
const char *json_word_or_empty(const json_t *object, const char *key); /* "" if it has none */
int64_t json_whole(const json_t *object, const char *key);

/* The texts of a list, "" for what is none, in an array that the caller owns; the texts are borrowed. NULL without memory. */
const char **json_texts(const json_t *list);

/* Print `root`, which this function owns, as a line (flags: JSON_COMPACT, JSON_INDENT), as all commands do with --json.
 * ERR_MEMORY if it is NULL, ERR_IO. */
NODISCARD Status json_emit(json_t *root, size_t flags, FILE *to);

/* Write `root`, which this function owns, durably to a file. ERR_MEMORY if it is NULL. */
NODISCARD Status json_replace(const char *directory, const char *name, json_t *root, size_t flags);

/* json_loadb that rejects duplicate keys and distinguishes a lack of memory (ERR_MEMORY) from bad JSON: for bad JSON the status
 * is OK, *made is NULL and *error is filled. */
NODISCARD Status json_parse(const char *text, size_t bytes, json_t **made, json_error_t *error);

/* The object in a file of a run directory, owned by the caller. NULL if there is no such file, if it is larger than
 * RUN_TEXT_BYTES, or if it has no object. */
json_t *json_of_run(const char *run, const char *name);
