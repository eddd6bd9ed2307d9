/* What the user is told about threads and cores. */
#pragma once

#include <stddef.h>

/* A note if a quota of processor time leaves fewer cores than there are; else "". */
void cores_quota_note(char *text, size_t bytes);
/* A warning if `processes` with `threads` each exceed the cores although fewer threads would not; else "". */
void cores_note(int threads, int processes, char *text, size_t bytes);
