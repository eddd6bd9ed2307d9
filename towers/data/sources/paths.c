/* Lists files and reads them as samples; see paths.h. */
#include "towers/data/sources/paths.h"

#include <fts.h>

#include "towers/data/listing/endings.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/listing/names.h"
#include "towers/data/sources/reader.h"
#include "towers/files/files.h"

typedef struct PathsSource {
    Source base;
    Names paths;
    Skips skips;
} PathsSource;

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static Status entry_skip(PathsSource *p, SkipReason why, const char *kind, const FTSENT *entry)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)entry->fts_pathlen - (int)entry->fts_namelen - 1, entry->fts_path);
    return skips_add(&p->skips, why, kind, folder, entry->fts_name);
}

static Status folder_add(PathsSource *p, char *path)
{
    char *roots[] = {path, NULL};
    Status st = OK;
    FTS *walk = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, by_name);
    if (!walk) return FAIL(ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    for (FTSENT *entry; st == OK && (errno = 0, entry = fts_read(walk)) != NULL;) {
        const char *leftover = entry->fts_level > 0 ? leftover_of(entry->fts_name, entry->fts_info == FTS_D) : NULL;
        if (leftover && entry->fts_info == FTS_DP) continue;
        if (leftover) {
            (void)fts_set(walk, entry, FTS_SKIP);
            st = entry_skip(p, SKIP_FOREIGN, leftover, entry);
            continue;
        }
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR || entry->fts_info == FTS_NS)
            st = FAIL(ERR_IO, "cannot read '%s': %s", entry->fts_path, strerror(entry->fts_errno));
        if (entry->fts_info == FTS_DC)
            st = FAIL(ERR_FORMAT, "'%s' is a symbolic link to a folder that contains it", entry->fts_path);
        /* a pipe under the name of an image is a damaged image, not left out */
        bool file = entry->fts_info == FTS_F || entry->fts_info == FTS_SLNONE || entry->fts_info == FTS_DEFAULT;
        if (file && ending_is_image(entry->fts_name))
            st = names_add(&p->paths, entry->fts_path);
        else if (file && entry->fts_name[0] == '.')
            st = entry_skip(p, SKIP_FOREIGN, "hidden", entry);
        else if (file)
            st = entry_skip(p, SKIP_KIND, NULL, entry);
    }
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", path, strerror(errno));
    fts_close(walk);
    return st;
}

static Status paths_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    *label = 0;
    return bytes_read(((const PathsSource *)source)->paths.name[index], ANY_SIZE, SAMPLE_BYTES_MAX, bytes);
}

static void paths_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", ((const PathsSource *)source)->paths.name[index]);
}

static void paths_hint(const Source *source, int64_t index)
{
    bytes_hint(((const PathsSource *)source)->paths.name[index], 0, 0);
}

static void paths_close(Source *source)
{
    PathsSource *p = (PathsSource *)source;
    if (!p) return;
    names_free(&p->paths);
    skips_free(&p->skips);
    free(p);
}

Status paths_source_open(char *const *paths, int count, Source **made)
{
    static const char *const names[] = {""};
    Status st = OK;
    PathsSource *p = calloc(1, sizeof *p);
    if (!p) return FAIL(ERR_MEMORY, "no memory for a list of images");
    p->base = (Source){.info = {.name = "images", .format = "files", .classes = 1, .class_names = names, .c = 3},
                       .read = paths_read,
                       .where = paths_where,
                       .hint = paths_hint,
                       .close = paths_close};
    for (int i = 0; i < count; i++) {
        struct stat info;
        if (stat(paths[i], &info) != 0) TRY_OUT(FAIL(ERR_ARG, "cannot find '%s': %s", paths[i], strerror(errno)));
        TRY_OUT(S_ISDIR(info.st_mode) ? folder_add(p, paths[i]) : names_add(&p->paths, paths[i]));
    }
    p->base.info.count = p->paths.count;
    inventory_fill(&p->base.info.inventory, p->paths.count, &p->skips);
    if (p->base.info.count == 0)
        TRY_OUT(FAIL(ERR_ARG, "no image (" IMAGE_ENDINGS ") in '%s'%s%s", paths[0],
                     skips_count(&p->skips, SKIP_KIND) ? ", only other files: " : "",
                     skips_kinds(&p->skips, SKIP_KIND)));
    *made = &p->base;
    p = NULL;
out:
    paths_close((Source *)p);
    return st;
}
