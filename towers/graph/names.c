/* Matching parameter names with patterns; see names.h. */
#include "towers/graph/names.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { PATTERN_BYTES = 512 };

bool names_match(const char *patterns, const char *name)
{
    for (const char *at = patterns; at && *at;) {
        char one[PATTERN_BYTES];
        size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        if (fnmatch(one, name, 0) == 0) return true;
        at += length + (at[length] == ',');
    }
    return false;
}

bool names_pass(const NameFilter *filter, const char *name)
{
    if (!filter) return true;
    return (!filter->only || names_match(filter->only, name)) && !names_match(filter->except, name);
}
