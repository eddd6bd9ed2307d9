/* The data set that callers see: finds the reader for a path and calls through its table (reader.h). */
#include "towers/data/dataset.h"

#include <inttypes.h>

#include "towers/data/idx.h"
#include "towers/data/reader.h"

Status dataset_open(const char *path, Split split, Dataset **made)
{
    if (!path || !*path) return FAIL(ERR_ARG, "the data directory has an empty name");
    TRY(idx_dataset_open(path, split, made));
    return OK;
}

void dataset_close(Dataset *dataset)
{
    if (dataset) dataset->close(dataset);
}

const DatasetInfo *dataset_info(const Dataset *dataset)
{
    return &dataset->info;
}

Status dataset_read(const Dataset *dataset, int64_t index, uint8_t *pixels, int32_t *label)
{
    if (index < 0 || index >= dataset->info.count)
        return FAIL(ERR_ARG, "sample %" PRId64 " of data set %s: it has samples 0 to %" PRId64, index,
                    dataset->info.name, dataset->info.count - 1);
    TRY(dataset->read(dataset, index, pixels, label));
    return OK;
}

void dataset_where(const Dataset *dataset, int64_t index, char *text, size_t bytes)
{
    if (dataset->where)
        dataset->where(dataset, index, text, bytes);
    else
        snprintf(text, bytes, "%s, sample %" PRId64, dataset->info.name, index);
}
