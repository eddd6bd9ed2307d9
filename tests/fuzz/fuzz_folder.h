/* A folder for the files of a fuzzer, in memory where there is such a place; removed at the end. */
#pragma once

#include "towers/files/files.h"

static char folder[64];

static void folder_remove(void)
{
    if (tree_remove(folder) != OK) abort();
}

static void folder_make(void)
{
    if (*folder) return;
    snprintf(folder, sizeof folder, "%s/towers-fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) abort();
    atexit(folder_remove);
}
