/* Shards: files that hold many samples each. A kind of shard (tar.c, tfrecord.c, mds.c) lists the samples of one file
 * with the places of their bytes; shards.c makes a data set of them, and reads them at random.
 *
 * Errors: ERR_FORMAT names the shard, the offset, what was expected and what was found; ERR_IO, ERR_MEMORY. */
#pragma once

#include "towers/data/listing/index.h"
#include "towers/data/listing/names.h"

typedef enum ShardKind {
    SHARD_NONE = 0,
    SHARD_TAR,      /* WebDataset */
    SHARD_TFRECORD, /* TFRecords of tf.Example */
    SHARD_MDS,      /* Mosaic Streaming */
    SHARD_PACKED,   /* a compressed tar or compressed TFRecords: refused, with the remedy */
    SHARD_KINDS
} ShardKind;

/* A label is below this; more classes are damage, or labels that mean something else. */
enum { SHARD_CLASSES_MAX = 1 << 20 };

/* The samples of one shard. `file` of a sample is left 0; `name` is an offset in the strings. found.parts.classes has for
 * each label 1 + the offset of its class's name, 0 if the shard does not say. Owned by the caller. */
typedef struct ShardList {
    const char *path; /* borrowed: of the shard */
    IndexBuilder found;
    Skips skips;        /* what it holds besides */
    int64_t *named_by;  /* [found.parts.classes_count]: the sample that named the class of a label first */
    uint64_t digest[2]; /* XXH3-128 of a shard whose bytes are elsewhere (sidecar.h); else zeros */
} ShardList;

void shard_list_free(ShardList *list); /* a zeroed one is fine */

/* Add a sample. Its label is checked; where = "record 7" or "sample 'a/b'" is for messages. */
NODISCARD Status shard_add(ShardList *list, const char *where, uint64_t offset, uint64_t bytes, int64_t label,
                           uint32_t flags, const char *name);

/* The name of a label's class, as the sample says that was added last. ERR_FORMAT with both samples if another one says
 * otherwise. */
NODISCARD Status shard_class(ShardList *list, int64_t label, const char *name);
/* The name that the shard gives to the class of a label, "" if it gives none. */
const char *shard_class_name(const ShardList *list, int64_t label);
/* ERR_FORMAT if both name the class of this label, and otherwise. */
NODISCARD Status shard_names_compare(const ShardList *a, const ShardList *b, int64_t label);

/* List a WebDataset tar by the rules of the Python library: a sample is the consecutive regular members with one key,
 * which is the path up to the first dot of the base name. Image: an ending of endings.h; label: the decimal
 * number in .cls, else the member "label" (or "cls", "class") of the object in .json. Of several members with one name the last
 * counts, as for tar. Members that are neither image nor label of a sample are skipped (inventory.h). */
NODISCARD Status tar_list(ShardList *list);

/* List a file of TFRecords; see tfrecord.h. */
NODISCARD Status tfrecord_list(ShardList *list);

/* List an MDS shard (mds.c). A folder of them has an index.json, whose files are added to `files` in its order. */
NODISCARD Status mds_list(ShardList *list);
/* Also where index.json is lost, empty or damaged: then mds_files says so. */
#define MDS_INDEX "index.json"
bool mds_is_in(const char *folder);
NODISCARD Status mds_files(const char *folder, Names *files);
/* The names that index.json gives, relative to its folder, although the files may not be there yet. */
NODISCARD Status mds_names(const char *folder, Names *names);

/* What comparing the files of a folder of MDS shards with index.json has found: how many hashes are equal, and of other kinds than xxh32,
 * xxh64, xxh3_64 and xxh128; a message for each that differs and for each file that is no such shard, and the path of its file, which is
 * beside or below the index. */
typedef struct MdsHashes {
    int64_t equal, unknown;
    Names differ, damaged;
} MdsHashes;

/* Adds to *found. Errors: those of index.json, and ERR_IO. */
NODISCARD Status mds_hashes_check(const char *folder, MdsHashes *found);
/* Likewise for one shard, which the index in its folder, or in the one above, lists as `path`, and whose bytes are in `file`. */
NODISCARD Status mds_shard_check(const char *path, const char *file, MdsHashes *found);
void mds_hashes_free(MdsHashes *found);

/* List a shard of a kind, or what stands in for it. */
NODISCARD Status shard_list(ShardKind kind, ShardList *list);

/* Numbers in shards are little-endian. */
static inline uint32_t u32_of(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
