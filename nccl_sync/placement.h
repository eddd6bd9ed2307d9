/* Placement: the place of a tower process in a run.
 *
 * A group is the processes that one supervisor has started: one host, or a part of one. A run without a launcher has one
 * group. All groups have the same number of processes, and ranks count through them: rank = group * (ranks / groups) +
 * number in the group. Towers ascend with the ranks, so those of a group are consecutive. */
#pragma once

#include <stdbool.h>

typedef struct Placement {
    int rank, ranks;               /* the number of the process in the run; how many there are */
    int local_rank;                /* its number among the processes of its host, which chooses the device */
    int group, groups;             /* the number of its group, and how many there are; groups 0: one */
    int first_tower, local_towers; /* its towers: consecutive numbers of the run */
    char host[64];                 /* the name of its host, for messages; "" if there is one group */
    const char *origin;            /* borrowed, static: who said so, as "mpirun (OMPI_COMM_WORLD_RANK)"; NULL: nobody */
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

/* Processes of each group. */
static inline int group_ranks(const Placement *place)
{
    return place->groups > 1 ? place->ranks / place->groups : place->ranks;
}

/* The number of the process in its group. */
static inline int group_rank(const Placement *place)
{
    return place->groups > 1 ? place->rank - place->group * group_ranks(place) : place->rank;
}
