/* safetensors: the file format of every weight this project writes or reads (huggingface/safetensors, format README).
 *
 * u64 little endian N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {...}}, then the
 * data. The reader trusts nothing: sizes are checked against the file before anything is allocated, duplicate keys,
 * holes, overlaps and trailing bytes are refused, and the message names the tensor and the offset. */
#ifndef TOWERS_STORE_SAFETENSORS_H
#define TOWERS_STORE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"
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
    const void *data;          /* of a file read: not aligned in every file, copy with memcpy */
    size_t bytes;
} StTensor;

typedef struct StPair {
    const char *key, *value;
} StPair;

typedef struct SafeTensors SafeTensors;
NODISCARD Status safetensors_open(const char *path,
                                  SafeTensors **made); /* maps the file; errors are ERR_CHECKPOINT or ERR_IO */
NODISCARD Status safetensors_parse(const void *bytes, size_t count, const char *name,
                                   SafeTensors **made); /* borrowed bytes (fuzzing) */
void safetensors_close(SafeTensors *file);
int safetensors_count(const SafeTensors *file);
const StTensor *safetensors_at(const SafeTensors *file, int index); /* in file order; borrowed */
const StTensor *safetensors_find(const SafeTensors *file, const char *name);
const char *safetensors_metadata(const SafeTensors *file, const char *key); /* NULL if absent */

/* Write and fsync `path` (which must not exist). Tensors are written in alignment order, then by name. */
NODISCARD Status safetensors_write(const char *path, const StTensor *tensors, int count, const StPair *metadata,
                                   int pairs);

/* The same to a name that may exist: a crash leaves the old or the new file, whole. */
NODISCARD Status safetensors_replace(const char *path, const StTensor *tensors, int count, const StPair *metadata,
                                     int pairs);
/* As safetensors_write, and tell size and hash of what was written. */
NODISCARD Status safetensors_write_summed(const char *path, const StTensor *tensors, int count, const StPair *metadata,
                                          int pairs, FileSum *sum);
/* The size that the file will have. Errors: ERR_ARG (a tensor that cannot be written, naming it). */
NODISCARD Status safetensors_bytes(const StTensor *tensors, int count, const StPair *metadata, int pairs,
                                   uint64_t *bytes);
/* NaN and Inf are legal in the format. ERR_CHECKPOINT with tensor and element if one of the floating-point tensors has
 * any. */
NODISCARD Status safetensors_check_finite(const SafeTensors *file);

size_t st_dtype_bytes(StDtype dtype);
const char *st_dtype_name(StDtype dtype);

#endif
