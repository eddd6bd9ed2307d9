/* The reader of torch_file.h: finds the pickle in the archive (libarchive) or sequence, the state dict in the pickle, then
 * copies the storages that its tensors use. */
#include "towers/store/torch_file.h"
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
    int slots;
    size_t stored; /* bytes of all of them */
    size_t copied; /* bytes of tensors that are no plain range of their storage */
    StTensor *tensor;
    void **owned; /* what the result owns */
    int tensors, owned_count;
} TorchFile;

/* The first pickle of a sequence: the number 0x1950a86a20f9469cfc6c. */
static const char sequence_begin[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
enum { BEGIN_BYTES = sizeof sequence_begin - 1, SEQUENCE_VERSION = 1001, COUNT_BYTES = 8 };

static bool is_sequence(const void *bytes, size_t count)
{
    return count >= BEGIN_BYTES && memcmp(bytes, sequence_begin, BEGIN_BYTES) == 0;
}

bool torch_file_is(const void *bytes, size_t count)
{
    return is_sequence(bytes, count) || (count >= 4 && memcmp(bytes, "PK\003\004", 4) == 0);
}

/* ---- the archive */

/* What follows the first folder of an entry's name: "data.pkl" of "archive/data.pkl". */
static const char *inner_name(struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry), *slash = name ? strchr(name, '/') : NULL;
    return slash ? slash + 1 : "";
}

static Status archive_refuse(const TorchFile *f, struct archive *archive)
{
    const char *why = archive_error_string(archive);
    return FAIL(ERR_CHECKPOINT, "'%s' is a damaged zip archive: %s; download or save it again", f->label,
                why ? why : "it ends too early");
}

static Status entry_take(const TorchFile *f, struct archive *archive, void *to, size_t bytes)
{
    size_t got = 0;
    while (got < bytes) {
        la_ssize_t now = archive_read_data(archive, (char *)to + got, bytes - got);
        if (now <= 0) return archive_refuse(f, archive);
        got += (size_t)now;
    }
    return OK;
}

/* Nothing in the archive may be larger than the archive: torch.save does not compress. */
static Status entry_bytes(const TorchFile *f, struct archive_entry *entry, size_t *bytes)
{
    int64_t size = archive_entry_size(entry);
    if (size < 0 || (uint64_t)size > f->count)
        return FAIL(ERR_CHECKPOINT,
                    "'%s': '%s' would have %" PRId64 " bytes, more than the file: torch.save compresses "
                    "nothing",
                    f->label, inner_name(entry), size);
    *bytes = (size_t)size;
    return OK;
}

typedef Status (*Visit)(TorchFile *f, struct archive *archive, struct archive_entry *entry);

static Status entries_visit(TorchFile *f, Visit visit)
{
    Status st = OK;
    struct archive_entry *entry;
    struct archive *archive = archive_read_new();
    if (!archive) return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", f->label);
    archive_read_support_format_zip_seekable(archive);
    if (archive_read_open_memory(archive, f->bytes, f->count) != ARCHIVE_OK) TRY_OUT(archive_refuse(f, archive));
    int code;
    while ((code = archive_read_next_header(archive, &entry)) == ARCHIVE_OK || code == ARCHIVE_WARN)
        TRY_OUT(visit(f, archive, entry));
    if (code != ARCHIVE_EOF) TRY_OUT(archive_refuse(f, archive));
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
        TRY(entry_take(f, archive, order, bytes < 6 ? bytes : 6));
        if (memcmp(order, "little", 6)) return order_refuse(f);
    }
    if (strcmp(name, "data.pkl")) return OK;
    if (f->pickle_bytes) return FAIL(ERR_CHECKPOINT, "'%s' has two pickles, data.pkl", f->label);
    TRY(entry_bytes(f, entry, &bytes));
    if (bytes > PICKLE_MAX_BYTES)
        return FAIL(ERR_CHECKPOINT, "'%s': its pickle has %zu bytes; at most %d are accepted", f->label, bytes,
                    PICKLE_MAX_BYTES);
    f->pickle_bytes = malloc(bytes + 1);
    if (!f->pickle_bytes) return FAIL(ERR_MEMORY, "no memory for the pickle of '%s'", f->label);
    TRY(entry_take(f, archive, f->pickle_bytes, bytes));
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
    f->at = BEGIN_BYTES;
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

