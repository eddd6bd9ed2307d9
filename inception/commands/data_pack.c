/* towers data convert --format tar|mds: writes shards, each by one thread; see data.h. Their bytes depend on
 * the source and the settings only. tar: NUMBER.cls, NUMBER.jpg (ustar, time 0). MDS: columns image (jpeg) and label
 * (int); index.json is written last. */
#include <archive.h>
#include <archive_entry.h>

#include "inception/commands/data.h"
#include "towers/data/listing/parallel.h"
#include "towers/data/loading/order.h"
#include "towers/data/shards/shard.h"
#include "towers/data/sources/reader.h"
#include "towers/files/json.h"

enum { MDS_LIMIT = 1 << 26, LABEL_BYTES = 8 };

typedef struct Item {
    int64_t id;
    int32_t label;
    uint8_t *bytes; /* owned */
    size_t count;
} Item;

typedef struct Pack {
    Convert *c;
    char folder[PATH_BYTES];
    int64_t shards;
    SurveyWorker *workers; /* owned: [threads] */
} Pack;

static Status shard_path(const Pack *p, int64_t shard, char path[PATH_BYTES])
{
    int n = snprintf(path, PATH_BYTES,
                     p->c->format == FORMAT_TAR ? "%s/shard-%06" PRId64 ".tar" : "%s/shard.%05" PRId64 ".mds",
                     p->folder, shard);
    return n < PATH_BYTES ? OK : FAIL(ERR_ARG, "'%s': the path is too long", p->folder);
}

static ShardKind kind_of(const Pack *p)
{
    return p->c->format == FORMAT_TAR ? SHARD_TAR : SHARD_MDS;
}

/* ---- writing one shard */

static la_ssize_t archive_put(struct archive *archive, void *context, const void *bytes, size_t count)
{
    if (durable_write(context, bytes, count) == OK) return (la_ssize_t)count;
    archive_set_error(archive, EIO, "%s", status_message());
    return -1;
}

static Status member_put(struct archive *to, struct archive_entry *entry, const char *name, const void *bytes,
                         size_t count)
{
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (int64_t)count);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_mtime(entry, 0, 0);
    if (archive_write_header(to, entry) == ARCHIVE_OK && archive_write_data(to, bytes, count) == (la_ssize_t)count)
        return OK;
    return FAIL(ERR_IO, "member %s of a tar: %s", name, archive_error_string(to));
}

static Status tar_put(DurableFile *file, const Item *items, int64_t count)
{
    Status st = OK;
    char name[32], label[16];
    struct archive *to = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    if (!to || !entry) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the writer of a tar"));
    archive_write_set_format_ustar(to);
    if (archive_write_open(to, file, NULL, archive_put, NULL) != ARCHIVE_OK)
        TRY_OUT(FAIL(ERR_IO, "cannot write a tar: %s", archive_error_string(to)));
    for (int64_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%08" PRId64 ".cls", items[i].id);
        int n = snprintf(label, sizeof label, "%" PRId32, items[i].label);
        TRY_OUT(member_put(to, entry, name, label, (size_t)n));
        snprintf(name, sizeof name, "%08" PRId64 ".jpg", items[i].id);
        TRY_OUT(member_put(to, entry, name, items[i].bytes, items[i].count));
    }
    if (archive_write_close(to) != ARCHIVE_OK) st = FAIL(ERR_IO, "cannot end a tar: %s", archive_error_string(to));
out:
    archive_entry_free(entry);
    archive_write_free(to);
    return st;
}

