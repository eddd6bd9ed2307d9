/* The cache of plans as lines of text; see plan_cache.h. Lines are appended to the file whole, so that processes may share
 * it. */
#include "kernels/cuda/plan_cache.h"
#include "kernels/base/array.h"
#include "kernels/base/cache_home.h"
#include "kernels/base/draft.h"
#include "kernels/base/open.h"

#include "kernels/cuda/libraries/cublas.h"
#include "kernels/cuda/libraries/cudnn_library.h"

#include <ctype.h>
#include <errno.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, PATH_BYTES = 1024 };

typedef struct Entry {
    char *task, *plan; /* one allocation, owned by `task` */
    bool used;         /* by this process */
} Entry;

struct PlanCache {
    Entry *entries; /* owned; a later one replaces those of the same task before it */
    int count, chosen;
    bool given;            /* another process's plans were taken */
    char title[400];       /* first line of plan_cache_text */
    char path[PATH_BYTES]; /* "": memory only */
};

/* The path of the file, its folders made; "" if that fails. */
static void path_make(const char *libraries, char *path)
{
    static const char *const folders[] = {"", "/towers", "/plans"};
    char home[PATH_BYTES / 2];
    if (!cache_home(home, sizeof home)) goto none;
    Text text = text_start(path, PATH_BYTES);
    text_add(&text, "%s", home);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        text_add(&text, "%s", folders[i]);
        if (mkdir(path, 0777) != 0 && errno != EEXIST) goto none;
    }
    char *name = path + text.used + 1;
    text_add(&text, "/%s-4.txt", libraries); /* 3: casts of gradients are timed; 4: our kernels are others */
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '.') *name = '_';
    return;
none:
    path[0] = 0;
}

static Status entry_set(PlanCache *cache, const char *task, const char *plan, bool used)
{
    size_t task_bytes = strlen(task) + 1, plan_bytes = strlen(plan) + 1;
    TRY(array_grow(&cache->entries, cache->count, sizeof *cache->entries, "the cache of plans"));
    char *text = malloc(task_bytes + plan_bytes);
    if (!text) return FAIL(ERR_MEMORY, "no memory for the cache of %d plans", cache->count);
    cache->entries[cache->count++] = (Entry){text, text + task_bytes, used};
    memcpy(text, task, task_bytes);
    memcpy(text + task_bytes, plan, plan_bytes);
    return OK;
}

/* "task <tab> plan <tab> microseconds"; other lines are ignored. */
static Status line_read(PlanCache *cache, char *line)
{
    char *plan = strchr(line, '\t'), *end = plan ? strchr(plan + 1, '\t') : NULL;
    if (!end) return OK;
    *plan = *end = 0;
    return entry_set(cache, line, plan + 1, false);
}

static Status file_read(PlanCache *cache)
{
    char line[LINE_BYTES];
    int fd = *cache->path ? regular_open(cache->path, O_RDONLY, NULL) : -1;
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file && fd >= 0) close(fd);
    if (!file) return OK;
    Status st = OK;
    while (st == OK && fgets(line, sizeof line, file)) st = line_read(cache, line);
    fclose(file);
    return st;
}

Status plan_cache_open(const char *device_name, PlanCache **made)
{
    Status st = OK;
    PlanCache *cache = calloc(1, sizeof *cache);
    if (!cache) return FAIL(ERR_MEMORY, "no memory for the cache of plans");
    char cudnn[64], cublas[64];
    cudnn_describe(cudnn, sizeof cudnn);
    cublas_describe(cublas, sizeof cublas);
    snprintf(cache->title, sizeof cache->title, "%.200s %s %s", device_name, cudnn, cublas);
    path_make(cache->title, cache->path);
    TRY_OUT(file_read(cache));
    *made = cache;
    cache = NULL;
out:
    plan_cache_close(cache);
    return st;
}

void plan_cache_close(PlanCache *cache)
{
    if (!cache) return;
    for (int i = 0; i < cache->count; i++) free(cache->entries[i].task);
    free(cache->entries);
    free(cache);
}

static Entry *entry_of(const PlanCache *cache, const char *task)
{
    for (int i = cache->count - 1; i >= 0; i--)
        if (strcmp(cache->entries[i].task, task) == 0) return &cache->entries[i];
    return NULL;
}

const char *plan_cache_find(PlanCache *cache, const char *task)
{
    Entry *entry = entry_of(cache, task);
    if (!entry) return NULL;
    entry->used = true;
    return entry->plan;
}

/* A line that cannot be written costs time in a later run, nothing else. */
static void file_append(const PlanCache *cache, const char *task, const char *plan, double microseconds)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "%s\t%s\t%.1f\n", task, plan, microseconds);
    int file = *cache->path ? regular_open(cache->path, O_WRONLY | O_CREAT | O_APPEND, NULL) : -1;
    if (file < 0) return;
    if (length < LINE_BYTES && write(file, line, (size_t)length) != length) length = 0;
    close(file);
}

Status plan_cache_add(PlanCache *cache, const char *task, const char *plan, double microseconds)
{
    TRY(entry_set(cache, task, plan, true));
    if (microseconds >= 0) file_append(cache, task, plan, microseconds);
    cache->chosen += cache->given;
    return OK;
}

Status plan_cache_text(const PlanCache *cache, char **text, int *chosen)
{
    Draft draft;
    TRY(draft_begin(&draft, "the plans as text"));
    fprintf(draft.to, "%s\n", cache->title);
    for (int i = 0; i < cache->count; i++) {
        const Entry *entry = &cache->entries[i];
        if (entry->used && entry == entry_of(cache, entry->task))
            fprintf(draft.to, "%s\t%s\t\n", entry->task, entry->plan);
    }
    TRY(draft_end(&draft, OK));
    *text = draft.text;
    *chosen = cache->chosen;
    return OK;
}

Status plan_cache_take(PlanCache *cache, const char *text, bool *taken)
{
    char line[LINE_BYTES];
    size_t title = strlen(cache->title);
    *taken = strncmp(text, cache->title, title) == 0 && text[title] == '\n';
    if (!*taken) return OK;
    for (const char *at = text + title + 1, *end; (end = strchr(at, '\n')); at = end + 1) {
        if (end - at >= LINE_BYTES) continue;
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        TRY(line_read(cache, line));
    }
    cache->given = true;
    return OK;
}
