/* Where the program is, from where the test is: wherever both have been put. */
#include "tests/support/towers_program.h"

#include "tests/support/unit.h"

#include <limits.h>
#include <unistd.h>

const char *towers_program(void)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof "/towers");
    for (int up = 0; up < 2; up++)
        while (length > 0 && path[--length] != '/') continue;
    assert_true(length >= 0);
    strcpy(path + length, "/towers");
    return path;
}
