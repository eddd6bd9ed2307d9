/* Index files: layout, checks and the cache; format in index.h. */
#include "towers/data/listing/index.h"

#include <sys/mman.h>
#include <time.h>
#include <xxhash.h>

#include "kernels/base/array.h"
#include "kernels/base/cache_home.h"
#include "kernels/base/open.h"
#include "towers/files/files.h"

static const char MAGIC[8] = {'T', 'W', 'R', 'I', 'N', 'D', 'E', 'X'};

const char *index_string(const Index *index, uint64_t offset)
{
    return offset < index->header->strings ? index->strings + offset : "";
}

void index_inventory(const Index *index, Inventory *inventory)
{
    *inventory = (Inventory){.used = index->header->samples};
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        const IndexSkipped *skipped = &index->header->skipped[why];
        if (skipped->count > 0)
            inventory->skipped[why] =
                (Skipped){skipped->count, index_string(index, skipped->first), index_string(index, skipped->kinds)};
    }
}

enum { SECOND_NS = 1000000000, TICK_NS = 20000000 };

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * SECOND_NS + time.tv_nsec;
}

Watched watched_of(const struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (Watched){.time_ns = nanoseconds(info->st_mtim),
                     .change_ns = nanoseconds(info->st_ctim),
                     .bytes = (int64_t)info->st_size,
                     .inode = (uint64_t)info->st_ino,
                     .seen_ns = nanoseconds(now)};
}

/* Times advance with the kernel's ticks, or on some file systems by whole seconds: what changed again within the same one has
 * the same time. */
static bool was_settled(const Watched *w)
{
    int64_t step = w->change_ns % SECOND_NS ? (int64_t)TICK_NS : 2 * (int64_t)SECOND_NS;
    return w->change_ns + step < w->seen_ns;
}

/* ---- reading */

static bool section(size_t size, size_t *at, int64_t count, size_t each, size_t *first)
{
    *first = *at;
    if (count < 0 || (uint64_t)count > (size - *at) / each) return false;
    *at += (size_t)count * each;
    return true;
}

/* The labels of every sample are classes, increasing, and all lists are the labels. */
static bool lists_fit(const Index *index)
{
    const IndexHeader *h = index->header;
    if (!index->list_first) return true;
    if (index->list_first[0] != 0 || index->list_first[h->samples] != (uint64_t)h->labels) return false;
    for (int64_t i = 0; i < h->samples; i++) {
        uint64_t first = index->list_first[i], end = index->list_first[i + 1];
        if (end < first || end > (uint64_t)h->labels) return false;
        for (uint64_t k = first; k < end; k++)
            if (index->lists[k] < 0 || index->lists[k] >= h->classes ||
                (k > first && index->lists[k] <= index->lists[k - 1]))
                return false;
    }
    return true;
}

/* Every offset must refer to a string that ends within the strings, every label to a class, every file to a path. */
static bool contents_fit(const Index *index)
{
    const IndexHeader *h = index->header;
    if (h->strings > 0 && index->strings[h->strings - 1] != 0) return false;
    for (int64_t i = 0; i < h->classes; i++)
        if (index->classes[i] >= h->strings) return false;
    for (int64_t i = 0; i < h->watched; i++)
        if (index->watched[i].path >= h->strings) return false;
    for (int64_t i = 0; i < h->samples; i++)
        if (index->samples[i].label < 0 || index->samples[i].label >= h->classes ||
            (index->samples[i].file > 0 && index->samples[i].file >= h->watched))
            return false;
    return lists_fit(index);
}

