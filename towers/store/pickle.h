/* The part of Python's pickle format that state dicts of PyTorch use, read into values without running anything.
 * Definition of the opcodes: Lib/pickletools.py of CPython; protocols 0 to 5. */
#pragma once

#include "towers/store/safetensors.h"

typedef enum PickleKind {
    PICKLE_NONE = 0,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_CALLABLE, /* a function or class, only named */
    PICKLE_STORAGE,
    PICKLE_TENSOR,
    PICKLE_OPAQUE /* an object whose contents nobody needs */
} PickleKind;

/* Far above what a state dict of ST_MAX_TENSORS tensors needs. */
enum { PICKLE_MAX_BYTES = 64 << 20, PICKLE_MAX_VALUES = 1 << 21 };

typedef struct PickleValue {
    PickleKind kind;
    int64_t number;     /* BOOL, INT; TEXT: bytes; CALLABLE: its row; STORAGE: elements */
    const char *text;   /* TEXT, and STORAGE: its key; in the pickle, not ended by a zero */
    int32_t text_bytes; /* of STORAGE's key */
    StDtype dtype;      /* STORAGE */
    uint32_t *item; /* owned by the pickle: numbers of values. DICT: keys and values in turn. TENSOR: storage, offset,
                            sizes, strides */
    int32_t count;  /* of item */
} PickleValue;

typedef struct Pickle {
    PickleValue *value; /* owned */
    int32_t values;
    uint32_t root;
    size_t bytes; /* up to its end: more may follow */
} Pickle;

/* The pickle at the beginning of `bytes`, which are borrowed by the result; `label` is the file's name in messages. Errors:
 * ERR_CHECKPOINT with the offset. */
NODISCARD Status pickle_parse(const void *bytes, size_t count, const char *label, Pickle *made);
void pickle_clear(Pickle *pickle);

static inline const PickleValue *pickle_at(const Pickle *pickle, uint32_t number)
{
    return &pickle->value[number];
}
/* The value of a text key in a DICT, the last one given; NULL if it has none. */
const PickleValue *pickle_get(const Pickle *pickle, const PickleValue *dict, const char *key);
