/* Lists the records of a shard and takes images from them; format in tfrecord.h. Lengths are checked when a shard is
 * listed, data when they are read. An index file as tfrecord2idx and DALI write it ("offset size" a line), if there is
 * one beside the shard, must agree. */
#include "towers/data/shards/tfrecord.h"

#include "towers/data/shards/example.h"
#include "towers/data/shards/shard.h"
#include "towers/files/crc32c.h"
#include "towers/files/files.h"

enum { WHERE_BYTES = PATH_BYTES + 64 };

enum {
    KEY_IMAGE,
    KEY_IMAGE_TFDS,
    KEY_LABEL,
    KEY_LABEL_TFDS,
    KEY_NAME,
    KEY_NAME_TFDS,
    KEY_TEXT,
    KEYS_LISTED, /* those that listing needs */
    KEY_BOX = KEYS_LISTED,
    KEYS = KEY_BOX + BOX_SIDES
};
static const char *const keys[KEYS] = {
    "image/encoded",          "image",
    "image/class/label",      "label",
    "image/filename",         "file_name",
    "image/class/text",       "image/object/bbox/ymin",
    "image/object/bbox/xmin", "image/object/bbox/ymax",
    "image/object/bbox/xmax",
};

static uint64_t u64_of(const uint8_t *b)
{
    return (uint64_t)u32_of(b + 4) << 32 | u32_of(b);
}

bool tfrecord_begins(const uint8_t head[TFRECORD_HEAD])
{
    return crc32c_masked(head, 8) == u32_of(head + 8);
}

static const Feature *feature_either(const Feature *found, int key)
{
    return found[key].kind != FEATURE_NONE ? &found[key] : &found[key + 1];
}

/* The crop that uses the boxes decides whether they make sense. */
static Status boxes_take(ExampleBytes *example, const Feature *sides, Boxes *boxes)
{
    int count[BOX_SIDES], most = 0;
    for (int k = 0; k < BOX_SIDES; k++) {
        TRY(feature_floats(example, &sides[k], NULL, 0, &count[k]));
        if (count[k] > most) most = count[k];
    }
    if (most > BOXES_MAX)
        return FAIL(ERR_FORMAT, "%s has %d bounding boxes: expected at most %d", example->where, most, BOXES_MAX);
    TRY(boxes_shape(boxes, most));
    for (int k = 0; k < BOX_SIDES && most > 0; k++)
        TRY(feature_floats(example, &sides[k], boxes->at + (size_t)k * (size_t)most, most, &count[k]));
    return OK;
}

Status tfrecord_image(Bytes *bytes, uint32_t crc, const char *where)
{
    ExampleBytes example = {.where = where, .memory = bytes->data, .size = bytes->size};
    Feature found[KEYS];
    uint64_t begin, size;
    if (crc32c_masked(bytes->data, bytes->size) != crc)
        return FAIL(ERR_FORMAT, "%s: the CRC of its %zu bytes is not %08x: damaged", where, bytes->size, crc);
    TRY(example_find(&example, keys, KEYS, found));
    const Feature *image = feature_either(found, KEY_IMAGE);
    TRY(feature_bytes(&example, image, &begin, &size));
    if (size == 0) return FAIL(ERR_FORMAT, "%s has no image (image/encoded or image)", where);
    if (begin + size < image->end) return FAIL(ERR_FORMAT, "%s has several images: expected one", where);
    TRY(boxes_take(&example, &found[KEY_BOX], &bytes->boxes));
    memmove(bytes->data, bytes->data + begin, (size_t)size);
    bytes->size = (size_t)size;
    return OK;
}

/* ---- listing */

typedef struct Records {
    ShardList *list;
    int fd;
    uint64_t size;
    FILE *index; /* NULL: there is none */
    char index_path[PATH_BYTES];
    int64_t number; /* of the current record */
    char where[WHERE_BYTES];
    const char *record; /* the end of `where`, behind the path */
    ExampleBytes example;
} Records;

/* The keys of both writers may be there, but not with two labels. */
static Status label_read(Records *r, const Feature *found, int64_t *label)
{
    int64_t other;
    int labels, others;
    const Feature *first = feature_either(found, KEY_LABEL);
    TRY(feature_ints(&r->example, first, label, 1, &labels));
    if (labels != 1)
        return FAIL(ERR_FORMAT, "%s has %s: expected one integer image/class/label or label in its tf.Example",
                    r->where,
                    labels                          ? "several labels"
                    : first->kind == FEATURE_BYTES  ? "bytes as its label"
                    : first->kind == FEATURE_FLOATS ? "floats as its label"
                                                    : "no label");
    TRY(feature_ints(&r->example, &found[KEY_LABEL_TFDS], &other, 1, &others));
    return others == 0 || (others == 1 && other == *label)
               ? OK
               : FAIL(ERR_FORMAT,
                      "%s has several labels, %" PRId64 " as image/class/label and another as label: expected one of "
                      "them, or equal ones",
                      r->where, *label);
}

