/* The cores that this process may use, and what it means to ask for more threads than that. */
#ifndef TOWERS_INCEPTION_CLI_CORES_H
#define TOWERS_INCEPTION_CLI_CORES_H

#include <stddef.h>

/* What taskset or a container's cpuset leaves of the machine's cores; at least 1. A quota of their time is not looked
 * at. */
int cores_allowed(void);

/* One line if `processes` with `threads` each have to take turns on these cores though fewer would do, or "". */
void cores_note(int threads, int processes, char *text, size_t bytes);

#endif