Status index_parse(const void *bytes, size_t size, const uint64_t key[2], Index *index)
{
    const IndexHeader *h = bytes;
    size_t at = sizeof *h, classes, watched, samples, lists, labels, strings;
    if (size < sizeof *h || memcmp(h->magic, MAGIC, sizeof MAGIC) != 0 || h->version != INDEX_VERSION ||
        h->sample_bytes != sizeof(Sample))
        return FAIL(ERR_FORMAT, "not an index of version %d", INDEX_VERSION);
    if (h->key[0] != key[0] || h->key[1] != key[1]) return FAIL(ERR_FORMAT, "the index of another data set");
    bool fits = section(size, &at, h->classes, sizeof(uint64_t), &classes) &&
                section(size, &at, h->watched, sizeof(Watched), &watched) &&
                section(size, &at, h->samples, sizeof(Sample), &samples) && h->multi_label <= 1 &&
                section(size, &at, h->multi_label ? h->samples + 1 : 0, sizeof(uint64_t), &lists) &&
                section(size, &at, h->labels, sizeof(int32_t), &labels);
    if (!fits || (!h->multi_label && h->labels) || h->strings > INT64_MAX ||
        !section(size, &at, (int64_t)h->strings, 1, &strings) || at != size)
        return FAIL(ERR_FORMAT, "an index of %zu bytes whose header gives another size", size);
    if (XXH3_64bits((const char *)bytes + sizeof *h, size - sizeof *h) != h->sum)
        return FAIL(ERR_FORMAT, "a damaged index: its checksum is wrong");
    const char *base = bytes;
    Index found = {.header = h,
                   .classes = (const uint64_t *)(base + classes),
                   .watched = (const Watched *)(base + watched),
                   .samples = (const Sample *)(base + samples),
                   .list_first = h->multi_label ? (const uint64_t *)(base + lists) : NULL,
                   .lists = (const int32_t *)(base + labels),
                   .strings = base + strings};
    if (!contents_fit(&found)) return FAIL(ERR_FORMAT, "a damaged index: offsets or labels out of range");
    *index = found;
    return OK;
}

static bool is_current(const Index *index)
{
    for (int64_t i = 0; i < index->header->watched; i++) {
        const Watched *then = &index->watched[i];
        struct stat info;
        if (stat(index_string(index, then->path), &info) != 0) return false;
        Watched now = watched_of(&info);
        if (now.time_ns != then->time_ns || now.change_ns != then->change_ns || now.inode != then->inode) return false;
        if (!was_settled(then)) return false;
        if (!S_ISDIR(info.st_mode) && now.bytes != then->bytes) return false;
    }
    return true;
}

/* Map a file; releases the pages that the checks have touched. */
static Status index_map(int fd, const uint64_t key[2], Index *index)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0)
        return FAIL(ERR_FORMAT, "an empty index, or no file");
    size_t size = (size_t)info.st_size;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return FAIL(ERR_MEMORY, "cannot map an index of %zu bytes: %s", size, strerror(errno));
    Status st = index_parse(map, size, key, index);
    if (st != OK) {
        munmap(map, size);
        return st;
    }
    index->map = map;
    index->map_bytes = size;
    (void)madvise(map, size, MADV_DONTNEED);
    (void)madvise(map, size, MADV_RANDOM); /* samples are read in random order: no read-ahead */
    return OK;
}

void index_unmap(Index *index)
{
    if (index->map) munmap(index->map, index->map_bytes);
    memset(index, 0, sizeof *index);
}

/* ---- the cache: $XDG_CACHE_HOME/towers/index/KEY.index, or below ~/.cache */

bool index_cache_name(const uint64_t key[2], const char *ending, char *directory, size_t room,
                      char name[INDEX_NAME_BYTES])
{
    char home[PATH_BYTES];
    if (!cache_home(home, sizeof home)) return false;
    int n = snprintf(directory, room, "%s/towers/index", home);
    snprintf(name, INDEX_NAME_BYTES, "%016" PRIx64 "%016" PRIx64 ".%s", key[0], key[1], ending);
    return n < (int)room - INDEX_NAME_BYTES - 1;
}

static bool cache_path(const uint64_t key[2], char directory[PATH_BYTES], char path[PATH_BYTES])
{
    char name[INDEX_NAME_BYTES];
    return index_cache_name(key, "index", directory, PATH_BYTES, name) && path_join(path, directory, name) == OK;
}

