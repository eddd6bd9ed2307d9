/* A set of shards (shard.h): a folder of them, with train/, val/ and test/ or with these words (splits.h) in the names of
 * the files; one shard; or a list in braces, "train-{000000..000099}.tar" (numbers keep their width; also {a,b}; several
 * lists are joined by "::"). If no name has such a word, --val-split divides all shards.
 *
 * In a folder the names of shards are those of shard_names.h; all other files are skipped (inventory.h). A shard that is named
 * itself may have any name, if it begins as one. */
#pragma once

#include "towers/data/shards/shard.h"
#include "towers/data/sources/tree.h"

typedef struct ShardSet {
    Names of[SPLITS + 1];    /* of each split; the last: those whose names say no split */
    Skips skips[SPLITS + 1]; /* what lies beside them */
    ShardKind kind;
    bool listed;              /* each shard by its name: then the set is what the list says, complete or not */
    bool glance;              /* one shard of each split is enough */
    char classes[PATH_BYTES]; /* the file with their names, "" if there is none */
    IndexBuilder index;       /* watches the folders and index files that the shards were found in */
} ShardSet;

/* True for a folder of shards, a shard, and a list. */
bool shards_are_in(const char *path);
/* True for a folder of both, which is taken for a folder of images. */
bool shards_are_beside_folders(const char *path);
/* Of a file that is named itself, by its first bytes, else by its name; SHARD_NONE if neither says it. */
ShardKind shard_kind_of(const char *path);
/* Bits of the splits that the set has shards for. */
unsigned shards_splits(const char *path);

/* The paths of a list in braces, in order: ERR_ARG if a brace is not closed or there are too many. */
NODISCARD Status braces_expand(const char *pattern, Names *paths);

/* A set has shards of one kind, *of, which its first shard gives: ERR_FORMAT naming this one if it is of another. */
NODISCARD Status shard_kind_take(ShardKind *of, const char *path, ShardKind kind);

/* All shards of a path, sorted unless it is a list. */
NODISCARD Status shard_set_find(const char *path, ShardSet *set);
void shard_set_free(ShardSet *set);
/* Where the samples of a split come from; ERR_FORMAT if only some names say their split. */
NODISCARD Status shard_set_choose(const SourceConfig *config, const ShardSet *set, Split split, SplitChoice *choice);
/* What the names of the shards of a part say of its number: ERR_FORMAT if some are not there, unless these may be missing
 * (config->partial), or if there are two for one number. */
NODISCARD Status shard_set_check(const SourceConfig *config, ShardSet *set, Split part);
/* Find the file of class names of a part (SPLITS: of the whole): beside its shards or in the folder above, or else those of
 * another part. */
void shard_set_classes(ShardSet *set, Split part);
/* Which folders about the shards have a file of class names: a new one must not go unnoticed. */
int shard_class_files(const char *path);
bool is_shard_list(const char *path);
