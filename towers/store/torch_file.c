/* The reader of torch_file.h: finds the pickle in the archive (libarchive) or sequence, the tensors in the pickle, then
 * copies the storages that they use. */
#include "towers/store/torch_file.h"
#include "kernels/base/array.h"
#include "towers/store/pickle.h"

#include <archive.h>
#include <archive_entry.h>

typedef struct TorchFile {
    const char *bytes; /* borrowed */
    size_t count, at;  /* of a sequence: what comes next */
    const char *label;
    char *pickle_bytes; /* owned; the pickle's texts lie in it */
    Pickle pickle;
    const PickleValue **slot; /* owned: [slots], one of each storage, in the order of their keys */
    void **storage;           /* owned: [slots], their bytes; NULL until they were found */
    int *user;                /* owned: [slots], the first tensor that lies there, or -1 */
    int slots;
    size_t stored; /* bytes of all of them */
    size_t copied; /* bytes of tensors that are no plain range of their storage */
    StTensor *tensor;
    uint32_t *value; /* owned: [tensors], their numbers in the pickle */
    bool *seen;      /* owned: [values of the pickle], dicts and lists that the walk has entered */
    void **owned;    /* what the result owns */
    int tensors, owned_count;
} TorchFile;

/* What a small file may become, by compression or by tensors that repeat their numbers. Trained weights shrink to half at
 * most; more are zeros and constants. */
enum { GROWTH = 16, GROWTH_LEAST = 64 << 20 };

size_t torch_unpacked_most(size_t count)
{
    return count > GROWTH_LEAST / GROWTH ? count * GROWTH : GROWTH_LEAST;
}

/* ---- the first bytes */

enum { PROTO = 0x80, FRAME = 0x95, FRAME_BYTES = 9, SEQUENCE_VERSION = 1001, COUNT_BYTES = 8 };

/* The first pickle of a sequence is the number 0x1950a86a20f9469cfc6c, which each protocol writes in its way. The bytes
 * of that pickle; 0 if it is another one. */
static size_t sequence_begin(const void *bytes, size_t count)
{
    static const char binary[] = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                      text[] = "L119547037146038801333356L\n.";
    const unsigned char *at = bytes;
    size_t skip = count > 2 && at[0] == PROTO ? 2 : 0;
    if (skip && count > skip && at[skip] == FRAME) skip += FRAME_BYTES;
    const char *magic = skip ? binary : text;
    size_t length = strlen(magic);
    return count >= skip + length && !memcmp(at + skip, magic, length) ? skip + length : 0;
}

bool zip_is(const void *bytes, size_t count)
{
    return count >= 4 && memcmp(bytes, "PK\003\004", 4) == 0;
}

bool torch_file_is(const void *bytes, size_t count)
{
    return sequence_begin(bytes, count) || zip_is(bytes, count);
}

/* ---- the archive */

/* What follows the first folder of an entry's name: "data.pkl" of "archive/data.pkl". */
static const char *inner_name(struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry), *slash = name ? strchr(name, '/') : NULL;
    return slash ? slash + 1 : "";
}

static Status archive_refuse(const TorchFile *f, struct archive *archive, const char *what)
{
    const char *why = archive_error_string(archive);
    return FAIL(ERR_CHECKPOINT, "'%s' is a damaged zip archive: %s%s%s; download or save it again", f->label, what,
                *what ? ": " : "", why ? why : "it ends too early");
}

/* All bytes of an entry, to its end, where libarchive compares the checksum. */
static Status entry_take(const TorchFile *f, struct archive *archive, void *to, size_t bytes, const char *what)
{
    size_t got = 0;
    char beyond;
    while (got < bytes) {
        la_ssize_t now = archive_read_data(archive, (char *)to + got, bytes - got);
        if (now <= 0) return archive_refuse(f, archive, what);
        got += (size_t)now;
    }
    return archive_read_data(archive, &beyond, 1) == 0 ? OK : archive_refuse(f, archive, what);
}

static Status entry_bytes(const TorchFile *f, struct archive_entry *entry, size_t *bytes)
{
    int64_t size = archive_entry_size(entry);
    if (size < 0 || (uint64_t)size > torch_unpacked_most(f->count))
        return FAIL(ERR_CHECKPOINT,
                    "'%s': '%s' would have %" PRId64 " bytes, more than weights in a file of %zu bytes can have "
                    "(at most %zu)",
                    f->label, inner_name(entry), size, f->count, torch_unpacked_most(f->count));
    *bytes = (size_t)size;
    return OK;
}

