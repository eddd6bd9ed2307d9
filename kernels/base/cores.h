/* Cores: on how many this process may compute. Those of its affinity mask (taskset, a container's cpuset), but no more than
 * its control groups' quota of processor time pays for, rounded up: threads beyond that are stopped for the rest of each
 * period, all at once, and steps become slower than with fewer. */
#pragma once

typedef struct Cores {
    int bound;    /* of the affinity mask; at least 1 */
    double quota; /* in cores, of the tightest control group (limits.h); 0: none */
} Cores;

/* `root`: as that of limits_read. */
void cores_read(const char *root, Cores *cores);
/* The threads that are worth starting on so many cores with this quota; at least 1. */
int cores_within(int cores, double quota);
/* The same for this process. */
int cores_allowed(void);
