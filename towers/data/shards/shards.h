/* Data sets of shards (shard_set.h), whose samples are listed in an index (shard_index.h) and read at random. */
#pragma once

#include "towers/data/sources/source.h"

NODISCARD Status shards_source_open(const SourceConfig *config, Split split, Source **made);