/* Whether the directory of the archive has no checksum of its pickle, which is there under any name: torch.save leaves
 * out all of them after set_crc32_options(False). */
static bool lacks_checksums(const TorchFile *f)
{
    enum { SUM = 16, NAME_BYTES = 28, NAME = 46 };
    static const char begin[] = "PK\001\002", pickle[] = "/data.pkl";
    const char *end = f->bytes + f->count, *at = f->bytes;
    while ((at = memmem(at, (size_t)(end - at), begin, 4))) {
        size_t name =
            end - at > NAME ? (unsigned char)at[NAME_BYTES] | (size_t)(unsigned char)at[NAME_BYTES + 1] << 8 : 0;
        size_t length = strlen(pickle);
        if (name >= length && (size_t)(end - at) >= NAME + name && !memcmp(at + NAME + name - length, pickle, length))
            return !memcmp(at + SUM, "\0\0\0", 4);
        at += 4;
    }
    return false;
}

typedef Status (*Visit)(TorchFile *f, struct archive *archive, struct archive_entry *entry);

static Status entries_visit(TorchFile *f, Visit visit)
{
    Status st = OK;
    struct archive_entry *entry;
    struct archive *archive = archive_read_new();
    if (!archive) return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", f->label);
    archive_read_support_format_zip_seekable(archive);
    if (lacks_checksums(f)) archive_read_set_format_option(archive, "zip", "ignorecrc32", "1");
    if (archive_read_open_memory(archive, f->bytes, f->count) != ARCHIVE_OK) TRY_OUT(archive_refuse(f, archive, ""));
    int code;
    while ((code = archive_read_next_header(archive, &entry)) == ARCHIVE_OK || code == ARCHIVE_WARN)
        TRY_OUT(visit(f, archive, entry));
    if (code != ARCHIVE_EOF) TRY_OUT(archive_refuse(f, archive, ""));
out:
    archive_read_free(archive);
    return st;
}

/* ---- the pickle */

static Status order_refuse(const TorchFile *f)
{
    return FAIL(ERR_CHECKPOINT, "'%s' was written on a big-endian machine; save it on a little-endian one", f->label);
}

static Status pickle_visit(TorchFile *f, struct archive *archive, struct archive_entry *entry)
{
    const char *name = inner_name(entry);
    size_t bytes = 0;
    if (!strcmp(name, "byteorder")) {
        char order[6] = "";
        TRY(entry_bytes(f, entry, &bytes));
        if (bytes != sizeof order) return order_refuse(f);
        TRY(entry_take(f, archive, order, bytes, name));
        if (memcmp(order, "little", sizeof order)) return order_refuse(f);
    }
    if (strcmp(name, "data.pkl")) return OK;
    if (f->pickle_bytes) return FAIL(ERR_CHECKPOINT, "'%s' has two pickles, data.pkl", f->label);
    TRY(entry_bytes(f, entry, &bytes));
    if (bytes > PICKLE_MAX_BYTES)
        return FAIL(ERR_CHECKPOINT, "'%s': its pickle has %zu bytes; at most %d are accepted", f->label, bytes,
                    PICKLE_MAX_BYTES);
    f->pickle_bytes = malloc(bytes + 1);
    if (!f->pickle_bytes) return FAIL(ERR_MEMORY, "no memory for the pickle of '%s'", f->label);
    TRY(entry_take(f, archive, f->pickle_bytes, bytes, name));
    return pickle_parse(f->pickle_bytes, bytes, f->label, &f->pickle);
}

static Status archive_pickle(TorchFile *f)
{
    TRY(entries_visit(f, pickle_visit));
    if (f->pickle_bytes) return OK;
    return FAIL(
        ERR_CHECKPOINT,
        "'%s' is a zip archive without data.pkl (.npz, .keras), but weights are read from safetensors files and "
        "those of torch.save",
        f->label);
}

/* The pickle of a sequence at f->at, which moves behind it. */
static Status next_pickle(TorchFile *f, Pickle *made)
{
    TRY(pickle_parse(f->bytes + f->at, f->count - f->at, f->label, made));
    f->at += made->bytes;
    return OK;
}

