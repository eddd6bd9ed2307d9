/* Brings the shards of a view (remote_view.h) while it is read: in the order in which they are wanted, several at once, by threads of each
 * process that reads. Of the processes of a machine one downloads a shard, and the others wait for it (remote/cache.h). A shard is compared
 * with its stand-in before it is read; what does not fit comes once more, and then ends the reading by name, as an object does that is not
 * what it was when the fetch was made. */
#pragma once

#include "towers/data/remote/remote_set.h"
#include "towers/data/shards/shard_fetch.h"
#include "towers/remote/s3.h"

typedef struct RemoteFetch RemoteFetch;

/* `config`: a copy is taken, with the folder; what it borrows else must outlive the fetch. `rest`: what nobody has wanted comes, too, when
 * nothing else is to do. Takes set->objects. */
NODISCARD Status remote_fetch_create(const CacheConfig *config, bool rest, RemoteSet *set, RemoteFetch **made);
/* The door for the readers of the set; borrowed. */
const ShardFetch *remote_fetch_door(const RemoteFetch *fetch);
const CachedObjects *remote_fetch_objects(const RemoteFetch *fetch);
/* Ends the threads of this process. NULL is fine. */
void remote_fetch_close(RemoteFetch *fetch);
