/* MDS, the shards of Mosaic Streaming, version 2. A folder has index.json, which lists the shards. A shard is
 *   u32 samples | u32 offset[samples + 1], from the start of the file | JSON: names, encodings and sizes of the columns | data
 * and a sample is the u32 size of each column whose size varies, then the data of all columns, in the order of their
 * names. Numbers are little-endian. Image: a column jpeg, png, bytes, or pixels as ndarray:uint8:H,W,3; label: a
 * column of integers. Only the names of the files are taken from index.json; its other entries must agree with the
 * files. */
#include <dirent.h>
#include <jansson.h>
#include <xxhash.h>

#include "kernels/base/open.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/shards/shard.h"
#include "towers/data/shards/sidecar.h"
#include "towers/data/sources/reader.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

enum { COLUMNS = 64, CONFIG_BYTES = 1 << 16, INDEX_BYTES = 1 << 28, SIDE_MAX = 65500, NONE = -1 };

typedef struct Column {
    const char *name, *encoding; /* borrowed from the JSON */
    uint32_t size;               /* 0: it varies */
    int h, w;                    /* of pixels */
    bool is_image, is_pixels, is_bytes, is_signed;
    int int_bytes; /* 0: no integer */
} Column;

typedef struct Mds {
    ShardList *list;
    int fd;
    uint64_t size;
    uint32_t samples;
    uint32_t *offsets; /* owned: [samples + 1] */
    json_t *config;
    Column column[COLUMNS];
    int columns, image, label;
} Mds;

/* ---- columns */

static void encoding_parse(const char *text, Column *c)
{
    static const struct {
        const char *name;
        int bytes;
        bool is_signed;
    } ints[] = {{"int", 8, true},     {"int8", 1, true},    {"int16", 2, true},
                {"int32", 4, true},   {"int64", 8, true},   {"uint8", 1, false},
                {"uint16", 2, false}, {"uint32", 4, false}, {"uint64", 8, false}};
    int used = 0;
    c->is_image = !strcmp(text, "jpeg") || !strcmp(text, "png");
    c->is_bytes = !strcmp(text, "bytes");
    c->is_pixels = sscanf(text, "ndarray:uint8:%d,%d,3%n", &c->h, &c->w, &used) == 2 && !text[used] && c->h > 0 &&
                   c->w > 0 && c->h <= SIDE_MAX && c->w <= SIDE_MAX;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        if (strcmp(text, ints[i].name) != 0) continue;
        c->int_bytes = ints[i].bytes;
        c->is_signed = ints[i].is_signed;
    }
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

static const char *const image_names[] = {"image", "img", "x", "jpg", "jpeg", "png", NULL};
static const char *const label_names[] = {"label", "y", "cls", "class", "target", NULL};

static bool can_be(const Column *c, bool image, bool named)
{
    return image ? c->is_image || c->is_pixels || (c->is_bytes && named) : c->int_bytes > 0;
}

/* Which column is the image, or the label. */
typedef struct Choice {
    int column;  /* the one with the first of the names, else the only one with another, else the only one; or NONE */
    int also;    /* one with such a name that could be it as well, or NONE */
    int cannot;  /* one with such a name that cannot be it, or NONE */
    bool is_one; /* the column has such a name, and there is no doubt that it is meant */
} Choice;

static Choice column_choose(const Mds *m, bool image)
{
    const char *const *names = image ? image_names : label_names;
    Choice made = {NONE, NONE, NONE, false};
    int only = NONE, count = 0;
    bool first = false;
    for (int i = 0; i < m->columns; i++) {
        const Column *c = &m->column[i];
        bool named = is_one_of(c->name, names), can = can_be(c, image, named);
        if (named && !can) made.cannot = i;
        if (can && !named) only = i, count++;
        if (!can || !named) continue;
        bool before = !strcmp(c->name, *names);
        if (made.column != NONE) made.also = before ? made.column : i;
        if (made.column == NONE || before) made.column = i;
        first = first || before;
    }
    made.is_one = made.column != NONE && (first || made.also == NONE);
    if (made.column == NONE && count == 1) made.column = only;
    return made;
}

