/* The numbers of tensors, in the file or in others beside it; see onnx_read.h. External data is read from files in the folder of the ONNX file
 * alone: a name may lead neither upwards nor, by a link, out of that folder. */
#include "inception/networks/onnx_read.h"
#include "kernels/tensor.h"
#include "towers/files/files.h"

static const uint64_t external_most = (uint64_t)1 << 33; /* bytes of all tensors together */

/* ---- tensors */

static size_t element_bytes(OnnxElement type)
{
    switch (type) {
    case ELEMENT_UINT8:
    case ELEMENT_INT8:
    case ELEMENT_BOOL: return 1;
    case ELEMENT_UINT16:
    case ELEMENT_INT16:
    case ELEMENT_FLOAT16:
    case ELEMENT_BFLOAT16: return 2;
    case ELEMENT_FLOAT:
    case ELEMENT_INT32: return 4;
    case ELEMENT_INT64:
    case ELEMENT_DOUBLE: return 8;
    }
    return 0;
}

/* The elements in the typed field of its type. */
static size_t typed_count(const Onnx__TensorProto *p, OnnxElement type)
{
    switch (type) {
    case ELEMENT_FLOAT: return p->n_float_data;
    case ELEMENT_DOUBLE: return p->n_double_data;
    case ELEMENT_INT64: return p->n_int64_data;
    default: return p->n_int32_data;
    }
}

const char *onnx_tensor_name(const Onnx__TensorProto *p)
{
    return p->name ? p->name : "";
}

static Status dims_read(const OnnxFile *file, const Onnx__TensorProto *p, OnnxTensor *t)
{
    if (p->n_dims > NET_FILE_RANK)
        return FAIL(ERR_FORMAT, "'%s': tensor '%s' has %zu dimensions; expected at most %d", file->path,
                    onnx_tensor_name(p), p->n_dims, NET_FILE_RANK);
    t->rank = (int)p->n_dims;
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        t->dims[i] = p->dims[i];
        if (p->dims[i] < 0 || p->dims[i] > INT32_MAX || __builtin_mul_overflow(t->count, p->dims[i], &t->count) ||
            t->count > ONNX_FILE_BYTES)
            return FAIL(ERR_FORMAT, "'%s': tensor '%s' has more elements than a file holds, or a negative size",
                        file->path, onnx_tensor_name(p));
    }
    return OK;
}

Status onnx_tensor(const OnnxFile *file, Onnx__TensorProto *p, OnnxTensor *t)
{
    *t = (OnnxTensor){.proto = p, .type = (OnnxElement)p->data_type};
    TRY(dims_read(file, p, t));
    size_t bytes = element_bytes(t->type), typed = typed_count(p, t->type);
    if (!bytes)
        return FAIL(ERR_FORMAT, "'%s': tensor '%s' has elements of type %d, which no network of floats needs",
                    file->path, onnx_tensor_name(p), p->data_type);
    if (p->has_raw_data) t->raw = p->raw_data.data;
    if (p->has_raw_data ? p->raw_data.len == (size_t)t->count * bytes : typed == (size_t)t->count) return OK;
    t->absent = file->structure && !p->has_raw_data && !typed;
    if (t->absent) return OK;
    return FAIL(ERR_FORMAT, "'%s': tensor '%s' has dimensions for %" PRId64 " elements and data for %zu", file->path,
                onnx_tensor_name(p), t->count, p->has_raw_data ? p->raw_data.len / bytes : typed);
}

double onnx_element(const OnnxTensor *t, int64_t at)
{
    const Onnx__TensorProto *p = t->proto;
    const unsigned char *raw = t->raw ? (const unsigned char *)t->raw + (size_t)at * element_bytes(t->type) : NULL;
    int32_t small = 0;
    int64_t large = 0;
    double real = 0;
    if (t->absent) return 0;
    switch (t->type) {
    case ELEMENT_FLOAT: return (double)element_read(DTYPE_F32, raw ? t->raw : p->float_data, at);
    case ELEMENT_DOUBLE: memcpy(&real, raw ? raw : (const void *)&p->double_data[at], sizeof real); return real;
    case ELEMENT_INT64:
        memcpy(&large, raw ? raw : (const void *)&p->int64_data[at], sizeof large);
        return (double)large;
    default: break;
    }
    if (raw)
        memcpy(&small, raw, element_bytes(t->type));
    else
        small = p->int32_data[at];
    switch (t->type) {
    case ELEMENT_INT8: return (int8_t)small;
    case ELEMENT_INT16: return (int16_t)small;
    case ELEMENT_FLOAT16: return (double)element_read(DTYPE_F16, &small, 0);
    case ELEMENT_BFLOAT16: return (double)element_read(DTYPE_BF16, &small, 0);
    default: return small;
    }
}

