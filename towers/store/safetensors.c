/* safetensors reader and writer; the format is described in safetensors.h.
 *
 * The reader maps the file and checks, in this order: the header's length against the file; that the header is one JSON
 * object in valid UTF-8 without duplicate keys; each entry (type, shape, size without overflow); and that the tensors
 * cover the data exactly: no hole, no overlap, nothing after the last one. Nothing is copied. Types smaller than a byte
 * and 8-bit floats are rejected. There is no protection against another process truncating the file while it is mapped. */
#include "towers/store/safetensors.h"
#include "kernels/base/array.h"
#include "kernels/base/place.h"
#include "kernels/tensor.h"
#include "towers/files/json.h"
#include "towers/files/utf8.h"

#include <jansson.h>
#include <sys/mman.h>

enum { LENGTH_BYTES = 8, ALIGNMENT = 8 };
#define METADATA_KEY "__metadata__"

struct SafeTensors {
    char *label;      /* owned: the name of the file in messages */
    json_t *header;   /* owned: holds every name and value */
    StTensor *tensor; /* owned, in file order */
    int *by_name;     /* owned: indices in the order of the names */
    StPair *pair;     /* owned */
    int count, pairs;
    void **owned; /* owned: [owned_count], what a wrapped file's tensors lie in */
    int owned_count;
    void *map; /* owned, or NULL when the bytes are borrowed */
    size_t map_bytes;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[ST_DTYPE_COUNT] = {
    [ST_F64] = {"F64", 8}, [ST_F32] = {"F32", 4},   [ST_F16] = {"F16", 2}, [ST_BF16] = {"BF16", 2},
    [ST_I64] = {"I64", 8}, [ST_I32] = {"I32", 4},   [ST_I16] = {"I16", 2}, [ST_I8] = {"I8", 1},
    [ST_U8] = {"U8", 1},   [ST_BOOL] = {"BOOL", 1}, [ST_U16] = {"U16", 2}, [ST_U32] = {"U32", 4},
    [ST_U64] = {"U64", 8},
};

size_t st_dtype_bytes(StDtype dtype)
{
    return (unsigned)dtype < ST_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *st_dtype_name(StDtype dtype)
{
    return (unsigned)dtype < ST_DTYPE_COUNT ? dtypes[dtype].name : "unknown type";
}

/* ---- checks of a tensor, for reading and writing */

static bool name_is_plain(const char *name)
{
    size_t count = strlen(name);
    for (const unsigned char *at = (const unsigned char *)name; *at; at++)
        if (*at < 0x20 || *at == 0x7f) return false;
    return count <= ST_MAX_NAME;
}

/* Size in bytes: element size times the dimensions; false on overflow. */
static bool shape_bytes(const StTensor *tensor, uint64_t *bytes)
{
    uint64_t product = st_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] < 0 || __builtin_mul_overflow(product, (uint64_t)tensor->dims[i], &product)) return false;
    *bytes = product;
    return true;
}

/* ---- other file formats, recognized by their first bytes */

static bool begins_with(const unsigned char *bytes, size_t count, const char *magic, size_t length)
{
    return count >= length && memcmp(bytes, magic, length) == 0;
}

/* OK if it could be a safetensors file. A pickle starts with its protocol version: 0x80, then 2 to 5. */
static Status other_formats_refuse(const char *label, const unsigned char *bytes, size_t count)
{
    size_t name = strlen(label);
    if (count > LENGTH_BYTES && bytes[LENGTH_BYTES] == '{') return OK;
    if (count > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5)
        return FAIL(ERR_CHECKPOINT,
                    "'%s' is a pickle, but not of torch.save; save the weights in Python:\n  "
                    "torch.save(model.state_dict(), 'weights.pth')",
                    label);
    if (begins_with(bytes, count, "PK\003\004", 4))
        return FAIL(ERR_CHECKPOINT, "'%s' is a zip archive, but a safetensors file was expected", label);
    if (count > 262 && !memcmp(bytes + 257, "ustar", 5))
        return FAIL(
            ERR_CHECKPOINT,
            "'%s' is a tar archive, but a safetensors file was expected; if PyTorch before 0.1.10 wrote it, save it "
            "again in Python:\n  torch.save(torch.load('%s', weights_only=False), 'weights.pth')",
            label, label);
    if (begins_with(bytes, count, "\211HDF\r\n\032\n", 8))
        return FAIL(ERR_CHECKPOINT, "'%s' is an HDF5 file (.h5), but weights are read from safetensors files", label);
    if (name > 5 && strcmp(label + name - 5, ".onnx") == 0)
        return FAIL(ERR_CHECKPOINT, "'%s' is an ONNX model, but weights are read from safetensors files", label);
    return OK;
}

