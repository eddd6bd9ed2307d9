/* Room in a cache that has a limit: what was needed least recently leaves it. Only objects that a caller can do without for a while go: those
 * with the note ROOM_NOTE beside them, whose time says when they were needed last, and never one that any process has open (cache_open) or
 * whose set a process needs whole (room_hold); and the beginnings of downloads that nobody goes on with. The limit is for the bytes that all
 * objects of the cache take on the disk, with what is on its way. */
#pragma once

#include "towers/remote/cache.h"

#define ROOM_NOTE ".stand"

typedef struct RoomConfig {
    const CacheConfig *cache;
    bool (*keep)(void *context, const char *note); /* the object with this note stays; NULL: each may go */
    void *context;
} RoomConfig;

typedef enum Room { ROOM_MADE, ROOM_LIMIT, ROOM_DISK } Room;

/* Make room for the rest of an object that is to come; *room says whether there is, or what lacks: room under the limit, or on the disk. One
 * process at a time makes room, and reserves it for the object where the disk can do that. */
NODISCARD Status room_make(const RoomConfig *config, const CachedObject *object, Room *room);
/* The object is needed now. */
void room_touch(const CacheConfig *config, const CachedObject *object);
/* The sets of these objects stay whole until this process ends. */
NODISCARD Status room_hold(const CacheConfig *config, const CachedObjects *list);
