/* What JSON has no word for, the same in every file and on every output of this program. */
#ifndef TOWERS_FILES_JSON_H
#define TOWERS_FILES_JSON_H

#include <jansson.h>

#include "kernels/status.h"

json_t *json_text(const char *bytes); /* bytes that are not UTF-8 as \\xNN; NULL without memory; owned by the caller */
json_t *json_finite(double value);    /* null for NaN and Inf; owned by the caller */

/* json_loadb without duplicate keys, which does not take memory that runs out for a text that is wrong: then ERR_MEMORY.
 * Of a wrong text *made is NULL, the status OK, and *error filled. */
NODISCARD Status json_parse(const char *text, size_t bytes, json_t **made, json_error_t *error);

#endif
