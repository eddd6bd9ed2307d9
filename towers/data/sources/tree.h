/* The folders of a data set of files: train/, val/ and test/ under any of their names (splits.h), or one folder, which
 * --val-split divides. */
#pragma once

#include "towers/data/sources/splits.h"
#include "towers/files/files.h"

typedef struct Tree {
    char root[PATH_BYTES];  /* of this split's images */
    char train[PATH_BYTES]; /* of those that number the classes: for training, if there are any */
    double val_split;       /* part of `root` that is for evaluation; 0: all of its images are this split's */
    Split split;
} Tree;

/* What the two kinds of data sets of files differ in. */
typedef struct TreeKind {
    bool (*has)(const char *path, const char *name,
                char below[PATH_BYTES]); /* images in path/name, whose path is stored */
    const char *tenth;                   /* "a tenth of each class" */
} TreeKind;

/* The folders of the parts of a set, "" for those that it lacks. ERR_FORMAT if two have names of the same part. */
NODISCARD Status tree_parts(const char *path, const TreeKind *kind, char parts[SPLITS][PATH_BYTES]);
/* Bits of the parts that are there. */
unsigned tree_bits(char parts[SPLITS][PATH_BYTES]);
/* ERR_ARG if the split has no images, see splits.h. */
NODISCARD Status tree_find(const SourceConfig *config, Split split, const TreeKind *kind, Tree *tree);
/* The key of the index of a split; `format` and `more` tell data sets apart that are read by other rules. */
void tree_key(const Tree *tree, const char *format, const char *more, uint64_t key[2]);
