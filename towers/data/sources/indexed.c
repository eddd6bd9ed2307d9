/* Samples that an index lists, as a Source. */
#include "towers/data/sources/indexed.h"

#include "towers/data/sources/reader.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"

Status indexed_describe(const SourceConfig *config, const Index *index, const char *format, SourceInfo *info,
                        const char ***names)
{
    const IndexHeader *h = index->header;
    char *full = realpath(config->path, NULL); /* a list of shards has none */
    const char *path = full ? full : config->path, *slash = strrchr(path, '/');
    utf8_escape(info->name, sizeof info->name, slash && slash[1] ? slash + 1 : path);
    free(full);
    info->format = format;
    info->count = h->samples;
    info->classes = (int)h->classes;
    info->multi_label = index->list_first != NULL;
    info->c = 3;
    info->state = h->sum;
    memcpy(info->fingerprint, h->fingerprint, sizeof info->fingerprint);
    info->labels_note = h->note ? index_string(index, h->note - 1) : NULL;
    index_inventory(index, &info->inventory);
    *names = calloc((size_t)h->classes + 1, sizeof **names);
    if (!*names) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", info->classes);
    for (int64_t i = 0; i < h->classes; i++) (*names)[i] = index_string(index, index->classes[i]);
    info->class_names = *names;
    return OK;
}

/* ---- files */

typedef struct FilesSource {
    Source base;
    Index index;
    char root[PATH_BYTES];
    const char **names; /* owned array of strings of the index */
} FilesSource;

static Status sample_path(const FilesSource *f, int64_t index, char path[PATH_BYTES])
{
    const Sample *s = &f->index.samples[index];
    const char *of_label = f->base.info.multi_label ? "" : f->names[s->label];
    const char *class = strcmp(of_label, ".") ? of_label : "", *slash = *class ? "/" : ""; /* ".": the folder itself */
    int n = snprintf(path, PATH_BYTES, "%s/%s%s%s", f->root, class, slash, index_string(&f->index, s->name));
    return n < PATH_BYTES ? OK : FAIL(ERR_FORMAT, "'%s': the path of sample %" PRId64 " is too long", f->root, index);
}

static void files_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    char path[PATH_BYTES];
    if (sample_path((const FilesSource *)source, index, path) != OK) path[0] = 0;
    snprintf(text, bytes, "%s", path);
}

static bool files_file(const Source *source, int64_t index, char *path, size_t room, uint64_t *bytes)
{
    files_where(source, index, path, room);
    *bytes = ((const FilesSource *)source)->index.samples[index].bytes;
    return true;
}

static Status files_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const FilesSource *f = (const FilesSource *)source;
    const Sample *sample = &f->index.samples[index];
    char path[PATH_BYTES];
    struct stat now;
    TRY(sample_path(f, index, path));
    *label = sample->label;
    Status st = bytes_read(path, sample->bytes, SAMPLE_BYTES_MAX, bytes);
    /* Folders, which an index is compared with, do not show that a file in them was written anew. */
    if (st == ERR_FORMAT && stat(path, &now) == 0 && (uint64_t)now.st_size != sample->bytes) index_forget(&f->index);
    return st;
}

static int32_t files_label(const Source *source, int64_t index)
{
    return ((const FilesSource *)source)->index.samples[index].label;
}

static int32_t files_labels(const Source *source, int64_t index, const int32_t **labels)
{
    const Index *i = &((const FilesSource *)source)->index;
    *labels = i->lists + i->list_first[index];
    return (int32_t)(i->list_first[index + 1] - i->list_first[index]);
}

static void files_hint(const Source *source, int64_t index)
{
    char path[PATH_BYTES];
    if (sample_path((const FilesSource *)source, index, path) == OK) bytes_hint(path, 0, 0);
}

static void files_close(Source *source)
{
    FilesSource *f = (FilesSource *)source;
    index_unmap(&f->index);
    free(f->names);
    free(f);
}

Status indexed_files_open(const SourceConfig *config, const char *root, const char *format, Index *index, Source **made)
{
    FilesSource *f = calloc(1, sizeof *f);
    if (!f) {
        index_unmap(index);
        return FAIL(ERR_MEMORY, "no memory for the reader for '%s'", config->path);
    }
    f->base = (Source){.read = files_read,
                       .label = files_label,
                       .labels = files_labels,
                       .where = files_where,
                       .file = files_file,
                       .hint = files_hint,
                       .close = files_close};
    f->index = *index;
    snprintf(f->root, sizeof f->root, "%s", root);
    Status st = indexed_describe(config, &f->index, format, &f->base.info, &f->names);
    if (st == OK)
        *made = &f->base;
    else
        files_close(&f->base);
    return st;
}
