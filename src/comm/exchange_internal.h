/* An exchange inside: its plan, its memory, its state within a step.
 *
 *     params   (count) once, shared
 *     halves   (count) the same as bf16, once, shared
 *     grads    rank r: nbuffers(r) buffers of (count)
 *     boards   rank r: the word `committed`, then two boards by the step's parity: what r tells
 *              the others in the agreement. Two, because a rank may begin to fill the next one
 *              while a slower peer still reads this one.
 *     norms    (nblocks) squares of each block of the sum, written by the block's owner */
#ifndef LS_COMM_EXCHANGE_INTERNAL_H
#define LS_COMM_EXCHANGE_INTERNAL_H

#include "comm/exchange.h"
#include "comm/net_internal.h"

enum {
    LS__LEAVES_MAX = 4096,
    LS__SOURCES_MAX = 26,  /* of one rank: 2 log2(LS__LEAVES_MAX) + 2 */
    LS__CHUNK_BLOCKS = 16, /* a unit of work for a thread */
};

/* A run of whole blocks of one segment. */
typedef struct ls__chunk {
    int segment;
    int64_t offset, count; /* elements of the space */
    int64_t block;         /* number of its first block */
} ls__chunk;

/* What a rank owns and what it works through. */
typedef struct ls__plan {
    int nranges;
    ls__range *ranges;
    int64_t nchunks, nwhole;
    ls__chunk *chunks; /* of the owned ranges */
    ls__chunk *whole;  /* of the whole space */
    int64_t nblocks;   /* of the whole space */
} ls__plan;

ls_status ls__plan_create(const ls__exchange_options *options, int rank, int size, ls__plan *out);
void ls__plan_free(ls__plan *plan);
/* The leaves of a rank, and how many gradient buffers it needs for them. */
void ls__plan_leaves(int micro_batches, int rank, int size, int *begin, int *end);
int ls__plan_buffers(int micro_batches, int rank, int size);

/* A finished subtree: its values lie in a buffer of a rank and count factor times. */
typedef struct ls__source {
    int leaf; /* any leaf of it */
    int buffer;
    float factor;
} ls__source;

typedef struct ls__note {
    double weight;
    int nrecords;
    ls__record records[LS__RECORDS_MAX];
} ls__note;

typedef struct ls__board {
    uint64_t word, word2;
    float waited_ms; /* in the meeting of the step before */
    int nsources;
    ls__source sources[LS__SOURCES_MAX];
    ls__note notes[]; /* one per leaf of the rank, then the rank's own */
} ls__board;

/* What an exchange has beside its node's memory, when there are several (exchange_net.c). */
typedef struct ls__far ls__far;

struct ls__exchange {
    ls_comm *comm;
    ls_comm *local; /* of this node's ranks, in whose memory it lies; comm itself on one machine */
    int me;         /* rank among them */
    ls__net *net;   /* NULL: one machine */
    ls__far *far;
    ls__allocation far_boards; /* (size) boards; other nodes' ranks', written by the first rank */
    ls__exchange_options options; /* segments are our copy */
    ls__segment *segments;
    ls__plan plan;
    int begin, end;     /* leaves of this rank */
    int nbuffers;       /* of this rank */
    int *rank_nbuffers; /* (size) */

    ls__allocation params, halves, grads, boards, norms;
    size_t buffer_stride, board_stride; /* bytes */

    uint64_t step;                   /* steps begun; the board's parity */
    bool agreed;                     /* between agree and commit */
    bool waited;                     /* everybody has committed the step before */
    int next;                        /* leaf that is or will be computed */
    int buffer;                      /* of the leaf in hand; -1 = none */
    ls__source own[LS__SOURCES_MAX]; /* by leaf */
    int nown;
    uint32_t used; /* buffers, bit by bit */

    ls__tree *tree;        /* over everybody's sources of this step */
    int *leaves;           /* (capacity) */
    const float **sources; /* (capacity) */
    float *factors;        /* (capacity) */
    const float *sum;      /* (count) where the owned ranges of the sum lie; NULL = not summed */
    float scale;           /* of the commit in hand */
    float waited_ms;       /* in the last meeting */
    float *waits_ms;       /* (size) of every rank, in the one before */
    const ls__range *rounding; /* ranges that are being rounded */
    ls__source *merging;       /* the pair in hand */
};

/* A buffer of the node's rank l. */
static inline float *ls__exchange_buffer(const ls__exchange *x, int l, int buffer)
{
    return (float *)(void *)(ls__allocation_part(&x->grads, l) + (size_t)buffer * x->buffer_stride);
}
/* The board of the node's rank l; and of any rank. */
static inline ls__board *ls__exchange_near_board(const ls__exchange *x, int l)
{
    return (ls__board *)(void *)(ls__allocation_part(&x->boards, l) + LS__LINE +
                                 (size_t)(x->step & 1) * x->board_stride);
}
static inline ls__board *ls__exchange_board(const ls__exchange *x, int r)
{
    if (!x->net) return ls__exchange_near_board(x, r);
    const ls__node_place *place = ls__place(x->net, r);
    if (place->node == x->net->me) return ls__exchange_near_board(x, place->local);
    return (ls__board *)(void *)(x->far_boards.base + (size_t)r * x->board_stride);
}
static inline _Atomic uint64_t *ls__exchange_committed(const ls__exchange *x, int l)
{
    return (_Atomic uint64_t *)(void *)ls__allocation_part(&x->boards, l);
}
static inline void ls__exchange_parallel(const ls__exchange *x, int64_t n, ls__chunk_fn *fn)
{
    (x->options.parallel ? x->options.parallel : ls__parallel_serial)(n, fn, (void *)x);
}

void ls__exchange_begin_step(ls__exchange *x);
/* Fills in tree, sources and factors from everybody's boards. */
void ls__exchange_collect_sources(ls__exchange *x);
/* The owned ranges of the sum into memory, with the norms of their blocks. */
void ls__exchange_reduce(ls__exchange *x);
/* Rounds n ranges into the bf16 copy. */
void ls__exchange_round_ranges(ls__exchange *x, const ls__range *ranges, int n);

/* --- over several nodes --- */

ls_status ls__far_create(ls__exchange *x);
void ls__far_destroy(ls__exchange *x);
/* [all] Everybody's boards, to every node. */
ls_status ls__far_boards(ls__exchange *x, const ls__call *call);
/* Sends this node's partial sums, gets the others', and fills in tree, sources and factors. */
ls_status ls__far_reduce(ls__exchange *x);
/* The owned blocks' norms, to every node and from it. */
ls_status ls__far_norms(ls__exchange *x);
/* The owned slices of the parameters, likewise. */
ls_status ls__far_spread(ls__exchange *x);

#endif
