/* Data at an address; see remote_data.h. */
#include "inception/job/remote_data.h"

#include "inception/job/cache_limit.h"
#include "inception/job/cached_weights.h"
#include "inception/job/notes.h"
#include "inception/job/progress_line.h"
#include "inception/options/settle.h"
#include "kernels/base/clock.h"
#include "towers/data/remote/remote_fetch.h"
#include "towers/data/remote/remote_view.h"
#include "towers/data/shards/sidecar.h"
#include "towers/files/json.h"
#include "towers/remote/room.h"
#include "towers/run_store/run_store.h"
#include "towers/train/summary.h"

/* ---- progress: one line on a terminal; elsewhere a line at each tenth */

typedef struct BringShown {
    ProgressLine line;
    int tenth;       /* of `missing` */
    int64_t missing; /* bytes; more once an index says what it lists */
    int64_t since;   /* ns: the beginning */
} BringShown;

static void state_show(void *context, const CacheState *state)
{
    BringShown *shown = context;
    double seconds = (double)(clock_ns() - shown->since) / 1e9;
    if (state->missing != shown->missing) shown->tenth = 0;
    shown->missing = state->missing;
    int tenth = state->missing ? (int)(10 * state->came / state->missing) : 0;
    bool due = shown->line.tty ? progress_line_due(&shown->line) : tenth > shown->tenth;
    if (!due) return;
    shown->tenth = tenth;
    fprintf(stderr, "bringing the data: %d of %d objects, %.1f of %.1f MB, %.1f MB/s", state->brought, state->wanted,
            (double)state->came / 1e6, (double)state->missing / 1e6,
            (double)state->came / 1e6 / (seconds > 0 ? seconds : 1));
    if (shown->line.tty)
        progress_line_flush();
    else
        fputc('\n', stderr);
}

static void again_show(void *context, const char *line)
{
    const BringShown *shown = context;
    progress_line_message(&shown->line, line);
}

/* ---- bringing */

/* While a set is read, where no line of progress is. */
static void again_print(void *context, const char *line)
{
    (void)context;
    text_printf(stderr, "%s\n", line);
}

/* What brings a set: `usual` is where the folder is kept, `s3` the keys, which the caller frees; `shown` is NULL while the set is read. */
static Status cache_configure(const Options *o, const char *address, BringShown *shown, char usual[PATH_BYTES],
                              S3Access **s3, CacheConfig *config)
{
    *s3 = NULL;
    TRY(cache_limit_check(o));
    *config = (CacheConfig){.dir = o->cache_dir,
                            .offline = o->dry_run || o->print_config,
                            .limit = cache_limit_of(o),
                            .patience = {.net_timeout = o->net_timeout, .stall_seconds = o->stall},
                            .progress = o->quiet || !shown ? NULL : state_show,
                            .again = o->quiet ? NULL
                                     : shown  ? again_show
                                              : again_print,
                            .context = shown};
    if (!config->dir) {
        TRY(cache_folder("data", usual));
        config->dir = usual;
    }
    if (strstr(address, "s3://")) TRY(s3_access_find(o->s3_endpoint, s3));
    config->patience.s3 = *s3;
    return OK;
}

/* What is said of a set: what was brought, and what comes while it is read. */
static void set_line(const RemoteSet *set, const char *dir, double seconds, char *line, size_t bytes)
{
    const CacheState *now = &set->state;
    int later = 0;
    int64_t later_bytes = 0;
    for (int i = 0; i < set->objects.count; i++) {
        const CachedObject *o = &set->objects.object[i];
        later += o->later && !o->here;
        if (o->later && !o->here) later_bytes += o->bytes;
    }
    Text text = text_start(line, bytes);
    text_add(&text, "data: %d objects, %.1f MB, %sin '%.1000s'", now->objects, (double)now->bytes / 1e6,
             now->brought || later ? "" : "all ", dir);
    if (now->brought)
        text_add(&text, "; %d of them, %.1f MB, were downloaded in %.1f s with %d retries", now->brought,
                 (double)now->came / 1e6, seconds, now->retries);
    if (later) text_add(&text, "; %d of them, %.1f MB, come while they are read", later, (double)later_bytes / 1e6);
    if (!now->brought && !later) text_add(&text, ": no network was needed");
    if (set->others) text_add(&text, "; %d other objects of the listed folders are no shards", set->others);
}