/* The second one is the version of the form, the third says what kind of machine wrote it. */
static Status sequence_pickle(TorchFile *f)
{
    Status st = OK;
    Pickle version = {0}, machine = {0};
    f->at = sequence_begin(f->bytes, f->count);
    TRY_OUT(next_pickle(f, &version));
    const PickleValue *number = pickle_at(&version, version.root);
    if (number->kind != PICKLE_INT || number->number != SEQUENCE_VERSION)
        TRY_OUT(FAIL(ERR_CHECKPOINT, "'%s' is of another version than %d of PyTorch's old form", f->label,
                     SEQUENCE_VERSION));
    TRY_OUT(next_pickle(f, &machine));
    const PickleValue *little = pickle_get(&machine, pickle_at(&machine, machine.root), "little_endian");
    if (!little || little->kind != PICKLE_BOOL || !little->number) TRY_OUT(order_refuse(f));
    TRY_OUT(next_pickle(f, &f->pickle));
out:
    pickle_clear(&version);
    pickle_clear(&machine);
    return st;
}

/* ---- the tensors in it */

static Status own(TorchFile *f, void *memory)
{
    Status st = ARRAY_ADD(f->owned, f->owned_count, "what tensors own", memory);
    if (st != OK) free(memory);
    return st;
}

/* Where the walk is: "state_dict.module." */
typedef struct Path {
    char text[ST_MAX_NAME + 1];
    size_t used;
} Path;

static Status path_add(const TorchFile *f, Path *path, const char *text, size_t count)
{
    if (count > ST_MAX_NAME - path->used)
        return FAIL(ERR_CHECKPOINT, "'%s': the name of a tensor in '%s' is longer than %d bytes", f->label, path->text,
                    ST_MAX_NAME);
    memcpy(path->text + path->used, text, count);
    path->text[path->used += count] = 0;
    return OK;
}

/* A key that is text or a number; any other item is called by its place. */
static Status item_name(const TorchFile *f, Path *path, const PickleValue *key, int32_t place)
{
    char text[32];
    if (key && key->kind == PICKLE_TEXT && key->number && !memchr(key->text, 0, (size_t)key->number))
        return path_add(f, path, key->text, (size_t)key->number);
    if (key && key->kind == PICKLE_INT)
        snprintf(text, sizeof text, "%" PRId64, key->number);
    else
        snprintf(text, sizeof text, "(item %" PRId32 ")", place);
    return path_add(f, path, text, strlen(text));
}

static Status tensor_note(TorchFile *f, const Path *path, size_t dict, uint32_t number)
{
    if (f->tensors == ST_MAX_TENSORS)
        return FAIL(ERR_CHECKPOINT, "'%s' has more than %d tensors", f->label, ST_MAX_TENSORS);
    TRY(array_grow(&f->tensor, f->tensors, sizeof *f->tensor, "a list of tensors"));
    TRY(array_grow(&f->value, f->tensors, sizeof *f->value, "a list of tensors"));
    char *name = strdup(path->text);
    if (!name) return FAIL(ERR_MEMORY, "no memory for the names in '%s'", f->label);
    TRY(own(f, name));
    f->value[f->tensors] = number;
    f->tensor[f->tensors++] = (StTensor){.name = name, .dict = dict};
    return OK;
}

static bool holds_items(const PickleValue *value)
{
    return value->kind == PICKLE_DICT || value->kind == PICKLE_LIST || value->kind == PICKLE_TUPLE;
}

/* The tensors in a dict or list, and in those that it holds. One that is met again, within itself or beside, is passed
 * over, so that the walk ends; its tensors have the name of their first place. */
static Status items_walk(TorchFile *f, Path *path, uint32_t holder)
{
    const PickleValue *all = pickle_at(&f->pickle, holder);
    int32_t step = all->kind == PICKLE_DICT ? 2 : 1;
    size_t here = path->used;
    f->seen[holder] = true;
    for (int32_t i = step - 1; i < all->count; i += step) {
        uint32_t number = all->item[i];
        const PickleValue *value = pickle_at(&f->pickle, number);
        const PickleValue *key = step == 2 ? pickle_at(&f->pickle, all->item[i - 1]) : NULL;
        bool enters = holds_items(value) && !f->seen[number];
        if (!enters && value->kind != PICKLE_TENSOR) continue;
        TRY(item_name(f, path, key, i / step));
        if (enters) TRY(path_add(f, path, ".", 1));
        TRY(enters ? items_walk(f, path, number) : tensor_note(f, path, here, number));
        path->text[path->used = here] = 0;
    }
    return OK;
}

