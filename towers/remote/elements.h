/* Elements of the XML that stores with the interface of S3 answer. Those that are wanted have no others in their text, where a "<" is always
 * an entity: so an element is found by its name alone. */
#pragma once

#include "kernels/base/status.h"

/* The next element of this name between `at` and `end`, which is in a text that ends with NUL: its text, of so many bytes; NULL: there is
 * none. */
const char *element_find(const char *at, const char *end, const char *name, size_t *bytes);

/* The text of an element without its entities, never longer than with them. False if it does not fit, or has an entity that is none. */
bool element_text(const char *at, size_t bytes, char *to, size_t room);
