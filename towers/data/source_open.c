/* Finds the kind of source that a path names; see source.h. */
#include "towers/data/foreign.h"
#include "towers/data/shards/shard_set.h"
#include "towers/data/shards/shards.h"
#include "towers/data/sources/folder.h"
#include "towers/data/sources/idx.h"
#include "towers/data/sources/labeled.h"
#include "towers/data/sources/labels.h"

static Status kind_open(const SourceConfig *config, Split split, Source **made)
{
    const char *path = config->path;
    struct stat info;
    if (!path || !*path) return FAIL(ERR_ARG, "the data directory has an empty name");
    if (!idx_is_in(path) && shards_are_in(path)) return shards_source_open(config, split, made);
    if (config->label_base != LABEL_BASE_AUTO)
        return FAIL(ERR_ARG, "--label-base is for shards; '%s' holds none", path);
    if (stat(path, &info) != 0) return FAIL(ERR_ARG, "data directory '%s': %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) TRY(foreign_refuse(path));
    if (!S_ISDIR(info.st_mode))
        return FAIL(ERR_ARG, "'%s' is not a directory; expected the directory of the data files, or a shard", path);
    if (access(path, R_OK | X_OK) != 0) return FAIL(ERR_ARG, "data directory '%s': %s", path, strerror(errno));
    if (!config->unlabeled && !idx_is_in(path) && labeled_is_in(path)) return labeled_source_open(config, split, made);
    if (!idx_is_in(path)) TRY(foreign_refuse(path));
    bool folder = folder_is_in(path) || ((config->unlabeled || config->whole) && folder_is_flat(path));
    if (!idx_is_in(path) && folder) {
        Status st = folder_source_open(config, split, made);
        if (st != ERR_FORMAT || !shards_are_beside_folders(path)) return st;
        return FAIL(
            st,
            "%s; there are shards beside the folders: if these are the data, move the folders away or name the shards",
            status_message());
    }
    if (config->val_split > 0)
        return FAIL(ERR_ARG,
                    "--val-split divides folders of images and shards; '%s' holds neither: expected folders of "
                    "classes with images, shards, or the files of MNIST's format, which have test images of their own",
                    path);
    return idx_source_open(path, split, made);
}

Status source_open(const SourceConfig *config, Split split, Source **made)
{
    TRY(kind_open(config, split, made));
    return config->background ? source_background(made) : OK;
}

unsigned source_splits(const char *path)
{
    if (idx_is_in(path)) return SPLIT_BIT(SPLIT_TRAIN) | SPLIT_BIT(SPLIT_TEST);
    if (shards_are_in(path)) return shards_splits(path);
    if (labeled_is_in(path)) return labeled_splits(path);
    return folder_splits(path);
}
