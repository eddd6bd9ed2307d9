/* The memory that the tower processes of one node share, and how they wait in it; see comm.h for its creation. Internal
 * to nccl_sync.
 *
 * Every tower has room for its contribution of max_count floats, and one more room holds the result. The towers of the process
 * that holds tower 0 add theirs up in the first room, with which every sum begins; the pages of their other rooms are never
 * touched, so they take no memory. A barrier is a counter and a futex. A process that waits also checks the abort word, which
 * the supervisor or a failing process sets, and its deadline. */
#pragma once

#include <stdatomic.h>

#include "nccl_sync/comm_record.h"

enum { NODE_RANKS_MAX = 256, BROADCAST_BYTES = 1 << 18, LINE = 64 };

struct CommShared {
    _Alignas(LINE) _Atomic uint32_t generation; /* completed barriers; the futex word */
    _Alignas(LINE) _Atomic uint32_t arrived;
    _Alignas(LINE) _Atomic uint32_t aborted; /* number in the node + 1 of the first that left */
    _Atomic bool late;                       /* that one has not left: it was not waited for any longer */
    _Atomic uint32_t abort_begun;            /* by somebody: only the first writes abort_text */
    char abort_text[COMM_MESSAGE_BYTES];     /* with COMM_ABORTED_ELSEWHERE: what has happened on another host */
    _Alignas(LINE) _Atomic int64_t
        arrived_at[NODE_RANKS_MAX]; /* number of the barrier that each has reached, to name the missing one */
    ProgressSlot progress[NODE_RANKS_MAX];
    CommRecord record[NODE_RANKS_MAX];
    /* several nodes: see hosts_chain.c */
    _Alignas(LINE) _Atomic uint32_t chain_moves; /* a futex word: changes of the next three */
    _Atomic int64_t given[NODE_RANKS_MAX];       /* sums to which each process has given all that it has */
    _Atomic int64_t partials, resulted;          /* chunks whose partial sum, and whose result, has come */
    _Atomic int64_t looked_ns[NODE_RANKS_MAX];   /* when each communication thread last looked, while it waits */
    _Atomic bool awaits[NODE_RANKS_MAX];         /* each process waits for its communication thread */
    _Atomic int64_t peers_ns;                    /* the last sign of progress of other nodes */
    _Atomic int64_t come_to;                     /* the collective in which the node waits for others, or last did */
    _Atomic uint64_t behind;                     /* NodesBehind: of the other nodes, those that it waits for */
    _Alignas(LINE) _Atomic int64_t added[NODE_RANKS_MAX]; /* chunks to which each process has added its part */
    int towers, ranks;                                    /* of the node */
    int first_tower;
    int first_holds;          /* towers whose contributions the first room holds */
    size_t max_count, stride; /* floats; stride is max_count rounded up to a line */
    size_t bytes;             /* of the mapping */
    char broadcast[BROADCAST_BYTES];
    _Alignas(LINE) float contributions[]; /* [towers + 1][stride]: the last one is the result */
};

static inline float *shared_result(CommShared *shared)
{
    return shared->contributions + (size_t)shared->towers * shared->stride;
}

/* ERR_INTERNAL unless the memory was made for this configuration. Before the first barrier. */
NODISCARD Status shared_check(const CommConfig *config, CommShared *shared);
/* Keeps the contribution of a tower of this process for shared_add. The process's towers come in ascending order. */
void shared_give(const CommConfig *config, CommShared *shared, int tower, size_t first, const float *from,
                 size_t count);
/* Waits for all processes of the node. */
NODISCARD Status shared_barrier(const CommConfig *config, CommShared *shared);
/* The error of a collective after somebody has left. */
NODISCARD Status shared_fail_aborted(const CommConfig *config, const CommShared *shared);
/* Waits until a process of the node has counted `word`, its `given`, or the first process's partials or resulted, up
 * to `wanted`. */
NODISCARD Status shared_chain_wait(const CommConfig *config, CommShared *shared, _Atomic int64_t *word, int64_t wanted,
                                   int process);
/* The process of this node that has not added its part of a chunk whose partial sum is there; -1: none. A process takes
 * microseconds for it, so if a deadline has passed, this is the one that all wait for. */
int shared_behind(const CommShared *shared);
void shared_chain_moved(CommShared *shared, _Atomic int64_t *word, int64_t value);

/* The part of a range of `count` elements that a process of the node adds: [*from, *to). */
static inline void shared_part(const CommConfig *config, const CommShared *shared, size_t count, size_t *from,
                               size_t *to)
{
    size_t process = (size_t)process_in_node(&config->place), ranks = (size_t)shared->ranks;
    *from = count * process / ranks;
    *to = count * (process + 1) / ranks;
}

/* sum[0 .. count) = the contributions' elements from `first` on, added in tower order; behind the values that are there
 * already if `onto`. In blocks that stay in the first-level cache, so that each is read once. `copy` receives the sum too,
 * unless it is NULL. */
void shared_add(CommShared *shared, size_t first, size_t count, bool onto, float *sum, float *copy);
