/* Sidecars: what listing a shard has given, without the shard. FOLDER/towers.index has a record of each shard of the folder, one behind
 * another; it may lie on a server beside them. A file that holds one record alone stands in for a shard whose bytes are elsewhere: under the
 * name of the shard, so that folders and lists of stand-ins are sets as those of shards are, with the same order and division.
 *
 * A record follows from the bytes of its shard alone: it says neither where they lie nor when they were read. So a record is right if it is
 * equal, byte by byte, to one that is made of the shard; until then it is believed only as far as it is consistent. Numbers are
 * little-endian. */
#pragma once

#include "towers/data/shards/shard.h"

#define SIDECAR_NAME "towers.index"
#define SIDECAR_BYTES_MOST ((size_t)1 << 36)

/* Of a record. The strings point into it. */
typedef struct Sidecar {
    ShardKind kind;
    const char *name; /* of the shard, without folder */
    uint64_t bytes;   /* of the shard */
    int64_t samples;
    size_t size; /* of the record */
} Sidecar;

/* True if these are the first bytes of a record. */
enum { SIDECAR_HEAD = 8 };
bool sidecar_begins(const uint8_t head[SIDECAR_HEAD]);

/* Read the record at the beginning of `bytes`. `list` gets what it says of the samples; its path is given. NULL: the head alone, which is
 * checked as the rest is. Errors: ERR_FORMAT names `path`, of the sidecar, and what does not fit. */
NODISCARD Status sidecar_parse(const char *path, const void *bytes, size_t size, Sidecar *made, ShardList *list);

/* Append the record of a shard that has been listed, whose bytes are read once more for their digest. Errors: those of reading. */
NODISCARD Status sidecar_print(const ShardList *list, ShardKind kind, const char *name, FILE *to);

/* Whether `path` is a stand-in, and what its head says, which is checked when it is listed; without the name. */
bool sidecar_look(const char *path, Sidecar *made);
/* List a stand-in. */
NODISCARD Status sidecar_list(ShardKind kind, ShardList *list);
