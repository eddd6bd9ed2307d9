/* Lists the samples of a WebDataset tar; rules in shard.h. libarchive parses all variants of the format (GNU, pax,
 * long names); the data of a member begin where libarchive stands after its header. These are errors that name the
 * member: sparse members, links to other members, compressed members; a tar without its end is cut off and an error. */
#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <fcntl.h>
#include <jansson.h>
#include <strings.h>
#include <xxhash.h>

#include "kernels/base/array.h"
#include "towers/data/listing/endings.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/shards/shard.h"
#include "towers/files/files.h"

enum { BLOCK = 512, READ_BYTES = 4096, END_BYTES = 16384, CLS_BYTES = 64, JSON_BYTES = 1 << 20, SHOWN = 24, NEAR = 8 };

static const char *const packed_suffixes[] = {".gz", ".bz2", ".xz", ".zst", ".lz4"};

/* What a member is by the ending of its name: an image by its rank in image_endings, then the two kinds of labels. */
enum { CLS = IMAGE_ENDINGS_COUNT, JSON, WANTED, OTHER = WANTED };

typedef struct TarMember {
    uint64_t offset, bytes;
    size_t name, key; /* offset in Tar.names; bytes of its key in it, 0: it belongs to no sample */
    bool link;        /* to another member, or to a file */
    bool replaced;    /* by a later one of the same name */
} TarMember;

typedef struct Tar {
    ShardList *list;
    int fd;
    uint64_t size, end; /* of the file; of the last member */
    TarMember *members; /* owned, in the order of the tar */
    int64_t count;
    char *names; /* owned: all of them, each with its NUL */
    size_t names_bytes, names_room;
} Tar;

/* The members of one sample: those of [first, end) that are not replaced. */
typedef struct TarSample {
    int64_t first, end;
    const TarMember *of[WANTED]; /* those that are its image or its label; NULL: it has none of this ending */
    int image;                   /* the least that it has, OTHER: none */
    bool contradicts;            /* its .json has another label than its .cls */
    char key[PATH_BYTES];
} TarSample;

static const char *name_of(const Tar *t, const TarMember *m)
{
    return t->names + m->name;
}

/* ---- labels */

static Status cls_read(const Tar *t, const TarSample *sample, const TarMember *m, int64_t *label)
{
    char text[CLS_BYTES + 1] = "", *end;
    if (m->bytes > CLS_BYTES)
        return FAIL(ERR_FORMAT,
                    "'%s': sample '%s': its .cls at offset %" PRIu64 " has %" PRIu64
                    " bytes: expected a decimal number",
                    t->list->path, sample->key, m->offset, m->bytes);
    TRY(file_pread(t->fd, t->list->path, m->offset, text, (size_t)m->bytes));
    long long value = strtoll(text, &end, 10);
    bool number = end != text;
    while (isspace((unsigned char)*end)) end++;
    if (!number || (uint64_t)(end - text) != m->bytes)
        return FAIL(ERR_FORMAT, "'%s': sample '%s': its .cls at offset %" PRIu64 " is not a decimal number",
                    t->list->path, sample->key, m->offset);
    *label = value;
    return OK;
}

/* The label by the first of its keys; *differs: another key of the object with another number, or NULL. */
static const json_t *json_label(const json_t *root, const char **key, const char **differs)
{
    static const char *const keys[] = {"label", "cls", "class"};
    const json_t *label = NULL;
    *key = *differs = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(root, keys[i]);
        if (!label) label = value, *key = keys[i];
        if (json_is_integer(label) && json_is_integer(value) && !json_equal(label, value)) *differs = keys[i];
    }
    return label;
}

