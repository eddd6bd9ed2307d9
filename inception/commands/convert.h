/* One conversion of a data set to smaller JPEG files, and what becomes of one of its images: what a conversion to a folder of files
 * (data_convert.c) and one to shards (data_pack.c) share. */
#pragma once

#include <stdatomic.h>

#include "inception/options/options.h"
#include "towers/data/sources/survey.h"

typedef struct Convert {
    const Source *source;    /* borrowed */
    const char *to;          /* borrowed */
    const char *part;        /* of this split: "train", "val" */
    uint64_t fingerprint[2]; /* of all splits */
    size_t root_bytes; /* length of the source folder's path, with its slash; 0: the source is no folder of images */
    int32_t side;
    int quality, threads;
    bool exif;
    FormatChoice format; /* folder, tar or mds */
    int64_t shard_samples;
    char **class_folder; /* owned: [classes]; for a folder from shards */
    _Atomic int64_t written, kept, damaged, rotated, bytes_before, bytes_after;
} Convert;

/* The JPEG file that the image in `from` becomes; the caller frees *bytes. ERR_FORMAT if it is damaged. */
NODISCARD Status convert_encode(Convert *c, TransformWorker *tools, const Bytes *from, const ImageInfo *info,
                                uint8_t **bytes, size_t *count);
/* How an upright image of h x w pixels is resized: its longer side to at most c->side; nothing is enlarged. */
Resize convert_size(const Convert *c, int32_t h, int32_t w);
/* Note a damaged sample on standard error. */
void convert_skip(Convert *c, int64_t id);
