/* Exchange: gradients in, updated parameters out, in two phases with one agreement between them.
 *
 * A communicator keeps a flat space of `count` f32 parameters (shared by the ranks of a machine)
 * and per rank a stack of gradient buffers of the same offsets. The global batch of a step is cut
 * into S micro-batches, the leaves of one fixed binary tree; rank r computes the leaves [S*r/N,
 * S*(r+1)/N) one after the other, and merges two finished neighbours, the halves of an aligned
 * subtree, when it needs a buffer for the next leaf. What is left are aligned subtrees of its range. In the
 * reduction the owner of a slice reads all of them, from its own and its peers' memory, finishes
 * the tree block by block (the block still in L1) and hands the sum to `update`. So the sum's bits
 * depend on S alone. A leaf may be absent (an empty micro-batch): its parent is then its sibling.
 *
 * A step:
 *     for each own leaf: grads = ls__exchange_leaf(x); ...; ls__exchange_leaf_done(x, present, factor)
 *     ls__exchange_agree(x, ...)    publishes; with norms it also reduces; all learn the same things
 *     ls__exchange_commit(x, ...)   each owner updates its slices
 *     ls__exchange_wait(x)          before parameters are read, and gradient buffers written, again
 * After LS_ERR_TIMEOUT, LS_ERR_PEER or LS_ERR_MISMATCH only destroying is legal; parameters of a
 * step without commit are those of the step before. */
#ifndef LS_COMM_EXCHANGE_H
#define LS_COMM_EXCHANGE_H

#include <lockstep/comm.h>

#include "base/parallel.h"

typedef struct ls__exchange ls__exchange;

enum {
    LS__BLOCK = 4096, /* elements; slices are whole blocks, norms are taken per block */
    LS__RECORD_NAME_MAX = 64,
    LS__RECORDS_MAX = 32, /* per leaf */
};

/* A tensor's place in the flat space. Blocks of LS__BLOCK elements are counted from each segment's
 * start (the last one may be short), so that a block belongs to one tensor and the grid depends on
 * the model only. Segments need not be aligned and may leave gaps, which nobody touches. */
typedef struct ls__segment {
    int64_t offset, count; /* elements */
    int bucket; /* buckets are runs of segments; each is divided into `size` slices of whole blocks
                 */
    bool in_norm; /* counts for the gradient norm (statistics do not) */
} ls__segment;

/* Updates [offset, offset + count) of the space, one or more whole blocks of one segment. param,
 * grad: (count); grad is the finished sum over all leaves, and the gradient is scale * grad. May be
 * called by several threads on disjoint blocks. */
typedef void ls__update_fn(void *user, int segment, int64_t offset, int64_t count, float *param,
                           const float *grad, float scale);

typedef struct ls__exchange_options {
    const ls__segment *segments; /* increasing offsets; copied */
    int nsegments;
    int64_t count;     /* elements of the space, gaps included */
    int micro_batches; /* S */
    bool norms;        /* compute the norm of the sum (clipping): costs a pass */
    bool halves;       /* keep a copy of the parameters in bf16, rounded in the commit */
    bool on_device; /* gradients, sums and updates are a device's (comm/resident.h): here are only
                            the parameters' place on the host and the agreement. Leaves have no
                            memory, and commits skip */
    bool whole_segments; /* owners get whole segments, balanced by size (whole-tensor optimizers) */
    ls__update_fn *update;
    void *user;
    ls__parallel_fn *parallel; /* NULL = serial */
} ls__exchange_options;

/* [all] LS_ERR_MISMATCH when ranks describe different spaces. */
ls_status ls__exchange_create(ls_comm *comm, const ls__exchange_options *options,
                              ls__exchange **out);
void ls__exchange_destroy(ls__exchange *x); /* [all] */

float *
ls__exchange_params(ls__exchange *x); /* (count), shared by the machine's ranks; zero at first */
/* (count) the same as bf16, to nearest even; NULL without. */
const uint16_t *ls__exchange_halves(const ls__exchange *x);
/* Rounds what this rank owns: before the first step, when the parameters have their first values.
 * Others see it after the next meeting. */
void ls__exchange_round(ls__exchange *x);
/* [all] First values that `root` wrote to all of the space (root -1: each owner to its ranges), to
 * the other machines. Every rank of root's machine, or every owner, has met the others since. */
ls_status ls__exchange_spread(ls__exchange *x, int root);
/* The leaves of this rank: [*begin, *end). */
void ls__exchange_leaves(const ls__exchange *x, int *begin, int *end);
/* Bytes of gradient buffers over all local ranks: N (log2(S/N)+1) 4 count at worst. */
int64_t ls__exchange_gradient_bytes(const ls__exchange *x);

/* The ranges of the space that this rank owns, in increasing order: a run inside one segment each.
 * *ranges is borrowed. */
typedef struct ls__range {
    int segment;
    int64_t offset, count;
} ls__range;
int ls__exchange_owned(const ls__exchange *x, const ls__range **ranges);

/* The buffer for the next leaf's gradients, (count); its content is what an earlier leaf left: the
 * caller overwrites or clears all of it. */
float *ls__exchange_leaf(ls__exchange *x);
/* The leaf is done; absent leaves take no part. Elements are multiplied by factor on the way (1 =
 * not touched). */
void ls__exchange_leaf_done(ls__exchange *x, bool present, float factor);

/* What ranks tell each other about one leaf: weighted sums by name, and the leaf's share of the
 * step's weight. */
typedef struct ls__record {
    char name[LS__RECORD_NAME_MAX];
    double sum, weight;
} ls__record;
typedef struct ls__agreement {
    uint64_t word;     /* OR of all ranks' words */
    uint64_t word_max; /* the largest of all ranks' second words (a signal's number, a code) */
    double weight;     /* sum of the leaves' weights, in leaf order */
    double norm2; /* with norms: sum over blocks, in order, of the squares of the summed gradient
                     (fp64); else 0 */
    const float
        *waits_ms; /* (size) how long each rank waited for the others in the agreement before
                              this one: who holds them up does not wait. Borrowed */
    int nrecords;  /* names in the order of first leaf that has them; sums in leaf order */
    ls__record records[LS__RECORDS_MAX];
} ls__agreement;

/* Adds to the records of the leaf being computed (or, outside one, of the rank itself: joined
 * behind all leaves in rank order). Too many names, or a name too long: false. */
bool ls__exchange_record(ls__exchange *x, const char *name, double sum, double weight);
void ls__exchange_weight(ls__exchange *x, double weight); /* adds to the leaf's weight */

/* [all] Publishes this rank's gradients, words and records, and learns everybody's. Exactly once
 * per step, after the last leaf. */
ls_status ls__exchange_agree(ls__exchange *x, uint64_t word, uint64_t word2, ls__agreement *out);
/* After an agreement: updates the owned slices with scale, or (skip) only releases the buffers. */
void ls__exchange_commit(ls__exchange *x, float scale, bool skip);
/* Until every owner has committed. */
ls_status ls__exchange_wait(ls__exchange *x);

#endif