/* ---- reading */

static Status header_find(const SafeTensors *file, const unsigned char *bytes, size_t count, size_t *header_bytes)
{
    uint64_t length = 0;
    if (count < LENGTH_BYTES + 2)
        return FAIL(ERR_CHECKPOINT, "'%s' has %zu bytes: too short for a safetensors file", file->label, count);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > count - LENGTH_BYTES)
        return FAIL(
            ERR_CHECKPOINT,
            "'%s': the header at offset 8 has %" PRIu64
            " bytes according to its length, but only %zu follow; the file is truncated or not a safetensors file",
            file->label, length, count - LENGTH_BYTES);
    if (length < 2 || length > ST_MAX_HEADER)
        return FAIL(ERR_CHECKPOINT, "'%s': the length field gives a header of %" PRIu64 " bytes; 2 to %d are accepted",
                    file->label, length, ST_MAX_HEADER);
    if (bytes[LENGTH_BYTES] != '{')
        return FAIL(ERR_CHECKPOINT,
                    "'%s': the header at offset 8 starts with byte 0x%02x, not with '{': not safetensors", file->label,
                    bytes[LENGTH_BYTES]);
    *header_bytes = (size_t)length;
    return OK;
}

static Status metadata_read(SafeTensors *file)
{
    const char *key;
    json_t *value, *metadata = json_object_get(file->header, METADATA_KEY);
    if (!metadata) return OK;
    if (!json_is_object(metadata)) return FAIL(ERR_CHECKPOINT, "'%s': " METADATA_KEY " is not an object", file->label);
    file->pair = calloc(json_object_size(metadata) + 1, sizeof *file->pair);
    if (!file->pair) return FAIL(ERR_MEMORY, "no memory for the metadata of '%s'", file->label);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return FAIL(ERR_CHECKPOINT, "'%s': " METADATA_KEY " '%.64s' is not a string", file->label, key);
        file->pair[file->pairs++] = (StPair){key, json_string_value(value)};
    }
    return OK;
}

static Status dtype_read(const SafeTensors *file, const json_t *entry, StTensor *tensor)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text)
        return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s' has no dtype, or one that is not a string", file->label,
                    tensor->name);
    for (int i = 0; i < ST_DTYPE_COUNT; i++)
        if (strcmp(text, dtypes[i].name) == 0) {
            tensor->dtype = (StDtype)i;
            return OK;
        }
    return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s' has dtype '%.32s', which is not supported", file->label,
                tensor->name, text);
}

static Status shape_read(const SafeTensors *file, const json_t *entry, StTensor *tensor)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s' has no shape", file->label, tensor->name);
    if (json_array_size(shape) > ST_MAX_RANK)
        return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s' has %zu dimensions; at most %d are accepted", file->label,
                    tensor->name, json_array_size(shape), ST_MAX_RANK);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s': dimension %zu is not a non-negative integer", file->label,
                        tensor->name, i);
        tensor->dims[tensor->rank++] = json_integer_value(size);
    }
    return OK;
}

