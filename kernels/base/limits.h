/* Limits: how many cores and how much memory the control groups of this process allow.
 *
 * A process may be nested several groups deep, and every level may set a limit (a batch system's job in a user's
 * slice, a container in a pod). So all levels are read, from the process's group up to the root, and the tightest
 * limit applies. Supports version 2 (one tree), version 1 (a tree for each resource), and both at once. Linux,
 * Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. */
#pragma once

#include <stdint.h>

typedef struct Limits {
    double cores;         /* quota of processor time, in cores; 0: none */
    int64_t memory_bytes; /* the smallest limit; INT64_MAX if none */
    /* the least that any level has left, with reclaimable page cache counted as free; INT64_MAX if no limit */
    int64_t memory_left_bytes;
} Limits;

/* `root` is prepended to every path: "" for the machine's own /proc and /sys, another folder in tests. */
void limits_read(const char *root, Limits *limits);
