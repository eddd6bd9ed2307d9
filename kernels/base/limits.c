/* Limits of control groups; see limits.h. */
#include "kernels/base/limits.h"

#include "kernels/base/open.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 8192, LEVELS_MAX = 64 };

/* Version 1 expresses "no limit" as a limit of at least this size. */
static const int64_t unlimited = (int64_t)1 << 60;

/* File names of a level, in each version. */
typedef struct LimitNames {
    const char *limit, *used, *cache; /* of memory; the key in memory.stat of what could be dropped */
} LimitNames;
static const LimitNames names_v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
static const LimitNames names_v2 = {"memory.max", "memory.current", "inactive_file "};

/* The beginning of the file `folder`/`name`; false if it cannot be read. */
static bool file_text(const char *folder, const char *name, char text[TEXT_BYTES])
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    return system_text(path, text, TEXT_BYTES) > 0;
}

/* -1 if there is no number, as in "max". */
static int64_t file_number(const char *folder, const char *name)
{
    char text[TEXT_BYTES], *end;
    if (!file_text(folder, name, text)) return -1;
    long long number = strtoll(text, &end, 10);
    return end == text ? -1 : number;
}

static int64_t stat_number(const char *folder, const char *key)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/memory.stat", folder) < (int)sizeof path ? system_number(path, key, 0) : 0;
}

static void memory_level(const char *folder, const LimitNames *names, Limits *limits)
{
    int64_t limit = file_number(folder, names->limit);
    if (limit < 0 || limit >= unlimited) return;
    int64_t used = file_number(folder, names->used), held = used - stat_number(folder, names->cache);
    int64_t left = used < 0 ? limit : held < 0 ? limit : held < limit ? limit - held : 0;
    if (limit < limits->memory_bytes) limits->memory_bytes = limit;
    if (left < limits->memory_left_bytes) limits->memory_left_bytes = left;
}

static void cores_level(double quota, double period, Limits *limits)
{
    if (quota > 0 && period > 0 && (limits->cores == 0 || quota / period < limits->cores))
        limits->cores = quota / period;
}

static void level_v2(const char *folder, Limits *limits)
{
    char text[TEXT_BYTES];
    double quota = 0, period = 0;
    memory_level(folder, &names_v2, limits);
    if (file_text(folder, "cpu.max", text) && sscanf(text, "%lf %lf", &quota, &period) == 2)
        cores_level(quota, period, limits);
}

static void level_v1(const char *folder, Limits *limits)
{
    memory_level(folder, &names_v1, limits);
    cores_level((double)file_number(folder, "cpu.cfs_quota_us"), (double)file_number(folder, "cpu.cfs_period_us"),
                limits);
}

/* From `group` below `tree` up to the tree's root. Inside a container the path may be the host's, of which only the root
 * exists: levels that cannot be read are passed over. */
static void tree_read(const char *tree, const char *group, void (*level)(const char *folder, Limits *limits),
                      Limits *limits)
{
    char folder[PATH_MAX];
    size_t root = strlen(tree);
    if (snprintf(folder, sizeof folder, "%s%s", tree, group) >= (int)sizeof folder) return;
    for (int i = 0; i < LEVELS_MAX; i++) {
        level(folder, limits);
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= root) return;
        *(slash < folder + root ? folder + root : slash) = 0;
    }
}

static bool names_controller(const char *list, const char *controller)
{
    size_t length = strlen(controller);
    for (const char *at = list; (at = strstr(at, controller)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
    return false;
}

/* "4:memory:/user.slice" or, in version 2, "0::/user.slice". */
static void line_read(const char *root, char *line, Limits *limits)
{
    char tree[PATH_MAX];
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
    if (!group) return;
    *group++ = 0;
    list++;
    if (!*list) {
        snprintf(tree, sizeof tree, "%s/sys/fs/cgroup", root);
        tree_read(tree, group, level_v2, limits);
        snprintf(tree, sizeof tree, "%s/sys/fs/cgroup/unified", root); /* beside version 1 */
        tree_read(tree, group, level_v2, limits);
    } else if (names_controller(list, "memory") || names_controller(list, "cpu")) {
        snprintf(tree, sizeof tree, "%s/sys/fs/cgroup/%s", root, names_controller(list, "memory") ? "memory" : "cpu");
        tree_read(tree, group, level_v1, limits);
    }
}

void limits_read(const char *root, Limits *limits)
{
    char folder[PATH_MAX], text[TEXT_BYTES], *rest = NULL;
    *limits = (Limits){.memory_bytes = INT64_MAX, .memory_left_bytes = INT64_MAX};
    snprintf(folder, sizeof folder, "%s/proc/self", root);
    if (!file_text(folder, "cgroup", text)) return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        line_read(root, line, limits);
}
