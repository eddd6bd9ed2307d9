/* skip() of unit.h, apart from unit.c, as some programs have a main() of their own. */
#include "tests/support/unit.h"

void unit_skip(const char *file, int line, const char *why, ...)
{
    va_list values;
    va_start(values, why);
    printf("SKIPPED: ");
    vprintf(why, values);
    printf("\n");
    va_end(values);
    _skip(file, line);
    abort();
}
