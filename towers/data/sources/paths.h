/* A source without labels for `towers predict`: individual files, and all images below folders. */
#pragma once

#include "towers/data/sources/source.h"

/* Folders are searched recursively, following links but without hidden folders, and sorted; files are taken whatever
 * their ending. ERR_ARG if a path does not exist or no image is found, ERR_FORMAT for a link to a folder that contains
 * it. */
NODISCARD Status paths_source_open(char *const *paths, int count, Source **made);
