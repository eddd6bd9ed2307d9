/* Lists of objects; see cached_objects.h. */
#include "towers/remote/cached_objects.h"

#include "kernels/base/array.h"

const CachedObject *cached_objects_find(const CachedObjects *list, const char *address)
{
    const json_t *at = json_object_get(list->places, address);
    return at ? &list->object[json_integer_value(at)] : NULL;
}

Status cached_objects_add(CachedObjects *list, const char *address, bool optional)
{
    if (!list->places) list->places = json_object();
    const json_t *at = json_object_get(list->places, address);
    if (at) {
        list->object[json_integer_value(at)].optional &= optional;
        return OK;
    }
    CachedObject one = {.address = strdup(address), .optional = optional, .bytes = -1};
    Status st = one.address && json_object_set_new(list->places, address, json_integer(list->count)) == 0
                    ? ARRAY_ADD(list->object, list->count, "a list of objects", one)
                    : FAIL(ERR_MEMORY, "no memory for the address of an object");
    if (st != OK) free(one.address);
    return st;
}

void cached_objects_free(CachedObjects *list)
{
    for (int i = 0; i < list->count; i++) free(list->object[i].address);
    free(list->object);
    json_decref(list->places);
    *list = (CachedObjects){0};
}

Status cached_object_demand(const CachedObject *o)
{
    const CachedObject *was = o->was;
    if (!was || o->bytes < 0 || (o->bytes == was->bytes && !strcmp(o->version, was->version))) return OK;
    return FAIL(
        ERR_FORMAT, "%s has changed: it had %" PRId64 " bytes and the version %s, now it has %" PRId64 " and %s",
        o->address, was->bytes, *was->version ? was->version : "(none)", o->bytes, *o->version ? o->version : "(none)");
}