static Status entry_read(SafeTensors *file, const char *name, const json_t *entry, const unsigned char *data,
                         uint64_t data_bytes)
{
    StTensor *tensor = &file->tensor[file->count];
    if (!name_is_plain(name))
        return FAIL(ERR_CHECKPOINT, "'%s': the tensor name '%.64s' is longer than %d bytes or holds control characters",
                    file->label, name, ST_MAX_NAME);
    tensor->name = name;
    if (json_object_size(entry) != 3)
        return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s' is not an object of exactly dtype, shape and data_offsets",
                    file->label, name);
    TRY(dtype_read(file, entry, tensor));
    TRY(shape_read(file, entry, tensor));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    uint64_t wanted;
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return FAIL(ERR_CHECKPOINT, "'%s': tensor '%s': data_offsets are not two integers", file->label, tensor->name);
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return FAIL(ERR_CHECKPOINT,
                    "'%s': tensor '%s' lies at data offsets %" PRId64 " to %" PRId64 ", outside of the %" PRIu64
                    " bytes of data",
                    file->label, tensor->name, begin, end, data_bytes);
    if (!shape_bytes(tensor, &wanted) || wanted != (uint64_t)(end - begin))
        return FAIL(ERR_CHECKPOINT,
                    "'%s': tensor '%s' lies at data offsets %" PRId64 " to %" PRId64
                    ", which is not the size of its shape and type",
                    file->label, tensor->name, begin, end);
    tensor->data = data + begin;
    tensor->bytes = (size_t)(end - begin);
    file->count++;
    return OK;
}

static int compare_spans(const void *a, const void *b)
{
    const StTensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The tensors in file order must cover the data exactly. */
static Status spans_check(SafeTensors *file, const unsigned char *data, uint64_t data_bytes)
{
    uint64_t covered = 0;
    qsort(file->tensor, (size_t)file->count, sizeof *file->tensor, compare_spans);
    for (int i = 0; i < file->count; i++) {
        const StTensor *tensor = &file->tensor[i];
        uint64_t begin = (uint64_t)((const unsigned char *)tensor->data - data);
        if (begin != covered)
            return FAIL(ERR_CHECKPOINT,
                        "'%s': tensor '%s' starts at data offset %" PRIu64 " where %" PRIu64 " was expected: %s",
                        file->label, tensor->name, begin, covered, begin > covered ? "a hole" : "tensors overlap");
        covered += tensor->bytes;
    }
    if (covered != data_bytes)
        return FAIL(ERR_CHECKPOINT, "'%s': %" PRIu64 " bytes follow the last tensor at data offset %" PRIu64,
                    file->label, data_bytes - covered, covered);
    return OK;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
    const StTensor *tensor = tensors;
    return strcmp(tensor[*(const int *)a].name, tensor[*(const int *)b].name);
}

static Status entries_read(SafeTensors *file, const unsigned char *data, uint64_t data_bytes)
{
    const char *name;
    json_t *entry;
    size_t entries = json_object_size(file->header);
    if (entries > ST_MAX_TENSORS)
        return FAIL(ERR_CHECKPOINT, "'%s' has %zu tensors; at most %d are accepted", file->label, entries,
                    ST_MAX_TENSORS);
    file->tensor = calloc(entries + 1, sizeof *file->tensor);
    file->by_name = calloc(entries + 1, sizeof *file->by_name);
    if (!file->tensor || !file->by_name)
        return FAIL(ERR_MEMORY, "no memory for %zu tensors of '%s'", entries, file->label);
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, METADATA_KEY) != 0) TRY(entry_read(file, name, entry, data, data_bytes));
    }
    TRY(spans_check(file, data, data_bytes));
    for (int i = 0; i < file->count; i++) file->by_name[i] = i;
    qsort_r(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names, file->tensor);
    return OK;
}

Status safetensors_parse(const void *bytes, size_t count, const char *name, SafeTensors **made)
{
    Status st = OK;
    size_t header_bytes = 0;
    SafeTensors *file = calloc(1, sizeof *file);
    if (!file || !(file->label = strdup(name))) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the reader of '%s'", name));
    TRY_OUT(other_formats_refuse(file->label, bytes, count));
    TRY_OUT(header_find(file, bytes, count, &header_bytes));
    json_error_t error;
    TRY_OUT(json_parse((const char *)bytes + LENGTH_BYTES, header_bytes, &file->header, &error));
    if (!file->header)
        TRY_OUT(FAIL(json_error_code(&error) == json_error_out_of_memory ? ERR_MEMORY : ERR_CHECKPOINT,
                     "'%s': the header is not valid JSON at offset %d: %s", file->label, LENGTH_BYTES + error.position,
                     error.text));
    if (!json_is_object(file->header))
        TRY_OUT(FAIL(ERR_CHECKPOINT, "'%s': the header is not a JSON object", file->label));
    TRY_OUT(metadata_read(file));
    size_t skip = LENGTH_BYTES + header_bytes;
    TRY_OUT(entries_read(file, (const unsigned char *)bytes + skip, count - skip));
    *made = file;
    file = NULL;
out:
    safetensors_close(file);
    return st;
}

