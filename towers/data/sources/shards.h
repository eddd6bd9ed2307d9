/* Data sets of shards (shard.h): a folder of them, with train/, val/ and test/ or with these words (splits.h) in the
 * names of the files; one shard; or a list in braces, "train-{000000..000099}.tar" (numbers keep their width; also
 * {a,b}; several lists are joined by "::"). If no name has such a word, --val-split divides all shards.
 *
 * Samples are in the order of the sorted names of the shards (of a list: as listed), and within a shard in its order.
 * The names of the classes are read from classes.txt or classnames.txt, beside the shards or in the folder above;
 * without them, the largest label of the training samples determines the number of classes. */
#pragma once

#include "towers/data/sources/names.h"
#include "towers/data/sources/source.h"

/* True for a folder of shards, a shard, and a list. */
bool shards_are_in(const char *path);
/* True for a folder of both, which is taken for a folder of images. */
bool shards_are_beside_folders(const char *path);
/* Bits of the splits that the set has shards for. */
unsigned shards_splits(const char *path);
NODISCARD Status shards_source_open(const SourceConfig *config, Split split, Source **made);

/* The paths of a list in braces, in order: ERR_ARG if a brace is not closed or there are too many. */
NODISCARD Status braces_expand(const char *pattern, Names *paths);
