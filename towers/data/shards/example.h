/* tf.Example, the protocol buffer in a record of TFRecords (tensorflow/core/example/example.proto, feature.proto):
 *     Example.1 = Features; Features.1 = map entries {1: key, 2: Feature}; Feature.1 BytesList, .2 FloatList, .3 Int64List;
 *     each list's field 1 holds its values, numbers packed or not.
 * Features are found without unpacking the message, in memory or in a file. Of a file only the first bytes of each
 * field are read, so that listing a shard of photographs reads a small part of it. Nothing is allocated and nothing
 * recurses.
 *
 * Errors: ERR_FORMAT if the bytes are not such a message; the text begins with `where`. ERR_IO from a file. */
#pragma once

#include "kernels/base/status.h"

enum { EXAMPLE_WINDOW = 4096, EXAMPLE_TEXT = 1024 };

/* The bytes of a message. */
typedef struct ExampleBytes {
    const char *where;     /* borrowed: "'train-00000-of-01024': record 7 (offset 51200)" */
    const uint8_t *memory; /* borrowed; NULL: bytes [base, base + size) of the file */
    int fd;
    const char *path; /* borrowed */
    uint64_t base, size;
    uint64_t from; /* what `window` holds of them: [from, from + have) */
    size_t have;
    uint8_t window[EXAMPLE_WINDOW];
} ExampleBytes;

typedef enum FeatureKind { FEATURE_NONE = 0, FEATURE_BYTES, FEATURE_FLOATS, FEATURE_INTS } FeatureKind;

/* A feature's list: bytes [begin, end) of the message. */
typedef struct Feature {
    FeatureKind kind;
    uint64_t begin, end;
} Feature;

/* Find features by their keys; found[i].kind is FEATURE_NONE if there is none (or an empty one). The last of two with one
 * key counts. */
NODISCARD Status example_find(ExampleBytes *bytes, const char *const *keys, int count, Feature *found);

/* The place of the first value of a BytesList. */
NODISCARD Status feature_bytes(ExampleBytes *bytes, const Feature *feature, uint64_t *begin, uint64_t *size);
/* The first value of a BytesList as text, cut to EXAMPLE_TEXT - 1 bytes; "" without one. */
NODISCARD Status feature_text(ExampleBytes *bytes, const Feature *feature, char text[EXAMPLE_TEXT]);
/* The values of a list of numbers: *count of all, of which the first `most` are stored. */
NODISCARD Status feature_ints(ExampleBytes *bytes, const Feature *feature, int64_t *values, int most, int *count);
NODISCARD Status feature_floats(ExampleBytes *bytes, const Feature *feature, float *values, int most, int *count);