/* `view`: shards may come later. */
static Status set_bring(const Options *o, const char *address, bool view, RemoteSet *set, char *line, size_t bytes)
{
    char usual[PATH_BYTES];
    S3Access *s3;
    CacheConfig config;
    _Atomic bool met = false;
    BringShown shown = {.line = progress_line(), .since = clock_ns()};
    TRY(cache_configure(o, address, &shown, usual, &s3, &config));
    config.patience.met = &met;
    Status st = view ? remote_set_view(&config, address, set) : remote_set_bring(&config, address, set);
    if (st == OK && !view) st = room_hold(&config, &set->objects); /* it is read as files of this machine */
    s3_access_free(s3);
    progress_line_end(&shown.line);
    TRY(st);
    set->met = atomic_load(&met);
    set_line(set, config.dir, (double)(clock_ns() - shown.since) / 1e9, line, bytes);
    return OK;
}

/* A list that is joined by "::" has addresses, or paths of this machine, which towers/data opens itself. */
static Status list_check(const char *list)
{
    const char *other = NULL;
    size_t other_bytes = 0;
    bool addresses = false;
    for (const char *part = list, *end; part; part = end ? end + 2 : NULL) {
        end = strstr(part, "::");
        if (is_address(part)) {
            addresses = true;
        } else if (!other) {
            other = part;
            other_bytes = end ? (size_t)(end - part) : strlen(part);
        }
    }
    if (!addresses || !other) return OK;
    return FAIL(
        ERR_ARG,
        "a list joined by '::' has addresses and '%.*s': expected addresses alone, or paths of this machine alone",
        (int)other_bytes, other);
}

/* The store of this call, which may come from the environment or a profile, is that of the run from now on. */
static Status endpoint_settle(Options *o)
{
    S3Access *s3;
    TRY(s3_access_find(NULL, &s3));
    Status st = *s3->endpoint ? option_settle_text(o, OPTION_ID_s3_endpoint, s3->endpoint) : OK;
    s3_access_free(s3);
    return st;
}

Status remote_settle(Options *o)
{
    char here[PATH_BYTES], full[PATH_BYTES];
    TRY(cache_limit_check(o));
    if (o->s3_endpoint) TRY(s3_endpoint_check(o->s3_endpoint));
    bool copies = o->upload && strcmp(o->upload, "none") != 0;
    if (copies) TRY(run_store_check(o->upload, "--upload"));
    if (!o->s3_endpoint && (copies || (o->data_path && strstr(o->data_path, "s3://")))) TRY(endpoint_settle(o));
    if (!o->cache_dir || *o->cache_dir == '/') return OK;
    if (!getcwd(here, sizeof here))
        return FAIL(ERR_IO, "--cache-dir %s: the current folder is not known: %s", o->cache_dir, strerror(errno));
    TRY(path_join(full, here, o->cache_dir));
    return option_settle_text(o, OPTION_ID_cache_dir, full);
}

Status arguments_bring(Options *o, int first)
{
    char line[2048];
    for (int i = first; i < o->argument_count; i++) {
        RemoteSet set;
        TRY(list_check(o->arguments[i]));
        if (!is_address(o->arguments[i])) continue;
        TRY(set_bring(o, o->arguments[i], false, &set, line, sizeof line));
        Status st = option_settle_argument(o, i, set.path);
        remote_set_free(&set);
        TRY(st);
        if (!o->quiet) text_printf(stderr, "%s\n", line);
    }
    return OK;
}

Status address_index(const Options *o, const char *address, FILE *to)
{
    char line[2048];
    RemoteSet set;
    int shards = 0;
    TRY(list_check(address));
    TRY(set_bring(o, address, true, &set, line, sizeof line));
    for (int i = 0; i < set.objects.count; i++) shards += set.objects.object[i].later;
    text_printf(to, "%d shards with %" PRId64 " samples; their index is in the cache\n", shards, set.samples);
    if (!o->quiet) text_printf(stderr, "%s\n", line);
    remote_set_free(&set);
    return OK;
}