/* ---- external data */

static const char *pair_value(const Onnx__TensorProto *p, const char *key)
{
    for (size_t i = 0; i < p->n_external_data; i++)
        if (p->external_data[i]->key && !strcmp(p->external_data[i]->key, key)) return p->external_data[i]->value;
    return NULL;
}

static bool number_read(const char *text, uint64_t otherwise, uint64_t *number)
{
    char *end = NULL;
    *number = otherwise;
    if (!text) return true;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool leads_upward(const char *location)
{
    for (const char *part = location; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/')) return true;
    return *location == '/' || !*location;
}

/* Whether `path` lies in the folder of `beside`, after all links. */
static bool is_beside(const char *path, const char *beside)
{
    char *real = realpath(path, NULL), *folder = realpath(beside, NULL);
    char *end = folder ? strrchr(folder, '/') : NULL;
    bool is = real && end && !strncmp(real, folder, (size_t)(end - folder) + 1);
    free(real);
    free(folder);
    return is;
}

static Status external_path(const OnnxFile *file, const Onnx__TensorProto *p, char path[PATH_BYTES])
{
    const char *location = pair_value(p, "location"), *end = strrchr(file->path, '/');
    char folder[PATH_BYTES];
    if (!location || leads_upward(location))
        return FAIL(ERR_FORMAT,
                    "'%s': the data of tensor '%s' is said to be in '%s'; expected a file in the folder of the ONNX "
                    "file",
                    file->path, onnx_tensor_name(p), location ? location : "");
    snprintf(folder, sizeof folder, "%.*s", end ? (int)(end - file->path) : 1, end ? file->path : ".");
    TRY(path_join(path, *folder ? folder : "/", location));
    if (access(path, F_OK) != 0)
        return FAIL(ERR_FORMAT, "'%s': the data of tensor '%s' is missing: there is no '%s'", file->path,
                    onnx_tensor_name(p), path);
    if (!is_beside(path, file->path))
        return FAIL(ERR_FORMAT, "'%s': the data of tensor '%s' is a link out of the folder of the ONNX file: '%s'",
                    file->path, onnx_tensor_name(p), path);
    return OK;
}

Status onnx_external_read(OnnxFile *file, Onnx__TensorProto *p)
{
    char path[PATH_BYTES];
    OnnxTensor t = {.type = (OnnxElement)p->data_type};
    uint64_t offset, length, size = 0;
    int fd = -1;
    TRY(dims_read(file, p, &t));
    uint64_t bytes = (uint64_t)t.count * element_bytes(t.type);
    if (file->alone || bytes > external_most - file->external)
        return FAIL(ERR_FORMAT, "'%s': the data of tensor '%s' is outside of the file, %s", file->path,
                    onnx_tensor_name(p), file->alone ? "which has no folder" : "and too large");
    file->external += bytes;
    TRY(external_path(file, p, path));
    if (!number_read(pair_value(p, "offset"), 0, &offset) || !number_read(pair_value(p, "length"), bytes, &length))
        return FAIL(ERR_FORMAT, "'%s': tensor '%s': the place of its data is no number", file->path,
                    onnx_tensor_name(p));
    TRY(file_open(path, OF_USER, ERR_FORMAT, (uint64_t)1 << 40, &fd, &size));
    Status st = OK;
    void *data = NULL;
    if (length != bytes || offset > size || length > size - offset)
        st = FAIL(ERR_FORMAT,
                  "'%s': tensor '%s' needs %" PRIu64 " bytes; expected them at %" PRIu64 " of '%s', of %" PRIu64,
                  file->path, onnx_tensor_name(p), bytes, offset, path, size);
    if (st == OK && !(data = malloc(bytes ? bytes : 1)))
        st = FAIL(ERR_MEMORY, "no memory for %" PRIu64 " bytes of tensor '%s'", bytes, onnx_tensor_name(p));
    if (st == OK) st = file_pread(fd, path, offset, data, bytes);
    close(fd);
    if (st != OK) {
        free(data);
        return st;
    }
    for (size_t i = 0; i < p->n_external_data; i++)
        onnx__string_string_entry_proto__free_unpacked(p->external_data[i], NULL);
    free(p->external_data);
    p->external_data = NULL;
    p->n_external_data = 0;
    free(p->raw_data.data);
    p->has_raw_data = true;
    p->raw_data = (ProtobufCBinaryData){bytes, data};
    p->has_data_location = false;
    return OK;
}
