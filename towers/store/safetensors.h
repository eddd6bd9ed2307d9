/* safetensors: the format of all weight files that this project writes, and of those that it reads unless torch.save wrote
 * them (torch_file.h); huggingface/safetensors, format README.
 *
 * u64 little endian N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {...}}, then the
 * data. The reader treats its input as untrusted: sizes are checked against the file before anything is allocated;
 * duplicate keys, holes, overlaps and trailing bytes are errors that name the tensor and the offset. */
#pragma once

#include "towers/files/files.h"

typedef enum StDtype {
    ST_F64 = 0,
    ST_F32,
    ST_F16,
    ST_BF16,
    ST_I64,
    ST_I32,
    ST_I16,
    ST_I8,
    ST_U8,
    ST_BOOL,
    ST_U16,
    ST_U32,
    ST_U64,
    ST_DTYPE_COUNT
} StDtype;

enum { ST_MAX_RANK = 8, ST_MAX_TENSORS = 65536, ST_MAX_NAME = 512, ST_MAX_HEADER = 16 << 20 };

typedef struct StTensor {
    const char *name;
    StDtype dtype;
    int rank;
    int64_t dims[ST_MAX_RANK]; /* row major, as PyTorch prints it */
    const void *data;          /* when read from a file, possibly unaligned: copy with memcpy */
    size_t bytes;
    /* how many bytes of the name say in which dict it lies: those of "state_dict."; 0: in the file's only one */
    size_t dict;
} StTensor;

typedef struct StPair {
    const char *key, *value;
} StPair;

typedef struct SafeTensors SafeTensors;
NODISCARD Status safetensors_open(const char *path,
                                  SafeTensors **made); /* maps the file; errors are ERR_CHECKPOINT or ERR_IO */
NODISCARD Status safetensors_parse(const void *bytes, size_t count, const char *name,
                                   SafeTensors **made); /* borrowed bytes (fuzzing) */
/* safetensors_open with another parser of the mapped bytes, whose result may borrow them. */
typedef Status (*TensorsParse)(const void *bytes, size_t count, const char *name, SafeTensors **made);
NODISCARD Status safetensors_open_as(const char *path, TensorsParse parse, SafeTensors **made);
/* A view of tensors that another format holds. On success `tensors`, `owned` and the memory that its pointers name
 * belong to the result. Errors: ERR_CHECKPOINT if a name is used twice or cannot be printed. */
NODISCARD Status safetensors_wrap(const char *name, StTensor *tensors, int count, void **owned, int owned_count,
                                  SafeTensors **made);
/* Keeps the tensors whose names begin with `prefix`, of its dict, and takes it away from their names (weight_part.h). */
void safetensors_narrow(SafeTensors *file, const char *prefix);
/* Gives tensors other names: `naming` writes that of one and returns true, or false if it keeps its own. Errors: ERR_CHECKPOINT if
 * two tensors would have one name. */
typedef bool (*TensorNaming)(const char *name, char *to, size_t bytes);
NODISCARD Status safetensors_rename(SafeTensors *file, TensorNaming naming);
/* The file owns `memory`, in which tensors lie, from now on; after an error the caller does, and `file` is closed. */
NODISCARD Status safetensors_own(SafeTensors *file, void *memory);
void safetensors_close(SafeTensors *file);
int safetensors_count(const SafeTensors *file);
const StTensor *safetensors_at(const SafeTensors *file, int index); /* in file order; borrowed */
const StTensor *safetensors_find(const SafeTensors *file, const char *name);
const char *safetensors_metadata(const SafeTensors *file, const char *key); /* NULL if absent */
int safetensors_pairs(const SafeTensors *file, const StPair **pairs);       /* all of it; borrowed */

/* Write and fsync `path` (which must not exist). Tensors are written in alignment order, then by name. *sum: size and hash of
 * the file; NULL: not wanted. */
NODISCARD Status safetensors_write(const char *path, const StTensor *tensors, int count, const StPair *metadata,
                                   int pairs, FileSum *sum);

/* Write to a name that may exist: after a crash the file is complete, old or new. */
NODISCARD Status safetensors_replace(const char *path, const StTensor *tensors, int count, const StPair *metadata,
                                     int pairs);
/* The size of the file that safetensors_write would write. Errors: ERR_ARG naming a tensor that cannot be written. */
NODISCARD Status safetensors_bytes(const StTensor *tensors, int count, const StPair *metadata, int pairs,
                                   uint64_t *bytes);

size_t st_dtype_bytes(StDtype dtype);
const char *st_dtype_name(StDtype dtype);
