/* Nodes: which rank is where. A node is a machine, or what takes itself for one: ranks that share
 * memory. Launchers count ranks node by node, or around all of them in turn, so the two maps are
 * tables; nodes may have different numbers of ranks. */
#ifndef LS_WORLD_WORLD_NODES_H
#define LS_WORLD_WORLD_NODES_H

#include <lockstep/base.h>

typedef struct ls__nodes {
    int size, count;  /* ranks, nodes */
    int *node_of;     /* (size) of each rank, in [0, count) */
    int *local_of;    /* (size) its number on its node, in [0, local_sizes[node]) */
    int *local_sizes; /* (count) ranks of each node, at least 1 */
    int *first;       /* (count) where a node begins in ranks */
    int *ranks;       /* (size) node after node, in the order of local ranks */
} ls__nodes;

/* Ranks counted node by node. */
ls_status ls__nodes_create(const int *local_sizes, int count, ls__nodes **out);
/* From each rank's node and number on it. LS_ERR_CONFIG names what is missing or taken twice. */
ls_status ls__nodes_create_from(const int *node_of, const int *local_of, int size, ls__nodes **out);
void ls__nodes_destroy(ls__nodes *nodes);

/* The rank with this number on this node. */
static inline int ls__nodes_rank(const ls__nodes *nodes, int node, int local_rank)
{
    return nodes->ranks[nodes->first[node] + local_rank];
}

#endif
