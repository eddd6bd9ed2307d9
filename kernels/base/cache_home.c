/* The folder of a user's caches; see cache_home.h. */
#include "kernels/base/cache_home.h"

bool cache_home(char *path, size_t room)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && *cache == '/';
    if (!given && (!home || *home != '/')) return false;
    int bytes = snprintf(path, room, "%s%s", given ? cache : home, given ? "" : "/.cache");
    return bytes > 0 && (size_t)bytes < room;
}
