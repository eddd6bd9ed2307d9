/* The cores that a process may use; see cores.h. */
#include "kernels/base/cores.h"

#include "kernels/base/limits.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static int cores_bound(void)
{
    cpu_set_t allowed;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    /* If OpenMP has pinned this thread to its first place, the thread's affinity mask does not describe the process. */
    bool pinned =
        getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY") || getenv("KMP_AFFINITY");
    if (!pinned && sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
    return cores > 0 ? cores : 1;
}

void cores_read(const char *root, Cores *cores)
{
    Limits limits;
    limits_read(root, &limits);
    *cores = (Cores){cores_bound(), limits.cores};
}

int cores_within(int cores, double quota)
{
    if (quota > 0 && quota < cores) cores = (int)ceil(quota);
    return cores > 0 ? cores : 1;
}

int cores_allowed(void)
{
    Cores cores;
    cores_read("", &cores);
    return cores_within(cores.bound, cores.quota);
}