Status index_find(const uint64_t key[2], Index *index, bool *found)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    *found = false;
    if (!cache_path(key, directory, path)) return OK;
    int fd = regular_open(path, O_RDONLY | O_NOFOLLOW, NULL);
    if (fd < 0) return OK;
    Status st = index_map(fd, key, index);
    close(fd);
    if (st == ERR_MEMORY) return st;
    if (st != OK) return OK; /* damaged or outdated: build it again */
    *found = is_current(index);
    if (!*found) index_unmap(index);
    return OK;
}

void index_forget(const Index *index)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    if (cache_path(index->header->key, directory, path)) (void)unlink(path);
}

/* ---- building */

Status index_string_add(IndexBuilder *b, const char *text, uint64_t *offset)
{
    size_t bytes = strlen(text) + 1;
    TRY(array_reserve(&b->parts.strings, &b->strings_room, b->parts.strings_bytes + bytes, 1, "the names of images"));
    memcpy(b->parts.strings + b->parts.strings_bytes, text, bytes);
    *offset = b->parts.strings_bytes;
    b->parts.strings_bytes += bytes;
    return OK;
}

Status index_class_add(IndexBuilder *b, const char *name)
{
    uint64_t offset;
    TRY(index_string_add(b, name, &offset));
    return ARRAY_ADD(b->parts.classes, b->parts.classes_count, "the classes of an index", offset);
}

Status index_skips_put(IndexBuilder *b, const Skips *skips)
{
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        IndexSkipped *skipped = &b->parts.skipped[why];
        skipped->count = skips_count(skips, why);
        if (!skipped->count) continue;
        TRY(index_string_add(b, skips_kinds(skips, why), &skipped->kinds));
        TRY(index_string_add(b, skips_first(skips, why), &skipped->first));
    }
    return OK;
}

Status index_note_set(IndexBuilder *b, const char *note)
{
    TRY(index_string_add(b, note, &b->parts.note));
    b->parts.note++;
    return OK;
}

Status index_sample_add(IndexBuilder *b, const Sample *sample, const char *name)
{
    Sample added = *sample;
    TRY(index_string_add(b, name, &added.name));
    return ARRAY_ADD(b->parts.samples, b->parts.samples_count, "the index of images", added);
}

Status index_multi_label_add(IndexBuilder *b, const Sample *sample, const char *name, const int32_t *labels,
                             int32_t count)
{
    int64_t number = b->parts.samples_count;
    TRY(array_grow(&b->parts.list_first, number, sizeof *b->parts.list_first, "the index of images"));
    b->parts.multi_label = true;
    b->parts.list_first[number] = (uint64_t)b->parts.lists_count;
    TRY(index_sample_add(b, sample, name));
    for (int32_t k = 0; k < count; k++)
        TRY(ARRAY_ADD(b->parts.lists, b->parts.lists_count, "the index of images", labels[k]));
    return OK;
}

Status index_watched_put(IndexBuilder *b, const char *path, const Watched *then)
{
    Watched added = *then;
    TRY(index_string_add(b, path, &added.path));
    return ARRAY_ADD(b->parts.watched, b->parts.watched_count, "the index of images", added);
}

Status index_watched_add(IndexBuilder *b, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) return FAIL(ERR_IO, "cannot stat '%s': %s", path, strerror(errno));
    const Watched now = watched_of(&info);
    return index_watched_put(b, path, &now);
}

void index_builder_free(IndexBuilder *b)
{
    free(b->parts.classes);
    free(b->parts.watched);
    free(b->parts.samples);
    free(b->parts.list_first);
    free(b->parts.lists);
    free(b->parts.strings);
}

/* ---- writing */

typedef struct IndexPiece {
    const void *bytes;
    size_t count;
} IndexPiece;

