/* Reads IDX files, plain or gzip, from a file or from memory, and serves a pair of them as a Source; format in idx.h.
 * Every error names file, offset, the expected and the found value. Offsets count decompressed bytes, unless a message
 * says "compressed". */
#include "towers/data/sources/idx.h"

#include <dirent.h>
#include <limits.h>
#include <xxhash.h>
#include <zlib.h>

#include "towers/data/classes/class_names.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/sources/reader.h"
#include "towers/files/files.h"
#include "towers/files/utf8.h"

enum { STREAM_BYTES = 1 << 16, DEFLATE_RATIO_MAX = 1032, GZIP_WINDOW = 16 + MAX_WBITS };

/* ---- a stream of bytes: file or memory, plain or through inflate */

typedef struct Stream {
    const char *name;
    int fd;             /* -1: memory */
    uint64_t raw_bytes; /* of the file or memory block */
    uint64_t raw_used;
    const uint8_t *next; /* raw bytes available */
    size_t left;
    uint64_t offset;  /* decompressed bytes returned */
    bool gzip, ended; /* `ended`: the gzip stream is complete and its checksum is right */
    z_stream z;
    uint8_t buffer[STREAM_BYTES];
} Stream;

/* Make at least one raw byte available; left == 0 at the end. */
static Status stream_fill(Stream *s)
{
    if (s->left > 0 || s->fd < 0) return OK;
    ssize_t got;
    do got = read(s->fd, s->buffer, sizeof s->buffer);
    while (got < 0 && errno == EINTR);
    if (got < 0) return FAIL(ERR_IO, "reading '%s' at byte %" PRIu64 ": %s", s->name, s->raw_used, strerror(errno));
    s->next = s->buffer;
    s->left = (size_t)got;
    return OK;
}

static void stream_use(Stream *s, size_t bytes)
{
    s->next += bytes;
    s->left -= bytes;
    s->raw_used += bytes;
}

static Status read_plain(Stream *s, uint8_t *to, size_t want, size_t *got)
{
    size_t done = 0;
    while (done < want) {
        TRY(stream_fill(s));
        if (s->left == 0) break;
        size_t part = s->left < want - done ? s->left : want - done;
        memcpy(to + done, s->next, part);
        stream_use(s, part);
        done += part;
    }
    *got = done;
    return OK;
}

static Status inflate_some(Stream *s, uint8_t *to, size_t room, size_t *got)
{
    TRY(stream_fill(s));
    if (s->left == 0)
        return FAIL(ERR_FORMAT, "'%s': the gzip stream ends too early, at compressed byte %" PRIu64, s->name,
                    s->raw_used);
    uInt in = s->left < UINT_MAX ? (uInt)s->left : UINT_MAX, out = room < UINT_MAX ? (uInt)room : UINT_MAX;
    s->z.next_in = (Bytef *)(uintptr_t)s->next;
    s->z.avail_in = in;
    s->z.next_out = to;
    s->z.avail_out = out;
    int code = inflate(&s->z, Z_NO_FLUSH);
    stream_use(s, in - s->z.avail_in);
    *got = out - s->z.avail_out;
    s->ended = code == Z_STREAM_END;
    if (code == Z_MEM_ERROR) return FAIL(ERR_MEMORY, "no memory to inflate '%s'", s->name);
    if (code != Z_OK && code != Z_STREAM_END)
        return FAIL(ERR_FORMAT, "'%s': corrupt gzip data near compressed byte %" PRIu64 ": %s", s->name, s->raw_used,
                    s->z.msg ? s->z.msg : zError(code));
    return OK;
}

/* A gzip file may be several streams, one behind another (RFC 1952, section 2.2), as bgzip and cat write them. */
static Status next_begin(Stream *s)
{
    TRY(stream_fill(s));
    if (s->left == 0 || s->next[0] != 0x1f) return OK;
    s->ended = inflateReset(&s->z) != Z_OK;
    return OK;
}

static Status read_gzip(Stream *s, uint8_t *to, size_t want, size_t *got)
{
    size_t done = 0;
    while (done < want) {
        size_t part = 0;
        if (s->ended) TRY(next_begin(s));
        if (s->ended) break;
        TRY(inflate_some(s, to + done, want - done, &part));
        done += part;
    }
    *got = done;
    return OK;
}

