/* Limits: what the control groups around this process leave of the machine's cores and memory.
 *
 * A process may lie several groups deep and every level may set a limit (a batch system's job in a user's slice, a
 * container in a pod), so each is read, from its own group up to the root: the tightest counts. Version 2 (one tree) and
 * version 1 (a tree for each resource) alike, also both at once. Linux, Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/memory.rst. */
#ifndef TOWERS_KERNELS_LIMITS_H
#define TOWERS_KERNELS_LIMITS_H

#include <stdint.h>

typedef struct Limits {
    double cores;         /* quota of processor time, in cores; 0: none */
    int64_t memory_bytes; /* the smallest limit; INT64_MAX: none */
    int64_t
        memory_left_bytes; /* the least that a level has left, its reclaimable page cache counted as free; INT64_MAX:
                                  no limit */
} Limits;

/* `root` is put before every path: "" for the machine's own /proc and /sys, another folder in tests. */
void limits_read(const char *root, Limits *limits);

#endif
