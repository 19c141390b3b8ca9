/* A communicator over several machines inside. */
#ifndef LS_COMM_NET_INTERNAL_H
#define LS_COMM_NET_INTERNAL_H

#include "comm/comm_internal.h"
#include "comm/net.h"

enum {
    LS__FRAME = 1024,      /* bytes of every first message of a meeting */
    LS__GATHER_MAX = 2048, /* bytes of a rank that pass through a meeting */
    LS__VERDICT_TEXT = 2048,
    LS__RANKS_MAX = 4096,   /* what a call's description has room for */
    LS__PIPELINE_SLOTS = 6, /* chunks of a long collective under way */
    LS__BATCHES = 4,        /* kinds of messages of a chunk */
};

/* The first message of a meeting, from the first rank of a node to that of another. */
typedef struct ls__frame_head {
    uint64_t seq, what;
    int64_t nbytes; /* of what the node brings; what does not fit here follows */
    int32_t status; /* not LS_OK: the node's ranks have failed, and why stands in bytes */
    int32_t unused;
} ls__frame_head;

typedef struct ls__meeting_frame {
    ls__frame_head head;
    unsigned char bytes[LS__FRAME - sizeof(ls__frame_head)];
} ls__meeting_frame;

/* Why a meeting failed: written by the node's first rank for the others. */
typedef struct ls__verdict {
    ls_status status;
    char text[LS__VERDICT_TEXT];
} ls__verdict;

/* A maximal subtree of the tree over some leaves whose sources are all of one node: sources
 * [from, to). */
typedef struct ls__pure {
    int node, from, to;
} ls__pure;

/* Finds them, at most nsources, in order. nodes: (nsources) of each source; leaves increase. */
int ls__tree_pure(const int *leaves, const int *nodes, int nsources, ls__pure *out);

/* Messages that are waited for together. */
typedef struct ls__batch {
    ls__transfer *each; /* (capacity) */
    int n, capacity;
} ls__batch;

struct ls__net {
    ls_comm *whole, *local;
    ls__link *link;
    int me, n;              /* this node; how many there are */
    ls__node_place *places; /* (size) */
    int *first, *ranks;     /* node m's ranks are ranks[first[m]] .. ranks[first[m + 1] - 1] */

    int *counterparts;    /* (n) of this rank; counterparts[me] is itself */
    int *served, nserved; /* ranks of other nodes whose counterpart here is this rank, in order */

    /* In this node's shared memory: a slot of each rank for what it brings, an area for what all
     * get, and the verdict. */
    ls__allocation stages, shared, verdicts;
    size_t stage_nbytes, shared_nbytes, gather_nbytes;
    size_t slot_nbytes; /* of a chunk of a long collective; stages and shared have six of them */

    /* The first rank's: for every node the frame and what followed it. */
    ls__meeting_frame *out, *in; /* (1), (n) */
    unsigned char *brought;      /* (room) what this node brings */
    unsigned char **rests;       /* (n) of room bytes each */
    size_t room;
    const unsigned char **theirs; /* (n) what the nodes brought in the meeting in hand */
    size_t *nbytes;               /* (n) */

    ls__batch now;                                       /* on their way */
    ls__batch batches[LS__PIPELINE_SLOTS * LS__BATCHES]; /* of chunks */

    uint64_t meetings; /* the first rank has begun: calls of one node alone do not count */

    /* The tree over the ranks, cut into the nodes' partial sums; and uncut, for bf16, which is
     * rounded only at the root. */
    struct ls__cut {
        int npures;
        ls__pure *pures;
        ls__tree **trees; /* (npures) of this node's; NULL: another node's */
        ls__tree *last;   /* over this node's ranks and the others' partial sums */
    } merged, single;
    unsigned char *sums, *partials;      /* of this node for others; of others for this rank */
    size_t sums_nbytes, partials_nbytes; /* of one chunk */
    const void **operands;               /* (size) */
};

/* The communicator in whose memory things of this one lie. */
static inline ls_comm *ls__comm_local(ls_comm *comm)
{
    return comm->nodes ? comm->nodes->local : comm;
}
static inline const ls__node_place *ls__place(const ls__net *net, int rank)
{
    return &net->places[rank];
}
static inline int ls__node_size(const ls__net *net, int node)
{
    return net->first[node + 1] - net->first[node];
}
static inline int ls__node_rank(const ls__net *net, int node, int local)
{
    return net->ranks[net->first[node] + local];
}
static inline unsigned char *ls__stage(const ls__net *net, int local)
{
    return ls__allocation_part(&net->stages, local);
}

/* Room for what a node brings to a meeting. */
ls_status ls__net_make_room(ls__net *net, size_t nbytes);
void ls__net_destroy(ls__net *net);

/* [all] A meeting that every rank of this node has begun with `status` of its local part; the first
 * rank brings nbytes in `brought`. Afterwards it finds what all brought in `theirs`, `nbytes`,
 * and calls ls__net_announce; the others wait for that. On failure all get it. */
ls_status ls__net_trade(ls__net *net, const ls__call *call, ls_status status, size_t nbytes);
ls_status ls__net_announce(ls__net *net, ls_status status);
static inline bool ls__net_speaks(const ls__net *net)
{
    return net->local->rank == 0;
}

/* [all] nbytes, at most gather_nbytes, of every rank for everybody: (size, nbytes) in `shared`. */
ls_status ls__net_gather(ls__net *net, const ls__call *call, const void *mine, size_t nbytes);
/* [all] The first failure of any rank. */
ls_status ls__net_agree(ls__net *net, const ls__call *call, ls_status status);

/* The ranks of this node have come so far. */
ls_status ls__net_step(ls__net *net);
/* They have made so many steps; messages move meanwhile. */
ls_status ls__net_await_step(ls__net *net, uint64_t progress);

/* Messages: started, and all of them waited for. The text of a failure names the peer. */
ls_status ls__net_reserve(ls__net *net, int ntransfers); /* room for so many at once */
ls_status ls__net_send(ls__net *net, ls__channel channel, int to, const void *data, size_t nbytes);
ls_status ls__net_recv(ls__net *net, ls__channel channel, int from, void *data, size_t nbytes);
ls_status ls__net_wait(ls__net *net);
ls_status ls__net_wait_one(ls__net *net, int index); /* it stays in its place */
/* With the engine's text, which does not name the peer. */
ls_status ls__net_wait_until(ls__net *net, int index, const ls__patience *patience);
/* The same for messages of a batch of the caller's, who resets n when all have been waited for. */
ls_status ls__batch_reserve(ls__batch *batch, int ntransfers);
ls_status ls__batch_send(ls__net *net, ls__batch *batch, ls__channel channel, int to,
                         const void *data, size_t nbytes);
ls_status ls__batch_recv(ls__net *net, ls__batch *batch, ls__channel channel, int from, void *data,
                         size_t nbytes);
ls_status ls__batch_wait(ls__net *net, ls__batch *batch);
/* Breaks the communicator and ends all messages, unless status is LS_OK. */
ls_status ls__net_failed(ls__net *net, ls_status status);
/* Until now + timeout + grace: a node that names the odd rank by itself shall have the time to. */
ls__patience ls__net_patience(const ls__net *net);
int64_t ls__net_grace_ns(const ls__net *net);
/* The thread's failure, with the peer it is about. */
ls_status ls__net_about(const ls__net *net, ls_status status, int peer);

ls_status ls__net_collective(ls__net *net, const ls__call *call);
ls_status ls__net_pair(ls__net *net, const ls__call *call);

#endif
