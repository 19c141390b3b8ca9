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

#include "comm/comm_internal.h"
#include "comm/exchange.h"

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
    int nsources;
    ls__source sources[LS__SOURCES_MAX];
    ls__note notes[]; /* one per leaf of the rank, then the rank's own */
} ls__board;

struct ls__exchange {
    ls_comm *comm;
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
    ls__source *merging;   /* the pair in hand */
};

static inline float *ls__exchange_buffer(const ls__exchange *x, int r, int buffer)
{
    return (float *)(void *)(ls__allocation_part(&x->grads, r) + (size_t)buffer * x->buffer_stride);
}
static inline ls__board *ls__exchange_board(const ls__exchange *x, int r)
{
    return (ls__board *)(void *)(ls__allocation_part(&x->boards, r) + LS__LINE +
                                 (size_t)(x->step & 1) * x->board_stride);
}
static inline _Atomic uint64_t *ls__exchange_committed(const ls__exchange *x, int r)
{
    return (_Atomic uint64_t *)(void *)ls__allocation_part(&x->boards, r);
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

#endif
