/* Matching parameter names with patterns; see names.h. */
#include "towers/graph/names.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { PATTERN_BYTES = 512 };

bool names_match(const char *patterns, const char *name)
{
    bool matches = false;
    for (const char *at = patterns; at && *at;) {
        char one[PATTERN_BYTES];
        size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        bool out = one[0] == '!';
        if (fnmatch(one + out, name, 0) == 0) matches = !out;
        at += length + (at[length] == ',');
    }
    return matches;
}

double names_factor(const NameFactor *factors, int count, const char *name)
{
    double product = 1;
    for (int i = 0; i < count; i++)
        if (fnmatch(factors[i].pattern, name, 0) == 0) product *= factors[i].factor;
    return product;
}

bool names_pass(const NameFilter *filter, const char *name)
{
    if (!filter) return true;
    return (!filter->only || names_match(filter->only, name)) && !names_match(filter->except, name);
}
