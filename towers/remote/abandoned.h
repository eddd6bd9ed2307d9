/* Abandoned downloads: beginnings that nobody has gone on with for thirty days, as of objects that no set has any more. */
#pragma once

#include "kernels/base/status.h"

/* Removes them from a folder and those below it: files whose name `is_beginning` knows, which no process has locked. What cannot be
 * removed stays. */
void abandoned_remove(const char *folder, bool (*is_beginning)(const char *name));
