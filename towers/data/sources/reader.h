/* The interface of a kind of source, which puts this struct first in its own and fills it; source.c calls through it.
 * `read` is called from many threads at once; `index` is in range. `close` frees what is not in this struct, and itself.
 * A source that stands before another one has only the functions that differ; the other's do the rest. */
#pragma once

#include "towers/data/sources/source.h"

struct Source {
    SourceInfo info;
    Source *from; /* owned unless borrowed; NULL: it reads its samples itself */
    bool borrowed;
    int64_t *ids; /* owned: the sample of `from` that each one is; NULL: the same */
    Status (*read)(const Source *source, int64_t index, Bytes *bytes, int32_t *label);
    int32_t (*label)(const Source *source, int64_t index);                          /* NULL: 0 of every sample */
    int32_t (*labels)(const Source *source, int64_t index, const int32_t **labels); /* if info.multi_label */
    void (*where)(const Source *source, int64_t index, char *text, size_t bytes);   /* NULL: there is no file */
    bool (*file)(const Source *source, int64_t index, char *path, size_t room,
                 uint64_t *bytes);                                 /* NULL: samples are no files */
    bool (*is_here)(const Source *source, int64_t index);          /* NULL: yes */
    void (*traffic)(const Source *source, SourceTraffic *traffic); /* NULL: none */
    void (*hint)(const Source *source, int64_t index);             /* NULL: not supported */
    void (*hint_shard)(const Source *source, int shard);           /* NULL: there are none */
    void (*hint_later)(const Source *source, int shard);           /* NULL: nothing is to do */
    void (*hint_window)(const Source *source);                     /* NULL: nothing is to do */
    void (*close)(Source *source);                                 /* NULL: free */
};

/* Store the packed pixels of one image in `bytes`. */
NODISCARD Status bytes_raw(Bytes *bytes, const uint8_t *pixels, int32_t h, int32_t w, int32_t c);

/* An encoded image may have this many bytes: 1 GiB, more than the largest image (image_memory.h) has in any format but
 * text. */
enum { SAMPLE_BYTES_MAX = 1 << 30 };
/* ERR_FORMAT for a sample of more bytes. */
NODISCARD Status sample_size_check(uint64_t bytes);
/* Read a whole regular file of `size` bytes (ANY_SIZE: of any size) and at most `most` into `bytes`. ERR_IO if it cannot
 * be opened or read, ERR_FORMAT if it has another size or is not a regular file. */
#define ANY_SIZE UINT64_MAX
NODISCARD Status bytes_read(const char *path, uint64_t size, uint64_t most, Bytes *bytes);
/* Its first `most` bytes, or all if it has fewer, and the size of the whole. */
NODISCARD Status bytes_read_head(const char *path, uint64_t most, Bytes *bytes, uint64_t *size);
/* Whether two files have the same bytes. ERR_FORMAT, ERR_IO. */
NODISCARD Status files_equal(const char *a, const char *b, bool *equal);
/* These bytes of it will be read soon; 0 bytes: all to the end. */
void bytes_hint(const char *path, uint64_t offset, uint64_t bytes);
