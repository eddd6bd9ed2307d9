/* Selecting parameters by name, with shell patterns as in fnmatch(3), separated by commas. In a pattern
 * `*` and `?` match dots too: "Mixed_5*" is every parameter below Mixed_5b, Mixed_5c and Mixed_5d. */
#ifndef TOWERS_GRAPH_NAMES_H
#define TOWERS_GRAPH_NAMES_H

#include <stdbool.h>

/* Whether the name matches one of the patterns. NULL and "" match nothing. */
bool names_match(const char *patterns, const char *name);

typedef struct NameFilter {
    const char *only;   /* patterns; NULL: every name */
    const char *except; /* patterns; NULL: none */
} NameFilter;
bool names_pass(const NameFilter *filter, const char *name); /* a NULL filter lets every name pass */

#endif
