/* The cache of published weights; see cached_weights.h. */
#include "inception/job/cached_weights.h"

#include "inception/job/download.h"
#include "inception/job/progress_line.h"
#include "kernels/base/cache_home.h"

Status cache_folder(const char *kind, char path[PATH_BYTES])
{
    char home[PATH_BYTES];
    if (!cache_home(home, sizeof home)) return FAIL(ERR_ARG, "there is no place for downloads: " CACHE_HOME_ASKED);
    if (snprintf(path, PATH_BYTES, "%s/towers/%s", home, kind) >= PATH_BYTES - 64)
        return FAIL(ERR_ARG, "the path of the cache is too long");
    return OK;
}

Status cached_path(const char *file, char path[PATH_BYTES])
{
    char kind[PATH_BYTES];
    snprintf(kind, sizeof kind, "weights/%s", file);
    return cache_folder(kind, path);
}

void cached_address(const Options *o, const PublishedRow *row, char address[PATH_BYTES])
{
    size_t length = o->mirror ? strlen(o->mirror) : 0;
    if (length)
        snprintf(address, PATH_BYTES, "%s%s%s", o->mirror, o->mirror[length - 1] == '/' ? "" : "/", row->file);
    else
        snprintf(address, PATH_BYTES, "%s", row->address);
}

/* One line on a terminal; elsewhere a line at each tenth. */
typedef struct Shown {
    const char *file;
    ProgressLine line;
    int64_t at; /* percent, or MiB if the size is not known */
} Shown;

static void progress_show(void *context, int64_t done, int64_t all)
{
    Shown *shown = context;
    bool known = all > 0;
    int64_t at = known ? 100 * done / all : done >> 20, step = shown->line.tty ? 1 : known ? 10 : 64;
    if (at / step == shown->at / step) return;
    shown->at = at;
    if (shown->line.tty) fputc('\r', stderr);
    text_printf(stderr, "%s: %.1f MB", shown->file, (double)done / 1e6);
    if (!known && !shown->line.tty) fputc('\n', stderr);
    if (known)
        fprintf(stderr, " of %.1f MB (%d %%)%s", (double)all / 1e6, (int)at, shown->line.tty && at < 100 ? "" : "\n");
}

static void again_show(void *context, const char *line)
{
    const Shown *shown = context;
    progress_line_message(&shown->line, line);
}

/* Who can change the answers of a server can also make a file whose digest begins with a few given digits. */
static Status transport_check(const PublishedRow *row, const char *address)
{
    size_t digits = strlen(row->sha256);
    if (digits == SHA256_DIGITS || !strncmp(address, "https://", 8)) return OK;
    return FAIL(
        ERR_ARG,
        "%s: only %zu of the %d digits of its SHA-256 are known, too few for a file over http; use an address with "
        "https, or give all digits (--sha256 of towers fetch, or a row of --weights-table)",
        address, digits, SHA256_DIGITS);
}

Status cached_weights(const Options *o, const PublishedRow *row, char path[PATH_BYTES])
{
    char address[PATH_BYTES], folder[PATH_BYTES];
    Shown shown = {row->file, progress_line(), 0};
    TRY(cached_path(row->file, path));
    if (sha256_fits(path, row->sha256)) return OK;
    cached_address(o, row, address);
    TRY(transport_check(row, address));
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    TRY(directory_create(folder));
    if (!o->quiet) text_printf(stderr, "downloading %s (%s)\n", address, row->license);
    return download(&(Download){.address = address,
                                .path = path,
                                .sha256 = row->sha256,
                                .bytes = row->bytes,
                                .patience = {.net_timeout = o->net_timeout, .stall_seconds = o->stall},
                                .watch = {.progress = o->quiet ? NULL : progress_show,
                                          .again = o->quiet ? NULL : again_show,
                                          .context = &shown}});
}

Status cached_named(const Options *o, const char *model, const char *name, char path[PATH_BYTES])
{
    Published *table;
    TRY(published_open(o->weights_table, &table));
    const PublishedRow *row = published_find(table, model, name);
    Status st = OK;
    if (row)
        st = cached_weights(o, row, path);
    else if (published_find(table, NULL, name))
        st = published_refuse(table, model, name);
    else
        snprintf(path, PATH_BYTES, "%s", name);
    published_close(table);
    return st;
}

Status cached_missing(const Options *o, const char *model, const char *name, bool *missing, char *text, size_t bytes)
{
    Published *table;
    char path[PATH_BYTES], address[PATH_BYTES], size[32] = "";
    *missing = false;
    TRY(published_open(o->weights_table, &table));
    const PublishedRow *row = published_find(table, model, name);
    Status st = row ? cached_path(row->file, path) : OK;
    if (row && st == OK && !sha256_fits(path, row->sha256)) {
        cached_address(o, row, address);
        if (row->bytes) snprintf(size, sizeof size, "%.1f MB from ", (double)row->bytes / 1e6);
        snprintf(text, bytes, "%s%s (%s)", size, address, row->license);
        *missing = true;
    }
    published_close(table);
    return st;
}
