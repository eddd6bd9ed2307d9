/* Lists the samples of a WebDataset tar; rules in shard.h. libarchive parses all variants of the format (GNU, pax,
 * long names); the data of a member begin where libarchive stands after its header. These are errors that name the
 * member: sparse members, links to other members, compressed members; a tar without its end is cut off and an error. */
#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <fcntl.h>
#include <jansson.h>
#include <strings.h>

#include "towers/data/sources/endings.h"
#include "towers/data/sources/shard.h"
#include "towers/files/files.h"

enum {
    BLOCK = 512,
    READ_BYTES = 4096,
    END_BYTES = 16384,
    CLS_BYTES = 64,
    JSON_BYTES = 1 << 20,
    SUFFIXES = 24,
    SUFFIX_BYTES = 64
};

static const char *const packed_suffixes[] = {".gz", ".bz2", ".xz", ".zst", ".lz4"};
enum { NO_IMAGE = IMAGE_ENDINGS_COUNT };

typedef struct TarMember {
    uint64_t offset, bytes;
} TarMember;

/* The sample whose members are being read. */
typedef struct TarSample {
    char key[PATH_BYTES];
    char suffix[SUFFIXES][SUFFIX_BYTES];
    int suffixes;
    int image_rank; /* index into image_endings, or NO_IMAGE */
    char image_name[PATH_BYTES];
    TarMember image, cls, json;
    bool has_cls, has_json;
} TarSample;

typedef struct Tar {
    ShardList *list;
    int fd;
    uint64_t size, end; /* of the file; of the last member */
    TarSample group;
} Tar;

/* ---- labels */

static Status cls_read(const Tar *t, const TarMember *m, int64_t *label)
{
    char text[CLS_BYTES + 1] = "", *end;
    if (m->bytes > CLS_BYTES)
        return FAIL(ERR_FORMAT,
                    "'%s': sample '%s': its .cls at offset %" PRIu64 " has %" PRIu64
                    " bytes: expected a decimal number",
                    t->list->path, t->group.key, m->offset, m->bytes);
    TRY(shard_pread(t->fd, t->list->path, m->offset, text, (size_t)m->bytes));
    long long value = strtoll(text, &end, 10);
    bool number = end != text;
    while (isspace((unsigned char)*end)) end++;
    if (!number || (uint64_t)(end - text) != m->bytes)
        return FAIL(ERR_FORMAT, "'%s': sample '%s': its .cls at offset %" PRIu64 " is not a decimal number",
                    t->list->path, t->group.key, m->offset);
    *label = value;
    return OK;
}

static Status json_read(const Tar *t, const TarMember *m, int64_t *label)
{
    static const char *const keys[] = {"label", "cls", "class"};
    Status st = OK;
    json_error_t why;
    if (m->bytes > JSON_BYTES)
        return FAIL(ERR_FORMAT,
                    "'%s': sample '%s': its .json at offset %" PRIu64 " has %" PRIu64 " bytes: expected at most %d",
                    t->list->path, t->group.key, m->offset, m->bytes, JSON_BYTES);
    char *text = malloc((size_t)m->bytes + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory for %" PRIu64 " bytes of JSON", m->bytes);
    json_t *root = NULL, *value = NULL;
    TRY_OUT(shard_pread(t->fd, t->list->path, m->offset, text, (size_t)m->bytes));
    root = json_loadb(text, (size_t)m->bytes, 0, &why);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !value; i++) value = json_object_get(root, keys[i]);
    if (!json_is_integer(value)) {
        st = FAIL(ERR_FORMAT,
                  "'%s': sample '%s': its .json at offset %" PRIu64 " %s: expected an object with an "
                  "integer \"label\" (or a .cls beside it)",
                  t->list->path, t->group.key, m->offset,
                  !root   ? "is not JSON"
                  : value ? "has a label that is not an integer"
                          : "has no label");
        goto out;
    }
    *label = json_integer_value(value);
out:
    json_decref(root);
    free(text);
    return st;
}

/* ---- samples */

static Status group_finish(Tar *t)
{
    TarSample *g = &t->group;
    char where[PATH_BYTES + 32], has[SUFFIXES * (SUFFIX_BYTES + 2)] = "";
    int64_t label = 0;
    bool labeled = g->has_cls || g->has_json;
    if (!g->suffixes || (g->image_rank == NO_IMAGE && !labeled)) return OK; /* as README.md */
    if (g->image_rank == NO_IMAGE || !labeled) {
        Text members = text_start(has, sizeof has);
        for (int i = 0; i < g->suffixes; i++) text_add(&members, " .%s", g->suffix[i]);
        return FAIL(ERR_FORMAT,
                    "'%s': sample '%s' has no %s: its members are%s (the members of a sample must be next "
                    "to each other: tar --sort=name)",
                    t->list->path, g->key,
                    g->image_rank == NO_IMAGE ? "image (" IMAGE_ENDINGS ")" : "label (.cls or .json)", has);
    }
    TRY(g->has_cls ? cls_read(t, &g->cls, &label) : json_read(t, &g->json, &label));
    snprintf(where, sizeof where, "sample '%s'", g->key);
    return shard_add(t->list, where, g->image.offset, g->image.bytes, label, 0, g->image_name);
}

/* The length of the key of a name, or 0 if the library skips it: no dot, hidden, or meta data in "__...__". */
static size_t key_bytes(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    size_t first = strcspn(name, "/");
    bool meta = first >= 4 && !strncmp(name, "__", 2) && !strncmp(name + first - 2, "__", 2);
    return !dot || dot == base || meta ? 0 : (size_t)(dot - name);
}

