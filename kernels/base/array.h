/* Arrays that grow. */
#pragma once

#include "kernels/base/status.h"

enum { ARRAY_LEAST = 16 /* a power of two */ };

/* Makes room for item number `count` of *array, a pointer to the items, which only this function has allocated. The capacity
 * follows from the count, so that it is stored nowhere: ARRAY_LEAST items, then twice as many whenever the count reaches it.
 * ERR_MEMORY names `what`; the array is unchanged then. */
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

/* The same for arrays that grow by any number of items: makes room for `wanted`, of which *room are there. */
NODISCARD static inline Status array_reserve(void *array, size_t *room, size_t wanted, size_t item_bytes,
                                             const char *what)
{
    void *items;
    if (wanted <= *room) return OK;
    memcpy(&items, array, sizeof items);
    items = realloc(items, 2 * wanted * item_bytes);
    if (!items) return FAIL(ERR_MEMORY, "no memory for %s", what);
    memcpy(array, &items, sizeof items);
    *room = 2 * wanted;
    return OK;
}

/* Adds an item to an array and counts it: ARRAY_ADD(names->name, names->count, "a list of names", name). */
#define ARRAY_ADD(items, count, what, ...)                                                                             \
    (array_grow(&(items), (count), sizeof *(items), (what)) == OK ? ((items)[(count)++] = (__VA_ARGS__), OK)           \
                                                                  : ERR_MEMORY)
