/* ImageFolder trees, by torchvision's rules: the classes are the sub-folders, sorted by the bytes of their names; a
 * class's images are all files below it, following links, with an image's ending (endings.h), sorted by folder and name.
 * Hidden folders, whose names begin with a dot, are left out.
 *
 * A data set is a folder with train/ and val/ (or test/), or one folder that --val-split divides: in each class, the
 * images whose names have the smallest hashes are for evaluation. Labels are those of the training classes.
 *
 * With SourceConfig.unlabelled, a folder in which images lie directly is one class, with all images below it.
 *
 * Other files below a class, and images beside the folders of the classes, are counted (SourceInfo.ignored). Errors:
 * ERR_FORMAT for a class without an image, a class of the test set that is not in the training set, a link cycle or a
 * dangling link, and a name that belongs to a pipe or a device. */
#ifndef TOWERS_DATA_FOLDER_H
#define TOWERS_DATA_FOLDER_H

#include <stdbool.h>

#include "towers/data/sources/source.h"

/* True if the directory has a sub-directory that is not a data set of its own (fashion-mnist). */
bool folder_is_in(const char *path);
/* True if images lie in the directory itself, or in its train/. */
bool folder_is_flat(const char *path);
NODISCARD Status folder_source_open(const SourceConfig *config, Split split, Source **made);

#endif
