/* What a reader of samples provides: it puts this struct first in its own and fills it. dataset.c calls through it.
 * `read` is called from many threads at once; `index` is in range. `close` frees the whole thing. */
#ifndef TOWERS_DATA_READER_H
#define TOWERS_DATA_READER_H

#include "towers/data/dataset.h"

struct Dataset {
    DatasetInfo info;
    Status (*read)(const Dataset *dataset, int64_t index, uint8_t *pixels, int32_t *label);
    void (*where)(const Dataset *dataset, int64_t index, char *text, size_t bytes); /* NULL: there is no file */
    void (*close)(Dataset *dataset);
};

#endif
