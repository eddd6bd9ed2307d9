/* Writing tars of a test, by libarchive. */
#pragma once

#include <archive.h>
#include <archive_entry.h>

void member_write(struct archive *to, const char *name, const char *text); /* a file; a failure fails the test */
