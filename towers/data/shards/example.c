/* Walks the wire format of a tf.Example; see example.h. */
#include "towers/data/shards/example.h"

#include <limits.h>

#include "towers/data/shards/shard.h"
#include "towers/files/files.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5, VARINT_BYTES = 10 };

typedef struct WireField {
    uint64_t number, begin, end; /* of its content */
    int wire;
    uint64_t value; /* of a varint */
} WireField;

static Status damaged(const ExampleBytes *b, uint64_t at, const char *what)
{
    return FAIL(ERR_FORMAT, "%s: byte %" PRIu64 " of %" PRIu64 " of its tf.Example: %s", b->where, at, b->size, what);
}

/* Up to `count` (at most EXAMPLE_WINDOW) bytes from `at`; fewer only at the end of the message. */
static Status bytes_at(ExampleBytes *b, uint64_t at, size_t count, const uint8_t **bytes, size_t *got)
{
    *got = at < b->size ? (b->size - at < count ? (size_t)(b->size - at) : count) : 0;
    if (b->memory) {
        *bytes = b->memory + at;
        return OK;
    }
    if (*got > 0 && (at < b->from || at - b->from > b->have || b->have - (at - b->from) < *got)) {
        b->have = 0;
        size_t wanted = b->size - at < EXAMPLE_WINDOW ? (size_t)(b->size - at) : EXAMPLE_WINDOW;
        TRY(file_pread(b->fd, b->path, b->base + at, b->window, wanted));
        b->from = at;
        b->have = wanted;
    }
    *bytes = b->window + (*got > 0 ? at - b->from : 0);
    return OK;
}

static Status varint_read(ExampleBytes *b, uint64_t *at, uint64_t end, uint64_t *value)
{
    const uint8_t *bytes = NULL;
    size_t got = 0;
    TRY(bytes_at(b, *at, VARINT_BYTES, &bytes, &got));
    if (got > end - *at) got = (size_t)(end - *at);
    *value = 0;
    for (size_t i = 0; i < got; i++) {
        *value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
        if (bytes[i] & 0x80) continue;
        *at += i + 1;
        return OK;
    }
    return damaged(b, *at, "expected a number, found none that ends");
}

/* Read the field at *at, and move *at behind it. */
static Status field_read(ExampleBytes *b, uint64_t *at, uint64_t end, WireField *f)
{
    uint64_t first = *at, tag = 0, bytes = 0;
    TRY(varint_read(b, at, end, &tag));
    *f = (WireField){.number = tag >> 3, .wire = (int)(tag & 7)};
    switch (f->wire) {
    case WIRE_VARINT:
        f->begin = *at;
        TRY(varint_read(b, at, end, &f->value));
        f->end = *at;
        return OK;
    case WIRE_64: bytes = 8; break;
    case WIRE_32: bytes = 4; break;
    case WIRE_BYTES: TRY(varint_read(b, at, end, &bytes)); break;
    default: return damaged(b, first, "expected a field, found one of an unknown kind");
    }
    if (bytes > end - *at) return damaged(b, first, "a field is longer than the message that it is in");
    f->begin = *at;
    f->end = *at += bytes;
    return OK;
}

static Status feature_read(ExampleBytes *b, const WireField *value, Feature *feature)
{
    *feature = (Feature){0};
    for (uint64_t at = value->begin; at < value->end;) {
        WireField f;
        TRY(field_read(b, &at, value->end, &f));
        if (f.wire == WIRE_BYTES && f.number >= FEATURE_BYTES && f.number <= FEATURE_INTS)
            *feature = (Feature){(FeatureKind)f.number, f.begin, f.end};
    }
    return OK;
}