/* *got < want only at the end of the data. */
static Status stream_read(Stream *s, uint8_t *to, size_t want, size_t *got)
{
    TRY(s->gzip ? read_gzip(s, to, want, got) : read_plain(s, to, want, got));
    s->offset += *got;
    return OK;
}

static Status stream_read_all(Stream *s, uint8_t *to, size_t want)
{
    uint64_t start = s->offset;
    size_t got = 0;
    TRY(stream_read(s, to, want, &got));
    if (got < want)
        return FAIL(ERR_FORMAT,
                    "'%s' ends at offset %" PRIu64 ": expected %zu bytes from offset %" PRIu64 " on, found %zu",
                    s->name, s->offset, want, start, got);
    return OK;
}

/* ---- one IDX file */

static const char *kind_of(int dimensions)
{
    return dimensions == IDX_LABELS ? "labels" : "images";
}

static uint32_t big_endian(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static Status read_sizes(Stream *s, int dimensions, int64_t size[IDX_COLOR])
{
    static const char *const what[IDX_COLOR] = {"a number of records", "rows", "columns", "channels"};
    static const int64_t most[IDX_COLOR] = {IDX_COUNT_MAX, IDX_SIDE_MAX, IDX_SIDE_MAX, 3};
    uint8_t raw[4 * IDX_COLOR] = {0};
    TRY(stream_read_all(s, raw, (size_t)dimensions * 4));
    for (int i = 0; i < IDX_COLOR; i++) {
        size[i] = i < dimensions ? (int64_t)big_endian(raw + 4 * i) : 1;
        if (size[i] < 1 || size[i] > most[i])
            return FAIL(ERR_FORMAT, "'%s': offset %d: expected %s from 1 to %" PRId64 ", found %" PRId64, s->name,
                        4 + 4 * i, what[i], most[i], size[i]);
    }
    if (size[3] == 2) return FAIL(ERR_FORMAT, "'%s': offset 16: expected 1 or 3 channels, found 2", s->name);
    return OK;
}

static Status parse_source(Stream *s, int dimensions, Idx *made)
{
    Status st = OK;
    Idx idx = {0};
    TRY_OUT(stream_fill(s));
    s->gzip = s->left >= 2 && s->next[0] == 0x1f && s->next[1] == 0x8b;
    if (s->gzip && inflateInit2(&s->z, GZIP_WINDOW) != Z_OK)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory to inflate '%s'", s->name));
    uint8_t raw[4] = {0};
    TRY_OUT(stream_read_all(s, raw, sizeof raw));
    uint32_t wanted = 0x0800u + (uint32_t)dimensions, found = big_endian(raw);
    bool color = dimensions == IDX_IMAGES && found == 0x0800u + IDX_COLOR;
    if (found != wanted && !color)
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': offset 0: expected magic 0x%08x%s (IDX, unsigned bytes, %s), found 0x%08x",
                     s->name, wanted, dimensions == IDX_IMAGES ? " or 0x00000804" : "", kind_of(dimensions), found));
    TRY_OUT(read_sizes(s, color ? IDX_COLOR : dimensions, idx.size));
    size_t points = (size_t)(idx.size[0] * idx.size[1] * idx.size[2]); /* < 2^63 by the limits on the sizes */
    if (__builtin_mul_overflow(points, (size_t)idx.size[3], &idx.bytes))
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': the header declares %zu pixels of %" PRId64 " bytes, more than any memory has",
                     s->name, points, idx.size[3]));
    /* Check the size in the header: a plain file must have exactly that size, and deflate cannot expand by more than
     * DEFLATE_RATIO_MAX. */
    if (!s->gzip && s->raw_bytes - s->offset != idx.bytes)
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': the header declares %zu bytes from offset %" PRIu64 " on, found %" PRIu64,
                     s->name, idx.bytes, s->offset, s->raw_bytes - s->offset));
    if (s->gzip && idx.bytes / DEFLATE_RATIO_MAX > s->raw_bytes)
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': the header declares %zu bytes, more than %" PRIu64 " compressed bytes can hold",
                     s->name, idx.bytes, s->raw_bytes));
    idx.data = malloc(idx.bytes);
    if (!idx.data)
        TRY_OUT(FAIL(ERR_MEMORY, "'%s': no memory for %zu bytes of %s", s->name, idx.bytes, kind_of(dimensions)));
    TRY_OUT(stream_read_all(s, idx.data, idx.bytes));
    uint8_t extra;
    size_t got = 0;
    TRY_OUT(stream_read(s, &extra, 1, &got));
    if (got > 0)
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": expected the end of the file, found more bytes", s->name,
                     s->offset - 1));
    TRY_OUT(stream_fill(s));
    if (s->left > 0)
        TRY_OUT(FAIL(ERR_FORMAT, "'%s': compressed byte %" PRIu64 ": expected the end of the file, found more bytes",
                     s->name, s->raw_used));
    *made = idx;
    idx.data = NULL;
