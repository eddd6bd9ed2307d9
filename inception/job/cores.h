/* The cores available to this process, and a warning if more threads are requested. */
#pragma once

#include <stddef.h>

/* Cores left by taskset or a container's cpuset; at least 1. Quotas of CPU time are not considered. */
int cores_allowed(void);

/* A warning if `processes` with `threads` each exceed the cores although fewer threads would not; else "". */
void cores_note(int threads, int processes, char *text, size_t bytes);