/* Takes over its arguments only on success. */
Status safetensors_wrap(const char *name, StTensor *tensors, int count, void **owned, int owned_count,
                        SafeTensors **made)
{
    Status st = OK;
    SafeTensors *file = calloc(1, sizeof *file);
    if (!file || !(file->label = strdup(name)) || !(file->by_name = calloc((size_t)count + 1, sizeof *file->by_name)))
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for %d tensors of '%s'", count, name));
    for (int i = 0; i < count; i++) {
        if (!name_is_plain(tensors[i].name) || !utf8_valid(tensors[i].name))
            TRY_OUT(FAIL(ERR_CHECKPOINT, "'%s': tensor %d has a name that is not UTF-8 or holds control characters",
                         name, i));
        file->by_name[i] = i;
    }
    qsort_r(file->by_name, (size_t)count, sizeof *file->by_name, compare_names, tensors);
    for (int i = 1; i < count; i++)
        if (!strcmp(tensors[file->by_name[i - 1]].name, tensors[file->by_name[i]].name))
            TRY_OUT(FAIL(ERR_CHECKPOINT, "'%s' has two tensors '%s'", name, tensors[file->by_name[i]].name));
    file->tensor = tensors;
    file->count = count;
    file->owned = owned;
    file->owned_count = owned_count;
    *made = file;
    file = NULL;
out:
    safetensors_close(file);
    return st;
}

Status safetensors_open_as(const char *path, TensorsParse parse, SafeTensors **made)
{
    void *map = NULL;
    size_t count = 0;
    TRY(file_map(path, ERR_CHECKPOINT, SIZE_MAX, &map, &count));
    Status st = parse(map, count, path, made);
    if (st != OK) {
        munmap(map, count);
        return status_via(st, __FILE__, __LINE__, "safetensors_open_as");
    }
    (*made)->map = map;
    (*made)->map_bytes = count;
    return OK;
}

Status safetensors_open(const char *path, SafeTensors **made)
{
    return safetensors_open_as(path, safetensors_parse, made);
}

void safetensors_close(SafeTensors *file)
{
    if (!file) return;
    if (file->map) munmap(file->map, file->map_bytes);
    for (int i = 0; i < file->owned_count; i++) free(file->owned[i]);
    free(file->owned);
    json_decref(file->header);
    free(file->tensor);
    free(file->by_name);
    free(file->pair);
    free(file->label);
    free(file);
}

void safetensors_narrow(SafeTensors *file, const char *prefix)
{
    size_t bytes = strlen(prefix);
    int kept = 0;
    for (int i = 0; i < file->count; i++) {
        StTensor tensor = file->tensor[i];
        if (tensor.dict > bytes || strncmp(tensor.name, prefix, bytes) != 0) continue;
        tensor.name += bytes;
        tensor.dict = 0;
        file->by_name[kept] = kept;
        file->tensor[kept++] = tensor;
    }
    file->count = kept;
    qsort_r(file->by_name, (size_t)kept, sizeof *file->by_name, compare_names, file->tensor);
}

static Status owned_add(SafeTensors *file, void *memory)
{
    return ARRAY_ADD(file->owned, file->owned_count, "what tensors own", memory);
}

Status safetensors_own(SafeTensors *file, void *memory)
{
    Status st = owned_add(file, memory);
    if (st != OK) safetensors_close(file);
    return st;
}

Status safetensors_rename(SafeTensors *file, TensorNaming naming)
{
    for (int i = 0; i < file->count; i++) {
        char text[ST_MAX_NAME + 1];
        if (!naming(file->tensor[i].name, text, sizeof text)) continue;
        char *name = strdup(text);
        if (!name) return FAIL(ERR_MEMORY, "no memory for the names of '%s'", file->label);
        Status st = owned_add(file, name);
        if (st != OK) free(name);
        TRY(st);
        file->tensor[i].name = name;
    }
    qsort_r(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names, file->tensor);
    for (int i = 1; i < file->count; i++)
        if (!strcmp(file->tensor[file->by_name[i - 1]].name, file->tensor[file->by_name[i]].name))
            return FAIL(ERR_CHECKPOINT, "'%s' has two tensors '%s', one of them under another program's name",
                        file->label, file->tensor[file->by_name[i]].name);
    return OK;
}

