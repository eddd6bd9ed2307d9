/* The names of shards. A file of a folder is a shard only if its whole name says so:
 *
 *     NAME.tar                                                   a WebDataset tar
 *     NAME.tfrecord, .tfrecords, .tfrec, .record                 TFRecords
 *     NAME-K-of-N with at least five digits each                 TFRecords, as the original builders name them
 *
 * in any case; -K-of-N may also follow or precede an ending: "flowers.tfrecord-00000-of-00010", "train-00000-of-00010.tar". So a
 * copy or a part of a download beside a shard ("train-0.tar.1", "train-0.tar.part") is none. K counts from 0, or from 1 if the
 * set has K = N. */
#pragma once

#include "towers/data/listing/names.h"
#include "towers/data/shards/shard.h"
#include "towers/files/files.h"

/* By the name alone: SHARD_TAR, SHARD_TFRECORD, SHARD_PACKED for either of them with the ending of a compressed file, or
 * SHARD_NONE. */
ShardKind shard_named(const char *base);
/* Bytes of "train-0.tar.gz" without ".gz"; 0 if a name has no ending of a compressed file (that of ".tgz" is replaced, not
 * added: 0). */
size_t shard_packed_stem(const char *base);

/* Names of one set that say K of N must be there once each. ERR_FORMAT for two files with one K, and for two N of one name.
 * *absent is the number of those that are not there, `first` the name of the first of them, with its folder. */
NODISCARD Status shard_numbers_check(const Names *paths, int64_t *absent, char first[PATH_BYTES]);
