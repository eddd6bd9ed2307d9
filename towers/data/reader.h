/* What a kind of source provides: it puts this struct first in its own and fills it. source.c calls through it.
 * `read` is called from many threads at once; `index` is in range. `close` frees the whole thing. */
#ifndef TOWERS_DATA_READER_H
#define TOWERS_DATA_READER_H

#include "towers/data/source.h"

struct Source {
    SourceInfo info;
    Status (*read)(const Source *source, int64_t index, Bytes *bytes, int32_t *label);
    void (*where)(const Source *source, int64_t index, char *text, size_t bytes); /* NULL: there is no file */
    void (*hint)(const Source *source, int64_t index);                            /* NULL: of no use */
    void (*close)(Source *source);
};

/* bytes becomes the packed pixels of one image. */
NODISCARD Status bytes_raw(Bytes *bytes, const uint8_t *pixels, int32_t h, int32_t w, int32_t c);

/* bytes becomes a whole regular file of `size` bytes (ANY_SIZE: however many it has). ERR_IO where it cannot be opened or
 * read, ERR_FORMAT where it is of another size or no regular file. */
#define ANY_SIZE UINT64_MAX
NODISCARD Status bytes_read(const char *path, uint64_t size, Bytes *bytes);
void bytes_hint(const char *path); /* it will be read soon */

#endif