static Status tensors_find(TorchFile *f)
{
    Path path = {.used = 0};
    f->seen = calloc((size_t)f->pickle.values + 1, sizeof *f->seen);
    if (!f->seen) return FAIL(ERR_MEMORY, "no memory for the tensors of '%s'", f->label);
    if (holds_items(pickle_at(&f->pickle, f->pickle.root))) TRY(items_walk(f, &path, f->pickle.root));
    if (f->tensors) return OK;
    return FAIL(ERR_CHECKPOINT,
                "'%s' holds no state dict: expected a dict of tensors, alone or in a checkpoint; save "
                "model.state_dict()",
                f->label);
}

/* ---- storages */

static int compare_keys(const void *a, const void *b)
{
    const PickleValue *x = *(const PickleValue *const *)a, *y = *(const PickleValue *const *)b;
    if (x->text_bytes != y->text_bytes) return x->text_bytes < y->text_bytes ? -1 : 1;
    return memcmp(x->text, y->text, (size_t)x->text_bytes);
}

/* A storage is named once for each tensor that uses it. */
static Status slots_make(TorchFile *f)
{
    int count = 0;
    for (int32_t i = 0; i < f->pickle.values; i++) count += pickle_at(&f->pickle, (uint32_t)i)->kind == PICKLE_STORAGE;
    f->slot = calloc((size_t)count + 1, sizeof *f->slot);
    f->storage = calloc((size_t)count + 1, sizeof *f->storage);
    f->user = malloc(((size_t)count + 1) * sizeof *f->user);
    if (!f->slot || !f->storage || !f->user)
        return FAIL(ERR_MEMORY, "no memory for %d storages of '%s'", count, f->label);
    count = 0;
    for (int32_t i = 0; i < f->pickle.values; i++) {
        const PickleValue *v = pickle_at(&f->pickle, (uint32_t)i);
        if (v->kind == PICKLE_STORAGE) f->slot[count++] = v;
    }
    qsort(f->slot, (size_t)count, sizeof *f->slot, compare_keys);
    for (int i = 0; i < count; i++) {
        const PickleValue *v = f->slot[i], *last = f->slots ? f->slot[f->slots - 1] : NULL;
        if (!last || compare_keys(&last, &v))
            f->slot[f->slots++] = v;
        else if (last->dtype != v->dtype || last->number != v->number)
            return FAIL(ERR_CHECKPOINT, "'%s': its pickle gives storage %.*s two types or sizes", f->label,
                        (int)v->text_bytes, v->text);
    }
    return OK;
}

/* The number of the storage with the key of `wanted`, or -1. */
static int slot_find(const TorchFile *f, const PickleValue *wanted)
{
    const PickleValue **found = bsearch(&wanted, f->slot, (size_t)f->slots, sizeof *f->slot, compare_keys);
    return found ? (int)(found - f->slot) : -1;
}

static void users_find(TorchFile *f)
{
    for (int i = 0; i < f->slots; i++) f->user[i] = -1;
    for (int i = f->tensors - 1; i >= 0; i--) {
        int slot = slot_find(f, pickle_at(&f->pickle, pickle_at(&f->pickle, f->value[i])->item[0]));
        if (slot >= 0) f->user[slot] = i;
    }
}