static Status json_read(const Tar *t, const TarSample *sample, const TarMember *m, int64_t *label)
{
    Status st = OK;
    json_error_t why = {.line = 0};
    const char *key, *differs;
    if (m->bytes > JSON_BYTES)
        return FAIL(ERR_FORMAT,
                    "'%s': sample '%s': its .json at offset %" PRIu64 " has %" PRIu64 " bytes: expected at most %d",
                    t->list->path, sample->key, m->offset, m->bytes, JSON_BYTES);
    char *text = malloc((size_t)m->bytes + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory for %" PRIu64 " bytes of JSON", m->bytes);
    json_t *root = NULL;
    TRY_OUT(file_pread(t->fd, t->list->path, m->offset, text, (size_t)m->bytes));
    root = json_loadb(text, (size_t)m->bytes, JSON_REJECT_DUPLICATES, &why);
    bool twice = !root && json_error_code(&why) == json_error_duplicate_key;
    const json_t *value = json_label(root, &key, &differs);
    if (!json_is_integer(value)) {
        st = FAIL(ERR_FORMAT,
                  "'%s': sample '%s': its .json at offset %" PRIu64 " %s: expected an object with an "
                  "integer \"label\" (or a .cls beside it)",
                  t->list->path, sample->key, m->offset,
                  twice   ? "has a key twice"
                  : !root ? "is not JSON"
                  : value ? "has a label that is not an integer"
                          : "has no label");
        goto out;
    }
    if (differs) {
        st = FAIL(ERR_FORMAT,
                  "'%s': sample '%s': its .json at offset %" PRIu64 " has two labels, \"%s\" %" JSON_INTEGER_FORMAT
                  " and \"%s\" %" JSON_INTEGER_FORMAT ": write the one that is meant into a .cls beside it",
                  t->list->path, sample->key, m->offset, key, json_integer_value(value), differs,
                  json_integer_value(json_object_get(root, differs)));
        goto out;
    }
    *label = json_integer_value(value);
out:
    json_decref(root);
    free(text);
    return st;
}

/* Whether a .json has another label than the .cls beside it, which decides. What else it may hold does not matter. */
static Status json_compare(const Tar *t, const TarMember *m, int64_t label, bool *contradicts)
{
    const char *key, *differs;
    *contradicts = false;
    if (m->bytes > JSON_BYTES) return OK;
    char *text = malloc((size_t)m->bytes + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory for %" PRIu64 " bytes of JSON", m->bytes);
    Status st = file_pread(t->fd, t->list->path, m->offset, text, (size_t)m->bytes);
    json_t *root = st == OK ? json_loadb(text, (size_t)m->bytes, 0, NULL) : NULL;
    const json_t *value = json_label(root, &key, &differs);
    *contradicts = json_is_integer(value) && json_integer_value(value) != label;
    json_decref(root);
    free(text);
    return st;
}

/* ---- names */

/* The length of the key of a name, or 0 if the library skips it: no dot, hidden, or meta data in "__...__". */
static size_t key_bytes(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    size_t first = strcspn(name, "/");
    bool meta = first >= 4 && !strncmp(name, "__", 2) && !strncmp(name + first - 2, "__", 2);
    return !dot || dot == base || meta ? 0 : (size_t)(dot - name);
}

/* By what follows the dot, in any case. */
static int rank_of(const char *suffix)
{
    for (int rank = 0; rank < IMAGE_ENDINGS_COUNT; rank++)
        if (!strcasecmp(suffix, image_endings[rank] + 1)) return rank;
    return !strcasecmp(suffix, "cls") ? CLS : !strcasecmp(suffix, "json") ? JSON : OTHER;
}

static const char *suffix_of(const Tar *t, const TarMember *m)
{
    return name_of(t, m) + m->key + 1;
}

/* "v2.0001.jpg": an image or a label by its last ending, but not by its suffix. */
static int dotted_rank(const Tar *t, const TarMember *m)
{
    const char *dot = strrchr(suffix_of(t, m), '.');
    return dot ? rank_of(dot + 1) : OTHER;
}

/* The suffix of a compressed image or label: "jpg.gz". */
static bool is_packed(const char *suffix)
{
    char inner[16];
    const char *dot = strrchr(suffix, '.');
    if (!dot || (size_t)(dot - suffix) >= sizeof inner) return false;
    snprintf(inner, sizeof inner, "%.*s", (int)(dot - suffix), suffix);
    for (size_t i = 0; i < sizeof packed_suffixes / sizeof *packed_suffixes; i++)
        if (!strcasecmp(dot, packed_suffixes[i]) && rank_of(inner) != OTHER) return true;
    return false;
}

/* ---- samples */

static Status sparse_refuse(const Tar *t, const char *name, uint64_t offset)
{
    return FAIL(ERR_FORMAT, "'%s': member '%s' at offset %" PRIu64 " is stored sparse: write the tar without --sparse",
                t->list->path, name, offset);
}

/* The data of an ordinary member follow its header, whose size is that of the member. */
static Status member_check(const Tar *t, const TarMember *m)
{
    char head[BLOCK], size[13] = "";
    const char *name = name_of(t, m);
    if (m->link)
        return FAIL(ERR_FORMAT,
                    "'%s': member '%s' at offset %" PRIu64 " is a link: write the tar with copies instead "
                    "(tar --hard-dereference --dereference)",
                    t->list->path, name, m->offset);
    TRY(file_pread(t->fd, t->list->path, m->offset - BLOCK, head, sizeof head));
    memcpy(size, head + 124, 12);
    if (head[156] != '0' && head[156] && head[156] != '7') return sparse_refuse(t, name, m->offset);
    bool octal = !(head[124] & 0x80);
    return octal && strtoull(size, NULL, 8) != m->bytes ? sparse_refuse(t, name, m->offset) : OK;
}

static Status member_skip(Tar *t, SkipReason why, const TarMember *m)
{
    return skips_add(&t->list->skips, why, NULL, t->list->path, name_of(t, m));
}

/* Find the image and the labels of a sample among its members. */
static Status sample_fill(const Tar *t, TarSample *sample)
{
    sample->image = OTHER;
    for (int64_t i = sample->first; i < sample->end; i++) {
        const TarMember *m = &t->members[i];
        const char *suffix = suffix_of(t, m);
        int rank = rank_of(suffix);
        if (m->replaced) continue;
        if (is_packed(suffix))
            return FAIL(ERR_FORMAT,
                        "'%s': member '%s' at offset %" PRIu64 " is compressed: unpack the members before they "
                        "are written into the tar",
                        t->list->path, name_of(t, m), m->offset);
        if (rank == OTHER) continue;
        if (sample->of[rank])
            return FAIL(ERR_FORMAT,
                        "'%s': sample '%s' has two members .%s, '%s' and '%s': give each sample a name of its own",
                        t->list->path, sample->key, suffix, name_of(t, sample->of[rank]), name_of(t, m));
        TRY(member_check(t, m));
        sample->of[rank] = m;
        if (rank < IMAGE_ENDINGS_COUNT && rank < sample->image) sample->image = rank;
    }
    return OK;
}

/* Whether an image or label with further dots has its counterpart beside it, so that the two were meant as a sample:
 * "photo.v2.jpg" and "photo.v2.cls", but not the mask "photo.seg.png" of "photo.jpg". */
static bool is_dotted_pair(const Tar *t, const TarSample *sample, int64_t at)
{
    const char *suffix = suffix_of(t, &t->members[at]);
    size_t stem = (size_t)(strrchr(suffix, '.') - suffix) + 1;
    bool image = dotted_rank(t, &t->members[at]) < IMAGE_ENDINGS_COUNT;
    int64_t first = at - NEAR > sample->first ? at - NEAR : sample->first;
    for (int64_t i = first; i < sample->end && i <= at + NEAR; i++) {
        const TarMember *m = &t->members[i];
        int rank = dotted_rank(t, m);
        if (!m->replaced && rank != OTHER && (rank < IMAGE_ENDINGS_COUNT) != image &&
            !strncmp(suffix_of(t, m), suffix, stem))
            return true;
    }
    return false;
}

/* Count the members that are not used. A sample without an image and a label of its own, as README.md, is none. */
static Status sample_rest(Tar *t, const TarSample *sample, bool used)
{
    int label = sample->of[CLS] ? CLS : JSON;
    for (int64_t i = sample->first; i < sample->end; i++) {
        const TarMember *m = &t->members[i];
        if (m->replaced || (used && (m == sample->of[sample->image] || m == sample->of[label]))) continue;
        bool meant = rank_of(suffix_of(t, m)) == OTHER && dotted_rank(t, m) != OTHER;
        bool ungrouped = meant && (!used || is_dotted_pair(t, sample, i)),
             contradicts = sample->contradicts && m == sample->of[JSON];
        if (contradicts) TRY(member_skip(t, SKIP_LABEL, m));
        TRY(member_skip(t, ungrouped ? SKIP_UNGROUPED : SKIP_MEMBER, m));
    }
    return OK;
}

static Status sample_incomplete(const Tar *t, const TarSample *sample)
{
    char has[SHOWN * 64];
    Text members = text_start(has, sizeof has);
    int shown = 0;
    for (int64_t i = sample->first; i < sample->end && shown < SHOWN; i++)
        if (!t->members[i].replaced) text_add(&members, " .%.60s", suffix_of(t, &t->members[i])), shown++;
    return FAIL(ERR_FORMAT,
                "'%s': sample '%s' has no %s: its members are%s (the members of a sample must be next to each other: "
                "tar --sort=name)",
                t->list->path, sample->key,
                sample->image == OTHER ? "image (" IMAGE_ENDINGS ")" : "label (.cls or .json)", has);
}

static Status sample_take(Tar *t, int64_t first, int64_t end)
{
    TarSample sample = {.first = first, .end = end};
    const TarMember *one = &t->members[first];
    char where[PATH_BYTES + 32];
    int64_t label = 0;
    if (one->key >= sizeof sample.key)
        return FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": a member's name of %zu bytes: expected less than %zu",
                    t->list->path, one->offset, strlen(name_of(t, one)), sizeof sample.key);
    memcpy(sample.key, name_of(t, one), one->key);
    TRY(sample_fill(t, &sample));
    const TarMember *cls = sample.of[CLS], *json = sample.of[JSON];
    if (sample.image == OTHER && !cls && !json) return sample_rest(t, &sample, false);
    if (sample.image == OTHER || (!cls && !json)) return sample_incomplete(t, &sample);
    const TarMember *image = sample.of[sample.image];
    TRY(cls ? cls_read(t, &sample, cls, &label) : json_read(t, &sample, json, &label));
    if (cls && json) TRY(json_compare(t, json, label, &sample.contradicts));
    TRY(sample_rest(t, &sample, true));
    snprintf(where, sizeof where, "sample '%s'", sample.key);
    return shard_add(t->list, where, image->offset, image->bytes, label, 0, name_of(t, image));
}

/* Consecutive members with one key are a sample. */
static Status samples_take(Tar *t)
{
    int64_t end;
    for (int64_t i = 0; i < t->count; i = end) {
        const TarMember *m = &t->members[i];
        end = i + 1;
        if (m->replaced) continue;
        if (!m->key) {
            TRY(member_skip(t, SKIP_MEMBER, m));
            continue;
        }
        while (end < t->count &&
               (t->members[end].replaced ||
                (t->members[end].key == m->key && !memcmp(name_of(t, &t->members[end]), name_of(t, m), m->key))))
            end++;
        TRY(sample_take(t, i, end));
    }
    return OK;
}

/* ---- members with one name */

typedef struct NameHash {
    uint64_t hash;
    int64_t member;
} NameHash;

static int by_hash(const void *a, const void *b)
{
    const NameHash *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->member > y->member) - (x->member < y->member);
}