/* ---- the record of a run */

static json_t *objects_json(const char *address, const CachedObjects *list)
{
    json_t *objects = json_array();
    for (int i = 0; objects && i < list->count; i++) {
        const CachedObject *o = &list->object[i];
        if (o->absent || ends_with(o->address, "/" SIDECAR_NAME)) continue;
        json_array_append_new(objects, json_pack("{s:o, s:I, s:o}", "address", json_text(o->address), "bytes",
                                                 (json_int_t)o->bytes, "version", json_text(o->version)));
    }
    return json_pack("{s:o, s:o}", "data_path", json_text(address), "objects", objects);
}

static Status object_compare(const json_t *was, const CachedObject *now, const char *run)
{
    const char *version = json_word_or_empty(was, "version");
    int64_t bytes = json_whole(was, "bytes");
    if (bytes == now->bytes && !strcmp(version, now->version)) return OK;
    return FAIL(ERR_ARG,
                "%s has changed since the run '%s' began: it had %" PRId64
                " bytes and the version %s, now it has %" PRId64
                " and %s; bring the old object back, or, if its content is the same, remove %s/%s",
                now->address, run, bytes, *version ? version : "(none)", now->bytes,
                *now->version ? now->version : "(none)", run, OBJECTS_FILE);
}

/* An object at another address, to which the data have moved, is compared by its samples alone, as all data are. */
static Status objects_compare(const JobFiles *files, const CachedObjects *list)
{
    const char *run = *files->branch_of ? files->branch_of : files->run_dir;
    size_t i;
    Status st = OK;
    json_t *was, *root = job_resumes(files) ? json_of_run(run, OBJECTS_FILE) : NULL,
                 *objects = json_object_get(root, "objects");
    json_array_foreach(objects, i, was)
    {
        const CachedObject *now = cached_objects_find(list, json_word_or_empty(was, "address"));
        if (now && st == OK) st = object_compare(was, now, run);
    }
    json_decref(root);
    return st;
}

/* What brings the shards of a set from now on; it takes the objects of the set. */
static Status fetch_begin(const Options *o, JobFiles *files, RemoteSet *set)
{
    char usual[PATH_BYTES];
    CacheConfig config;
    TRY(cache_configure(o, o->data_path, NULL, usual, &files->s3, &config));
    return remote_fetch_create(&config, options_use(o) == USE_LEARN && config.limit <= 0, set, &files->fetch);
}

Status remote_window_settle(Options *o, JobFiles *files)
{
    const char *path;
    Use use = options_use(o);
    if (!o->cache_limit || (use != USE_LEARN && use != USE_TIME && use != USE_EVALUATE)) return OK;
    TRY(job_data_here(o, files, &path));
    return files->fetch ? cache_window_choose(o, files, remote_fetch_objects(files->fetch)) : OK;
}

static Status objects_note(const Options *o, JobFiles *files, const RemoteSet *set)
{
    TRY(objects_compare(files, &set->objects));
    json_t *root = objects_json(o->data_path, &set->objects);
    files->objects = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    files->job.objects = files->objects;
    json_decref(root);
    return files->objects ? OK : FAIL(ERR_MEMORY, "no memory for the list of objects");
}

Status job_data_here(const Options *o, JobFiles *files, const char **path)
{
    char line[2048];
    RemoteSet set;
    *path = files->data_here ? files->data_here : o->data_path;
    if (!*path || files->data_here || o->dataset == DATASET_SYNTHETIC) return OK;
    TRY(list_check(*path));
    if (!is_address(*path)) return OK;
    TRY(set_bring(o, o->data_path, true, &set, line, sizeof line));
    Status st = objects_note(o, files, &set);
    if (st == OK) st = fetch_begin(o, files, &set);
    if (st == OK) {
        files->data_here = set.path;
        set.path = NULL;
        *path = files->data_here;
        settled_note(files, "%s", line);
    }
    remote_set_free(&set);
    return st;
}
