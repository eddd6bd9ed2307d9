/* Reading the cores near a device, and moving to them; see near_cores.h. */
#include "kernels/base/near_cores.h"

#include "kernels/base/open.h"

#include <ctype.h>

enum { FILE_BYTES = 4096, PATH_BYTES = 512 };

/* The kernel's list of cores, "0-31,64-95"; false if it is no such list, or of cores that a cpu_set_t cannot hold. */
static bool list_read(const char *text, cpu_set_t *cores)
{
    CPU_ZERO(cores);
    for (;; text++) {
        char *end = NULL;
        long first = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1, last = first;
        if (first < 0) return false;
        if (*end == '-') last = isdigit((unsigned char)end[1]) ? strtol(end + 1, &end, 10) : -1;
        if (last < first || last >= CPU_SETSIZE) return false;
        for (long core = first; core <= last; core++) CPU_SET((int)core, cores);
        text = end;
        if (*text != ',') return !*text;
    }
}

void near_cores_read(const char *root, const char *address, NearCores *near)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    cpu_set_t cores, allowed;
    *near = (NearCores){.node = -1};
    snprintf(near->address, sizeof near->address, "%s", address);
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/numa_node", root, address);
    int node = (int)system_number(path, "", -1);
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/local_cpulist", root, address);
    (void)system_text(path, text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    if (node < 0 || !list_read(text, &cores)) return;
    near->node = node;
    snprintf(near->text, sizeof near->text, "%.*s", (int)sizeof near->text - 1, text);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) CPU_AND(&near->usable, &cores, &allowed);
}

void near_cores_take(const NearCores *near, int least)
{
    int usable = CPU_COUNT(&near->usable);
    if (usable > 0 && usable >= least) (void)sched_setaffinity(0, sizeof near->usable, &near->usable);
}