/* A name as tar unpacks it. */
static const char *plain_name(const Tar *t, const TarMember *m)
{
    const char *name = name_of(t, m);
    while (!strncmp(name, "./", 2)) name += 2;
    return name;
}

/* A file that tar unpacks has the content of the last member with its name, as after `tar -r`; it stays at the place of the
 * first one, beside the others of its sample. */
static Status names_unite(Tar *t)
{
    NameHash *hashes = malloc((size_t)(t->count + 1) * sizeof *hashes);
    Status st = OK;
    if (!hashes) return FAIL(ERR_MEMORY, "no memory for the names of %" PRId64 " members", t->count);
    for (int64_t i = 0; i < t->count; i++) {
        const char *name = plain_name(t, &t->members[i]);
        hashes[i] = (NameHash){XXH3_64bits(name, strlen(name)), i};
    }
    qsort(hashes, (size_t)t->count, sizeof *hashes, by_hash);
    for (int64_t i = 1, first = 0; i < t->count; i++) {
        TarMember *of = &t->members[hashes[first].member], *later = &t->members[hashes[i].member];
        if (hashes[i].hash != hashes[first].hash || strcmp(plain_name(t, of), plain_name(t, later)) != 0) {
            first = i;
            continue;
        }
        of->offset = later->offset;
        of->bytes = later->bytes;
        of->link = later->link;
        later->replaced = true;
    }
    for (int64_t i = 0; i < t->count; i++)
        if (t->members[i].replaced) TRY_OUT(member_skip(t, SKIP_REPLACED, &t->members[i]));
out:
    free(hashes);
    return st;
}

