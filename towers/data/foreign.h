/* Data that no reader here reads, or that lie elsewhere than the path says: recognized by the names of files, so that the message
 * says what it is and which way works. */
#pragma once

#include "kernels/base/status.h"

/* ERR_FORMAT if a folder that no reader claims, or a file, holds such data and no image; OK for all others. */
NODISCARD Status foreign_refuse(const char *path);
/* ERR_FORMAT if the name of a file, on any machine, says that it is of such a format. */
NODISCARD Status foreign_name_refuse(const char *name);
