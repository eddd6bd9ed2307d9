/* Names that look the same although their bytes differ: nobody finds by eye why "the same" class is missing. */
#pragma once

#include "kernels/base/status.h"

/* True if two different names in UTF-8 look the same: an accented letter of one is composed in the other (Unicode's forms
 * NFC and NFD: a Mac writes names of files in NFD, Linux as they were typed, mostly NFC), or they differ only in upper and
 * lower case of ASCII, or in blanks and characters without width. `why` receives the first difference: "a letter is U+0065
 * U+0301 in the first and U+00E9 in the second, ...". Letters with other accents are taken for the same, too, which the code
 * points in `why` show: tables of all letters are not worth their size here. */
enum { ALIKE_BYTES = 200 };
bool look_alike(const char *a, const char *b, char why[ALIKE_BYTES]);
/* The name without blanks and characters without width; false if it does not fit. */
bool look_alike_seen(const char *name, char *seen, size_t bytes);
/* Equal for names that look the same, so that only those with equal ones need be compared; others may share it. */
uint64_t look_alike_hash(const char *name);
