/* towers data: inspect, check, measure, show and shrink a data set of images. */
#pragma once

#include "inception/commands/convert.h"
#include "inception/options/options.h"
#include "towers/data/listing/names.h"
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
 * training data, and *made is NULL for the other split. `problems`: those of single folders, which are errors if it is
 * NULL (source.h). */
NODISCARD Status data_open(const Options *options, const char *path, Split split, Names *problems, Source **made);
/* The part that these images are: of a set with one part, this. */
Split data_part(const Options *options, const char *path, Split split);

/* Write c->to/c->part as shards of c->shard_samples samples, in an order that mixes the classes (the same for every
 * conversion of a source). A shard gets its name when it is complete and has been read back; existing shards are kept if
 * they hold as many samples as they should and all of them can be decoded. */
NODISCARD Status pack_split(Convert *c); /* data_pack.c */
