/* IDX, the file format of the MNIST family (Y. LeCun, "The MNIST database of handwritten digits"): big-endian
 *     u8 0, u8 0, u8 type, u8 dimensions, u32 size[dimensions], then the elements, last index fastest.
 * Read here: type 8 (unsigned byte) with one dimension (labels), three (gray images) or four (images of 1 or 3
 * channels, channels last), plain or as one gzip member. Sizes are checked before anything is allocated, and a gzip
 * stream is never expanded beyond the size in the header. */
#pragma once

#include "towers/data/sources/source.h"

enum { IDX_LABELS = 1, IDX_IMAGES = 3, IDX_COLOR = 4, IDX_SIDE_MAX = 65500, IDX_CLASSES = 10, IDX_CLASSES_MAX = 256 };
#define IDX_COUNT_MAX (INT64_C(1) << 31)

typedef struct Idx {
    int64_t size[IDX_COLOR]; /* records; of images also rows, columns and channels (else 1) */
    size_t bytes;            /* product of the sizes */
    uint8_t *data;           /* owned */
} Idx;

/* `dimensions` is IDX_LABELS, or IDX_IMAGES for gray or color images; `name` is for messages. ERR_FORMAT, ERR_MEMORY,
 * ERR_IO. */
NODISCARD Status idx_parse(const char *name, const uint8_t *bytes, size_t size, int dimensions, Idx *made);
void idx_free(Idx *idx);

/* True if the directory (or its folder fashion-mnist) contains labels in this format. */
bool idx_is_in(const char *path);
/* source_open for a directory of IDX files; see source.h. Labels must be below the number of classes: that of
 * classes.txt (class_names.h), else IDX_CLASSES. */
NODISCARD Status idx_source_open(const char *path, Split split, Source **made);
