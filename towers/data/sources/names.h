/* A growing list of strings. */
#ifndef TOWERS_DATA_NAMES_H
#define TOWERS_DATA_NAMES_H

#include "kernels/status.h"

typedef struct Names {
    char **name; /* owned, as are its strings */
    int count;
} Names;

NODISCARD Status names_add(Names *names, const char *name); /* a copy */
void names_sort(Names *names);                              /* by bytes */
void names_free(Names *names);

#endif
