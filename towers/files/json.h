/* What JSON has no word for, the same in every file and on every output of this program. */
#ifndef TOWERS_FILES_JSON_H
#define TOWERS_FILES_JSON_H

#include <jansson.h>

json_t *json_text(const char *bytes); /* bytes that are not UTF-8 as \\xNN; NULL without memory; owned by the caller */
json_t *json_finite(double value);    /* null for NaN and Inf; owned by the caller */

#endif
