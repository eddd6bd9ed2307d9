/* A folder for the files of a test, below TMPDIR or /tmp: created before the test (or group) and removed with its
 * content afterwards, as cmocka's set-up and tear-down. A failure here fails the test. */
#pragma once

#include "towers/files/files.h"

extern char scratch[]; /* its path, "" while there is none */

int scratch_make(void **state);
int scratch_and_cache_make(void **state); /* XDG_CACHE_HOME is its folder "cache" */
int scratch_drop(void **state);

void scratch_path(char path[PATH_BYTES], const char *name);
void scratch_put(const char *name, const char *text); /* a new file, or other content for one */
char *scratch_text(const char *name);                 /* free it */
