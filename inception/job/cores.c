/* Counting the cores of this process, and the warning about too many threads. */
#include "inception/job/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cores_allowed(void)
{
    cpu_set_t allowed;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    /* If OpenMP has pinned this thread to its first place, the thread's affinity mask does not describe the process. */
    bool pinned =
        getenv("OMP_PROC_BIND") || getenv("OMP_PLACES") || getenv("GOMP_CPU_AFFINITY") || getenv("KMP_AFFINITY");
    if (!pinned && sched_getaffinity(0, sizeof allowed, &allowed) == 0) cores = CPU_COUNT(&allowed);
    return cores > 0 ? cores : 1;
}

void cores_note(int threads, int processes, char *text, size_t bytes)
{
    int cores = cores_allowed(), fair = cores / processes > 1 ? cores / processes : 1;
    text[0] = 0;
    if (threads <= fair) return;
    snprintf(text, bytes,
             "warning: --threads %d in %d process%s exceeds the %d available core%s, which makes steps slower; try "
             "--threads %d or omit it",
             threads, processes, processes == 1 ? "" : "es", cores, cores == 1 ? "" : "s", fair);
}