static bool has_tensor(const TorchFile *f, const PickleValue *dict)
{
    for (int32_t i = 1; dict && dict->kind == PICKLE_DICT && i < dict->count; i += 2)
        if (pickle_at(&f->pickle, dict->item[i])->kind == PICKLE_TENSOR) return true;
    return false;
}

/* The root itself, or what it holds under one of the names that trainers use. */
static Status state_dict_find(const TorchFile *f, const PickleValue **found)
{
    static const char *const wrapped[] = {"state_dict", "model", "model_ema", NULL};
    const PickleValue *root = pickle_at(&f->pickle, f->pickle.root);
    for (int i = 0; wrapped[i] && root->kind == PICKLE_DICT; i++) {
        *found = pickle_get(&f->pickle, root, wrapped[i]);
        if (has_tensor(f, *found)) return OK;
    }
    *found = root;
    if (has_tensor(f, root)) return OK;
    return FAIL(ERR_CHECKPOINT,
                "'%s' holds no state dict: expected a dict of tensors, or one under \"state_dict\", \"model\" or "
                "\"model_ema\"; save model.state_dict()",
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
    if (!f->slot || !f->storage) return FAIL(ERR_MEMORY, "no memory for %d storages of '%s'", count, f->label);
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

/* Memory for the storage of slot i, which the file says has so many bytes. */
static Status storage_make(TorchFile *f, int i, const char *name, size_t bytes)
{
    const PickleValue *v = f->slot[i];
    if (f->storage[i]) return FAIL(ERR_CHECKPOINT, "'%s' has '%s' twice", f->label, name);
    if ((uint64_t)v->number > f->count || bytes != (size_t)v->number * st_dtype_bytes(v->dtype))
        return FAIL(ERR_CHECKPOINT, "'%s': '%s' has %zu bytes, but its pickle says %" PRId64 " numbers of type %s",
                    f->label, name, bytes, v->number, st_dtype_name(v->dtype));
    if ((f->stored += bytes) > f->count)
        return FAIL(ERR_CHECKPOINT, "'%s': its storages are larger than the file", f->label);
    f->storage[i] = malloc(bytes + 1);
    if (!f->storage[i]) return FAIL(ERR_MEMORY, "no memory for the weights in '%s' (%zu bytes)", f->label, bytes);
    f->owned[f->owned_count++] = f->storage[i];
    return OK;
}

static Status storage_visit(TorchFile *f, struct archive *archive, struct archive_entry *entry)
{
    const char *name = inner_name(entry);
    size_t bytes = 0;
    if (strncmp(name, "data/", 5) || strlen(name) > 69) return OK;
    int i = slot_find(f, &(PickleValue){.text = name + 5, .text_bytes = (int32_t)strlen(name + 5)});
    if (i < 0) return OK;
    TRY(entry_bytes(f, entry, &bytes));
    TRY(storage_make(f, i, name, bytes));
    return entry_take(f, archive, f->storage[i], bytes);
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

/* Sizes and strides are a stranger's: every element must lie in the storage, and none may be there twice. */
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
    if (view->count > elements)
        return tensor_refuse(f, name, "repeats its numbers (expand); save it after contiguous()");
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

static Status tensor_add(TorchFile *f, const char *name, const PickleValue *value)
{
    const PickleValue *storage = pickle_at(&f->pickle, value->item[0]);
    int slot = slot_find(f, storage);
    const void *from = slot < 0 ? NULL : f->storage[slot];
    View view;
    StTensor *t = &f->tensor[f->tensors];
    if (!from) return tensor_refuse(f, name, "has a storage that the file lacks");
    TRY(view_read(f, name, value, storage->number, &view));
    size_t element = st_dtype_bytes(storage->dtype);
    *t = (StTensor){.name = name, .dtype = storage->dtype, .rank = view.rank, .bytes = (size_t)view.count * element};
    memcpy(t->dims, view.size, sizeof t->dims);
    t->data = (const char *)from + (view.plain ? (size_t)view.offset * element : 0);
    if (!view.plain) {
        if ((f->copied += t->bytes) > f->count)
            return tensor_refuse(f, name, "is one view too many of the same numbers");
        char *copy = malloc(t->bytes + 1);
        if (!copy) return FAIL(ERR_MEMORY, "no memory for the tensor '%s' of '%s'", name, f->label);
        f->owned[f->owned_count++] = copy;
        gather(&view, element, from, copy);
        t->data = copy;
    }
    f->tensors++;
    return OK;
}

/* ---- names */

/* The length of what all names but that of `n_averaged` (torch.optim.swa_utils) begin with and the network does not know. */
static size_t common_prefix(const TorchFile *f, const PickleValue *dict, size_t skip)
{
    static const char *const prefixes[] = {"module.", "_orig_mod.", "backbone.", "model.", NULL};
    for (int p = 0; prefixes[p]; p++) {
        size_t length = strlen(prefixes[p]);
        bool all = true;
        for (int32_t i = 0; i + 1 < dict->count && all; i += 2) {
            const PickleValue *key = pickle_at(&f->pickle, dict->item[i]);
            if (pickle_at(&f->pickle, dict->item[i + 1])->kind != PICKLE_TENSOR) continue;
            if (key->number == 10 && !memcmp(key->text, "n_averaged", 10)) continue;
            all = (size_t)key->number > skip + length && !memcmp(key->text + skip, prefixes[p], length);
        }
        if (all) return skip + length;
    }
    return skip;
}

static Status name_take(TorchFile *f, const PickleValue *key, size_t skip, const char **made)
{
    size_t count = (size_t)key->number > skip ? (size_t)key->number - skip : 0;
    if (key->kind != PICKLE_TEXT || count == 0 || count > ST_MAX_NAME || memchr(key->text, 0, (size_t)key->number))
        return FAIL(ERR_CHECKPOINT, "'%s': the state dict has a name that is no text, or longer than %d bytes",
                    f->label, ST_MAX_NAME);
    char *name = strndup(key->text + skip, count);
    if (!name) return FAIL(ERR_MEMORY, "no memory for the names in '%s'", f->label);
    f->owned[f->owned_count++] = name;
    *made = name;
    return OK;
}

static Status tensors_take(TorchFile *f, const PickleValue *dict)
{
    size_t skip = 0, longer;
    for (int32_t i = 0; i + 1 < dict->count; i += 2)
        if (pickle_at(&f->pickle, dict->item[i])->kind != PICKLE_TEXT)
            return FAIL(ERR_CHECKPOINT, "'%s': the state dict has a name that is no text", f->label);
    while ((longer = common_prefix(f, dict, skip)) > skip) skip = longer;
    for (int32_t i = 0; i + 1 < dict->count; i += 2) {
        const PickleValue *key = pickle_at(&f->pickle, dict->item[i]),
                          *value = pickle_at(&f->pickle, dict->item[i + 1]);
        const char *name = NULL;
        if (value->kind != PICKLE_TENSOR) continue; /* None, or the state of a module of its own kind */
        if (skip && key->number == 10 && !memcmp(key->text, "n_averaged", 10)) continue;
        if (f->tensors == ST_MAX_TENSORS)
            return FAIL(ERR_CHECKPOINT, "'%s' has more than %d tensors", f->label, ST_MAX_TENSORS);
        TRY(name_take(f, key, skip, &name));
        TRY(tensor_add(f, name, value));
    }
    return OK;
}

/* ---- all of it */

static Status arrays_create(TorchFile *f, const PickleValue *dict)
{
    size_t tensors = (size_t)dict->count / 2;
    TRY(slots_make(f));
    f->tensor = calloc(tensors + 1, sizeof *f->tensor);
    f->owned = calloc(2 * tensors + (size_t)f->slots + 1, sizeof *f->owned);
    return f->tensor && f->owned ? OK : FAIL(ERR_MEMORY, "no memory for the tensors of '%s'", f->label);
}

Status torch_file_parse(const void *bytes, size_t count, const char *name, SafeTensors **made)
{
    Status st = OK;
    const PickleValue *dict = NULL;
    TorchFile f = {.bytes = bytes, .count = count, .label = name};
    bool sequence = is_sequence(bytes, count);
    TRY_OUT(sequence ? sequence_pickle(&f) : archive_pickle(&f));
    TRY_OUT(state_dict_find(&f, &dict));
    TRY_OUT(arrays_create(&f, dict));
    TRY_OUT(sequence ? sequence_storages(&f) : entries_visit(&f, storage_visit));
    TRY_OUT(tensors_take(&f, dict));
    TRY_OUT(safetensors_wrap(name, f.tensor, f.tensors, f.owned, f.owned_count, made));
    f.tensor = NULL;
    f.owned = NULL;
out:
    for (int i = 0; f.owned && i < f.owned_count; i++) free(f.owned[i]);
    free(f.owned);
    free(f.tensor);
    free(f.storage);
    free(f.slot);
    pickle_clear(&f.pickle);
    free(f.pickle_bytes);
    return st;
}