int safetensors_count(const SafeTensors *file)
{
    return file->count;
}

const StTensor *safetensors_at(const SafeTensors *file, int index)
{
    return index >= 0 && index < file->count ? &file->tensor[index] : NULL;
}

const StTensor *safetensors_find(const SafeTensors *file, const char *name)
{
    int low = 0, high = file->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const StTensor *tensor = &file->tensor[file->by_name[middle]];
        int order = strcmp(name, tensor->name);
        if (order == 0) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *safetensors_metadata(const SafeTensors *file, const char *key)
{
    for (int i = 0; i < file->pairs; i++)
        if (strcmp(file->pair[i].key, key) == 0) return file->pair[i].value;
    return NULL;
}

int safetensors_pairs(const SafeTensors *file, const StPair **pairs)
{
    *pairs = file->pair;
    return file->pairs;
}

/* ---- writing */

/* Sort by alignment, widest first, then by name: every tensor is aligned, and equal content gives equal files. */
static int compare_layout(const void *a, const void *b)
{
    const StTensor *x = *(const StTensor *const *)a, *y = *(const StTensor *const *)b;
    size_t p = st_dtype_bytes(x->dtype), q = st_dtype_bytes(y->dtype);
    if (p != q) return p > q ? -1 : 1;
    return strcmp(x->name, y->name);
}

static Status tensor_check(const StTensor *tensor)
{
    uint64_t bytes;
    if (!name_is_plain(tensor->name) || strcmp(tensor->name, METADATA_KEY) == 0)
        return FAIL(ERR_ARG, "the tensor name '%.64s' is reserved, longer than %d bytes or holds control characters",
                    tensor->name, ST_MAX_NAME);
    if (!utf8_valid(tensor->name)) return FAIL(ERR_ARG, "the tensor name '%s' is not valid UTF-8", tensor->name);
    if (st_dtype_bytes(tensor->dtype) == 0 || tensor->rank < 0 || tensor->rank > ST_MAX_RANK)
        return FAIL(ERR_ARG, "tensor '%s' has type %d and rank %d", tensor->name, (int)tensor->dtype, tensor->rank);
    if (!shape_bytes(tensor, &bytes) || bytes != tensor->bytes)
        return FAIL(ERR_ARG, "tensor '%s' is given as %zu bytes, which is not the size of its shape and type",
                    tensor->name, tensor->bytes);
    return OK;
}

static Status entry_add(json_t *header, const StTensor *tensor, uint64_t begin)
{
    json_t *shape = json_array();
    if (json_object_get(header, tensor->name)) {
        json_decref(shape);
        return FAIL(ERR_ARG, "two tensors are called '%s'", tensor->name);
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (json_array_append_new(shape, json_integer(tensor->dims[i])) == 0) continue;
        json_decref(shape);
        return FAIL(ERR_MEMORY, "no memory for the shape of the tensor '%s'", tensor->name);
    }
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", st_dtype_name(tensor->dtype), "shape", shape,
                              "data_offsets", (json_int_t)begin, (json_int_t)(begin + tensor->bytes));
    if (json_object_set_new(header, tensor->name, entry) != 0)
        return FAIL(ERR_MEMORY, "no memory for the header entry of the tensor '%s'", tensor->name);
    return OK;
}

static Status metadata_add(json_t *header, const StPair *metadata, int pairs)
{
    if (!pairs) return OK;
    for (int i = 0; i < pairs; i++)
        if (!utf8_valid(metadata[i].key) || !utf8_valid(metadata[i].value))
            return FAIL(ERR_ARG, "the metadata '%.64s' is not valid UTF-8", metadata[i].key);
    json_t *object = json_object();
    for (int i = 0; i < pairs; i++)
        if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) != 0) {
            json_decref(object);
            return FAIL(ERR_MEMORY, "no memory for the metadata '%.64s'", metadata[i].key);
        }
    if (json_object_set_new(header, METADATA_KEY, object) != 0)
        return FAIL(ERR_MEMORY, "no memory for the metadata of a safetensors header");
    return OK;
}

