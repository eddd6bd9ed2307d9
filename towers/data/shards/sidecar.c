/* Records of shards; see sidecar.h. */
#include "towers/data/shards/sidecar.h"

#include <sys/mman.h>
#include <xxhash.h>

#include "kernels/base/array.h"
#include "kernels/base/open.h"
#include "towers/files/files.h"

static const char MAGIC[SIDECAR_HEAD] = {'T', 'W', 'R', 'S', 'H', 'A', 'R', 'D'};

enum { VERSION = 1, CHUNK = 1 << 20 };

/* A sidecar is read into memory at once. */
static const uint64_t RECORD_BYTES_MOST = UINT64_C(1) << 34;

/* What was left out for one reason and of one kind; offsets in the strings. */
typedef struct RecordSkip {
    int64_t count;
    uint64_t why, kind, first;
} RecordSkip;

/* The name of a class: 1 + its offset in the strings, 0 for none, and the sample that gave it first. */
typedef struct RecordClass {
    uint64_t name;
    int64_t by;
} RecordClass;

/* Then samples, classes, skips, and the strings, filled up to a multiple of 8 bytes. */
typedef struct RecordHead {
    char magic[SIDECAR_HEAD];
    uint32_t version, kind;
    uint64_t size;  /* of the record */
    uint64_t bytes; /* of the shard */
    uint64_t digest[2];
    int64_t samples, classes, skips;
    uint64_t strings; /* bytes */
    uint64_t name;    /* offset */
    uint64_t note;    /* 1 + offset; 0: none */
    uint64_t sum;     /* XXH3-64 of all behind the head */
} RecordHead;

bool sidecar_begins(const uint8_t head[SIDECAR_HEAD])
{
    return !memcmp(head, MAGIC, SIDECAR_HEAD);
}

/* ---- reading */

typedef struct RecordParts {
    const RecordHead *head;
    const Sample *samples;
    const RecordClass *classes;
    const RecordSkip *skips;
    const char *strings;
} RecordParts;

static bool section(size_t size, size_t *at, int64_t count, size_t each)
{
    if (count < 0 || (uint64_t)count > (size - *at) / each) return false;
    *at += (size_t)count * each;
    return true;
}

/* Names are stored once each, so that all together are no longer than the strings: else a short record would take much memory. */
static bool sample_fits(const RecordParts *p, const Sample *s, size_t *left)
{
    const RecordHead *h = p->head;
    if (s->name >= h->strings) return false;
    size_t name = strnlen(p->strings + s->name, *left) + 1;
    if (name > *left) return false;
    *left -= name;
    uint64_t raw = (uint64_t)(s->flags >> 16) * (s->flags & 0xffff) * 3;
    return s->bytes > 0 && s->offset <= h->bytes && s->bytes <= h->bytes - s->offset && s->file == 0 && s->label >= 0 &&
           s->label < SHARD_CLASSES_MAX && (h->kind != SHARD_MDS || !s->flags || raw == s->bytes);
}

/* What is out of range; NULL: nothing. */
static const char *misfit_of(const RecordParts *p)
{
    const RecordHead *h = p->head;
    if (!h->strings || p->strings[h->strings - 1] || h->name >= h->strings || h->note > h->strings) return "a string";
    const char *name = p->strings + h->name;
    if (!*name || strchr(name, '/')) return "the name of the shard";
    size_t left = h->strings;
    for (int64_t i = 0; i < h->samples; i++)
        if (!sample_fits(p, &p->samples[i], &left)) return "a sample";
    for (int64_t i = 0; i < h->classes; i++)
        if (p->classes[i].name > h->strings || p->classes[i].by < -1 || p->classes[i].by >= h->samples ||
            (p->classes[i].name && p->classes[i].by < 0))
            return "a class";
    for (int64_t i = 0; i < h->skips; i++)
        if (p->skips[i].count <= 0 || p->skips[i].count > INT32_MAX || p->skips[i].why >= SKIP_REASONS ||
            p->skips[i].kind >= h->strings || p->skips[i].first >= h->strings)
            return "what it leaves out";
    return NULL;
}

static bool is_kind(uint32_t kind)
{
    return kind == SHARD_TAR || kind == SHARD_TFRECORD || kind == SHARD_MDS;
}

