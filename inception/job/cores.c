/* What the user is told about threads and cores; see cores.h. */
#include "inception/job/cores.h"

#include "kernels/base/cores.h"

#include <stdio.h>

void cores_quota_note(char *text, size_t bytes)
{
    Cores cores;
    cores_read("", &cores);
    int within = cores_within(cores.bound, cores.quota);
    text[0] = 0;
    if (within == cores.bound) return;
    snprintf(
        text, bytes,
        "this container has a quota of processor time: %.3g of its %d cores, so this run computes on %d; --threads "
        "overrides it",
        cores.quota, cores.bound, within);
}

void cores_note(int threads, int processes, char *text, size_t bytes)
{
    char quota[64] = "";
    Cores found;
    cores_read("", &found);
    int cores = cores_within(found.bound, found.quota), fair = cores / processes > 1 ? cores / processes : 1;
    text[0] = 0;
    if (threads <= fair) return;
    if (cores < found.bound)
        snprintf(quota, sizeof quota, " of this container's quota (%.3g of %d)", found.quota, found.bound);
    snprintf(text, bytes,
             "warning: --threads %d in %d process%s exceeds the %d available core%s%s, which makes steps slower; try "
             "--threads %d or omit it",
             threads, processes, processes == 1 ? "" : "es", cores, cores == 1 ? "" : "s", quota, fair);
}
