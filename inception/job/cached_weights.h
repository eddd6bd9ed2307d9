/* Published weights on this machine: $XDG_CACHE_HOME/towers/weights/FILE, or below ~/.cache. Data have a folder beside them. */
#pragma once

#include "inception/models/published.h"
#include "inception/options/options.h"
#include "towers/files/files.h"

/* The folder for downloads of a kind ("data"), which is not created. ERR_ARG without a cache_home. */
NODISCARD Status cache_folder(const char *kind, char path[PATH_BYTES]);
/* The folder is not created. ERR_ARG without a cache_home. */
NODISCARD Status cached_path(const char *file, char path[PATH_BYTES]);
/* The address of a row, or of its file below --mirror. */
void cached_address(const Options *options, const PublishedRow *row, char address[PATH_BYTES]);
/* The verified file of a row: from the cache, else downloaded to it, with a line of progress on stderr unless --quiet.
 * Errors: as for download. */
NODISCARD Status cached_weights(const Options *options, const PublishedRow *row, char path[PATH_BYTES]);
/* Of a command that only says what it would do: whether this name is of published weights that are not in the cache, and "46.8 MB from
 * ADDRESS (license)". Errors: those of the table. */
NODISCARD Status cached_missing(const Options *options, const char *model, const char *name, bool *missing, char *text,
                                size_t bytes);
/* The verified file of a name that --pretrained or --weights may have ("imagenet"). If this model has no such name: ERR_ARG
 * for a name of published weights of others, else `path` becomes the name. */
NODISCARD Status cached_named(const Options *options, const char *model, const char *name, char path[PATH_BYTES]);
