/* Reads samples of shards by their index; see shards.h. */
#include "towers/data/shards/shards.h"

#include <pthread.h>

#include "towers/data/shards/shard.h"
#include "towers/data/shards/shard_fetch.h"
#include "towers/data/shards/shard_index.h"
#include "towers/data/shards/sidecar.h"
#include "towers/data/shards/tfrecord.h"
#include "towers/data/sources/indexed.h"
#include "towers/data/sources/reader.h"
#include "towers/files/files.h"

enum { NAME_BYTES = 1024 };

/* Shards that stay open between images: shard `file` in slot file % SLOTS, unless another one is being read there. */
enum { SLOTS = 128 };

typedef struct Slot {
    uint32_t file;
    int fd; /* owned; -1: none */
    int users;
} Slot;

typedef struct ShardsSource {
    Source base;
    Index index;
    const char **names; /* owned array of strings of the index */
    int64_t *first;     /* owned: of each shard that has samples */
    pthread_mutex_t *lock;
    Slot *slots;             /* owned, as the lock, which protects them */
    const ShardFetch *fetch; /* borrowed; NULL: the shards are here, and what follows is not used */
    int64_t window;          /* the number of windows that have begun; protected by the lock, as is the next */
    int64_t *wanted_in;      /* owned: [watched]: the window in which each shard was announced last; 0: never */
} ShardsSource;

/* [kind][labels from 1][divided] */
#define FORMATS(kind, name)                                                                                            \
    [kind] = {{name, name ", divided"}, {name ", labels from 1", name ", labels from 1, divided"}}
static const char *const format_names[SHARD_KINDS][2][2] = {
    FORMATS(SHARD_TAR, "WebDataset tars"), FORMATS(SHARD_TFRECORD, "TFRecords"), FORMATS(SHARD_MDS, "MDS shards")};

static ShardKind kind_of(const ShardsSource *s)
{
    return (ShardKind)(s->index.header->kind & ~(uint64_t)(SHARDS_FROM_ONE | SHARDS_GUESSED));
}

static const char *shard_path(const ShardsSource *s, int64_t index)
{
    return index_string(&s->index, s->index.watched[s->index.samples[index].file].path);
}

static void shards_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const Sample *sample = &s->index.samples[index];
    snprintf(text, bytes, "%s: %s, offset %" PRIu64, shard_path(s, index), index_string(&s->index, sample->name),
             sample->offset);
}

static Slot *slot_of(const ShardsSource *s, uint32_t file)
{
    return &s->slots[file % SLOTS];
}

/* With the lock held: whether a shard stays open between images. Shards that come and go are held while their window lasts, which is the one
 * that begins behind their announcement, and no longer. */
static bool slot_stays(const ShardsSource *s, uint32_t file)
{
    return !s->fetch || s->wanted_in[file];
}

static void slot_close(Slot *slot)
{
    close(slot->fd);
    slot->fd = -1;
}

/* With the lock held: the descriptor of a shard that is open, or -1. A slot whose shard nobody reads is given up for another. */
static int slot_use(const ShardsSource *s, const Sample *sample)
{
    Slot *slot = slot_of(s, sample->file);
    if (slot->fd >= 0 && slot->file != sample->file && !slot->users) slot_close(slot);
    if (slot->fd < 0 || slot->file != sample->file) return -1;
    slot->users++;
    return slot->fd;
}

/* With the lock held: keep a descriptor for the next image, if its slot is free. */
static int slot_put(const ShardsSource *s, const Sample *sample, int fd)
{
    Slot *slot = slot_of(s, sample->file);
    int open = slot_use(s, sample);
    if (open >= 0) close(fd); /* another thread was faster */
    if (open < 0 && slot->fd < 0 && slot_stays(s, sample->file))
        *slot = (Slot){.file = sample->file, .fd = fd, .users = 1};
    return open >= 0 ? open : fd;
}

static Status shard_open(const ShardsSource *s, const char *path, int *fd)
{
    uint64_t size;
    Sidecar stand_in;
    if (s->fetch) return s->fetch->bring(s->fetch, path, fd);
    if (sidecar_look(path, &stand_in))
        return FAIL(ERR_IO, "'%s' stands in for a shard that is elsewhere: give the address of its set", path);
    return file_open(path, OF_USER, ERR_FORMAT, UINT64_MAX, fd, &size);
}

/* Before a reader waits for a shard, it lets go of those that nobody reads just now: they may have to make room. */
static void idle_close(const ShardsSource *s)
{
    pthread_mutex_lock(s->lock);
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i].fd >= 0 && !s->slots[i].users) slot_close(&s->slots[i]);
    pthread_mutex_unlock(s->lock);
}