static bool is_wanted(const char *suffix, int *rank)
{
    for (*rank = 0; *rank < IMAGE_ENDINGS_COUNT; ++*rank)
        if (!strcmp(suffix, image_endings[*rank] + 1)) return true;
    return !strcmp(suffix, "cls") || !strcmp(suffix, "json");
}

/* The suffix of a compressed image or label: "jpg.gz". */
static bool is_packed(const char *suffix)
{
    char inner[SUFFIX_BYTES];
    int rank;
    const char *dot = strrchr(suffix, '.');
    for (size_t i = 0; dot && i < sizeof packed_suffixes / sizeof *packed_suffixes; i++) {
        snprintf(inner, sizeof inner, "%.*s", (int)(dot - suffix), suffix);
        if (!strcmp(dot, packed_suffixes[i]) && is_wanted(inner, &rank)) return true;
    }
    return false;
}

static Status sparse_refuse(const Tar *t, const char *name, uint64_t offset)
{
    return FAIL(ERR_FORMAT, "'%s': member '%s' at offset %" PRIu64 " is stored sparse: write the tar without --sparse",
                t->list->path, name, offset);
}

/* The data of an ordinary member follow its header, whose size is that of the member. */
static Status member_check(const Tar *t, const char *name, struct archive_entry *entry, const TarMember *m)
{
    char head[BLOCK], size[13] = "";
    if (archive_entry_hardlink(entry) || archive_entry_filetype(entry) != AE_IFREG)
        return FAIL(ERR_FORMAT,
                    "'%s': member '%s' at offset %" PRIu64 " is a link: write the tar with copies instead "
                    "(tar --hard-dereference --dereference)",
                    t->list->path, name, m->offset);
    TRY(shard_pread(t->fd, t->list->path, m->offset - BLOCK, head, sizeof head));
    memcpy(size, head + 124, 12);
    if (head[156] != '0' && head[156] && head[156] != '7') return sparse_refuse(t, name, m->offset);
    bool octal = !(head[124] & 0x80);
    return octal && strtoull(size, NULL, 8) != m->bytes ? sparse_refuse(t, name, m->offset) : OK;
}

static Status suffix_note(Tar *t, const char *name, const char *suffix)
{
    TarSample *g = &t->group;
    for (int i = 0; i < g->suffixes; i++)
        if (!strcmp(g->suffix[i], suffix))
            return FAIL(ERR_FORMAT,
                        "'%s': sample '%s' has two members .%s, the second is '%s': give each sample a "
                        "name of its own",
                        t->list->path, g->key, suffix, name);
    if (g->suffixes < SUFFIXES) snprintf(g->suffix[g->suffixes++], SUFFIX_BYTES, "%s", suffix);
    return OK;
}

static Status member_take(Tar *t, const char *name, struct archive_entry *entry, const TarMember *m)
{
    TarSample *g = &t->group;
    char suffix[SUFFIX_BYTES];
    int rank;
    size_t key = key_bytes(name);
    mode_t type = archive_entry_filetype(entry);
    bool link = archive_entry_hardlink(entry) != NULL || type == AE_IFLNK;
    if (!key || (type != AE_IFREG && !link)) return OK;
    if (key >= sizeof g->key)
        return FAIL(ERR_FORMAT,
                    "'%s': offset %" PRIu64 ": a member's name of %zu bytes: expected "
                    "less than %zu",
                    t->list->path, m->offset, strlen(name), sizeof g->key);
    if (strlen(g->key) != key || memcmp(g->key, name, key) != 0 || !g->suffixes) {
        TRY(group_finish(t));
        g->suffixes = 0;
        g->image_rank = NO_IMAGE;
        g->has_cls = g->has_json = false;
        memcpy(g->key, name, key);
        g->key[key] = 0;
    }
    snprintf(suffix, sizeof suffix, "%s", name + key + 1);
    for (char *at = suffix; *at; at++) *at = (char)tolower((unsigned char)*at);
    if (is_packed(suffix))
        return FAIL(ERR_FORMAT,
                    "'%s': member '%s' at offset %" PRIu64 " is compressed: unpack the members before they "
                    "are written into the tar",
                    t->list->path, name, m->offset);
    bool wanted = is_wanted(suffix, &rank);
    if (!wanted && (link || strlen(name + key + 1) >= sizeof suffix)) return OK;
    TRY(suffix_note(t, name, suffix));
    if (!wanted) return OK;
    TRY(member_check(t, name, entry, m));
    if (rank < g->image_rank) {
        g->image_rank = rank;
        g->image = *m;
        snprintf(g->image_name, sizeof g->image_name, "%s", name);
    }
    if (!strcmp(suffix, "cls")) g->cls = *m, g->has_cls = true;
    if (!strcmp(suffix, "json")) g->json = *m, g->has_json = true;
    return OK;
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
        TRY(shard_pread(t->fd, t->list->path, at, bytes, count));
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
        TRY(member_take(t, name, entry, &m));
    }
    if (code != ARCHIVE_EOF && lacks_memory(archive)) return archive_refuse(t->list->path, archive);
    if (code != ARCHIVE_EOF)
        return FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": expected a member of a tar, found damage (%s)",
                    t->list->path, t->end, archive_error_string(archive));
    TRY(end_check(t));
    return group_finish(t);
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
    free(t);
    uselocale(before);
    if (utf8) freelocale(utf8);
    return st;
}
