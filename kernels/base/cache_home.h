/* Where the caches of a user lie: $XDG_CACHE_HOME or $HOME/.cache, each only if it is a whole path (XDG Base Directory Specification:
 * a relative one is invalid and ignored), because a relative one would be another folder in each working directory. */
#pragma once

#include "kernels/base/status.h"

#define CACHE_HOME_ASKED "neither XDG_CACHE_HOME nor HOME is the whole path of a folder, from / on"

/* False: there is none, or its path has no room. */
bool cache_home(char *path, size_t room);
