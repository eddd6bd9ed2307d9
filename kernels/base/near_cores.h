/* The cores near a PCI device: those on the memory node (NUMA node) that it is attached to. A process on them reaches the
 * device, and memory that it touches first, without crossing to another socket. Linux names both in sysfs (local_cpulist and
 * numa_node: drivers/pci/pci-sysfs.c), in containers too. The rule is that of NCCL for its threads (ncclTopoGetCpuAffinity): of
 * these cores those that the process may use, and an empty set changes nothing. */
#pragma once

#include "kernels/base/status.h"

#include <sched.h>

enum { NEAR_ADDRESS_BYTES = 24, NEAR_TEXT_BYTES = 256 };

typedef struct NearCores {
    char address[NEAR_ADDRESS_BYTES]; /* "0000:3b:00.0" */
    char text[NEAR_TEXT_BYTES];       /* "0-31,64-95", which may be cut off; "" if unknown */
    int node;                         /* -1: unknown, and so the cores are */
    cpu_set_t usable;                 /* those that this thread may use: a cpuset or taskset may leave out some */
} NearCores;

/* `root` is prepended to the path: "" for this machine's /sys, another folder in tests. */
void near_cores_read(const char *root, const char *address, NearCores *near);
/* Move this thread, and those that it starts from now on, to these cores, unless fewer than `least` are usable. */
void near_cores_take(const NearCores *near, int least);
