/* What other systems and programs leave in folders and archives, which is never data: one list for folders, labels files,
 * tars, shards and predictions. */
#pragma once

#include "kernels/base/status.h"

/* The pattern of the list that a name fits ("._*"), or "hidden" for a hidden folder; NULL for any other name. */
const char *leftover_of(const char *name, bool folder);
/* The first part of a path in an archive that fits a pattern; NULL: none. */
const char *leftover_in(const char *path);