out:
    idx_free(&idx);
    if (s->gzip) inflateEnd(&s->z);
    return st;
}

Status idx_parse(const char *name, const uint8_t *bytes, size_t size, int dimensions, Idx *made)
{
    Stream source;
    memset(&source, 0, offsetof(Stream, buffer));
    source.name = name;
    source.fd = -1;
    source.raw_bytes = size;
    source.next = bytes;
    source.left = size;
    TRY(parse_source(&source, dimensions, made));
    return OK;
}

static Status idx_load(const char *path, int dimensions, Idx *made)
{
    Status st = OK;
    Stream source;
    memset(&source, 0, offsetof(Stream, buffer));
    source.name = path;
    TRY(file_open(path, OF_USER, ERR_FORMAT, UINT64_MAX, &source.fd, &source.raw_bytes));
    TRY_OUT(parse_source(&source, dimensions, made));
out:
    close(source.fd);
    return st;
}

void idx_free(Idx *idx)
{
    free(idx->data);
    idx->data = NULL;
}

/* ---- a pair of IDX files as a data set */

typedef struct IdxSource {
    Source base;
    Idx images, labels;
    Names names;
    Skips skips;
    char *path; /* owned: of the images */
} IdxSource;

typedef struct Pair {
    char folder[PATH_MAX], images[PATH_MAX], labels[PATH_MAX];
} Pair;

static const char *const split_names[] = {[SPLIT_TRAIN] = "train", [SPLIT_VAL] = "t10k", [SPLIT_TEST] = "t10k"};

static const char *const fashion_names[IDX_CLASSES] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                       "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

static Status read_sample(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const IdxSource *d = (const IdxSource *)source;
    const int64_t *size = d->images.size;
    const uint8_t *pixels = d->images.data + (size_t)(index * size[1] * size[2] * size[3]);
    *label = d->labels.data[index];
    return bytes_raw(bytes, pixels, (int32_t)size[1], (int32_t)size[2], (int32_t)size[3]);
}

static int32_t label_of(const Source *source, int64_t index)
{
    return ((const IdxSource *)source)->labels.data[index];
}

static void say_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s, record %" PRId64, ((const IdxSource *)source)->path, index);
}

static void close_pair(Source *source)
{
    IdxSource *d = (IdxSource *)source;
    if (!d) return;
    names_free(&d->names);
    skips_free(&d->skips);
    free(d->path);
    idx_free(&d->images);
    idx_free(&d->labels);
    free(d);
}

/* folder/NAME, or folder/NAME/NAME, as some programs unpack a file into a folder of its name. */
static bool is_file(const char *folder, const char *name, char path[PATH_MAX])
{
    struct stat info;
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX || stat(path, &info) != 0) return false;
    if (!S_ISDIR(info.st_mode)) return true;
    return snprintf(path, PATH_MAX, "%s/%s/%s", folder, name, name) < PATH_MAX && stat(path, &info) == 0 &&
           S_ISREG(info.st_mode);
}

enum { NAME_BYTES = 48, VARIANTS = 4 };

/* "train-images-idx3-ubyte", of color images with idx4; others write "train-images.idx3-ubyte". */
static void variant_name(Split split, int dimensions, int variant, const char *ending, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s-%s%cidx%d-ubyte%s", split_names[split], kind_of(dimensions), variant & 1 ? '.' : '-',
             dimensions + variant / 2, ending);
}

/* The size of a file modulo 2^32, and its CRC-32, as the end of a packed one has them. */
static Status plain_sum(const char *path, uint32_t sum[2])
{
    Status st = OK;
    int fd;
    uint64_t bytes;
    uint8_t *part = malloc(STREAM_BYTES);
    if (!part) return FAIL(ERR_MEMORY, "no memory to compare '%s'", path);
    uLong crc = crc32(0, NULL, 0);
    TRY_OUT(file_open(path, OF_USER, ERR_FORMAT, UINT64_MAX, &fd, &bytes));
    for (uint64_t at = 0; at < bytes && st == OK; at += STREAM_BYTES) {
        size_t count = bytes - at < STREAM_BYTES ? (size_t)(bytes - at) : STREAM_BYTES;
        st = file_pread(fd, path, at, part, count);
        if (st == OK) crc = crc32(crc, part, (uInt)count);
    }
    close(fd);
    sum[0] = (uint32_t)crc;
    sum[1] = (uint32_t)bytes;
out:
    free(part);
    return st;
}

