/* A communicator over several machines: on each of them the communicator of its own ranks, over
 * shared memory, and links between ranks of different ones.
 *
 * Every rank has one *counterpart* on each other node: the rank there whose local rank is its own
 * modulo that node's ranks. What a rank owns (a slice, a part of a sum) comes to it from its
 * counterparts, each with the partial sums of a whole node, and goes from it to them. So all ranks
 * of a node share the work at its network, and each element crosses it once per direction and
 * partial sum. Calls begin with a *meeting*: the node's ranks meet in shared memory, then the first
 * ranks of the nodes trade a frame, which says what is called and carries what is small.
 *
 * Sums keep the tree over all ranks. A node sends the maximal subtrees whose leaves are all its own
 * (one where its ranks are an aligned power of two, else a few); so the bits are those of as many
 * ranks on one machine. */
#ifndef LS_COMM_NET_H
#define LS_COMM_NET_H

#include <lockstep/comm.h>

#include "comm/link.h"
#include "comm/shm.h"

/* Where a rank is. */
typedef struct ls__node_place {
    int node, local;
} ls__node_place;

typedef struct ls__comm_nodes_options {
    int rank, size;
    const ls__node_place
        *places;         /* (size); nodes 0 .. n-1, in each the local ranks 0 .. l-1; copied */
    int timeout_ms;      /* 0 = 300000; LS_NONE = none */
    bool oversubscribed; /* as for shared memory */
    size_t arena;        /* as for shared memory: tests use tiny ones */
} ls__comm_nodes_options;

/* [all] shm: of this node's ranks, one is enough to need it; borrowed. The link is taken over, on
 * failure too. The result is destroyed by ls__comm_destroy. */
ls_status ls__comm_nodes_create(ls__shm *shm, ls__link *link, const ls__comm_nodes_options *options,
                                ls_comm **out);

#endif
