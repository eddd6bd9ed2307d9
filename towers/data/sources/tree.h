/* The folders of a data set of files: train/, with val/ or test/, or one folder that --val-split divides. */
#ifndef TOWERS_DATA_TREE_H
#define TOWERS_DATA_TREE_H

#include "towers/data/sources/source.h"
#include "towers/files/files.h"

typedef struct Tree {
    char root[PATH_BYTES];  /* of this split's images */
    char train[PATH_BYTES]; /* of those for training */
    double val_split;       /* part of `train` that is for evaluation; 0: all images of `root` are this split's */
    Split split;
} Tree;

/* What the two kinds of data sets of files differ in. */
typedef struct TreeKind {
    bool (*has)(const char *path, const char *name,
                char below[PATH_BYTES]); /* images in path/name, whose path is stored */
    const char *wanted;                  /* for the message: "train/ and val/" */
    const char *tenth;                   /* "a tenth of each class" */
} TreeKind;

/* ERR_ARG if there are no images for evaluation, or --val-split beside such images. */
NODISCARD Status tree_find(const SourceConfig *config, Split split, const TreeKind *kind, Tree *tree);
/* The key of the index of a split; `format` and `more` tell data sets apart that are read by other rules. */
void tree_key(const Tree *tree, const char *format, const char *more, uint64_t key[2]);

/* Images whose hash is below this are for evaluation: round(count * val_split) of them, but never all. Sorts the hashes. */
uint64_t tree_limit(uint64_t *hashes, int64_t count, double val_split);

#endif
