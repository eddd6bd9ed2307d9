/* towers data: inspect, check, measure, show and shrink a data set of images. */
#pragma once

#include <stdatomic.h>

#include "inception/options/options.h"
#include "towers/data/sources/survey.h"
#include "towers/files/files.h"

/* data_convert.c: `convert SRC DST`; existing files are kept, so an interrupted conversion can be resumed. */
NODISCARD Status data_convert(const Options *options, FILE *to);
/* data_survey.c */
NODISCARD Status data_info(const Options *options, FILE *to);
NODISCARD Status data_check(const Options *options, FILE *to);
int data_threads(const Options *options);
void data_progress(int64_t done, int64_t all);
/* Open one split of PATH. A data set without an evaluation split may be opened with --val-split 0: then all of it is
 * training data, and *made is NULL for the other split. */
NODISCARD Status data_open(const Options *options, const char *path, Split split, Source **made);
/* The part that these images are: of a set with one part, this. */
Split data_part(const Options *options, const char *path, Split split);

/* Shared by the two conversions: to a folder of files (data_convert.c) and to shards (data_pack.c). */
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

/* Read a sample as the small JPEG that it becomes: free(*bytes). ERR_FORMAT if it is damaged. */
NODISCARD Status convert_encode(Convert *c, TransformWorker *tools, const Bytes *from, const ImageInfo *info,
                                uint8_t **bytes, size_t *count);
/* Note a damaged sample on standard error. */
void convert_skip(Convert *c, int64_t id);

/* Write c->to/c->part as shards of c->shard_samples samples, in an order that mixes the classes (the same for every
 * conversion of a source). A shard gets its name when it is complete and has been read back; existing shards are kept if
 * they hold as many samples as they should and all of them can be decoded. */
NODISCARD Status pack_split(Convert *c);