static Status parts_find(const char *path, const uint8_t *bytes, size_t size, RecordParts *p)
{
    const RecordHead *h = p->head = (const void *)bytes;
    size_t at = sizeof *h;
    if (size < sizeof *h || !sidecar_begins(bytes)) return FAIL(ERR_FORMAT, "'%s' is no index of shards", path);
    if (h->version != VERSION)
        return FAIL(ERR_FORMAT, "'%s' is an index of shards of version %" PRIu32 "; expected %d", path, h->version,
                    VERSION);
    bool fits = h->size >= sizeof *h && h->size <= size && h->size % 8 == 0 && h->classes <= SHARD_CLASSES_MAX &&
                is_kind(h->kind);
    const size_t samples = at;
    size_t classes, skips, strings;
    fits = fits && section(h->size, &at, h->samples, sizeof(Sample));
    classes = at;
    fits = fits && section(h->size, &at, h->classes, sizeof(RecordClass));
    skips = at;
    fits = fits && section(h->size, &at, h->skips, sizeof(RecordSkip));
    strings = at;
    if (!fits || h->strings > h->size - at || h->size - at - h->strings >= 8)
        return FAIL(ERR_FORMAT, "'%s' is cut off or damaged: a record of %" PRIu64 " bytes does not fit into %zu", path,
                    h->size, size);
    if (XXH3_64bits(bytes + sizeof *h, h->size - sizeof *h) != h->sum)
        return FAIL(ERR_FORMAT, "'%s' is damaged: a checksum is wrong", path);
    p->samples = (const void *)(bytes + samples);
    p->classes = (const void *)(bytes + classes);
    p->skips = (const void *)(bytes + skips);
    p->strings = (const char *)bytes + strings;
    const char *misfit = misfit_of(p);
    return misfit ? FAIL(ERR_FORMAT, "'%s' is damaged: %s is out of range", path, misfit) : OK;
}

static Status skips_take(const RecordParts *p, ShardList *list)
{
    char first[2 * PATH_BYTES];
    for (int64_t i = 0; i < p->head->skips; i++) {
        const RecordSkip *s = &p->skips[i];
        snprintf(first, sizeof first, "%.*s%.*s", PATH_BYTES - 1, list->path, PATH_BYTES - 1, p->strings + s->first);
        TRY(skips_add_many(&list->skips, (SkipReason)s->why, p->strings + s->kind, first, s->count));
    }
    return OK;
}

static Status list_take(const RecordParts *p, ShardList *list)
{
    const RecordHead *h = p->head;
    memcpy(list->digest, h->digest, sizeof list->digest);
    if (h->note) TRY(index_note_set(&list->found, p->strings + h->note - 1));
    for (int64_t i = 0; i < h->samples; i++)
        TRY(index_sample_add(&list->found, &p->samples[i], p->strings + p->samples[i].name));
    if (h->classes) {
        list->named_by = calloc((size_t)h->classes, sizeof *list->named_by);
        list->found.parts.classes = calloc((size_t)h->classes, sizeof *list->found.parts.classes);
        if (!list->named_by || !list->found.parts.classes)
            return FAIL(ERR_MEMORY, "no memory for the names of classes");
    }
    list->found.parts.classes_count = h->classes;
    for (int64_t i = 0; i < h->classes; i++) {
        list->named_by[i] = p->classes[i].by;
        if (!p->classes[i].name) continue;
        TRY(index_string_add(&list->found, p->strings + p->classes[i].name - 1, &list->found.parts.classes[i]));
        list->found.parts.classes[i]++;
    }
    return skips_take(p, list);
}

Status sidecar_parse(const char *path, const void *bytes, size_t size, Sidecar *made, ShardList *list)
{
    RecordParts p;
    TRY(parts_find(path, bytes, size, &p));
    *made = (Sidecar){.kind = (ShardKind)p.head->kind,
                      .name = p.strings + p.head->name,
                      .bytes = p.head->bytes,
                      .samples = p.head->samples,
                      .size = p.head->size};
    return list ? list_take(&p, list) : OK;
}

/* ---- writing */

static Status digest_find(const char *path, RecordHead *h)
{
    int fd;
    TRY(file_open(path, OF_USER, ERR_FORMAT, UINT64_MAX, &fd, &h->bytes));
    uint8_t *chunk = malloc(CHUNK);
    XXH3_state_t *state = XXH3_createState();
    Status st = chunk && state ? OK : FAIL(ERR_MEMORY, "no memory to read '%s'", path);
    if (st == OK) XXH3_128bits_reset(state);
    for (uint64_t at = 0; at < h->bytes && st == OK;) {
        size_t bytes = h->bytes - at < CHUNK ? (size_t)(h->bytes - at) : CHUNK;
        st = file_pread(fd, path, at, chunk, bytes);
        if (st == OK) XXH3_128bits_update(state, chunk, bytes);
        at += bytes;
    }
    XXH128_hash_t hash = st == OK ? XXH3_128bits_digest(state) : (XXH128_hash_t){0};
    h->digest[0] = hash.low64;
    h->digest[1] = hash.high64;
    XXH3_freeState(state);
    free(chunk);
    close(fd);
    return st;
}

