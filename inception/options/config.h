/* Config: a strict, flat subset of YAML 1.1, read with libyaml's event interface.
 *
 * One document with one block mapping of "key: value" lines; values are plain, 'single' or "double" quoted scalars on
 * one line each; comments are allowed. Rejected, with file:line:column: tags, anchors, aliases, sequences, nested or flow
 * mappings, block scalars, directives, a second document, tabs, NUL, empty values, and files above CONFIG_MAX_BYTES. The
 * visitor interprets the keys and detects duplicates. */
#pragma once

#include "kernels/base/status.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

typedef struct ConfigEntry {
    const char *key, *value;  /* borrowed, valid during the visit */
    bool quoted;              /* the value was quoted */
    bool list;                /* [A, B] or lines with dashes: the value is "A | B" */
    int key_line, key_column; /* from 1 */
    int line, column;         /* position of the value */
} ConfigEntry;

/* Called for each entry in file order; an error ends the reading and is returned. */
typedef Status (*ConfigVisit)(void *context, const ConfigEntry *entry);

/* Errors: ERR_ARG with "name:line:column: ..." for anything outside of this subset, or the visitor's. Empty input is
 * valid. */
NODISCARD Status config_parse(const char *name, const void *bytes, size_t count, ConfigVisit visit, void *context);
/* The same for a file in which a value may be a list of scalars (the file of a sweep), none of which has a '|'. */
NODISCARD Status config_parse_lists(const char *name, const void *bytes, size_t count, ConfigVisit visit,
                                    void *context);

/* Read a whole regular file; the caller frees it. ERR_ARG if it cannot be read or is too large. */
NODISCARD Status config_load(const char *path, char **bytes, size_t *count);
