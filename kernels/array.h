/* Arrays that grow by one item at a time. Their capacity follows from their count, so that it is stored nowhere: ARRAY_LEAST
 * items, then twice as many whenever the count reaches a capacity. */
#pragma once

#include "kernels/status.h"

enum { ARRAY_LEAST = 16 /* a power of two */ };

/* Makes room for item number `count` of *array, a pointer to the items, which only this function has allocated. ERR_MEMORY
 * names `what`; the array is unchanged then. */
NODISCARD static inline Status array_grow(void *array, int64_t count, size_t item_bytes, const char *what)
{
    void *items;
    memcpy(&items, array, sizeof items);
    if (items && (count < ARRAY_LEAST || (count & (count - 1)))) return OK;
    items = realloc(items, (count < ARRAY_LEAST ? ARRAY_LEAST : 2 * (size_t)count) * item_bytes);
    if (!items) return FAIL(ERR_MEMORY, "no memory for %s", what);
    memcpy(array, &items, sizeof items);
    return OK;
}
