/* Dataset: numbered samples, each an 8-bit image and a label. Opened once by the supervisor, before the towers are
 * forked, so that a bad file is reported once and pages are shared; read-only and thread-safe afterwards.
 *
 * A bad sample ends the opening, not the training: lengths, checksums and every label are looked at first, and a label
 * out of range is ERR_FORMAT with its record and offset. So no reader here leaves out a sample or puts another in its
 * place, and there are none to count.
 *
 * Readers: idx.c (MNIST family, .gz or plain; colour), synthetic.c (tf_cnn_benchmarks' truncated normal). */
#ifndef TOWERS_DATA_DATASET_H
#define TOWERS_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

typedef enum Split { SPLIT_TRAIN = 0, SPLIT_TEST } Split;

enum { DATASET_NAMES = 256, DATASET_NAME_BYTES = 32 };

typedef struct DatasetInfo {
    char name[64];      /* "fashion-mnist", "synthetic" */
    const char *format; /* of its files, a literal: "IDX"; "generated" */
    int64_t count;      /* samples */
    int classes;
    int32_t h, w, c;         /* of every image; c is 1 or 3 */
    uint64_t fingerprint[2]; /* XXH3-128 of what was read: two runs on equal data have equal ones */
    char class_names[DATASET_NAMES][DATASET_NAME_BYTES]; /* of the first classes; "" if unknown */
} DatasetInfo;

typedef struct Dataset Dataset;

/* `path`: a directory that holds (or holds a folder fashion-mnist/ with)
 * {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] (idx4: with channels), and classes.txt where it is not ten
 * classes. Errors: ERR_FORMAT for a file that is not what it claims to be
 * (file, offset, wanted, found), ERR_IO, ERR_ARG. */
NODISCARD Status dataset_open(const char *path, Split split, Dataset **made);
/* Fixed random images and labels, for benchmarks: truncated normal (mean 127, deviation 60), labels uniform. */
NODISCARD Status dataset_synthetic(int64_t count, int classes, int32_t h, int32_t w, int32_t c, uint64_t seed,
                                   Dataset **made);
void dataset_close(Dataset *dataset); /* NULL is fine */

const DatasetInfo *dataset_info(const Dataset *dataset);
/* One image, packed [h][w][c], and its label in [0, classes). `index` in [0, count). */
NODISCARD Status dataset_read(const Dataset *dataset, int64_t index, uint8_t *pixels, int32_t *label);
/* Where a person finds the sample: "data/train-images-idx3-ubyte.gz, record 12". */
void dataset_where(const Dataset *dataset, int64_t index, char *text, size_t bytes);

#endif
