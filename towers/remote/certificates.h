/* The certificates of authorities that are trusted in https. */
#pragma once

#include "kernels/base/status.h"

/* The file of certificates to trust: `usual`, where libcurl looks (may be NULL), or if that is not there, as with a libcurl that
 * was built on another system, the first of those that systems have. NULL: libcurl decides. Lives as long as `usual`. */
const char *certificates_find(const char *usual);