/* ---- the file */

/* A tar ends with blocks of zeros, which writers fill up to 10 KiB or as far as their options say; other bytes behind them
 * are a second tar. */
static Status end_check(const Tar *t)
{
    char bytes[END_BYTES];
    uint64_t rest = t->size > t->end ? t->size - t->end : 0;
    if (rest < BLOCK)
        return FAIL(ERR_FORMAT,
                    "'%s' ends at offset %" PRIu64 " without the blocks of zeros that close a tar: it is cut "
                    "off",
                    t->list->path, t->size);
    for (uint64_t at = t->end; at < t->size; at += sizeof bytes) {
        size_t count = t->size - at < sizeof bytes ? (size_t)(t->size - at) : sizeof bytes;
        TRY(file_pread(t->fd, t->list->path, at, bytes, count));
        for (size_t i = 0; i < count; i++)
            if (bytes[i])
                return FAIL(ERR_FORMAT,
                            "'%s': offset %" PRIu64 ": expected zeros after the end of the tar, found other bytes "
                            "(concatenated tars are not supported)",
                            t->list->path, at + i);
    }
    return OK;
}

/* libarchive has no message where its first allocations fail. */
static bool lacks_memory(struct archive *archive)
{
    return archive_errno(archive) == ENOMEM || !archive_error_string(archive) ||
           strstr(archive_error_string(archive), "No formats registered");
}

