/* The index of a data set on disk: where each sample's bytes are, how many, and its label; built once, kept in a file
 * under the user's cache and mapped, so that a set of any size costs no memory.
 *
 * File: IndexHeader, then classes (u64 offset of a name each), watched paths, samples, strings (NUL-terminated). All
 * numbers as this processor stores them. Written under another name and renamed; whoever comes second replaces it with
 * the same bytes. Used again only if every watched path still has the time and size it had: of a folder these are all its
 * directories (a file that is changed in place is found when it is read, by its size). */
#ifndef TOWERS_DATA_INDEX_H
#define TOWERS_DATA_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/status.h"

typedef struct Sample {
    uint64_t offset; /* of its bytes in `file`; of a file of its own: of its name in the strings */
    uint32_t bytes;
    uint32_t file;
    int32_t label;
    uint32_t flags;
} Sample;

typedef struct IndexHeader {
    char magic[8]; /* "TWRINDEX" */
    uint32_t version, sample_bytes;
    uint64_t key[2]; /* of what was asked: kind, path, options */
    int64_t samples, classes, watched, unread;
    uint64_t first_unread; /* offset of its name in the strings */
    uint64_t strings;      /* bytes */
    uint64_t fingerprint[2];
    uint64_t sum; /* XXH3-64 of all behind the header */
} IndexHeader;

typedef struct Watched {
    uint64_t path; /* offset in the strings */
    int64_t time_ns, bytes;
    uint64_t inode;
} Watched;

/* A mapped index. All pointers lead into the mapping. */
typedef struct Index {
    const IndexHeader *header;
    const uint64_t *classes;
    const Watched *watched;
    const Sample *samples;
    const char *strings;
    void *map;
    size_t map_bytes;
} Index;

/* The string at an offset of the strings; "" for one that lies outside. */
const char *index_string(const Index *index, uint64_t offset);

/* What a kind of data set fills in; index_write lays it out. All arrays are owned by the builder. */
typedef struct IndexParts {
    uint64_t *classes;
    int64_t classes_count;
    Watched *watched;
    int64_t watched_count;
    Sample *samples;
    int64_t samples_count;
    char *strings;
    size_t strings_bytes;
    int64_t unread;
    uint64_t first_unread;
} IndexParts;

/* Is there a valid index for the key? *found says so; false also for one that is damaged or out of date. */
NODISCARD Status index_find(const uint64_t key[2], Index *index, bool *found);
/* Writes an index for the key to the cache (or, where none can be written, to memory without a name) and maps it. */
NODISCARD Status index_write(const uint64_t key[2], const IndexParts *parts, Index *index);
void index_unmap(Index *index);

/* Checks an index in memory, as if it had been read from a file: ERR_FORMAT. For fuzzing, and what index_find uses. */
NODISCARD Status index_parse(const void *bytes, size_t size, const uint64_t key[2], Index *index);

/* Time, size and inode of a path, for Watched; ERR_IO. */
NODISCARD Status watched_now(const char *path, Watched *watched);

#endif
