/* Objects of servers by their addresses, and what is known of each. */
#pragma once

#include <jansson.h>

#include "towers/remote/transport.h"

typedef struct CachedObject {
    char *address; /* owned by the list */
    bool optional; /* it may not be there */
    bool later;    /* its length and version are asked for, but it is not downloaded */
    bool absent;   /* it is not there */
    bool denied;   /* absent, by an answer of 403, which may also come of wrong keys */
    bool here;     /* in the cache, or known to be absent */
    int64_t bytes; /* -1: not known */
    char version[VERSION_BYTES];
    const struct CachedObject *was; /* borrowed: the length and version that are demanded; NULL: any */
    /* The server has said what is in `was` not long ago: the object is downloaded without another question, and compared as it comes. */
    bool asked;
} CachedObject;

typedef struct CachedObjects {
    CachedObject *object; /* owned: [count] */
    int count;
    json_t *places; /* owned: of each address in the list */
} CachedObjects;

/* NULL if it is not in the list. */
const CachedObject *cached_objects_find(const CachedObjects *list, const char *address);
/* An address that is in the list already is not added again; it is optional if it was so each time. */
NODISCARD Status cached_objects_add(CachedObjects *list, const char *address, bool optional);
void cached_objects_free(CachedObjects *list);

/* ERR_FORMAT of an object that is not what its caller knows it to be (`was`). */
NODISCARD Status cached_object_demand(const CachedObject *object);
