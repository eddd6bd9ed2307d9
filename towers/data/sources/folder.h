/* ImageFolder trees, by torchvision's rules: the classes are the sub-folders, sorted by the bytes of their names; a
 * class's images are all files below it, following links, with an image's ending (endings.h), sorted by folder and name.
 * What other programs leave behind (leftovers.h) and hidden folders are left out.
 *
 * A data set is a folder with train/, val/ and test/, by any of their names (splits.h), or one folder that --val-split
 * divides: in each class, the images whose names have the smallest hashes are for evaluation. Labels are those of the
 * training classes; without training images, of the set's own. A folder with such a name that holds no folders and lies
 * beside others is a class.
 *
 * With SourceConfig.unlabeled, a folder in which images lie directly is one class, with all images below it. With
 * SourceConfig.whole, a folder of images without folders is one class, which has its name.
 *
 * Other files below a class, and images beside the folders of the classes, are counted (inventory.h). Errors:
 * ERR_FORMAT for a class without an image, a class of the test set that is not in the training set, a link cycle or a
 * dangling link, and a name that belongs to a pipe or a device. */
#pragma once

#include "towers/data/sources/source.h"

/* True if the directory has a sub-directory that is not a data set of its own (fashion-mnist). */
bool folder_is_in(const char *path);
/* True if images lie in the directory itself. */
bool folder_is_flat(const char *path);
/* True if images lie in the folder of a part, which then has no labels. */
bool folder_part_is_flat(const char *path, Split split);
/* Bits of its parts. */
unsigned folder_splits(const char *path);
NODISCARD Status folder_source_open(const SourceConfig *config, Split split, Source **made);