static void fingerprint_fill(const IndexParts *p, XXH3_state_t *state, IndexHeader *h)
{
    XXH3_128bits_reset(state);
    for (int64_t i = 0; i < p->samples_count; i++) {
        const Sample *s = &p->samples[i];
        const char *name = s->name < p->strings_bytes ? p->strings + s->name : "";
        int64_t numbers[] = {s->bytes, s->label, s->flags};
        size_t count =
            s->flags ? 3 : 2; /* without flags as before there were any, so that older runs know their data */
        const char *label = p->strings + p->classes[s->label];
        XXH3_128bits_update(state, label, strlen(label) + 1);
        XXH3_128bits_update(state, name, strlen(name) + 1);
        XXH3_128bits_update(state, numbers, count * sizeof *numbers);
    }
    if (p->multi_label) { /* every class and every list too */
        for (int64_t c = 0; c < p->classes_count; c++) {
            const char *class = p->strings + p->classes[c];
            XXH3_128bits_update(state, class, strlen(class) + 1);
        }
        XXH3_128bits_update(state, p->list_first, (size_t)p->samples_count * sizeof *p->list_first);
        XXH3_128bits_update(state, p->lists, (size_t)p->lists_count * sizeof *p->lists);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    h->fingerprint[0] = hash.low64;
    h->fingerprint[1] = hash.high64;
}

static Status write_all(int fd, const IndexPiece *pieces, int count)
{
    for (int i = 0; i < count; i++)
        for (size_t done = 0; done < pieces[i].count;) {
            ssize_t put = write(fd, (const char *)pieces[i].bytes + done, pieces[i].count - done);
            if (put < 0 && errno != EINTR) return FAIL(ERR_IO, "cannot write the index: %s", strerror(errno));
            if (put > 0) done += (size_t)put;
        }
    return OK;
}

/* Write the index to a temporary file and rename it; or to memory, if no file can be written. */
static Status pieces_keep(const uint64_t key[2], const IndexPiece *pieces, int count, int *kept)
{
    char directory[PATH_BYTES], path[PATH_BYTES], temporary[PATH_BYTES];
    if (cache_path(key, directory, path) && directory_create(directory) == OK &&
        path_temporary(temporary, path) == OK) {
        int fd = regular_open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, NULL);
        if (fd >= 0 && fchmod(fd, 0600) == 0 && write_all(fd, pieces, count) == OK && rename(temporary, path) == 0) {
            *kept = fd;
            return OK;
        }
        if (fd >= 0) {
            (void)unlink(temporary);
            close(fd);
        }
    }
    int fd = memfd_create("towers-index", MFD_CLOEXEC);
    if (fd < 0) return FAIL(ERR_MEMORY, "no space for the index: %s", strerror(errno));
    Status st = write_all(fd, pieces, count);
    if (st != OK) close(fd);
    *kept = fd;
    return st;
}

Status index_write(const uint64_t key[2], const IndexParts *p, Index *index)
{
    IndexHeader header = {.version = INDEX_VERSION,
                          .sample_bytes = sizeof(Sample),
                          .key = {key[0], key[1]},
                          .note = p->note,
                          .kind = p->kind,
                          .train = p->train,
                          .samples = p->samples_count,
                          .classes = p->classes_count,
                          .watched = p->watched_count,
                          .multi_label = p->multi_label,
                          .labels = p->lists_count,
                          .strings = p->strings_bytes};
    const uint64_t end = (uint64_t)p->lists_count;
    const IndexPiece pieces[] = {{&header, sizeof header},
                                 {p->classes, (size_t)p->classes_count * sizeof *p->classes},
                                 {p->watched, (size_t)p->watched_count * sizeof *p->watched},
                                 {p->samples, (size_t)p->samples_count * sizeof *p->samples},
                                 {p->list_first, p->multi_label ? (size_t)p->samples_count * sizeof *p->list_first : 0},
                                 {&end, p->multi_label ? sizeof end : 0},
                                 {p->lists, (size_t)p->lists_count * sizeof *p->lists},
                                 {p->strings, p->strings_bytes}};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    memcpy(header.skipped, p->skipped, sizeof header.skipped);
    XXH3_state_t *state = XXH3_createState();
    if (!state) return FAIL(ERR_MEMORY, "no memory to hash the index");
    fingerprint_fill(p, state, &header);
    XXH3_64bits_reset(state);
    for (int i = 1; i < PIECES; i++) XXH3_64bits_update(state, pieces[i].bytes, pieces[i].count);
    header.sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    int fd = -1;
    TRY(pieces_keep(key, pieces, PIECES, &fd));
    Status st = index_map(fd, key, index);
    close(fd);
    return st;
}