/* Memory for the storage of slot i, which the file says has so many bytes. */
static Status storage_make(TorchFile *f, int i, const char *name, size_t bytes)
{
    const PickleValue *v = f->slot[i];
    if (f->storage[i]) return FAIL(ERR_CHECKPOINT, "'%s' has '%s' twice", f->label, name);
    if ((uint64_t)v->number > torch_unpacked_most(f->count) || bytes != (size_t)v->number * st_dtype_bytes(v->dtype))
        return FAIL(ERR_CHECKPOINT, "'%s': '%s' has %zu bytes, but its pickle says %" PRId64 " numbers of type %s",
                    f->label, name, bytes, v->number, st_dtype_name(v->dtype));
    if ((f->stored += bytes) > torch_unpacked_most(f->count))
        return FAIL(ERR_CHECKPOINT,
                    "'%s': its weights would take %zu bytes, more than those in a file of %zu bytes can take (at most "
                    "%zu)",
                    f->label, f->stored, f->count, torch_unpacked_most(f->count));
    void *memory = malloc(bytes + 1);
    if (!memory) return FAIL(ERR_MEMORY, "no memory for the weights in '%s' (%zu bytes)", f->label, bytes);
    TRY(own(f, memory));
    f->storage[i] = memory;
    return OK;
}

static Status storage_visit(TorchFile *f, struct archive *archive, struct archive_entry *entry)
{
    const char *name = inner_name(entry);
    char what[ST_MAX_NAME + 128];
    size_t bytes = 0;
    if (strncmp(name, "data/", 5) || strlen(name) > 69) return OK;
    int i = slot_find(f, &(PickleValue){.text = name + 5, .text_bytes = (int32_t)strlen(name + 5)});
    if (i < 0) return OK;
    TRY(entry_bytes(f, entry, &bytes));
    TRY(storage_make(f, i, name, bytes));
    snprintf(what, sizeof what, "'%s', of the tensor '%s'", name, f->user[i] < 0 ? "" : f->tensor[f->user[i]].name);
    return entry_take(f, archive, f->storage[i], bytes, what);
}

/* The storage at f->at, which moves behind it. */
static Status next_storage(TorchFile *f, const PickleValue *key)
{
    uint64_t elements = 0, left = f->count - f->at;
    char name[65];
    int i = -1;
    if (key->kind == PICKLE_TEXT && key->number <= 64)
        i = slot_find(f, &(PickleValue){.text = key->text, .text_bytes = (int32_t)key->number});
    if (i < 0) return FAIL(ERR_CHECKPOINT, "'%s' lists a storage that its pickle does not name", f->label);
    if (left >= COUNT_BYTES) memcpy(&elements, f->bytes + f->at, COUNT_BYTES);
    size_t element = st_dtype_bytes(f->slot[i]->dtype);
    if (left < COUNT_BYTES || elements > (left - COUNT_BYTES) / element)
        return FAIL(ERR_CHECKPOINT, "'%s' is cut off: it ends within its weights; download or save it again", f->label);
    snprintf(name, sizeof name, "%.*s", (int)key->number, key->text);
    TRY(storage_make(f, i, name, elements * element));
    memcpy(f->storage[i], f->bytes + f->at + COUNT_BYTES, elements * element);
    f->at += COUNT_BYTES + elements * element;
    return OK;
}

static Status sequence_storages(TorchFile *f)
{
    Status st = OK;
    Pickle keys = {0};
    TRY_OUT(next_pickle(f, &keys));
    const PickleValue *list = pickle_at(&keys, keys.root);
    if (list->kind != PICKLE_LIST) TRY_OUT(FAIL(ERR_CHECKPOINT, "'%s' has no list of its storages", f->label));
    for (int32_t i = 0; i < list->count; i++) TRY_OUT(next_storage(f, pickle_at(&keys, list->item[i])));
out:
    pickle_clear(&keys);
    return st;
}

/* ---- tensors */

static Status tensor_refuse(const TorchFile *f, const char *name, const char *why)
{
    return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s' %s", f->label, name, why);
}

typedef struct View {
    int64_t size[ST_MAX_RANK], stride[ST_MAX_RANK], offset, count;
    int rank;
    bool plain; /* a range of its storage, in order */
} View;