/* Whether a packed file says at its end that it holds what a plain one does. */
static Status packed_equal(const char *plain, const char *packed, bool *equal)
{
    enum { FOOT = 8, LEAST = 18 };
    uint8_t foot[FOOT] = {0};
    uint32_t sum[2];
    uint64_t bytes;
    int fd;
    TRY(plain_sum(plain, sum));
    TRY(file_open(packed, OF_USER, ERR_FORMAT, UINT64_MAX, &fd, &bytes));
    Status st = bytes < LEAST ? OK : file_pread(fd, packed, bytes - FOOT, foot, FOOT);
    close(fd);
    *equal = bytes >= LEAST;
    for (int i = 0; i < FOOT; i++) *equal = *equal && foot[i] == (uint8_t)(sum[i / 4] >> (8 * (i % 4)));
    return st;
}

/* The file of a split in a folder; path is "" if there is none. Equal files may have several names, one of them packed; of others
 * none is guessed to be the right one. */
static Status find_file(const char *folder, Split split, int dimensions, char path[PATH_MAX])
{
    char name[NAME_BYTES], file[PATH_MAX];
    int variants = dimensions == IDX_IMAGES ? VARIANTS : VARIANTS / 2, found = 0;
    path[0] = 0;
    for (int i = 0; i < 2 * variants; i++) {
        int variant = i % variants, packed = i / variants;
        bool equal = false, beside = packed && *path && found / 2 == variant / 2;
        variant_name(split, dimensions, variant, packed ? ".gz" : "", name);
        if (!is_file(folder, name, file)) continue;
        if (*path) TRY((beside && !ends_with(path, ".gz") ? packed_equal : files_equal)(path, file, &equal));
        if (*path && !equal)
            return FAIL(ERR_FORMAT, "'%s' and '%s' differ, and each could be the %s: keep one of them", path, file,
                        kind_of(dimensions));
        if (*path) continue;
        snprintf(path, PATH_MAX, "%s", file);
        found = variant;
    }
    return OK;
}

/* Other files than those of the two parts and the names of the classes. */
static Status others_skip(const char *folder, Skips *skips)
{
    Status st = OK;
    const struct dirent *entry;
    DIR *directory = opendir(folder);
    while (directory && st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        const char *file = entry->d_name, *leftover = leftover_of(file, entry->d_type == DT_DIR);
        bool known = class_names_is(file) || !strcmp(file, ".") || !strcmp(file, "..");
        for (int i = 0; i < 4 * 2 * VARIANTS; i++) {
            char name[NAME_BYTES];
            variant_name(i & 1 ? SPLIT_TEST : SPLIT_TRAIN, i & 2 ? IDX_LABELS : IDX_IMAGES, i / 8, i & 4 ? ".gz" : "",
                         name);
            known |= !strcmp(file, name);
        }
        if (known) continue;
        if (leftover)
            st = skips_add(skips, SKIP_FOREIGN, leftover, folder, file);
        else if (entry->d_type != DT_DIR)
            st = skips_add(skips, SKIP_BESIDE, NULL, folder, file);
    }
    if (directory && st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", folder, strerror(errno));
    if (directory) closedir(directory);
    return st;
}

static const char *const folders[] = {"", "/fashion-mnist"};

bool idx_is_in(const char *path)
{
    char folder[PATH_MAX], file[PATH_MAX];
    for (int i = 0; i < 4; i++)
        if (snprintf(folder, PATH_MAX, "%s%s", path, folders[i / 2]) < PATH_MAX &&
            (find_file(folder, i % 2 ? SPLIT_TEST : SPLIT_TRAIN, IDX_LABELS, file) != OK || *file))
            return true;
    return false;
}

static Status find_pair(const char *path, Split split, Pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (snprintf(pair->folder, PATH_MAX, "%s%s", path, folders[i]) >= PATH_MAX) continue;
        TRY(find_file(pair->folder, split, IDX_IMAGES, pair->images));
        TRY(find_file(pair->folder, split, IDX_LABELS, pair->labels));
        if (*pair->images && *pair->labels) return OK;
    }
    return FAIL(ERR_FORMAT,
                "no data set in '%s': expected shards (.tar, TFRecords), train/ and val/ with a folder of images for "
                "each class, or %s-images-idx3-ubyte "
                "and %s-labels-idx1-ubyte, plain or with .gz, there or in its folder fashion-mnist (Debian's package "
                "dataset-fashion-mnist puts Fashion-MNIST into /usr/share/datasets/fashion-mnist)",
                path, split_names[split], split_names[split]);
}

