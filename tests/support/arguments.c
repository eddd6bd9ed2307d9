/* See arguments.h. */
#include "tests/support/arguments.h"

#include <stdlib.h>
#include <string.h>

const char *argument(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t length = strlen(name);
    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], name, length) && argv[i][length] == '=') return argv[i] + length + 1;
    return otherwise;
}

double number_argument(int argc, char **argv, const char *name, double otherwise)
{
    const char *text = argument(argc, argv, name, NULL);
    return text ? strtod(text, NULL) : otherwise;
}
