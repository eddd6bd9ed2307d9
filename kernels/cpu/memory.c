/* Memory that this process may still allocate: the system's available memory, within the limits of the control group and
 * of the address space. */
#include "kernels/base/limits.h"
#include "kernels/base/open.h"
#include "kernels/cpu/cpu.h"

#include <sys/resource.h>
#include <unistd.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t difference(size_t limit, size_t used)
{
    return limit > used ? limit - used : 0;
}

Status cpu_memory(Device *device, size_t *free_bytes, size_t *total)
{
    (void)device;
    struct rlimit space;
    Limits limits;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *total = 1024 * (size_t)system_number("/proc/meminfo", "MemTotal:", 0);
    *free_bytes = 1024 * (size_t)system_number("/proc/meminfo", "MemAvailable:", 0);
    if (!*total || !*free_bytes)
        return FAIL(ERR_UNSUPPORTED, "/proc/meminfo: expected lines MemTotal and MemAvailable");
    limits_read("", &limits);
    *total = smaller(*total, (size_t)limits.memory_bytes);
    *free_bytes = smaller(*free_bytes, (size_t)limits.memory_left_bytes);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        *total = smaller(*total, space.rlim_cur);
        *free_bytes =
            smaller(*free_bytes, difference(space.rlim_cur, page * (size_t)system_number("/proc/self/statm", "", 0)));
    }
    return OK;
}