/* "'id' (int), 'size' (int32)" */
static void integers_text(const Mds *m, Text *to)
{
    for (int i = 0; i < m->columns; i++)
        if (m->column[i].int_bytes)
            text_add(to, "%s'%s' (%s)", to->used ? ", " : "", m->column[i].name, m->column[i].encoding);
    if (!to->used) text_add(to, "none");
}

/* `named`: the column with the name of a label that holds none, or NONE. */
static Status label_refuse(const Mds *m, int named)
{
    char text[512];
    Text integers = text_start(text, sizeof text);
    integers_text(m, &integers);
    if (named != NONE)
        return FAIL(
            ERR_FORMAT,
            "'%s': column '%s' is %s: expected integers as labels. Columns of integers: %s; write the classes as "
            "integers in '%s', or, if one of these is the label, name it so (and '%s' otherwise)",
            m->list->path, m->column[named].name, m->column[named].encoding, text, m->column[named].name,
            m->column[named].name);
    return FAIL(ERR_FORMAT, "'%s' has no column of labels: expected integers, named \"label\". Columns of integers: %s",
                m->list->path, text);
}

/* What was chosen among several columns, or by a name that says nothing about labels, is worth a note. */
static Status label_note(const Mds *m, const Choice *label)
{
    char note[320];
    int other = label->also != NONE ? label->also : label->cannot;
    const char *name = m->column[m->label].name;
    if (!label->is_one)
        snprintf(note, sizeof note, "labels are the column '%.100s', the only one of integers", name);
    else if (other != NONE)
        snprintf(note, sizeof note, "labels are the column '%.100s'; '%.100s' (%.20s) is not used", name,
                 m->column[other].name, m->column[other].encoding);
    return label->is_one && other == NONE ? OK : index_note_set(&m->list->found, note);
}

/* Names that say the same of several columns. */
static Status which_refuse(const Mds *m, const Choice *made, bool image)
{
    const Column *one = &m->column[made->column], *other = &m->column[made->also];
    const char *what = image ? "images" : "labels", *name = image ? *image_names : *label_names;
    return FAIL(
        ERR_FORMAT,
        "'%s' has several columns of %s, '%s' (%s) and '%s' (%s), and it does not say which is meant: name that "
        "one '%s'",
        m->list->path, what, one->name, one->encoding, other->name, other->encoding, name);
}

static Status columns_parse(Mds *m)
{
    const json_t *names = json_object_get(m->config, "column_names"),
                 *sizes = json_object_get(m->config, "column_sizes");
    const json_t *encodings = json_object_get(m->config, "column_encodings");
    size_t count = json_array_size(names);
    if (count < 1 || count > COLUMNS || json_array_size(encodings) != count || json_array_size(sizes) != count)
        return FAIL(ERR_FORMAT, "'%s': expected names, encodings and sizes of 1 to %d columns", m->list->path, COLUMNS);
    for (size_t i = 0; i < count; i++) {
        Column *c = &m->column[i];
        const char *encoding = json_string_value(json_array_get(encodings, i));
        const json_t *size = json_array_get(sizes, i);
        c->name = json_string_value(json_array_get(names, i));
        if (!c->name || !encoding ||
            !(json_is_null(size) ||
              (json_is_integer(size) && json_integer_value(size) > 0 && json_integer_value(size) <= UINT32_MAX)))
            return FAIL(ERR_FORMAT, "'%s': column %zu: expected a name, an encoding, and a size or null", m->list->path,
                        i);
        c->encoding = encoding;
        encoding_parse(encoding, c);
        c->size = (uint32_t)json_integer_value(size);
        if ((c->int_bytes && c->size != (uint32_t)c->int_bytes) ||
            (c->is_pixels && (uint64_t)c->size != 3 * (uint64_t)c->h * (uint64_t)c->w) || (c->is_image && c->size))
            return FAIL(ERR_FORMAT,
                        "'%s': column '%s' is %s of size %" PRIu32
                        ": expected the size of this encoding (null for jpeg and png)",
                        m->list->path, c->name, encoding, c->size);
    }
    m->columns = (int)count;
    const Choice image = column_choose(m, true), label = column_choose(m, false);
    m->image = image.column;
    m->label = label.column;
    if (m->image == NONE)
        return FAIL(ERR_FORMAT,
                    "'%s' has no column of images: expected jpeg, png, bytes named \"image\", or ndarray:uint8:H,W,3",
                    m->list->path);
    if (image.also != NONE && !image.is_one) return which_refuse(m, &image, true);
    if (label.also != NONE && !label.is_one) return which_refuse(m, &label, false);
    if (m->label == NONE || (!label.is_one && label.cannot != NONE)) return label_refuse(m, label.cannot);
    return label_note(m, &label);
}