/* An open descriptor of a shard, for shard_release. */
static Status shard_acquire(const ShardsSource *s, const Sample *sample, const char *path, int *fd)
{
    pthread_mutex_lock(s->lock);
    *fd = slot_use(s, sample);
    pthread_mutex_unlock(s->lock);
    if (*fd >= 0) return OK;
    if (s->fetch && !s->fetch->is_here(s->fetch, path)) idle_close(s);
    TRY(shard_open(s, path, fd)); /* which may take long, while others read what is open */
    pthread_mutex_lock(s->lock);
    *fd = slot_put(s, sample, *fd);
    pthread_mutex_unlock(s->lock);
    return OK;
}

static void shard_release(const ShardsSource *s, const Sample *sample, int fd)
{
    pthread_mutex_lock(s->lock);
    Slot *slot = slot_of(s, sample->file);
    if (slot->fd != fd)
        close(fd);
    else if (--slot->users == 0 && !slot_stays(s, slot->file))
        slot_close(slot);
    pthread_mutex_unlock(s->lock);
}

/* A shard that was removed or replaced has no name any more; one that was written to has other times. */
static Status shard_check(int fd, const char *path, const Watched *then)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return FAIL(ERR_IO, "cannot stat '%s': %s", path, strerror(errno));
    if (info.st_nlink == 0 || (int64_t)info.st_size != then->bytes || watched_of(&info).time_ns != then->time_ns)
        return FAIL(ERR_FORMAT, "'%s' has changed since it was indexed: start again to index it again", path);
    return OK;
}

static Status shards_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const Sample *sample = &s->index.samples[index];
    const char *path = shard_path(s, index);
    int fd;
    TRY(sample_size_check(sample->bytes));
    TRY(bytes_reserve(bytes, sample->bytes));
    TRY(shard_acquire(s, sample, path, &fd));
    Status st =
        s->fetch ? OK : shard_check(fd, path, &s->index.watched[sample->file]); /* else its door has done that */
    if (st == OK) st = file_pread(fd, path, sample->offset, bytes->data, sample->bytes);
    shard_release(s, sample, fd);
    bytes->size = sample->bytes;
    bytes->raw_c = 0;
    *label = sample->label;
    if (st == OK && kind_of(s) == SHARD_MDS && sample->flags) {
        bytes->raw_h = (int32_t)(sample->flags >> 16);
        bytes->raw_w = (int32_t)(sample->flags & 0xffff);
        bytes->raw_c = 3;
    }
    if (st != OK || kind_of(s) != SHARD_TFRECORD) return st;
    char where[PATH_BYTES + NAME_BYTES];
    shards_where(source, index, where, sizeof where);
    return tfrecord_image(bytes, sample->flags, where);
}

static int32_t shards_label(const Source *source, int64_t index)
{
    return ((const ShardsSource *)source)->index.samples[index].label;
}

static void shards_hint(const Source *source, int64_t index)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const Sample *sample = &s->index.samples[index];
    char file[PATH_BYTES];
    if (!s->fetch)
        bytes_hint(shard_path(s, index), sample->offset, sample->bytes);
    else if (s->fetch->want(s->fetch, shard_path(s, index), file))
        bytes_hint(file, sample->offset, sample->bytes);
}

static void shards_hint_shard(const Source *source, int shard)
{
    const ShardsSource *s = (const ShardsSource *)source;
    const char *path = shard_path(s, s->first[shard]);
    char file[PATH_BYTES];
    if (!s->fetch) {
        bytes_hint(path, 0, 0);
        return;
    }
    uint32_t number = s->index.samples[s->first[shard]].file;
    pthread_mutex_lock(s->lock);
    if (!s->wanted_in[number]) s->fetch->hold(s->fetch, path);
    s->wanted_in[number] = s->window;
    pthread_mutex_unlock(s->lock);
    if (s->fetch->want(s->fetch, path, file)) bytes_hint(file, 0, 0);
}

static void shards_hint_later(const Source *source, int shard)
{
    const ShardsSource *s = (const ShardsSource *)source;
    if (s->fetch) s->fetch->later(s->fetch, shard_path(s, s->first[shard]));
}

static void shards_hint_window(const Source *source)
{
    ShardsSource *s = (ShardsSource *)(uintptr_t)source;
    if (!s->fetch) return;
    pthread_mutex_lock(s->lock);
    s->window++;
    s->fetch->window(s->fetch);
    for (int i = 0; i < s->base.info.shards; i++) {
        uint32_t number = s->index.samples[s->first[i]].file;
        if (!s->wanted_in[number] || s->wanted_in[number] >= s->window - 1) continue;
        s->wanted_in[number] = 0;
        s->fetch->leave(s->fetch, shard_path(s, s->first[i]));
    }
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i].fd >= 0 && !s->slots[i].users && !slot_stays(s, s->slots[i].file)) slot_close(&s->slots[i]);
    pthread_mutex_unlock(s->lock);
}

