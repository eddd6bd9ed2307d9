/* --cache-limit: its size, and the window of shards that fits into it; see cache_limit.h. */
#include "inception/job/cache_limit.h"

#include "inception/job/notes.h"
#include "inception/options/settle.h"
#include "inception/options/values.h"

int64_t cache_limit_of(const Options *o)
{
    static const char units[] = "KMGT";
    char number[64] = "";
    double size;
    if (!o->cache_limit) return 0;
    size_t bytes = strlen(o->cache_limit);
    const char *unit = bytes ? strchr(units, o->cache_limit[bytes - 1]) : NULL;
    if (unit) bytes--;
    if (bytes < sizeof number) memcpy(number, o->cache_limit, bytes);
    if (text_to_real(number, &size) != VALUE_OK) return -1;
    for (int i = 0; unit && i <= unit - units; i++) size *= 1024;
    return size >= 1 && size < 0x1p60 ? (int64_t)size : -1;
}

Status cache_limit_check(const Options *o)
{
    if (cache_limit_of(o) >= 0) return OK;
    return FAIL(ERR_ARG, "--cache-limit '%s': expected a size, e.g. 200G or 500M", o->cache_limit);
}

/* How many shards fit into the limit, and how much they are. */
typedef struct ShardsFit {
    int64_t all, largest; /* bytes of the shards */
    int64_t rest;         /* bytes of what is beside them, which stays */
    int64_t shards;
} ShardsFit;

/* On a disk, which gives whole blocks. */
static int64_t blocks_of(int64_t bytes)
{
    enum { BLOCK = 4096 };
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static void shards_fit(const CachedObjects *objects, int64_t limit, ShardsFit *fit)
{
    *fit = (ShardsFit){0};
    for (int i = 0; i < objects->count; i++) {
        const CachedObject *o = &objects->object[i];
        int64_t bytes = o->bytes > 0 ? blocks_of(o->bytes) : 0;
        *(o->later ? &fit->all : &fit->rest) += bytes;
        if (o->later && bytes > fit->largest) fit->largest = bytes;
    }
    fit->shards = fit->largest && limit > fit->rest ? (limit - fit->rest) / fit->largest : 0;
}

/* Shards beside a window: two of an evaluation, or those with which the next window begins. */
enum { SHARDS_BESIDE = 2 };

/* Windows of the processes of this machine, of which one may be in the next one. */
static int windows_of(const Options *o)
{
    return o->processes == 1 || o->towers == 1 ? 1 : 2;
}

/* Whether what was asked for takes more shards at once than fit. */
static Status window_check(const Options *o, const JobFiles *files, const ShardsFit *fit, bool trains)
{
    int windows = windows_of(o);
    int64_t least = SHARDS_BESIDE + (trains ? windows : 0), most = (fit->shards - SHARDS_BESIDE) / windows;
    if (fit->shards < least)
        return FAIL(ERR_ARG,
                    "--cache-limit %s is less than %" PRId64 " shards, of up to %" PRId64 " bytes, and %" PRId64
                    " bytes of indexes: expected more",
                    o->cache_limit, least, fit->largest, fit->rest);
    if (!trains) return OK;
    if (o->sampler == SAMPLER_BALANCED || o->fold)
        return FAIL(ERR_ARG,
                    "%s takes samples out of all shards, %" PRId64
                    " bytes; --cache-limit %s allows less of them at once",
                    o->fold ? "--fold" : "--sampler balanced", fit->all, o->cache_limit);
    if (o->shuffle_window > most)
        return FAIL(ERR_ARG,
                    "--shuffle-window %" PRId64 " needs %sas many shards at once, of up to %" PRId64
                    " bytes, and %d more; --cache-limit %s allows --shuffle-window %" PRId64,
                    o->shuffle_window, windows == 1 ? "" : "twice ", fit->largest, SHARDS_BESIDE, o->cache_limit, most);
    if (o->shuffle_window <= 0 && job_resumes(files))
        return FAIL(ERR_ARG,
                    "the run began without --shuffle-window, so that each step needs samples of all shards, %" PRId64
                    " bytes; --cache-limit %s allows less of them at once",
                    fit->all, o->cache_limit);
    if (o->shuffle_window <= 0 && o->origin[OPTION_ID_shuffle_window] > ORIGIN_DEFAULT)
        return FAIL(ERR_ARG,
                    "--shuffle-window 0 needs all shards at once, %" PRId64
                    " bytes; --cache-limit %s allows at most --shuffle-window %" PRId64
                    ": give one, or leave it out, and one is chosen",
                    fit->all, o->cache_limit, most);
    return OK;
}

Status cache_window_choose(Options *o, JobFiles *files, const CachedObjects *objects)
{
    enum {
        SPARE = 4
    }; /* shards beside a window and the next one: those of an evaluation, and what is read ahead of it */
    ShardsFit fit;
    int64_t limit = cache_limit_of(o);
    bool trains = options_use(o) == USE_LEARN || options_use(o) == USE_TIME;
    shards_fit(objects, limit, &fit);
    if (limit <= 0 || fit.all + fit.rest <= limit) return OK;
    TRY(window_check(o, files, &fit, trains));
    if (!trains || o->shuffle_window > 0) return OK;
    int64_t window = fit.shards > SPARE + 2 ? (fit.shards - SPARE) / 2 : 1;
    option_settle_int(o, OPTION_ID_shuffle_window, window);
    settled_note(files,
                 "--shuffle-window %" PRId64 ", chosen by --cache-limit %s, into which %" PRId64
                 " shards of up to %.1f MB fit: this window, the next, and some to evaluate",
                 window, o->cache_limit, fit.shards, (double)fit.largest / 1e6);
    return OK;
}
