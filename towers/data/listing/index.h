/* The index of a data set on disk: position, size and label of each sample's bytes. It is built once, stored in the
 * user's cache and mapped, so that it takes no memory however large the data set is.
 *
 * File: IndexHeader, then classes (the u64 offset of each name), watched paths, samples, strings (NUL-terminated). If samples
 * may have several classes, before the strings: the number of the first label of each sample, and of the end (u64), then all
 * labels (i32), increasing within a sample, whose own label is 0. All numbers are in this processor's byte order.
 * Written under a temporary name and renamed; a second writer replaces it by the same bytes. An index is used only if
 * every watched path still has the same times and size, and had not just been changed when it was looked at: for a folder
 * these are all its directories (a file that is changed in place is detected by its size when it is read, and the index is
 * then forgotten). */
#pragma once

#include <sys/stat.h>

#include "towers/data/listing/endings.h"
#include "towers/data/listing/inventory.h"

typedef struct Sample {
    uint64_t offset; /* of its bytes in `file`; 0 for a separate file */
    uint64_t name;   /* offset of its name in the strings */
    uint32_t bytes;
    uint32_t file; /* its shard: an index into `watched` */
    int32_t label;
    uint32_t flags; /* by kind: of a record of TFRecords its masked CRC, of raw pixels height << 16 | width */
} Sample;

/* What was left out for one reason (inventory.h). */
typedef struct IndexSkipped {
    int64_t count;
    uint64_t kinds, first; /* offsets in the strings, if the count is not 0 */
} IndexSkipped;

typedef struct IndexHeader {
    char magic[8]; /* "TWRINDEX" */
    uint32_t version, sample_bytes;
    uint64_t key[2]; /* hash of the request: kind, path, options */
    int64_t samples, classes, watched;
    IndexSkipped skipped[SKIP_REASONS];
    uint64_t note;        /* 1 + the offset of SourceInfo.labels_note in the strings; 0: none */
    uint64_t kind;        /* of shards (shard.h); 0 for a folder */
    uint64_t strings;     /* bytes */
    uint64_t multi_label; /* 1: samples have lists of labels, else 0 */
    int64_t labels;       /* in all lists */
    uint64_t fingerprint[2];
    uint64_t train; /* sum of the index of the training samples whose classes these are; 0: of none */
    uint64_t sum;   /* XXH3-64 of everything after the header */
} IndexHeader;

typedef struct Watched {
    uint64_t path; /* offset in the strings */
    /* of the content (which tar, rsync and cp restore), of anything (which nothing can set) */
    int64_t time_ns, change_ns;
    int64_t bytes;
    uint64_t inode;
    int64_t seen_ns; /* when this was found; a change at about that time may have left the same times */
} Watched;

/* Builds that read other formats find other files in the same folders. */
enum { INDEX_VERSION = 9 << 8 | IMAGE_ENDINGS_COUNT };

/* A mapped index. All pointers point into the mapping. */
typedef struct Index {
    const IndexHeader *header;
    const uint64_t *classes;
    const Watched *watched;
    const Sample *samples;
    const uint64_t *list_first; /* [samples + 1]: into `lists`; NULL: each sample has one label */
    const int32_t *lists;
    const char *strings;
    void *map;
    size_t map_bytes;
} Index;

/* The string at an offset of the strings; "" if it is out of range. */
const char *index_string(const Index *index, uint64_t offset);

/* What an index used and left out; the strings are those of the index. */
void index_inventory(const Index *index, Inventory *inventory);

/* The content of an index, filled in by each kind of data set and laid out by index_write. */
typedef struct IndexParts {
    uint64_t *classes;
    int64_t classes_count;
    Watched *watched;
    int64_t watched_count;
    Sample *samples;
    int64_t samples_count;
    bool multi_label;
    uint64_t *list_first; /* [samples_count]: of each sample */
    int32_t *lists;
    int64_t lists_count;
    char *strings;
    size_t strings_bytes;
    IndexSkipped skipped[SKIP_REASONS];
    uint64_t note; /* as IndexHeader has it */
    uint64_t kind, train;
} IndexParts;

/* Collects the parts, which it owns. Start with zeros; errors are ERR_MEMORY, and ERR_IO for a path to watch. */
typedef struct IndexBuilder {
    IndexParts parts;
    size_t strings_room;
} IndexBuilder;

NODISCARD Status index_string_add(IndexBuilder *b, const char *text, uint64_t *offset);
NODISCARD Status index_class_add(IndexBuilder *b, const char *name); /* the next one */
NODISCARD Status index_note_set(IndexBuilder *b, const char *note);  /* instead of an earlier one */
NODISCARD Status index_sample_add(IndexBuilder *b, const Sample *sample, const char *name); /* sets sample.name */
/* A sample with any number of labels; all samples of an index or none. */
NODISCARD Status index_multi_label_add(IndexBuilder *b, const Sample *sample, const char *name, const int32_t *labels,
                                       int32_t count);
/* Keep what was left out. */
NODISCARD Status index_skips_put(IndexBuilder *b, const Skips *skips);
/* Watch a path as it is now, and as it was then. Call the first before the path is read, so that a change meanwhile is
 * detected. */
NODISCARD Status index_watched_add(IndexBuilder *b, const char *path);
NODISCARD Status index_watched_put(IndexBuilder *b, const char *path, const Watched *then);
Watched watched_of(const struct stat *info); /* without a path */
void index_builder_free(IndexBuilder *b);

/* Look for a valid index for the key. *found is also false if it is damaged or outdated. */
NODISCARD Status index_find(const uint64_t key[2], Index *index, bool *found);
/* Write an index for the key to the cache (or to anonymous memory, if that is not possible) and map it. */
NODISCARD Status index_write(const uint64_t key[2], const IndexParts *parts, Index *index);
/* Where something else that is known of a set is kept beside its index: the folder, which need not exist, and the name of the
 * file, "KEY.ENDING". False if there is no place for it. */
enum { INDEX_NAME_BYTES = 64 };
bool index_cache_name(const uint64_t key[2], const char *ending, char *directory, size_t room,
                      char name[INDEX_NAME_BYTES]);
void index_unmap(Index *index);
/* Remove it from the cache, because it no longer describes the data set; it stays mapped. */
void index_forget(const Index *index);

/* Check an index in memory as if it had been read from a file: ERR_FORMAT. Used by index_find and for fuzzing. */
NODISCARD Status index_parse(const void *bytes, size_t size, const uint64_t key[2], Index *index);