static void u32_put(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static json_t *mds_config(void)
{
    return json_pack("{s:i, s:s, s:n, s:[], s:i, s:[s,s], s:[s,s], s:[n,i]}", "version", 2, "format", "mds",
                     "compression", "hashes", "size_limit", MDS_LIMIT, "column_names", "image", "label",
                     "column_encodings", "jpeg", "int", "column_sizes", LABEL_BYTES);
}

static Status mds_put(DurableFile *file, const Item *items, int64_t count)
{
    Status st = OK;
    uint8_t number[LABEL_BYTES] = {0};
    json_t *config = mds_config();
    char *text = config ? json_dumps(config, JSON_SORT_KEYS) : NULL;
    uint64_t at = 4 + 4 * ((uint64_t)count + 1) + (text ? strlen(text) : 0);
    if (!text) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the header of a shard"));
    u32_put(number, (uint32_t)count);
    TRY_OUT(durable_write(file, number, 4));
    for (int64_t i = 0; i <= count; i++) {
        if (at > UINT32_MAX) TRY_OUT(FAIL(ERR_ARG, "a shard of more than 4 GiB: use a smaller --shard-samples"));
        u32_put(number, (uint32_t)at);
        TRY_OUT(durable_write(file, number, 4));
        if (i < count) at += 4 + items[i].count + LABEL_BYTES;
    }
    TRY_OUT(durable_write(file, text, strlen(text)));
    for (int64_t i = 0; i < count; i++) {
        u32_put(number, (uint32_t)items[i].count);
        TRY_OUT(durable_write(file, number, 4));
        TRY_OUT(durable_write(file, items[i].bytes, items[i].count));
        u32_put(number, (uint32_t)items[i].label);
        u32_put(number + 4, 0);
        TRY_OUT(durable_write(file, number, LABEL_BYTES));
    }
out:
    free(text);
    json_decref(config);
    return st;
}

/* ---- reading it back */

/* Every sample of a new shard has the label and the bytes that were written. */
static Status shard_verify(const Pack *p, const char *path, const Item *items, int64_t count)
{
    Status st = OK;
    ShardList list = {.path = path};
    Bytes bytes = {0};
    TRY_OUT(shard_list(kind_of(p), &list));
    TRY_OUT(bytes_read(path, ANY_SIZE, ANY_SIZE, &bytes));
    const Sample *found = list.found.parts.samples;
    bool same = list.found.parts.samples_count == count;
    for (int64_t i = 0; same && i < count; i++)
        same = found[i].label == items[i].label && found[i].bytes == items[i].count &&
               !memcmp(bytes.data + found[i].offset, items[i].bytes, items[i].count);
    if (!same) st = FAIL(ERR_IO, "'%s' does not read back as it was written: is the disk failing?", path);
out:
    bytes_free(&bytes);
    index_builder_free(&list.found);
    return st;
}

/* True if an earlier conversion has left the shard whole. */
static Status shard_is_done(const Pack *p, TransformWorker *tools, const char *path, int64_t count, bool *done)
{
    ShardList list = {.path = path};
    Bytes file = {0}, image = {0};
    ImageInfo info;
    *done = false;
    if (access(path, F_OK) != 0) return OK;
    Status st = shard_list(kind_of(p), &list);
    if (st == OK) st = bytes_read(path, ANY_SIZE, ANY_SIZE, &file);
    bool whole = st == OK && list.found.parts.samples_count == count;
    for (int64_t i = 0; whole && st == OK && i < count; i++) {
        const Sample *s = &list.found.parts.samples[i];
        st = bytes_reserve(&image, s->bytes);
        if (st != OK) break;
        memcpy(image.data, file.data + s->offset, s->bytes);
        image.size = s->bytes;
        st = image_probe(&image, &info);
        if (st == OK) st = image_decode(tools->decoder, &image, &info, (Rect){0, 0, info.h, info.w}, &tools->decoded);
        transform_worker_rest(tools);
    }
    *done = whole && st == OK;
    bytes_free(&file);
    bytes_free(&image);
    index_builder_free(&list.found);
    return st == ERR_FORMAT ? OK : st;
}

/* ---- all shards of a split */

static Status items_make(const Pack *p, SurveyWorker *worker, int64_t first, int64_t count, Item *items, int64_t *made)
{
    Convert *c = p->c;
    int64_t all = source_info(c->source)->count;
    for (int64_t i = 0; i < count; i++) {
        Item item = {.id = order_permute(0, 0, all, first + i)};
        ImageInfo info;
        Status st = source_read(c->source, item.id, &worker->bytes, &item.label);
        if (st == OK) st = image_probe(&worker->bytes, &info);
        if (st == OK) st = convert_encode(c, &worker->tools, &worker->bytes, &info, &item.bytes, &item.count);
        transform_worker_rest(&worker->tools);
        if (st == ERR_FORMAT) {
            convert_skip(c, item.id);
            continue;
        }
        if (st != OK) return st;
        atomic_fetch_add(&c->bytes_before, (int64_t)worker->bytes.size);
        atomic_fetch_add(&c->bytes_after, (int64_t)item.count);
        items[(*made)++] = item;
    }
    return OK;
}

static Status shard_write(const Pack *p, const char *path, const Item *items, int64_t count)
{
    char temporary[PATH_BYTES];
    DurableFile *file = NULL;
    TRY(path_temporary(temporary, path));
    TRY(durable_create(temporary, 0, &file));
    Status st = p->c->format == FORMAT_TAR ? tar_put(file, items, count) : mds_put(file, items, count);
    if (st == OK) st = durable_finish(file, NULL);
    durable_destroy(file);
    if (st == OK) st = shard_verify(p, temporary, items, count);
    if (st == OK) st = file_publish(temporary, path);
    if (st != OK) (void)unlink(temporary);
    return st;
}

static Status shard_make(void *context, int thread, int64_t shard)
{
    Pack *p = context;
    Convert *c = p->c;
    SurveyWorker *worker = &p->workers[thread];
    int64_t first = shard * c->shard_samples, rest = source_info(c->source)->count - first, made = 0;
    int64_t count = rest < c->shard_samples ? rest : c->shard_samples;
    char path[PATH_BYTES];
    bool done;
    TRY(shard_path(p, shard, path));
    TRY(shard_is_done(p, &worker->tools, path, count, &done));
    if (done) {
        atomic_fetch_add(&c->kept, count);
        return OK;
    }
    Item *items = calloc((size_t)count, sizeof *items);
    if (!items) return FAIL(ERR_MEMORY, "no memory for a shard of %" PRId64 " images", count);
    Status st = items_make(p, worker, first, count, items, &made);
    if (st == OK && made > 0) st = shard_write(p, path, items, made);
    if (st == OK) atomic_fetch_add(&c->written, made);
    for (int64_t i = 0; i < count; i++) free(items[i].bytes);
    free(items);
    return st;
}

static Status entry_add(const Pack *p, int64_t shard, json_t *shards)
{
    char path[PATH_BYTES];
    Bytes bytes = {0};
    TRY(shard_path(p, shard, path));
    if (access(path, F_OK) != 0) return OK; /* all of its images are damaged */
    TRY(bytes_read(path, ANY_SIZE, ANY_SIZE, &bytes));
    int64_t samples = bytes.size < 4 ? 0 : u32_of(bytes.data);
    json_t *entry = mds_config();
    json_object_set_new(entry, "samples", json_integer(samples));
    json_object_set_new(entry, "zip_data", json_null());
    json_object_set_new(
        entry, "raw_data",
        json_pack("{s:s, s:I, s:{}}", "basename", strrchr(path, '/') + 1, "bytes", (json_int_t)bytes.size, "hashes"));
    bytes_free(&bytes);
    return json_array_append_new(shards, entry) == 0 ? OK : FAIL(ERR_MEMORY, "no memory for the index of the shards");
}

static Status index_put(const Pack *p)
{
    Status st = OK;
    json_t *shards = json_array();
    for (int64_t i = 0; i < p->shards && st == OK; i++) st = entry_add(p, i, shards);
    json_t *root = json_pack("{s:i, s:o}", "version", 2, "shards", shards);
    if (st == OK) return json_replace(p->folder, "index.json", root, JSON_SORT_KEYS);
    json_decref(root);
    return st;
}

/* classes.txt beside the shards; a name that a line cannot hold becomes its number. */
static Status classes_put(const Convert *c)
{
    const SourceInfo *info = source_info(c->source);
    Draft draft;
    TRY(draft_begin(&draft, "the names of the classes"));
    for (int i = 0; i < info->classes; i++) {
        const char *name = info->class_names[i];
        bool plain = *name != 0 && (i || strncmp(name, "# ", 2) != 0); /* which would look like a comment */
        for (const char *at = name; *at; at++) plain = plain && (unsigned char)*at >= ' ' && *at != 0x7f;
        if (plain)
            fputs(name, draft.to);
        else
            fprintf(draft.to, "%d", i);
        fputc('\n', draft.to);
    }
    return draft_replace(&draft, OK, c->to, "classes.txt");
}

static void shards_progress(void *context, int64_t done, int64_t all)
{
    const Convert *c = ((const Pack *)context)->c;
    int64_t images = source_info(c->source)->count, each = c->shard_samples;
    data_progress(done < all && done * each < images ? done * each : images, images);
}

Status pack_split(Convert *c)
{
    int64_t count = source_info(c->source)->count;
    Pack p = {.c = c, .shards = (count + c->shard_samples - 1) / c->shard_samples};
    TRY(path_join(p.folder, c->to, c->part));
    TRY(directory_create(p.folder));
    TRY(classes_put(c));
    p.workers = calloc((size_t)c->threads, sizeof *p.workers);
    if (!p.workers) return FAIL(ERR_MEMORY, "no memory for %d threads", c->threads);
    Status st = OK;
    for (int i = 0; i < c->threads && st == OK; i++) st = transform_worker_init(&p.workers[i].tools);
    if (st == OK)
        st = parallel_run(&(Parallel){.count = p.shards,
                                      .threads = c->threads,
                                      .work = shard_make,
                                      .context = &p,
                                      .progress = shards_progress,
                                      .progress_context = &p});
    if (st == OK && c->format == FORMAT_MDS) st = index_put(&p);
    for (int i = 0; i < c->threads; i++) {
        transform_worker_free(&p.workers[i].tools);
        bytes_free(&p.workers[i].bytes);
    }
    free(p.workers);
    return st;
}