static Status order_make(const StTensor *tensors, int count, const StTensor ***order)
{
    if (count < 0 || count > ST_MAX_TENSORS)
        return FAIL(ERR_ARG, "%d tensors; at most %d can be written", count, ST_MAX_TENSORS);
    const StTensor **made = calloc((size_t)count + 1, sizeof *made);
    if (!made) return FAIL(ERR_MEMORY, "no memory for the order of %d tensors", count);
    for (int i = 0; i < count; i++) made[i] = &tensors[i];
    qsort(made, (size_t)count, sizeof *made, compare_layout);
    *order = made;
    return OK;
}

/* Make the header's text, padded with spaces so that the data start at a multiple of 8. */
static Status header_make(const StTensor *const *order, int count, const StPair *metadata, int pairs, char **text,
                          size_t *text_bytes, uint64_t *data_bytes)
{
    Status st = OK;
    uint64_t offset = 0;
    json_t *header = json_object();
    char *made = NULL;
    TRY_OUT(metadata_add(header, metadata, pairs));
    for (int i = 0; i < count; i++) {
        TRY_OUT(tensor_check(order[i]));
        TRY_OUT(entry_add(header, order[i], offset));
        offset += order[i]->bytes;
    }
    size_t length = json_dumpb(header, NULL, 0, JSON_COMPACT), padded = align_up(length, ALIGNMENT);
    if (length == 0 || !(made = malloc(padded)) || json_dumpb(header, made, padded, JSON_COMPACT) != length)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for a safetensors header of %d tensors", count));
    if (padded > ST_MAX_HEADER) {
        st = FAIL(ERR_ARG, "the names of %d tensors make a header of %zu bytes; at most %d are accepted", count, padded,
                  ST_MAX_HEADER);
        goto out;
    }
    memset(made + length, ' ', padded - length);
    *text = made;
    *text_bytes = padded;
    *data_bytes = offset;
    made = NULL;
out:
    free(made);
    json_decref(header);
    return st;
}

Status safetensors_bytes(const StTensor *tensors, int count, const StPair *metadata, int pairs, uint64_t *bytes)
{
    const StTensor **order;
    char *header = NULL;
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    TRY(order_make(tensors, count, &order));
    Status st = header_make(order, count, metadata, pairs, &header, &header_bytes, &data_bytes);
    free(order);
    free(header);
    if (st == OK) *bytes = LENGTH_BYTES + header_bytes + data_bytes;
    return st;
}

Status safetensors_write(const char *path, const StTensor *tensors, int count, const StPair *metadata, int pairs,
                         FileSum *sum)
{
    Status st = OK;
    const StTensor **order = NULL;
    DurableFile *file = NULL;
    char *header = NULL;
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    unsigned char length[LENGTH_BYTES];
    TRY(order_make(tensors, count, &order));
    TRY_OUT(header_make(order, count, metadata, pairs, &header, &header_bytes, &data_bytes));
    for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (unsigned char)((uint64_t)header_bytes >> 8 * i);
    TRY_OUT(durable_create(path, LENGTH_BYTES + header_bytes + data_bytes, &file));
    TRY_OUT(durable_write(file, length, sizeof length));
    TRY_OUT(durable_write(file, header, header_bytes));
    for (int i = 0; i < count; i++) TRY_OUT(durable_write(file, order[i]->data, order[i]->bytes));
    TRY_OUT(durable_finish(file, sum));
out:
    durable_destroy(file);
    free(header);
    free(order);
    return st;
}

Status safetensors_replace(const char *path, const StTensor *tensors, int count, const StPair *metadata, int pairs)
{
    char temporary[PATH_BYTES];
    TRY(path_temporary(temporary, path));
    place_unlink(temporary); /* left by an earlier failed attempt of this process */
    TRY(safetensors_write(temporary, tensors, count, metadata, pairs, NULL));
    Status st = file_publish(temporary, path);
    if (st != OK) place_unlink(temporary);
    return st;
}
