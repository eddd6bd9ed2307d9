/* The index of one split of a set of shards. Samples are in the order of the sorted names of the shards (of a list: as
 * listed), and within a shard in its order. The names of the classes are read from classes.txt or classnames.txt, beside
 * the shards or in the folder above; without them, the largest label of the training samples determines the number of
 * classes. The labels of the other parts mean the classes of the training shards with their names (class_match.h). */
#pragma once

#include "towers/data/listing/index.h"
#include "towers/data/sources/source.h"

/* IndexHeader.kind is the ShardKind, the first bit if labels begin with 1, and the second if that follows from the labels alone. */
enum { SHARDS_FROM_ONE = 1 << 8, SHARDS_GUESSED = 1 << 9 };

/* Find or build it. The others than the training split need the classes of the training samples, if there are any: those
 * of the index `train`; NULL: of one that is opened for it. */
NODISCARD Status shard_index_open(const SourceConfig *config, Split split, const Index *train, Index *index);
