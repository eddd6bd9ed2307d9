/* A growing list of strings. */
#pragma once

#include "kernels/base/status.h"

typedef struct Names {
    char **name; /* owned, as are its strings */
    int count;
} Names;

NODISCARD Status names_add(Names *names, const char *name); /* a copy */
void names_sort(Names *names);                              /* by bytes */
int names_find(const Names *names, const char *name);       /* among sorted ones; -1: it is not there */
void names_free(Names *names);