static bool shards_is_here(const Source *source, int64_t index)
{
    const ShardsSource *s = (const ShardsSource *)source;
    return !s->fetch || s->fetch->is_here(s->fetch, shard_path(s, index));
}

static void shards_traffic(const Source *source, SourceTraffic *traffic)
{
    const ShardsSource *s = (const ShardsSource *)source;
    if (s->fetch) s->fetch->traffic(s->fetch, traffic);
}

static void shards_close(Source *source)
{
    ShardsSource *s = (ShardsSource *)source;
    if (!s) return;
    for (int i = 0; s->slots && i < SLOTS; i++)
        if (s->slots[i].fd >= 0) close(s->slots[i].fd);
    if (s->lock) pthread_mutex_destroy(s->lock);
    free(s->lock);
    free(s->slots);
    free(s->wanted_in);
    index_unmap(&s->index);
    free(s->names);
    free(s->first);
    free(s);
}

/* Samples of a shard follow each other in the index. */
static Status firsts_find(ShardsSource *s)
{
    const IndexHeader *h = s->index.header;
    s->first = malloc((size_t)(h->watched + 1) * sizeof *s->first);
    if (!s->first) return FAIL(ERR_MEMORY, "no memory for the list of %" PRId64 " shards", h->watched);
    for (int64_t i = 0; i < h->samples; i++) {
        if (i > 0 && s->index.samples[i].file <= s->index.samples[i - 1].file) {
            if (s->index.samples[i].file == s->index.samples[i - 1].file) continue;
            return FAIL(ERR_FORMAT, "an index whose shards are not in order");
        }
        s->first[s->base.info.shards++] = i;
    }
    s->first[s->base.info.shards] = h->samples;
    s->base.info.shard_first = s->first;
    s->wanted_in = s->fetch ? calloc((size_t)h->watched, sizeof *s->wanted_in) : NULL;
    return s->wanted_in || !s->fetch ? OK
                                     : FAIL(ERR_MEMORY, "no memory for the list of %" PRId64 " shards", h->watched);
}

static Status describe(const SourceConfig *config, Split split, ShardsSource *s)
{
    const IndexHeader *h = s->index.header;
    uint64_t kind = kind_of(s);
    if (kind >= SHARD_KINDS || !format_names[kind][0][0] || h->watched == 0)
        return FAIL(ERR_FORMAT, "'%s': an index of an unknown kind of shards", config->path);
    const char *format =
        format_names[kind][(h->kind & SHARDS_FROM_ONE) != 0][config->val_split > 0 && split != SPLIT_TEST];
    TRY(indexed_describe(config, &s->index, format, &s->base.info, &s->names));
    s->base.info.first_label = (h->kind & SHARDS_FROM_ONE) != 0;
    s->base.info.first_origin = h->kind & SHARDS_GUESSED ? FIRST_GUESSED : FIRST_KNOWN;
    return firsts_find(s);
}

Status shards_source_open(const SourceConfig *config, Split split, Source **made)
{
    Status st = OK;
    ShardsSource *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the reader for '%s'", config->path);
    s->base.read = shards_read;
    s->base.label = shards_label;
    s->base.where = shards_where;
    s->fetch = config->fetch;
    s->base.info.elsewhere = s->fetch != NULL;
    s->base.is_here = shards_is_here;
    s->base.traffic = shards_traffic;
    s->base.hint = shards_hint;
    s->base.hint_shard = shards_hint_shard;
    s->base.hint_later = shards_hint_later;
    s->base.hint_window = shards_hint_window;
    s->base.close = shards_close;
    s->slots = malloc(SLOTS * sizeof *s->slots);
    s->lock = malloc(sizeof *s->lock);
    if (!s->slots || !s->lock) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the reader for '%s'", config->path));
    pthread_mutex_init(s->lock, NULL);
    for (int i = 0; i < SLOTS; i++) s->slots[i].fd = -1, s->slots[i].users = 0;
    bool trained = config->train && config->train->close == shards_close;
    const Index *train = trained ? &((const ShardsSource *)config->train)->index : NULL;
    TRY_OUT(shard_index_open(config, split, train, &s->index));
    TRY_OUT(describe(config, split, s));
    *made = &s->base;
    s = NULL;
out:
    shards_close((Source *)s);
    return st;
}
