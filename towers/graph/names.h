/* Selecting parameters by name, with shell patterns as in fnmatch(3), separated by commas. In a pattern
 * `*` and `?` match dots too: "Mixed_5*" is every parameter below Mixed_5b, Mixed_5c and Mixed_5d. A pattern after `!`
 * takes the names that it matches out again: of patterns that match, the last counts, so "*,!fc*" is all but the
 * classifier. */
#pragma once

#include <stdbool.h>

/* NULL and "" match nothing. */
bool names_match(const char *patterns, const char *name);

typedef struct NameFilter {
    const char *only;   /* patterns; NULL: every name */
    const char *except; /* patterns; NULL: none */
} NameFilter;
bool names_pass(const NameFilter *filter, const char *name); /* a NULL filter lets every name pass */

/* A factor for the parameters that one pattern matches. */
typedef struct NameFactor {
    char pattern[128];
    double factor;
} NameFactor;
/* The product over the patterns that match; 1 if none does. */
double names_factor(const NameFactor *factors, int count, const char *name);
