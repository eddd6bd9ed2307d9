/* Placement: the rank of a process in a run, and its towers. All processes run on one host, so the local rank equals the
 * rank. */
#ifndef TOWERS_NCCL_SYNC_PLACEMENT_H
#define TOWERS_NCCL_SYNC_PLACEMENT_H

#include <stdbool.h>

typedef struct Placement {
    int rank, ranks;               /* the number of the process in the run; how many there are */
    int local_rank;                /* its number on this host, which chooses the device */
    int first_tower, local_towers; /* its towers: consecutive numbers of the run */
} Placement;

/* The root writes the records. */
static inline bool is_root(const Placement *place)
{
    return place->rank == 0;
}

static inline bool is_local_tower(const Placement *place, int tower)
{
    return tower >= place->first_tower && tower < place->first_tower + place->local_towers;
}

#endif
