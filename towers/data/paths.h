/* A source of files named one by one, and of all images below folders: for `towers predict`. Without labels. */
#ifndef TOWERS_DATA_PATHS_H
#define TOWERS_DATA_PATHS_H

#include "towers/data/source.h"

/* Folders are searched to the bottom, sorted; files are taken whatever their ending. ERR_ARG: a path that is not there,
 * or no image in all of them. */
NODISCARD Status paths_source_open(char *const *paths, int count, Source **made);

#endif