static Status archive_refuse(const char *path, struct archive *archive)
{
    if (lacks_memory(archive)) return FAIL(ERR_MEMORY, "no memory to list '%s'", path);
    return FAIL(ERR_FORMAT, "'%s': expected a tar: %s", path, archive_error_string(archive));
}

/* Note a member that may be part of a sample; folders and devices are none. */
static Status member_note(Tar *t, const char *name, struct archive_entry *entry, TarMember *m)
{
    mode_t type = archive_entry_filetype(entry);
    const char *leftover = leftover_in(name);
    size_t bytes = strlen(name) + 1;
    m->link = archive_entry_hardlink(entry) != NULL || type == AE_IFLNK;
    if (type != AE_IFREG && !m->link) return OK;
    if (leftover) return skips_add(&t->list->skips, SKIP_FOREIGN, leftover, t->list->path, name);
    TRY(array_reserve(&t->names, &t->names_room, t->names_bytes + bytes, 1, "the names of members"));
    memcpy(t->names + t->names_bytes, name, bytes);
    m->name = t->names_bytes;
    m->key = key_bytes(name);
    t->names_bytes += bytes;
    return ARRAY_ADD(t->members, t->count, "the members of a tar", *m);
}

/* `entry` is the caller's, and is filled for one member after the other. */
static Status members_read(Tar *t, struct archive *archive, struct archive_entry *entry)
{
    int code;
    while ((code = archive_read_next_header2(archive, entry)) == ARCHIVE_OK || code == ARCHIVE_WARN) {
        const char *name = archive_entry_pathname(entry);
        TarMember m = {.offset = (uint64_t)archive_filter_bytes(archive, 0),
                       .bytes = (uint64_t)archive_entry_size(entry)};
        if (archive_entry_size(entry) < 0 || archive_filter_bytes(archive, 0) < BLOCK)
            return FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": a member of negative size", t->list->path, t->end);
        if (archive_entry_sparse_count(entry) > 0) return sparse_refuse(t, name ? name : "", m.offset);
        if (m.bytes > t->size || m.offset > t->size - m.bytes)
            return FAIL(ERR_FORMAT,
                        "'%s': member '%s' at offset %" PRIu64 " has %" PRIu64 " bytes, but the file ends at "
                        "%" PRIu64 ": it is cut off",
                        t->list->path, name ? name : "", m.offset, m.bytes, t->size);
        t->end = (m.offset + m.bytes + BLOCK - 1) / BLOCK * BLOCK;
        if (!name)
            return FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": a member without a readable name", t->list->path,
                        m.offset);
        TRY(member_note(t, name, entry, &m));
    }
    if (code != ARCHIVE_EOF && lacks_memory(archive)) return archive_refuse(t->list->path, archive);
    if (code != ARCHIVE_EOF)
        return FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": expected a member of a tar, found damage (%s)",
                    t->list->path, t->end, archive_error_string(archive));
    TRY(end_check(t));
    TRY(names_unite(t));
    return samples_take(t);
}

