/* Config: a strict, flat subset of YAML 1.1, read with libyaml's event interface.
 *
 * One document, one block mapping, "key: value" lines with plain, 'single' or "double" quoted scalars on one line each,
 * and comments. Refused, with file:line:column: tags, anchors, aliases, sequences, nested or flow mappings, block
 * scalars, directives, a second document, tabs, NUL, empty values and files above CONFIG_MAX_BYTES. What keys mean, and
 * whether one comes twice, is the visitor's business. */
#ifndef TOWERS_INCEPTION_CLI_CONFIG_H
#define TOWERS_INCEPTION_CLI_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/status.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

typedef struct ConfigEntry {
    const char *key, *value;  /* borrowed, valid during the visit */
    bool quoted;              /* the value stood in quotes */
    int key_line, key_column; /* from 1 */
    int line, column;         /* of the value */
} ConfigEntry;

/* Called for each entry in the order of the file; a failure ends the reading and is returned. */
typedef Status (*ConfigVisit)(void *context, const ConfigEntry *entry);

/* ERR_ARG with "name:line:column: ..." for what is not this subset, or the visitor's failure. An empty text
 * is legal. */
NODISCARD Status config_parse(const char *name, const void *bytes, size_t count, ConfigVisit visit, void *context);

/* The whole of a regular file, for the caller to free. ERR_ARG if it cannot be read or is too large. */
NODISCARD Status config_load(const char *path, char **bytes, size_t *count);

#endif
