/* Lists of strings; see names.h. */
#include "towers/data/listing/names.h"
#include "kernels/base/array.h"

void names_free(Names *names)
{
    for (int i = 0; i < names->count; i++) free(names->name[i]);
    free(names->name);
    *names = (Names){0};
}

Status names_add(Names *names, const char *name)
{
    TRY(array_grow(&names->name, names->count, sizeof *names->name, "a list of names"));
    names->name[names->count] = strdup(name);
    if (!names->name[names->count]) return FAIL(ERR_MEMORY, "no memory for a list of names");
    names->count++;
    return OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void names_sort(Names *names)
{
    if (names->count) qsort(names->name, (size_t)names->count, sizeof *names->name, by_name);
}

int names_find(const Names *names, const char *name)
{
    char *const *found = bsearch(&name, names->name, (size_t)names->count, sizeof *names->name, by_name);
    return found ? (int)(found - names->name) : -1;
}