/* ---- one shard */

static Status header_read(Mds *m)
{
    uint8_t head[4];
    json_error_t why;
    if (m->size < 8)
        return FAIL(ERR_FORMAT, "'%s': expected an MDS shard, found %" PRIu64 " bytes: it is cut off", m->list->path,
                    m->size);
    TRY(file_pread(m->fd, m->list->path, 0, head, 4));
    m->samples = u32_of(head);
    uint64_t begin = 4 + 4 * ((uint64_t)m->samples + 1);
    if (begin > m->size)
        return FAIL(ERR_FORMAT,
                    "'%s': offset 0: %" PRIu32 " samples, but the file has %" PRIu64 " bytes: damaged or cut off",
                    m->list->path, m->samples, m->size);
    m->offsets = malloc(4 * ((size_t)m->samples + 1));
    if (!m->offsets) return FAIL(ERR_MEMORY, "no memory for %" PRIu32 " offsets", m->samples);
    TRY(file_pread(m->fd, m->list->path, 4, m->offsets, 4 * ((size_t)m->samples + 1)));
    for (uint32_t i = 0; i <= m->samples; i++) {
        uint8_t bytes[4];
        memcpy(bytes, &m->offsets[i], 4);
        m->offsets[i] = u32_of(bytes);
        uint64_t least = i ? m->offsets[i - 1] : begin;
        if (m->offsets[i] < least || m->offsets[i] > m->size)
            return FAIL(ERR_FORMAT,
                        "'%s': offset %" PRIu64 ": sample %" PRIu32 " begins at %" PRIu32 ": expected %" PRIu64
                        " to %" PRIu64 ": damaged or cut off",
                        m->list->path, 4 + 4 * (uint64_t)i, i, m->offsets[i], least, m->size);
    }
    if (m->offsets[m->samples] != m->size)
        return FAIL(ERR_FORMAT, "'%s' has %" PRIu64 " bytes, but its samples end at %" PRIu32, m->list->path, m->size,
                    m->offsets[m->samples]);
    size_t bytes = (size_t)(m->offsets[0] - begin);
    if (bytes > CONFIG_BYTES)
        return FAIL(ERR_FORMAT,
                    "'%s': offset %" PRIu64 ": %zu bytes before the first sample: expected at most %d of JSON",
                    m->list->path, begin, bytes, CONFIG_BYTES);
    char *text = malloc(bytes + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory for %zu bytes of JSON", bytes);
    Status st = file_pread(m->fd, m->list->path, begin, text, bytes);
    if (st == OK) m->config = json_loadb(text, bytes, 0, &why);
    free(text);
    if (st == OK && !json_is_object(m->config))
        return FAIL(ERR_FORMAT, "'%s': offset %" PRIu64 ": expected the JSON of its columns", m->list->path, begin);
    return st;
}

static int64_t int_of(const Column *c, const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < c->int_bytes; i++) value |= (uint64_t)bytes[i] << (8 * i);
    int unused = 64 - 8 * c->int_bytes;
    return c->is_signed ? (int64_t)(value << unused) >> unused : value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static Status sample_list(Mds *m, uint32_t i)
{
    uint8_t sizes[4 * COLUMNS], label[8];
    char name[64];
    uint64_t at = m->offsets[i], end = m->offsets[i + 1], place[COLUMNS], bytes[COLUMNS];
    const Column *image = &m->column[m->image], *of_label = &m->column[m->label];
    int varying = 0, k = 0;
    for (int c = 0; c < m->columns; c++) varying += m->column[c].size == 0;
    snprintf(name, sizeof name, "sample %" PRIu32, i);
    if (end - at < 4 * (uint64_t)varying)
        return FAIL(ERR_FORMAT, "'%s': %s (offset %" PRIu64 ") has %" PRIu64 " bytes: expected the sizes of %d columns",
                    m->list->path, name, at, end - at, varying);
    TRY(file_pread(m->fd, m->list->path, at, sizes, 4 * (size_t)varying));
    at += 4 * (uint64_t)varying;
    for (int c = 0; c < m->columns; c++) {
        bytes[c] = m->column[c].size ? m->column[c].size : u32_of(sizes + 4 * (size_t)k++);
        place[c] = at;
        at += bytes[c];
    }
    if (at != end)
        return FAIL(ERR_FORMAT,
                    "'%s': %s (offset %" PRIu32 "): its columns end at %" PRIu64 ", but it ends at %" PRIu64
                    ": damaged",
                    m->list->path, name, m->offsets[i], at, end);
    TRY(file_pread(m->fd, m->list->path, place[m->label], label, (size_t)of_label->int_bytes));
    return shard_add(m->list, name, place[m->image], bytes[m->image], int_of(of_label, label),
                     image->is_pixels ? (uint32_t)image->h << 16 | (uint32_t)image->w : 0, name);
}

Status mds_list(ShardList *list)
{
    Status st = OK;
    Mds *m = calloc(1, sizeof *m);
    if (!m) return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", list->path);
    m->list = list;
    m->fd = -1;
    TRY_OUT(file_open(list->path, OF_USER, ERR_FORMAT, UINT32_MAX, &m->fd, &m->size));
    TRY_OUT(header_read(m));
    TRY_OUT(columns_parse(m));
    for (uint32_t i = 0; i < m->samples; i++) TRY_OUT(sample_list(m, i));
out:
    if (m->fd >= 0) close(m->fd);
    json_decref(m->config);
    free(m->offsets);
    free(m);
    return st;
}

/* ---- index.json */

static bool is_shard_file(const char *name)
{
    return ends_with(name, ".mds") && !leftover_of(name, false) && name[0] != '.';
}

typedef Status FileVisit(void *context, const char *folder, const char *name);

/* Visit the shards of a folder and, as several processes write them, of the folders directly below it. */
static Status shards_visit(const char *folder, bool below, FileVisit *visit, void *context)
{
    Status st = OK;
    char path[PATH_BYTES];
    const struct dirent *entry;
    DIR *directory = opendir(folder);
    if (!directory) return FAIL(ERR_IO, "cannot open '%s': %s", folder, strerror(errno));
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) {
        struct stat info;
        if (is_shard_file(entry->d_name)) st = visit(context, folder, entry->d_name);
        if (!below || is_shard_file(entry->d_name) || leftover_of(entry->d_name, true)) continue;
        if (path_join(path, folder, entry->d_name) == OK && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            st = shards_visit(path, false, visit, context);
    }
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", folder, strerror(errno));
    closedir(directory);
    return st;
}

static Status shard_see(void *context, const char *folder, const char *name)
{
    (void)folder;
    (void)name;
    *(bool *)context = true;
    return OK;
}

/* By what index.json says, or, as it may be lost or damaged, by the shards. */
bool mds_is_in(const char *folder)
{
    char path[PATH_BYTES], head[4096];
    bool shards = false;
    if (path_join(path, folder, MDS_INDEX) != OK) return false;
    int fd = regular_open(path, O_RDONLY, NULL);
    ssize_t got = fd < 0 ? 0 : pread(fd, head, sizeof head - 1, 0);
    if (fd >= 0) close(fd);
    head[got > 0 ? got : 0] = 0;
    if (strstr(head, "\"shards\"")) return true;
    return shards_visit(folder, fd >= 0, shard_see, &shards) == OK && shards;
}

/* True for "shard.00000.mds" and, as the writers of a set in several parts have it, "part/shard.00000.mds". */
static bool is_below(const char *name)
{
    for (const char *part = name;; part++) {
        size_t bytes = strcspn(part, "/");
        if (bytes == 0 || *part == '.') return false;
        part += bytes;
        if (!*part) return true;
    }
}

static Status name_refuse(const char *index, size_t number, const char *base)
{
    return FAIL(ERR_FORMAT,
                "'%s': shard %zu: expected the name of a file beside or below it in raw_data.basename, found '%s'",
                index, number, base ? base : "");
}

/* The number of samples in a shard. */
static Status samples_read(const char *path, uint32_t *samples)
{
    uint8_t head[4] = {0};
    uint64_t size;
    int fd;
    TRY(file_open(path, OF_USER, ERR_FORMAT, UINT32_MAX, &fd, &size));
    Status st = file_pread(fd, path, 0, head, 4);
    close(fd);
    *samples = u32_of(head);
    return st;
}

/* One entry: a file that is there, uncompressed, and as large as the entry says. */
static Status entry_take(const char *folder, const char *index, size_t number, const json_t *entry, Names *files)
{
    const json_t *raw = json_object_get(entry, "raw_data"), *zip = json_object_get(entry, "zip_data");
    const char *base = json_string_value(json_object_get(raw, "basename")),
               *format = json_string_value(json_object_get(entry, "format"));
    char path[PATH_BYTES];
    struct stat info;
    if (json_integer_value(json_object_get(entry, "version")) != 2 || !format || strcmp(format, "mds") != 0)
        return FAIL(ERR_FORMAT, "'%s': shard %zu: expected \"format\": \"mds\" and \"version\": 2", index, number);
    if (!base || !is_below(base)) return name_refuse(index, number, base);
    TRY(path_join(path, folder, base));
    if (stat(path, &info) != 0 && json_is_object(zip))
        return FAIL(ERR_FORMAT,
                    "'%s': shard %zu is compressed, and '%s' does not exist: decompress it (zstd -d, gunzip) or "
                    "write the set with compression=None",
                    index, number, path);
    if (stat(path, &info) != 0)
        return FAIL(ERR_FORMAT, "'%s': shard %zu: '%s': %s", index, number, path, strerror(errno));
    json_int_t bytes = json_integer_value(json_object_get(raw, "bytes")), found = (json_int_t)info.st_size;
    Sidecar stand_in;
    uint32_t samples;
    bool stands = sidecar_look(path, &stand_in);
    if (stands) found = stand_in.bytes < INT64_MAX ? (json_int_t)stand_in.bytes : -1;
    if (bytes != found)
        return FAIL(ERR_FORMAT,
                    "'%s': shard %zu: expected %" JSON_INTEGER_FORMAT " bytes in '%s', found %" JSON_INTEGER_FORMAT
                    ": it is cut off, or "
                    "the index is of another set",
                    index, number, bytes, path, found);
    if (stands)
        samples = stand_in.samples < UINT32_MAX ? (uint32_t)stand_in.samples : UINT32_MAX;
    else
        TRY(samples_read(path, &samples));
    if (json_integer_value(json_object_get(entry, "samples")) != (json_int_t)samples)
        return FAIL(ERR_FORMAT, "'%s': shard %zu: expected %" JSON_INTEGER_FORMAT " samples in '%s', found %" PRIu32,
                    index, number, json_integer_value(json_object_get(entry, "samples")), path, samples);
    return names_add(files, path);
}

static Status index_load(const char *folder, char path[PATH_BYTES], json_t **root)
{
    char *text = NULL;
    size_t bytes;
    json_error_t why;
    struct stat info;
    TRY(path_join(path, folder, MDS_INDEX));
    if (stat(path, &info) != 0)
        return FAIL(ERR_FORMAT,
                    "'%s' is not there, but MDS shards lie in its folder: it lists them; copy it from where they were "
                    "written",
                    path);
    if (info.st_size == 0)
        return FAIL(ERR_FORMAT,
                    "'%s' is empty: expected the list of the MDS shards beside it; copy it again from where they were "
                    "written",
                    path);
    TRY(file_load(path, OF_USER, ERR_FORMAT, INDEX_BYTES, &text, &bytes));
    *root = json_loadb(text, bytes, 0, &why);
    free(text);
    if (!*root)
        return FAIL(ERR_FORMAT, "'%s': line %d: %s: copy it again from where the shards were written", path, why.line,
                    why.text);
    if (json_integer_value(json_object_get(*root, "version")) == 2 && json_is_array(json_object_get(*root, "shards")))
        return OK;
    json_decref(*root);
    *root = NULL;
    return FAIL(ERR_FORMAT, "'%s': expected the index of MDS shards, \"version\": 2", path);
}

/* The shards that index.json should list. */
typedef struct Unlisted {
    Names listed; /* sorted */
    int64_t count;
    char first[PATH_BYTES];
} Unlisted;

static Status unlisted_count(void *context, const char *folder, const char *name)
{
    Unlisted *u = context;
    char path[PATH_BYTES];
    TRY(path_join(path, folder, name));
    if (names_find(&u->listed, path) >= 0) return OK;
    if (!u->count++) memcpy(u->first, path, sizeof path);
    return OK;
}

/* An index of a part of the shards would lose the others. */
static Status all_listed(const char *folder, const char *index, const Names *files)
{
    Unlisted u = {.count = 0};
    Status st = OK;
    for (int i = 0; i < files->count; i++) TRY_OUT(names_add(&u.listed, files->name[i]));
    names_sort(&u.listed);
    TRY_OUT(shards_visit(folder, true, unlisted_count, &u));
    if (u.count)
        st = FAIL(ERR_FORMAT,
                  "'%s' lists %d shards, but not '%s'%s: copy it again from where they were written, or move away what "
                  "does not belong to it",
                  index, files->count, u.first, u.count > 1 ? " and more" : "");
out:
    names_free(&u.listed);
    return st;
}

Status mds_files(const char *folder, Names *files)
{
    char path[PATH_BYTES];
    json_t *root;
    TRY(index_load(folder, path, &root));
    const json_t *shards = json_object_get(root, "shards");
    Status st = OK;
    if (!json_array_size(shards)) st = FAIL(ERR_FORMAT, "'%s' lists no shards", path);
    for (size_t i = 0; i < json_array_size(shards) && st == OK; i++)
        st = entry_take(folder, path, i, json_array_get(shards, i), files);
    if (st == OK) st = all_listed(folder, path, files);
    json_decref(root);
    return st;
}

Status mds_names(const char *folder, Names *names)
{
    char path[PATH_BYTES];
    json_t *root;
    TRY(index_load(folder, path, &root));
    const json_t *shards = json_object_get(root, "shards");
    Status st = OK;
    if (!json_array_size(shards)) st = FAIL(ERR_FORMAT, "'%s' lists no shards", path);
    for (size_t i = 0; i < json_array_size(shards) && st == OK; i++) {
        const json_t *entry = json_array_get(shards, i);
        const char *base = json_string_value(json_object_get(json_object_get(entry, "raw_data"), "basename"));
        if (!base || !is_below(base))
            st = name_refuse(path, i, base);
        else if (json_is_object(json_object_get(entry, "zip_data")))
            st = FAIL(ERR_FORMAT, "'%s': shard %zu is compressed: write the set with compression=None", path, i);
        else
            st = names_add(names, base);
    }
    json_decref(root);
    return st;
}

/* ---- hashes */

/* The hash of a kind as Python's xxhash prints it, "" for an unknown kind. */
static void hash_print(const char *kind, const Bytes *bytes, char text[40])
{
    text[0] = 0;
    if (!strcmp(kind, "xxh32")) snprintf(text, 40, "%08" PRIx32, (uint32_t)XXH32(bytes->data, bytes->size, 0));
    if (!strcmp(kind, "xxh64")) snprintf(text, 40, "%016" PRIx64, (uint64_t)XXH64(bytes->data, bytes->size, 0));
    if (!strcmp(kind, "xxh3_64")) snprintf(text, 40, "%016" PRIx64, (uint64_t)XXH3_64bits(bytes->data, bytes->size));
    if (!strcmp(kind, "xxh128") || !strcmp(kind, "xxh3_128")) {
        XXH128_hash_t hash = XXH3_128bits(bytes->data, bytes->size);
        snprintf(text, 40, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
    }
}

/* `path` NULL: what the index names is no file of the folder. */
static Status entry_differs(MdsHashes *found, const char *path, const char *message)
{
    TRY(names_add(&found->differ, message));
    return path ? names_add(&found->damaged, path) : OK;
}

/* One shard, whose file is no other than its entry says. */
static Status shard_hashes_check(const char *path, json_t *hashes, Bytes *bytes, MdsHashes *found)
{
    char message[PATH_BYTES + 128], hash[40];
    const char *kind;
    json_t *value;
    if (json_object_size(hashes) > 0) TRY(bytes_read(path, ANY_SIZE, ANY_SIZE, bytes));
    json_object_foreach(hashes, kind, value)
    {
        const char *wanted = json_string_value(value);
        hash_print(kind, bytes, hash);
        found->unknown += !*hash;
        found->equal += *hash && wanted && !strcmp(hash, wanted);
        if (!*hash || (wanted && !strcmp(hash, wanted))) continue;
        snprintf(message, sizeof message, "%s: its %s is %s, but index.json says %.64s: damaged", path, kind, hash,
                 wanted ? wanted : "nothing");
        TRY(names_add(&found->differ, message));
        TRY(names_add(&found->damaged, path));
    }
    return OK;
}

Status mds_hashes_check(const char *folder, MdsHashes *found)
{
    char index[PATH_BYTES], path[PATH_BYTES], message[STATUS_MESSAGE_BYTES];
    json_t *root;
    Bytes bytes = {0};
    Status st = OK;
    TRY(index_load(folder, index, &root));
    const json_t *shards = json_object_get(root, "shards");
    for (size_t i = 0; i < json_array_size(shards); i++) {
        Names files = {0};
        const json_t *entry = json_array_get(shards, i), *raw = json_object_get(entry, "raw_data");
        const char *base = json_word_or_empty(raw, "basename");
        TRY_OUT(path_join(path, folder, base));
        st = entry_take(folder, index, i, entry, &files);
        names_free(&files);
        snprintf(message, sizeof message, "%s", status_message());
        st = st == ERR_FORMAT ? entry_differs(found, is_below(base) ? path : NULL, message)
             : st == OK       ? shard_hashes_check(path, json_object_get(raw, "hashes"), &bytes, found)
                              : st;
        TRY_OUT(st);
    }
out:
    bytes_free(&bytes);
    json_decref(root);
    return st;
}

/* `file` has the bytes of an entry of the index of a folder. */
static Status listed_check(const char *folder, const char *name, const char *file, MdsHashes *found)
{
    char index[PATH_BYTES];
    json_t *root;
    Bytes bytes = {0};
    Status st = OK;
    TRY(index_load(folder, index, &root));
    const json_t *shards = json_object_get(root, "shards");
    for (size_t i = 0; i < json_array_size(shards) && st == OK; i++) {
        const json_t *raw = json_object_get(json_array_get(shards, i), "raw_data");
        if (strcmp(json_word_or_empty(raw, "basename"), name) != 0) continue;
        st = shard_hashes_check(file, json_object_get(raw, "hashes"), &bytes, found);
    }
    bytes_free(&bytes);
    json_decref(root);
    return st;
}

Status mds_shard_check(const char *path, const char *file, MdsHashes *found)
{
    char folder[PATH_BYTES], index[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    for (int up = 0; up < 2; up++) { /* as deep as shards lie below their index */
        char *slash = strrchr(folder, '/');
        if (!slash) return OK;
        *slash = 0;
        TRY(path_join(index, folder, MDS_INDEX));
        if (access(index, F_OK) == 0) return listed_check(folder, path + (slash - folder) + 1, file, found);
    }
    return OK;
}

void mds_hashes_free(MdsHashes *found)
{
    names_free(&found->differ);
    names_free(&found->damaged);
}