static Status record_take(Records *r, uint64_t at, uint64_t bytes, uint32_t crc)
{
    ExampleBytes *e = &r->example;
    Feature found[KEYS_LISTED];
    int64_t label = 0;
    char name[EXAMPLE_TEXT], text[EXAMPLE_TEXT];
    e->base = at;
    e->size = bytes;
    e->have = 0;
    TRY(example_find(e, keys, KEYS_LISTED, found));
    if (feature_either(found, KEY_IMAGE)->kind != FEATURE_BYTES)
        return FAIL(ERR_FORMAT, "%s has no image: expected the bytes image/encoded or image in its tf.Example",
                    r->where);
    TRY(label_read(r, found, &label));
    TRY(feature_text(e, feature_either(found, KEY_NAME), name));
    TRY(feature_text(e, &found[KEY_TEXT], text));
    if (!*name) snprintf(name, sizeof name, "record %" PRId64, r->number);
    TRY(shard_add(r->list, r->record, at, bytes, label, crc, name));
    return *text ? shard_class(r->list, label, text) : OK;
}

/* A line of the index file must be this record's. */
static Status index_check(Records *r, uint64_t at, uint64_t bytes)
{
    uint64_t offset, size;
    if (!r->index) return OK;
    if (fscanf(r->index, "%" SCNu64 " %" SCNu64, &offset, &size) != 2)
        return FAIL(ERR_FORMAT,
                    "'%s': line %" PRId64 ": expected \"%" PRIu64 " %" PRIu64 "\": it belongs to another file; "
                    "delete it",
                    r->index_path, r->number + 1, at, bytes);
    if (offset != at || size != bytes)
        return FAIL(ERR_FORMAT,
                    "'%s': line %" PRId64 ": expected \"%" PRIu64 " %" PRIu64 "\", found \"%" PRIu64 " %" PRIu64
                    "\": it belongs to another file; delete it",
                    r->index_path, r->number + 1, at, bytes, offset, size);
    return OK;
}

static Status records_read(Records *r)
{
    uint8_t head[TFRECORD_FOOT + TFRECORD_HEAD];
    uint64_t bytes;
    for (uint64_t at = 0; at < r->size; at += TFRECORD_HEAD + bytes + TFRECORD_FOOT, r->number++) {
        Text where = text_start(r->where, sizeof r->where);
        text_add(&where, "'%s': ", r->list->path);
        r->record = r->where + where.used;
        text_add(&where, "record %" PRId64 " (offset %" PRIu64 ")", r->number, at);
        if (r->size - at < TFRECORD_HEAD + TFRECORD_FOOT)
            return FAIL(ERR_FORMAT, "%s: the file ends at %" PRIu64 ", within its header: it is cut off", r->where,
                        r->size);
        TRY(file_pread(r->fd, r->list->path, at, head, TFRECORD_HEAD));
        if (!tfrecord_begins(head))
            return FAIL(ERR_FORMAT,
                        "%s: expected a record of a TFRecord file, found a length whose CRC is wrong: damaged",
                        r->where);
        bytes = u64_of(head);
        if (bytes > r->size - at - TFRECORD_HEAD - TFRECORD_FOOT)
            return FAIL(ERR_FORMAT, "%s has %" PRIu64 " bytes, but the file ends at %" PRIu64 ": it is cut off",
                        r->where, bytes, r->size);
        TRY(file_pread(r->fd, r->list->path, at + TFRECORD_HEAD + bytes, head, TFRECORD_FOOT));
        TRY(index_check(r, at, TFRECORD_HEAD + bytes + TFRECORD_FOOT));
        TRY(record_take(r, at + TFRECORD_HEAD, bytes, u32_of(head)));
    }
    int rest = EOF;
    while (r->index && (rest = fgetc(r->index)) == '\n') {
    }
    if (rest != EOF)
        return FAIL(ERR_FORMAT, "'%s': line %" PRId64 ": expected its end: it belongs to another file; delete it",
                    r->index_path, r->number + 1);
    return OK;
}

/* SHARD.idx, or with .idx or .index instead of the extension. */
static Status index_open(Records *r)
{
    static const char *const ends[] = {".idx", ".idx", ".index"};
    const char *path = r->list->path, *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    int whole = (int)strlen(path), stem = dot ? (int)(dot - path) : whole;
    uint64_t bytes;
    int fd;
    for (int i = 0; i < 3; i++) {
        int n = snprintf(r->index_path, sizeof r->index_path, "%.*s%s", i ? stem : whole, path, ends[i]);
        if (n >= PATH_BYTES || access(r->index_path, F_OK) != 0) continue;
        TRY(file_open(r->index_path, OF_USER, ERR_FORMAT, UINT64_MAX, &fd, &bytes));
        r->index = fdopen(fd, "r");
        if (r->index) return OK;
        close(fd);
        return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", r->index_path);
    }
    return OK;
}

Status tfrecord_list(ShardList *list)
{
    Status st = OK;
    Records *r = calloc(1, sizeof *r);
    if (!r) return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", list->path);
    r->list = list;
    r->fd = -1;
    TRY_OUT(file_open(list->path, OF_USER, ERR_FORMAT, UINT64_MAX, &r->fd, &r->size));
    r->example.where = r->where;
    r->example.fd = r->fd;
    r->example.path = list->path;
    TRY_OUT(index_open(r));
    st = r->size ? records_read(r) : FAIL(ERR_FORMAT, "'%s' is empty: expected TFRecords", list->path);
out:
    if (r->index) fclose(r->index);
    if (r->fd >= 0) close(r->fd);
    free(r);
    return st;
}
