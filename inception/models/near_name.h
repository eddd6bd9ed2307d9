/* Similar names: "did you mean ...?" for models, options and choices. */
#pragma once

/* The most similar of `count` names: Damerau-Levenshtein distance <= 2, or `typed` is a prefix; NULL if there is
 * none. */
const char *nearest_name(const char *typed, const char *const *names, int count);

/* Optimal string alignment distance (insert, delete, replace, swap neighbors), or `limit` + 1 if it is larger. */
int edit_distance(const char *a, const char *b, int limit);
