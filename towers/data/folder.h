/* ImageFolder trees, by torchvision's rules: the classes are the sub-folders, sorted by the bytes of their names; a
 * class's images are all files below it, links followed, with an ending of an image (any case), sorted by folder and name.
 *
 * A set is a folder with train/ and val/ (or test/), or one folder that --val-split divides: in each class, the images
 * whose names have the smallest hashes are for evaluation. The labels are those of the training classes.
 *
 * Endings read: .jpg .jpeg .png .ppm .pgm .webp; .bmp .tif .tiff are counted (SourceInfo.unread). Errors: ERR_FORMAT for a
 * class without an image, a class of the test set that training lacks, a link in a circle or to nothing, a name that is a
 * pipe or a device. */
#ifndef TOWERS_DATA_FOLDER_H
#define TOWERS_DATA_FOLDER_H

#include <stdbool.h>

#include "towers/data/source.h"

/* Has the directory a sub-directory that is no data set of its own (fashion-mnist)? */
bool folder_is_in(const char *path);
/* Has the file an ending that is read? */
bool folder_takes(const char *name);
NODISCARD Status folder_source_open(const SourceConfig *config, Split split, Source **made);

#endif
