/* See german.h. */
#include "tests/support/german.h"

#include "towers/files/files.h"

static char folder[] = "/tmp/towers-locale-XXXXXX";

static bool german_compile(void)
{
    char command[256];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", folder, folder);
    return system(command) == 0;
}

bool german_begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/towers-locale-XXXXXX");
    if (mkdtemp(folder) && german_compile()) {
        setenv("LOCPATH", folder, 1);
        if (setlocale(LC_ALL, "de_DE.UTF-8") && strtod("0,5", NULL) == 0.5) return true;
    }
    german_end();
    return false;
}

void german_end(void)
{
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    if (tree_remove(folder) != OK) printf("%s stays behind\n", folder);
}
