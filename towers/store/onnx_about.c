/* The metadata of an ONNX file (onnx.proto: ModelProto.metadata_props, field 14), read from the wire format of protocol
 * buffers without unpacking the weights: every other field is skipped. The bytes are untrusted; ERR_FORMAT names the offset
 * of what is wrong. */
#include "towers/files/files.h"
#include "towers/files/utf8.h"
#include "towers/store/onnx.h"

#include <sys/mman.h>

enum { FIELD_IR_VERSION = 1, FIELD_GRAPH = 7, FIELD_METADATA = 14, FILE_BYTES = INT32_MAX };

struct OnnxAbout {
    StPair pair[ONNX_PAIRS]; /* keys and values are owned */
    int count;
};

/* A message: bytes [at, end) of the file. */
typedef struct Message {
    const unsigned char *first, *at, *end;
    const char *name; /* of the file */
} Message;

typedef struct MessageField {
    uint64_t number;
    int wire;     /* 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes */
    Message body; /* of wire 2 */
} MessageField;

static Status broken(const Message *m, const char *what)
{
    return FAIL(ERR_FORMAT, "'%s' is not an ONNX file: %s at offset %td", m->name, what, m->at - m->first);
}

static Status varint_read(Message *m, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        unsigned char byte = *m->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return OK;
    }
    return broken(m, "a number does not end");
}

static Status field_read(Message *m, MessageField *field)
{
    uint64_t tag, length = 0;
    TRY(varint_read(m, &tag));
    *field = (MessageField){.number = tag >> 3, .wire = (int)(tag & 7)};
    if (field->wire == 0) return varint_read(m, &length);
    if (field->wire == 2)
        TRY(varint_read(m, &length));
    else if (field->wire == 1 || field->wire == 5)
        length = field->wire == 1 ? 8 : 4;
    else
        return broken(m, "a field of unknown kind");
    if (length > (uint64_t)(m->end - m->at)) return broken(m, "a field that is longer than the file");
    field->body = (Message){m->first, m->at, m->at + length, m->name};
    m->at += length;
    return OK;
}

static Status text_copy(const Message *body, const char **to)
{
    size_t bytes = (size_t)(body->end - body->at);
    char *text = malloc(bytes + 1);
    if (!text) return FAIL(ERR_MEMORY, "no memory for the metadata of '%s'", body->name);
    memcpy(text, body->at, bytes);
    text[bytes] = 0;
    free((void *)*to);
    *to = text;
    return strlen(text) == bytes && utf8_valid(text) ? OK : broken(body, "a text that is not UTF-8");
}

static Status pair_read(Message m, OnnxAbout *about)
{
    if (about->count == ONNX_PAIRS) return OK; /* files of other programs may have more */
    StPair *pair = &about->pair[about->count++];
    while (m.at < m.end) {
        MessageField field;
        TRY(field_read(&m, &field));
        if (field.wire == 2 && field.number == 1) TRY(text_copy(&field.body, &pair->key));
        if (field.wire == 2 && field.number == 2) TRY(text_copy(&field.body, &pair->value));
    }
    return OK;
}

Status onnx_about_parse(const void *bytes, size_t count, const char *name, OnnxAbout **made)
{
    Status st = OK;
    Message m = {bytes, bytes, (const unsigned char *)bytes + count, name};
    bool version = false, graph = false;
    OnnxAbout *about = calloc(1, sizeof *about);
    if (!about) return FAIL(ERR_MEMORY, "no memory for the metadata of '%s'", name);
    while (m.at < m.end) {
        MessageField field;
        TRY_OUT(field_read(&m, &field));
        version |= field.number == FIELD_IR_VERSION && field.wire == 0;
        graph |= field.number == FIELD_GRAPH && field.wire == 2;
        if (field.number == FIELD_METADATA && field.wire == 2) TRY_OUT(pair_read(field.body, about));
    }
    if (!version || !graph) TRY_OUT(broken(&m, "no version and graph up to the end"));
    *made = about;
    about = NULL;
out:
    onnx_about_close(about);
    return st;
}

Status onnx_about_open(const char *path, OnnxAbout **made)
{
    void *map = NULL;
    size_t count = 0;
    TRY(file_map(path, ERR_FORMAT, FILE_BYTES, &map, &count)); /* skipped fields are not read */
    Status st = onnx_about_parse(map, count, path, made);
    munmap(map, count);
    return st;
}

int onnx_about_count(const OnnxAbout *about)
{
    return about->count;
}

StPair onnx_about_at(const OnnxAbout *about, int index)
{
    StPair pair = about->pair[index];
    return (StPair){pair.key ? pair.key : "", pair.value ? pair.value : ""};
}

void onnx_about_close(OnnxAbout *about)
{
    for (int i = 0; about && i < about->count; i++) {
        free((void *)about->pair[i].key);
        free((void *)about->pair[i].value);
    }
    free(about);
}