/* One entry of the map: if its key is wanted, its feature is stored. */
static Status entry_read(ExampleBytes *b, const WireField *entry, const char *const *keys, int count, Feature *found)
{
    WireField key = {0}, value = {0};
    const uint8_t *text = NULL;
    size_t got = 0;
    for (uint64_t at = entry->begin; at < entry->end;) {
        WireField f;
        TRY(field_read(b, &at, entry->end, &f));
        if (f.wire == WIRE_BYTES && f.number == 1) key = f;
        if (f.wire == WIRE_BYTES && f.number == 2) value = f;
    }
    uint64_t bytes = key.end - key.begin;
    if (bytes == 0 || bytes > EXAMPLE_TEXT) return OK;
    TRY(bytes_at(b, key.begin, (size_t)bytes, &text, &got));
    for (int i = 0; i < count; i++) {
        if (strlen(keys[i]) != bytes || memcmp(keys[i], text, (size_t)bytes) != 0) continue;
        return feature_read(b, &value, &found[i]);
    }
    return OK;
}

Status example_find(ExampleBytes *b, const char *const *keys, int count, Feature *found)
{
    memset(found, 0, (size_t)count * sizeof *found);
    for (uint64_t at = 0; at < b->size;) {
        WireField features;
        TRY(field_read(b, &at, b->size, &features));
        if (features.number != 1 || features.wire != WIRE_BYTES) continue;
        for (uint64_t inner = features.begin; inner < features.end;) {
            WireField entry;
            TRY(field_read(b, &inner, features.end, &entry));
            if (entry.number == 1 && entry.wire == WIRE_BYTES) TRY(entry_read(b, &entry, keys, count, found));
        }
    }
    return OK;
}

Status feature_bytes(ExampleBytes *b, const Feature *feature, uint64_t *begin, uint64_t *size)
{
    *begin = *size = 0;
    if (feature->kind != FEATURE_BYTES) return OK;
    for (uint64_t at = feature->begin; at < feature->end;) {
        WireField f;
        TRY(field_read(b, &at, feature->end, &f));
        if (f.number != 1 || f.wire != WIRE_BYTES) continue;
        *begin = f.begin;
        *size = f.end - f.begin;
        return OK;
    }
    return OK;
}

Status feature_text(ExampleBytes *b, const Feature *feature, char text[EXAMPLE_TEXT])
{
    uint64_t begin = 0, size = 0;
    const uint8_t *bytes = NULL;
    size_t got = 0;
    TRY(feature_bytes(b, feature, &begin, &size));
    if (size >= EXAMPLE_TEXT) size = EXAMPLE_TEXT - 1;
    TRY(bytes_at(b, begin, (size_t)size, &bytes, &got));
    memcpy(text, bytes, got);
    text[got] = 0;
    return OK;
}

Status feature_ints(ExampleBytes *b, const Feature *feature, int64_t *values, int most, int *count)
{
    *count = 0;
    if (feature->kind != FEATURE_INTS) return OK;
    for (uint64_t at = feature->begin; at < feature->end;) {
        WireField f;
        TRY(field_read(b, &at, feature->end, &f));
        if (f.number != 1 || (f.wire != WIRE_VARINT && f.wire != WIRE_BYTES)) continue;
        for (uint64_t inner = f.begin; inner < f.end;) { /* an unpacked value reads as a list of one */
            uint64_t value = 0;
            TRY(varint_read(b, &inner, f.end, &value));
            if (*count < most) values[*count] = (int64_t)value;
            if (*count < INT_MAX) ++*count;
        }
    }
    return OK;
}

Status feature_floats(ExampleBytes *b, const Feature *feature, float *values, int most, int *count)
{
    *count = 0;
    if (feature->kind != FEATURE_FLOATS) return OK;
    for (uint64_t at = feature->begin; at < feature->end;) {
        WireField f;
        TRY(field_read(b, &at, feature->end, &f));
        if (f.number != 1 || (f.wire != WIRE_32 && f.wire != WIRE_BYTES)) continue;
        if ((f.end - f.begin) % 4) return damaged(b, f.begin, "a list of floats whose size is not a multiple of 4");
        for (uint64_t inner = f.begin; inner < f.end; inner += 4) {
            const uint8_t *bytes = NULL;
            size_t got = 0;
            TRY(bytes_at(b, inner, 4, &bytes, &got));
            uint32_t bits = u32_of(bytes);
            if (*count < most) memcpy(&values[*count], &bits, sizeof bits);
            if (*count < INT_MAX) ++*count;
        }
    }
    return OK;
}
