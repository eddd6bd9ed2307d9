/* See tree.h. */
#include "towers/data/sources/tree.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

Status tree_find(const SourceConfig *config, Split split, const TreeKind *kind, Tree *tree)
{
    char *path = realpath(config->path, NULL);
    if (!path) return FAIL(ERR_ARG, "data directory '%s': %s", config->path, strerror(errno));
    bool has_train = kind->has(path, "train", tree->train),
         has_val = has_train && (kind->has(path, "val", tree->root) || kind->has(path, "test", tree->root));
    if (!has_train) snprintf(tree->train, sizeof tree->train, "%s", path);
    free(path);
    tree->val_split = has_val ? 0 : config->val_split;
    tree->split = split;
    if (has_val && config->val_split > 0)
        return FAIL(ERR_ARG, "--val-split: '%s' already has images for evaluation, in %s", config->path,
                    strrchr(tree->root, '/') + 1);
    if (!has_val && config->val_split <= 0 && !config->whole)
        return FAIL(ERR_ARG, "'%s' has no images for evaluation: expected %s (or test/), or --val-split 0.1 to keep %s",
                    config->path, kind->wanted, kind->tenth);
    if (split == SPLIT_TRAIN || !has_val) memcpy(tree->root, tree->train, sizeof tree->root);
    return OK;
}

void tree_key(const Tree *tree, const char *format, const char *more, uint64_t key[2])
{
    char text[2 * PATH_BYTES + 96];
    int n = snprintf(text, sizeof text, "%s\n%s\n%s\n%d %.17g%s", format, tree->root, tree->train,
                     tree->val_split > 0 ? (int)tree->split : 0, tree->val_split, more);
    XXH128_hash_t hash = XXH3_128bits(text, (size_t)n);
    key[0] = hash.low64;
    key[1] = hash.high64;
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t tree_limit(uint64_t *hashes, int64_t count, double val_split)
{
    int64_t wanted = llrint((double)count * val_split);
    if (wanted >= count) wanted = count - 1;
    if (wanted <= 0) return 0;
    qsort(hashes, (size_t)count, sizeof *hashes, by_hash);
    return hashes[wanted];
}