/* Sizes and strides are anybody's: every element must lie in the storage. */
static Status view_read(const TorchFile *f, const char *name, const PickleValue *tensor, int64_t elements, View *view)
{
    const PickleValue *size = pickle_at(&f->pickle, tensor->item[2]), *stride = pickle_at(&f->pickle, tensor->item[3]);
    *view = (View){
        .offset = pickle_at(&f->pickle, tensor->item[1])->number, .rank = size->count, .count = 1, .plain = true};
    int64_t last = view->offset;
    for (int d = view->rank - 1; d >= 0; d--) {
        int64_t n = view->size[d] = pickle_at(&f->pickle, size->item[d])->number, far;
        view->stride[d] = pickle_at(&f->pickle, stride->item[d])->number;
        if (n < 0 || view->stride[d] < 0) return tensor_refuse(f, name, "has a negative size or stride");
        if (n > 1 && view->stride[d] != view->count) view->plain = false;
        if (n > 1 && (__builtin_mul_overflow(n - 1, view->stride[d], &far) || __builtin_add_overflow(last, far, &last)))
            return tensor_refuse(f, name, "lies outside of its storage");
        if (__builtin_mul_overflow(view->count, n, &view->count)) return tensor_refuse(f, name, "is too large");
    }
    if (view->offset < 0 || (view->count && last >= elements) || view->offset > elements)
        return tensor_refuse(f, name, "lies outside of its storage");
    return OK;
}

static void gather(const View *view, size_t element, const char *from, char *to)
{
    int64_t at[ST_MAX_RANK] = {0};
    for (int64_t i = 0; i < view->count; i++) {
        int64_t place = view->offset;
        for (int d = 0; d < view->rank; d++) place += at[d] * view->stride[d];
        memcpy(to + (size_t)i * element, from + (size_t)place * element, element);
        for (int d = view->rank - 1; d >= 0 && ++at[d] == view->size[d]; d--) at[d] = 0;
    }
}

/* The numbers of a view in order, in memory of their own. */
static Status tensor_gather(TorchFile *f, const View *view, size_t element, const char *from, StTensor *t)
{
    size_t room = torch_unpacked_most(f->count) - f->copied;
    if ((uint64_t)view->count > room / element)
        return tensor_refuse(f, t->name,
                             "repeats its numbers (expand) too often for a file of this size; save it after "
                             "contiguous()");
    t->bytes = (size_t)view->count * element;
    f->copied += t->bytes;
    char *copy = malloc(t->bytes + 1);
    if (!copy) return FAIL(ERR_MEMORY, "no memory for the tensor '%s' of '%s'", t->name, f->label);
    TRY(own(f, copy));
    gather(view, element, from, copy);
    t->data = copy;
    return OK;
}

static Status tensor_fill(TorchFile *f, int i)
{
    const PickleValue *value = pickle_at(&f->pickle, f->value[i]), *storage = pickle_at(&f->pickle, value->item[0]);
    int slot = slot_find(f, storage);
    const char *from = slot < 0 ? NULL : f->storage[slot];
    View view;
    StTensor *t = &f->tensor[i];
    if (!from) return tensor_refuse(f, t->name, "has a storage that the file lacks");
    TRY(view_read(f, t->name, value, storage->number, &view));
    size_t element = st_dtype_bytes(storage->dtype);
    t->dtype = storage->dtype;
    t->rank = view.rank;
    memcpy(t->dims, view.size, sizeof t->dims);
    if (!view.plain) return tensor_gather(f, &view, element, from, t);
    t->bytes = (size_t)view.count * element;
    t->data = from + (size_t)view.offset * element;
    return OK;
}

/* ---- all of it */

Status torch_file_parse(const void *bytes, size_t count, const char *name, SafeTensors **made)
{
    Status st = OK;
    TorchFile f = {.bytes = bytes, .count = count, .label = name};
    bool sequence = sequence_begin(bytes, count) > 0;
    TRY_OUT(sequence ? sequence_pickle(&f) : archive_pickle(&f));
    TRY_OUT(tensors_find(&f));
    TRY_OUT(slots_make(&f));
    users_find(&f);
    TRY_OUT(sequence ? sequence_storages(&f) : entries_visit(&f, storage_visit));
    for (int i = 0; i < f.tensors; i++) TRY_OUT(tensor_fill(&f, i));
    TRY_OUT(safetensors_wrap(name, f.tensor, f.tensors, f.owned, f.owned_count, made));
    f.tensor = NULL;
    f.owned = NULL;
out:
    for (int i = 0; f.owned && i < f.owned_count; i++) free(f.owned[i]);
    free(f.owned);
    free(f.tensor);
    free(f.value);
    free(f.seen);
    free(f.storage);
    free(f.user);
    free(f.slot);
    pickle_clear(&f.pickle);
    free(f.pickle_bytes);
    return st;
}
