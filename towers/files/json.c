/* See json.h. */
#include "towers/files/json.h"

#include <math.h>
#include <stdlib.h>

#include "towers/files/utf8.h"

json_t *json_text(const char *bytes)
{
    size_t room = utf8_escape(NULL, 0, bytes) + 1;
    char *text = malloc(room);
    if (!text) return NULL;
    utf8_escape(text, room, bytes);
    json_t *made = json_string(text);
    free(text);
    return made;
}

json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