Status tar_list(ShardList *list)
{
    Status st = OK;
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), before = uselocale((locale_t)0);
    struct archive *archive = archive_read_new();
    struct archive_entry *entry = archive_entry_new();
    Tar *t = calloc(1, sizeof *t);
    if (!archive || !entry || !t) {
        st = FAIL(ERR_MEMORY, "no memory for the reader of '%s'", list->path);
        goto out;
    }
    t->list = list;
    t->fd = -1;
    if (utf8) uselocale(utf8); /* names stay UTF-8, whatever the user's locale is */
    TRY_OUT(file_open(list->path, OF_USER, ERR_FORMAT, UINT64_MAX, &t->fd, &t->size));
    (void)posix_fadvise(t->fd, 0, 0, POSIX_FADV_RANDOM); /* only headers and labels are read */
    if (t->size == 0)
        st = FAIL(ERR_FORMAT, "'%s' is empty: expected a tar", list->path);
    else if (archive_read_support_format_tar(archive) != ARCHIVE_OK ||
             archive_read_set_callback_data(archive, NULL) != ARCHIVE_OK || /* else the next, unchecked, allocates it */
             archive_read_open_fd(archive, t->fd, READ_BYTES) != ARCHIVE_OK)
        st = archive_refuse(list->path, archive);
    else
        st = members_read(t, archive, entry);
out:
    archive_entry_free(entry);
    archive_read_free(archive);
    if (t && t->fd >= 0) close(t->fd);
    if (t) free(t->members);
    if (t) free(t->names);
    free(t);
    uselocale(before);
    if (utf8) freelocale(utf8);
    return st;
}