/* What is written of a list: strings that only the record has come behind those of the list. */
typedef struct Record {
    RecordHead head;
    IndexBuilder more;
    RecordClass *classes;
    RecordSkip *skips;
} Record;

static Status record_string(const ShardList *list, Record *r, const char *text, uint64_t *offset)
{
    TRY(index_string_add(&r->more, text, offset));
    *offset += list->found.parts.strings_bytes;
    return OK;
}

/* The path of the shard is left out of the names of members: it is another one elsewhere. */
static Status skips_put(const ShardList *list, Record *r)
{
    size_t before = strlen(list->path);
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        const char *first = skips_first(&list->skips, why), *kind;
        RecordSkip s = {.why = why};
        if (why == SKIP_LABEL) continue; /* records of version 1 have them among other members only */
        for (int k = 0; (kind = skips_kind_at(&list->skips, why, k, &s.count)) != NULL; k++) {
            TRY(record_string(list, r, kind, &s.kind));
            TRY(record_string(list, r, strncmp(first, list->path, before) ? first : first + before, &s.first));
            TRY(ARRAY_ADD(r->skips, r->head.skips, "the index of a shard", s));
        }
    }
    return OK;
}

static Status classes_put(const ShardList *list, Record *r)
{
    const IndexParts *p = &list->found.parts;
    for (int64_t i = 0; i < p->classes_count; i++)
        TRY(ARRAY_ADD(r->classes, r->head.classes, "the index of a shard",
                      (RecordClass){p->classes[i], p->classes[i] ? list->named_by[i] : -1}));
    return OK;
}

static void record_write(const ShardList *list, Record *r, FILE *to)
{
    const IndexParts *p = &list->found.parts, *more = &r->more.parts;
    const uint8_t zeros[8] = {0};
    RecordHead *h = &r->head;
    h->strings = p->strings_bytes + more->strings_bytes;
    const struct {
        const void *bytes;
        size_t count;
    } pieces[] = {{p->samples, (size_t)p->samples_count * sizeof *p->samples},
                  {r->classes, (size_t)h->classes * sizeof *r->classes},
                  {r->skips, (size_t)h->skips * sizeof *r->skips},
                  {p->strings, p->strings_bytes},
                  {more->strings, more->strings_bytes},
                  {zeros, (8 - h->strings % 8) % 8}};
    XXH3_state_t *state = XXH3_createState();
    h->size = sizeof *h;
    if (state) XXH3_64bits_reset(state);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        h->size += pieces[i].count;
        if (state && pieces[i].count) XXH3_64bits_update(state, pieces[i].bytes, pieces[i].count);
    }
    h->sum = state ? XXH3_64bits_digest(state) : 0;
    XXH3_freeState(state);
    fwrite(h, sizeof *h, 1, to);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        if (pieces[i].count) fwrite(pieces[i].bytes, 1, pieces[i].count, to);
}

Status sidecar_print(const ShardList *list, ShardKind kind, const char *name, FILE *to)
{
    Status st = OK;
    Record r = {.head = {.version = VERSION, .kind = kind}};
    memcpy(r.head.magic, MAGIC, sizeof MAGIC);
    r.head.samples = list->found.parts.samples_count;
    r.head.note = list->found.parts.note;
    TRY_OUT(digest_find(list->path, &r.head));
    TRY_OUT(record_string(list, &r, name, &r.head.name));
    TRY_OUT(classes_put(list, &r));
    TRY_OUT(skips_put(list, &r));
    record_write(list, &r, to);
out:
    index_builder_free(&r.more);
    free(r.classes);
    free(r.skips);
    return st;
}

/* ---- stand-ins */

bool sidecar_look(const char *path, Sidecar *made)
{
    RecordHead head = {0};
    int fd = regular_open(path, O_RDONLY, NULL);
    if (fd < 0) return false;
    bool is = pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && sidecar_begins((const uint8_t *)head.magic);
    close(fd);
    *made = (Sidecar){.kind = (ShardKind)head.kind, .bytes = head.bytes, .samples = head.samples, .size = head.size};
    return is && is_kind(head.kind);
}

Status sidecar_list(ShardKind kind, ShardList *list)
{
    void *map;
    size_t size;
    Sidecar made;
    TRY(file_map(list->path, ERR_FORMAT, (size_t)RECORD_BYTES_MOST, &map, &size));
    Status st = sidecar_parse(list->path, map, size, &made, list);
    if (st == OK && (made.kind != kind || made.size != size))
        st = FAIL(ERR_FORMAT, "'%s' does not stand in for a shard of its kind", list->path);
    munmap(map, size);
    return st;
}
