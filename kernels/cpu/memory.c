/* Memory that this process may still allocate: the system's available memory, within the limits of the control group and
 * of the address space. */
#include "kernels/cpu/cpu.h"
#include "kernels/limits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number behind `key` in a file ("" : the first thing in it); `otherwise` if there is none. */
static size_t number_read(const char *path, const char *key, size_t unit, size_t otherwise)
{
    char line[256];
    size_t found = otherwise;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        char *at = line + strlen(key), *end;
        unsigned long long value = strtoull(at, &end, 10);
        if (end != at) found = (size_t)value * unit;
        break;
    }
    if (file) fclose(file);
    return found;
}

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
    *total = number_read("/proc/meminfo", "MemTotal:", 1024, 0);
    *free_bytes = number_read("/proc/meminfo", "MemAvailable:", 1024, 0);
    if (!*total || !*free_bytes)
        return FAIL(ERR_UNSUPPORTED, "/proc/meminfo: expected lines MemTotal and MemAvailable");
    limits_read("", &limits);
    *total = smaller(*total, (size_t)limits.memory_bytes);
    *free_bytes = smaller(*free_bytes, (size_t)limits.memory_left_bytes);
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        *total = smaller(*total, space.rlim_cur);
        *free_bytes = smaller(*free_bytes, difference(space.rlim_cur, number_read("/proc/self/statm", "", page, 0)));
    }
    return OK;
}
