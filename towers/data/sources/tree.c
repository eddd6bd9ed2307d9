/* Finding the parts of a data set below its folder, and dividing one. */
#include "towers/data/sources/tree.h"

#include <dirent.h>
#include <xxhash.h>

static Status part_add(const char *path, const char *name, const TreeKind *kind, char parts[SPLITS][PATH_BYTES])
{
    char below[PATH_BYTES];
    Split part = split_of_word(name, strlen(name));
    if (part == SPLITS || !kind->has(path, name, below)) return OK;
    if (*parts[part])
        return FAIL(ERR_FORMAT, "'%s' and '%s' are both names of the folder for %s: keep one of them", parts[part],
                    name, split_name(part));
    memcpy(parts[part], below, sizeof below);
    return OK;
}

Status tree_parts(const char *path, const TreeKind *kind, char parts[SPLITS][PATH_BYTES])
{
    Status st = OK;
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) parts[s][0] = 0;
    DIR *directory = opendir(path);
    if (!directory) return FAIL(ERR_ARG, "data directory '%s': %s", path, strerror(errno));
    const struct dirent *entry;
    while (st == OK && (errno = 0, entry = readdir(directory)) != NULL) st = part_add(path, entry->d_name, kind, parts);
    if (st == OK && errno) st = FAIL(ERR_IO, "reading '%s': %s", path, strerror(errno));
    closedir(directory);
    return st;
}

unsigned tree_bits(char parts[SPLITS][PATH_BYTES])
{
    unsigned bits = 0;
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (*parts[s]) bits |= SPLIT_BIT(s);
    return bits;
}

Status tree_find(const SourceConfig *config, Split split, const TreeKind *kind, Tree *tree)
{
    char parts[SPLITS][PATH_BYTES], *path = realpath(config->path, NULL);
    SplitChoice choice;
    if (!path) return FAIL(ERR_ARG, "data directory '%s': %s", config->path, strerror(errno));
    Status st = tree_parts(path, kind, parts);
    if (st == OK) st = split_choose(config, tree_bits(parts), split, "folder", kind->tenth, &choice);
    if (st == OK) {
        snprintf(tree->root, sizeof tree->root, "%s", choice.from == SPLITS ? path : parts[choice.from]);
        snprintf(tree->train, sizeof tree->train, "%s", *parts[SPLIT_TRAIN] ? parts[SPLIT_TRAIN] : tree->root);
        tree->val_split = choice.divided ? config->val_split : 0;
        tree->split = split;
    }
    free(path);
    return st;
}

void tree_key(const Tree *tree, const char *format, const char *more, uint64_t key[2])
{
    char text[3 * PATH_BYTES + 96];
    int n = snprintf(text, sizeof text, "%s\n%s\n%s\n%d %.17g%s", format, tree->root, tree->train,
                     tree->val_split > 0 ? (int)tree->split : 0, tree->val_split, more);
    XXH128_hash_t hash = XXH3_128bits(text, (size_t)n);
    key[0] = hash.low64;
    key[1] = hash.high64;
}
