/* The kinds of shards that can be read: who lists each. */
#include "towers/data/shards/shard.h"
#include "towers/data/shards/sidecar.h"

Status shard_list(ShardKind kind, ShardList *list)
{
    Sidecar stand_in;
    if (sidecar_look(list->path, &stand_in)) return sidecar_list(kind, list);
    if (kind == SHARD_TAR) return tar_list(list);
    return kind == SHARD_MDS ? mds_list(list) : tfrecord_list(list);
}