static Status check_labels(const Pair *pair, const IdxSource *d)
{
    int64_t labels = d->labels.size[0], images = d->images.size[0];
    if (labels != images)
        return FAIL(ERR_FORMAT,
                    "'%s' has %" PRId64 " labels, but '%s' has %" PRId64 " images: the two must come from one set",
                    pair->labels, labels, pair->images, images);
    for (int64_t i = 0; i < labels; i++) {
        if (d->labels.data[i] >= d->base.info.classes)
            return FAIL(ERR_FORMAT,
                        "'%s': record %" PRId64 " (offset %" PRId64
                        "): expected a label from 0 to %d, found %d (to declare more classes, put a file classes.txt "
                        "beside it, with one name per line)",
                        pair->labels, i, i + 8, d->base.info.classes - 1, d->labels.data[i]);
    }
    return OK;
}

/* The set is named after its folder, or the one above torchvision's "raw". */
static Status name_set(const char *folder, IdxSource *d)
{
    SourceInfo *info = &d->base.info;
    char full[PATH_MAX];
    if (!realpath(folder, full)) snprintf(full, sizeof full, "%s", folder);
    char *slash = strrchr(full, '/');
    if (slash && slash > full && !strcmp(slash, "/raw")) *slash = 0;
    slash = strrchr(full, '/');
    const char *name = slash && slash[1] ? slash + 1 : full;
    bool fashion = strcasestr(name, "fashion") != NULL;
    utf8_escape(info->name, sizeof info->name, fashion ? "fashion-mnist" : name);
    return class_names_set(&d->names, IDX_CLASSES, fashion ? fashion_names : NULL);
}

Status idx_source_open(const char *path, Split split, Source **made)
{
    Status st = OK;
    Pair pair;
    TRY(find_pair(path, split, &pair));
    IdxSource *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "no memory for the reader for '%s'", path);
    d->base.read = read_sample;
    d->base.label = label_of;
    d->base.where = say_where;
    d->base.close = close_pair;
    d->path = strdup(pair.images);
    if (!d->path) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the reader for '%s'", path));
    TRY_OUT(idx_load(pair.labels, IDX_LABELS, &d->labels));
    TRY_OUT(idx_load(pair.images, IDX_IMAGES, &d->images));
    SourceInfo *info = &d->base.info;
    info->count = d->images.size[0];
    info->format = "IDX";
    TRY_OUT(others_skip(pair.folder, &d->skips));
    inventory_fill(&info->inventory, info->count, &d->skips);
    info->h = (int32_t)d->images.size[1];
    info->w = (int32_t)d->images.size[2];
    info->c = (int32_t)d->images.size[3];
    TRY_OUT(name_set(pair.folder, d));
    TRY_OUT(class_names_read(pair.folder, IDX_CLASSES_MAX, &d->names));
    info->classes = d->names.count;
    info->class_names = (const char *const *)d->names.name;
    TRY_OUT(check_labels(&pair, d));
    /* Hash sizes, pixels and labels, so that equal bytes in another shape differ. */
    int64_t sizes[] = {d->base.info.count, d->base.info.h, d->base.info.w, d->base.info.c};
    XXH3_state_t *state = XXH3_createState();
    if (!state) TRY_OUT(FAIL(ERR_MEMORY, "no memory to hash the data set"));
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, sizes, sizeof sizes);
    XXH3_128bits_update(state, d->images.data, d->images.bytes);
    XXH3_128bits_update(state, d->labels.data, d->labels.bytes);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    d->base.info.fingerprint[0] = hash.low64;
    d->base.info.fingerprint[1] = hash.high64;
    *made = &d->base;
    d = NULL;
out:
    close_pair((Source *)d);
    return st;
}
