/* Placement: the place of a tower process in a run.
 *
 * A node is the processes that one supervisor has started: one host, or a part of one. A run without a launcher has one
 * node. All nodes have the same number of processes, and ranks count through them: rank = node * (ranks / nodes) +
 * number in the node. Towers ascend with the ranks, so those of a node are consecutive. */
#pragma once

#include <stdbool.h>

typedef struct Placement {
    int rank, ranks;               /* the number of the process in the run; how many there are */
    int local_rank;                /* its number among the processes of its host, which chooses the device */
    int node, nodes;               /* the number of its node, and how many there are; nodes 0: one */
    int first_tower, local_towers; /* its towers: consecutive numbers of the run */
    char host[64];                 /* the name of its host, for messages; "" if there is one node */
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

/* Processes of each node. */
static inline int node_ranks(const Placement *place)
{
    return place->nodes > 1 ? place->ranks / place->nodes : place->ranks;
}

/* The number of the process in its node. */
static inline int process_in_node(const Placement *place)
{
    return place->nodes > 1 ? place->rank - place->node * node_ranks(place) : place->rank;
}
