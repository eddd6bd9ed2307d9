/* A network's file without its trained values, whose SHA-256 is the digest of the network. */
#include <openssl/evp.h>

#include "inception/networks/net_internal.h"
#include "kernels/base/text.h"
#include "towers/files/files.h"

TensorNumbers net_numbers_take(Onnx__TensorProto *p)
{
    TensorNumbers taken = {p->has_raw_data, p->raw_data,      p->n_float_data, p->n_int32_data,
                           p->n_int64_data, p->n_double_data, p->n_dims,       p->dims};
    p->has_raw_data = false;
    p->raw_data = (ProtobufCBinaryData){0, NULL};
    p->n_float_data = p->n_int32_data = p->n_int64_data = p->n_double_data = 0;
    return taken;
}

void net_numbers_return(Onnx__TensorProto *p, const TensorNumbers *taken)
{
    p->has_raw_data = taken->has_raw_data;
    p->raw_data = taken->raw_data;
    p->n_float_data = taken->n_float_data;
    p->n_int32_data = taken->n_int32_data;
    p->n_int64_data = taken->n_int64_data;
    p->n_double_data = taken->n_double_data;
    p->dims = taken->dims;
}

Status net_file_pack(const Onnx__ModelProto *model, unsigned char **bytes, size_t *count)
{
    *count = onnx__model_proto__get_packed_size(model);
    *bytes = *count <= INT32_MAX ? malloc(*count + 1) : NULL;
    if (!*bytes)
        return FAIL(ERR_MEMORY, "an ONNX file of %zu bytes; expected at most 2 GiB, and memory for it", *count);
    onnx__model_proto__pack(model, *bytes);
    return OK;
}

static bool is_parameter(const NetFile *n, const char *name)
{
    for (int i = 0; i < n->survey.binding_count; i++)
        if (!strcmp(n->survey.binding[i].name, name)) return true;
    return false;
}

/* The tensors of this network that `trained` trains, which may be more or fewer than its own parameters; returns their number. */
static int trained_tensors(const NetFile *n, const NetFile *trained, Onnx__TensorProto **to)
{
    int count = 0;
    for (int i = 0; i < n->survey.binding_count; i++) {
        const Binding *b = &n->survey.binding[i];
        if (n == trained || is_parameter(trained, b->name)) to[count++] = b->tensor.proto;
    }
    for (int i = 0; n != trained && i < trained->survey.binding_count; i++) {
        const char *name = trained->survey.binding[i].name;
        int id = is_parameter(n, name) ? 0 : onnx_value(n->file, name), tensor = id ? n->file->value[id].tensor : -1;
        int writer = id ? n->file->value[id].writer : -1;
        const Onnx__AttributeProto *made = writer >= 0 ? onnx_attribute(&n->file->node[writer], "value") : NULL;
        if (tensor >= 0)
            to[count++] = n->file->model->graph->initializer[tensor];
        else if (made && made->t)
            to[count++] = made->t;
    }
    return count;
}

/* The message without the numbers that `trained` trains. */
static Status structure_pack(const NetFile *n, const NetFile *trained, const Onnx__ModelProto *model,
                             unsigned char **bytes, size_t *count)
{
    size_t room = (size_t)n->survey.binding_count + (size_t)trained->survey.binding_count + 1;
    Onnx__TensorProto **from = calloc(room, sizeof(*from));
    TensorNumbers *taken = calloc(room, sizeof *taken);
    Status st = OK;
    if (!taken || !from) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the structure of '%s'", n->file->path));
    int some = trained_tensors(n, trained, from);
    for (int i = 0; i < some; i++) taken[i] = net_numbers_take(from[i]);
    st = net_file_pack(model, bytes, count);
    while (some-- > 0) net_numbers_return(from[some], &taken[some]);
out:
    free(from);
    free(taken);
    return st;
}

static Status digest_make(const NetFile *n, const NetFile *trained, char to[NET_FILE_DIGEST + 1])
{
    unsigned char *bytes = NULL, digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    size_t count = 0;
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    model.graph = n->file->model->graph;
    model.n_opset_import = n->file->model->n_opset_import;
    model.opset_import = n->file->model->opset_import;
    TRY(structure_pack(n, trained, &model, &bytes, &count));
    int made = EVP_Digest(bytes, count, digest, &length, EVP_sha256(), NULL);
    free(bytes);
    if (made != 1 || 2 * length != NET_FILE_DIGEST) return FAIL(ERR_INTERNAL, "no SHA-256");
    Text text = text_start(to, NET_FILE_DIGEST + 1);
    text_hex(&text, digest, length);
    return OK;
}

Status net_digest_make(NetFile *n)
{
    return digest_make(n, n, n->digest);
}

Status net_file_is_kept(const NetFile *n, const NetFile *kept, bool *same)
{
    char digest[NET_FILE_DIGEST + 1];
    TRY(digest_make(n, kept, digest));
    *same = !strcmp(digest, kept->digest);
    return OK;
}

const char *net_file_digest(const NetFile *n)
{
    return n->digest;
}

Status net_file_structure_write(const NetFile *n, const char *path)
{
    unsigned char *bytes = NULL;
    size_t count = 0, pairs = n->file->model->n_metadata_props;
    Onnx__ModelProto model = *n->file->model;
    Onnx__StringStringEntryProto mark = ONNX__STRING_STRING_ENTRY_PROTO__INIT, **list;
    if (!n->file->structure) {
        list = calloc(pairs + 1, sizeof(*list));
        if (!list) return FAIL(ERR_MEMORY, "no memory for the metadata of '%s'", path);
        for (size_t i = 0; i < pairs; i++) list[i] = model.metadata_props[i];
        mark.key = (char *)onnx_structure_key;
        mark.value = (char *)onnx_structure_mark;
        list[pairs] = &mark;
        model.metadata_props = list;
        model.n_metadata_props = pairs + 1;
    }
    Status st = structure_pack(n, n, &model, &bytes, &count);
    if (!n->file->structure) free(model.metadata_props);
    if (st == OK) st = file_replace(path, bytes, count);
    free(bytes);
    return st;
}
