/* Shared by plan*.c only: the readers of values, shared storage (plan_alias.c), arenas and offsets (plan_arena.c,
 * plan_place.c). */
#pragma once

#include "kernels/backend.h"
#include "towers/graph/layout.h"

/* Operand `in` of op `op` reads the value. */
typedef struct ValueUse {
    int32_t op, in;
} ValueUse;

/* Where a value lies: inside the storage of `root` (itself if it has its own), from channel `first` on. All members of
 * one storage have the pitch of the root, except reshaped ones, which cover a packed root exactly. */
typedef struct AliasMember {
    int32_t root;
    int32_t next; /* next member of the same storage, 0 at the end */
    int64_t first;
    int64_t pitch;
    int32_t last_read; /* last op that reads the value; the op that writes it if none does; -1 if neither exists */
    bool padded; /* rows end with zeros: the pitch is more than the channels, and the value is alone in its storage */
    bool unused; /* no op reads it and its op can skip it: no storage */
} AliasMember;

typedef struct Alias {
    const Graph *graph;     /* borrowed */
    const Backend *backend; /* borrowed */
    AliasMember *member;    /* owned, [values + 1] */
    ValueUse *uses;         /* owned, grouped by value */
    int32_t *first_use;     /* owned, [values + 2]: uses of v are first_use[v] .. first_use[v + 1] - 1 */
    uint8_t *placed;        /* owned, [ops]: bit k: operand k of a SLICE, CONCAT, RESHAPE is already in place */
    int shared, copied;     /* see PlanReport */
} Alias;

NODISCARD Status alias_create(Alias *alias, const Graph *graph, const Backend *backend, bool no_alias);
void alias_destroy(Alias *alias);
/* True if the op only moves values that already lie where it would put them. */
bool alias_skips(const Alias *alias, int op);

/* A piece of scratch memory that is in use from op `start` to op `end`, both included. */
typedef struct ArenaBlock {
    int32_t start, end;
    size_t bytes;
    size_t offset; /* result, a multiple of 64 */
} ArenaBlock;

NODISCARD Status place_blocks(ArenaBlock *blocks, int count, size_t *total);
size_t place_align(size_t bytes); /* rounded up to a multiple of 64 */

/* Where a value lies: a byte offset in an arena; `none` if it has no storage. */
typedef struct ValuePlace {
    Arena arena;
    size_t offset;
    bool none;
} ValuePlace;

/* Fills place[values + 1] and bytes[ARENA_COUNT] (SCRATCH without the workspace). */
NODISCARD Status arena_assign(const Alias *alias, const Layout *layout, bool no_alias, ValuePlace *place,
                              size_t *bytes);
