/* Training state on the device: memory, and what is in flight.
 *
 *     params   (count) f32, whole, on every rank
 *     halves   (count) the same as bf16, when products read that
 *     leaf     (count) where graphs put the gradients of the leaf in hand, and later the sum
 *     buffers  (count) each: finished subtrees that wait for their sibling
 *     states   (packed) of what this rank owns, side by side
 *     inbox    (packed) each: what other ranks' subtrees hold of what this rank owns
 *
 * Several ranks add their gradients in the fixed tree (--deterministic), or by the library that
 * connects them (fast): then leaves are added as they come, the one inbox gets the sum, and
 *
 *     staging  (staging_count) buckets in parts of one size, on their way out or in
 *
 * Two streams: graphs, and the merging of leaves, run on the device's; everything behind the last
 * leaf runs on `stream`. It begins behind `computed`, and the next run, which reads parameters and
 * writes gradients, begins behind `committed`. */
#ifndef LS_BACKEND_CUDA_RESIDENT_H
#define LS_BACKEND_CUDA_RESIDENT_H

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernel_resident.h"
#include "comm/resident.h"
#include "comm/tree.h"

enum { CUDA_LEAVES_MAX = 4096, CUDA_SOURCES_MAX = 26, CUDA_STATES_MAX = 2 };

/* A finished subtree of one rank, known by any leaf of it. */
typedef struct cuda_subtree {
    int leaf;
    int buffer; /* own ones: of buffers; CUDA_IN_LEAF = where graphs put it */
} cuda_subtree;
enum { CUDA_IN_LEAF = -1 };

typedef struct cuda_subtrees {
    int begin, end; /* the rank's leaves */
    int next;
    bool any; /* any two are merged, siblings or not */
    int n;
    cuda_subtree list[CUDA_SOURCES_MAX];
} cuda_subtrees;

/* into += from, still to be done: bucket by bucket, in front of its exchange. */
typedef struct cuda_merge {
    int into, from; /* as cuda_subtree's buffer */
} cuda_merge;

struct ls__resident {
    cuda_device *device;
    ls_comm *comm;
    int rank, size;
    int micro_batches;
    int64_t count;
    int nsegments, nstates;
    bool halves_kept;
    bool fast;
    int timeout_ms;

    ls__range *ranges;
    int nranges;
    int64_t *range_packed; /* (nranges) */
    int64_t packed;        /* elements: room for a bucket's largest slice, bucket by bucket */
    int nbuckets;
    cuda_slice *slices;     /* (size, nbuckets) */
    int64_t *bucket_packed; /* (nbuckets + 1) */
    int64_t *bucket_begin;  /* (nbuckets + 1) elements of the flat space */

    int64_t nowned;         /* blocks */
    int64_t *owned_numbers; /* (nowned) counted over the whole space */

    /* device memory */
    int64_t nbytes; /* of all of it */
    float *params, *leaf;
    uint16_t *halves;
    float **buffers; /* (nbuffers) */
    int nbuffers;
    float *states[CUDA_STATES_MAX];
    float **inbox; /* (ninbox) */
    int ninbox;
    float *staging; /* fast alone, like parts: slices once more */
    int64_t staging_count;
    cuda_slice *parts;
    cuda_owned *owned;    /* (nowned) */
    double *norms;        /* (nowned) */
    ls__rule_step *steps; /* (nsegments) */
    char *program;        /* sources and operations of a step's tree */
    size_t program_bytes, operations_at;

    /* pinned */
    ls__rule_step *host_steps;
    double *host_norms;
    char *host_program;

    cudaStream_t stream;
    cudaEvent_t computed, committed;
    bool pending; /* the next run has to wait for committed */
    bool settled; /* the host has waited since the last commit */

    /* the step in hand */
    bool present[CUDA_LEAVES_MAX];
    cuda_subtrees own;
    uint32_t used; /* buffers, bit by bit */
    bool ended;    /* all own leaves are done, or computed: what is left to merge is in merges */
    cuda_merge merges[CUDA_SOURCES_MAX];
    int nmerges;
    int next_bucket; /* those from here on have been merged and exchanged */
    bool summed;
    const float *sum; /* owned blocks of it; flat, fast: packed */
    ls__tree *tree;
    int *leaves;                        /* of all sources, for the tree */
    struct cuda_collective *collective; /* NULL for one rank */
    ls_status failed;                   /* nothing more can be done with it */
};

extern const ls__resident_table ls__cuda_resident_table;

/* --- cuda_resident.c --- */
/* For runs: what they begin behind; waiting for a stream that an exchange may hold up. */
ls_status ls__cuda_resident_before(ls__resident *r);
ls_status ls__cuda_resident_settle(ls__resident *r, cudaStream_t stream, const char *what);

/* --- cuda_resident_own.c --- */
/* This rank's ranges and slices; fails for what cannot be on a device. */
ls_status ls__cuda_resident_describe(ls__resident *r, const ls__resident_options *o);
/* Once everybody's slices are known. */
void ls__cuda_resident_lay_out(ls__resident *r, const ls__resident_options *o);
/* list: (nowned) */
void ls__cuda_resident_list_owned(ls__resident *r, const ls__resident_options *o, cuda_owned *list);

/* --- cuda_resident_memory.c --- */
/* All that a run takes; what is there after a failure is freed by free. */
ls_status ls__cuda_resident_take(ls__resident *r, const ls__resident_options *o);
void ls__cuda_resident_free(ls__resident *r);
int64_t ls__cuda_resident_bytes(const ls__resident *r); /* of the device */

/* Elements of the largest slice of a bucket, with its margin. */
static inline int64_t ls__cuda_bucket_most(const ls__resident *r, int bucket)
{
    return r->bucket_packed[bucket + 1] - r->bucket_packed[bucket];
}

static inline float *ls__cuda_buffer(const ls__resident *r, int buffer)
{
    return buffer == CUDA_IN_LEAF ? r->leaf : r->buffers[buffer];
}

/* --- cuda_resident_parts.c --- */
void ls__cuda_parts_plan(ls__resident *r); /* staging_count */
/* On the exchange's stream: the buckets from `first` on that have not been, the deepest first. */
ls_status ls__cuda_parts_reduce(ls__resident *r, int first);
ls_status ls__cuda_parts_gather(ls__resident *r); /* everybody's parameters to everybody */

/* --- cuda_resident_step.c --- */
/* In a run, behind the steps by which these buckets' gradients, from bucket on, are complete: those
 * of the last leaf are exchanged from here on. */
ls_status ls__cuda_resident_ready(ls__resident *r, int bucket);
void ls__cuda_resident_begin(ls__resident *r, const bool *present);
ls_status ls__cuda_resident_set(ls__resident *r, const float *grads, float factor);
ls_status ls__cuda_resident_leaf_done(ls__resident *r, bool added);
ls_status ls__cuda_resident_norms(ls__resident *r, double *norms);
ls_status ls__cuda_resident_commit(ls__resident *r, const ls__rule_step *steps);
void ls__cuda_resident_drop(ls__resident *r, bool broken);

/* --- cuda_subtrees.c --- */
void ls__cuda_subtrees_begin(cuda_subtrees *s, int micro_batches, int rank, int size);
/* Whether the last two are siblings, and nothing of their parent is missing or to come. */
bool ls__cuda_subtrees_mergeable(const cuda_subtrees *s, int micro_batches);
/* What a rank will have when its leaves are done. */
void ls__cuda_subtrees_of(cuda_subtrees *s, int micro_batches, int rank, int size,
                          const bool *present);
/* The most that a rank keeps beside the leaf in hand. */
int ls__cuda_subtrees_most(int micro_batches, int rank, int size);

/* --- cuda_resident_copy.c --- */
/* The parameters, and the states (NULL = zeros) of what this rank owns, side by side. */
ls_status ls__cuda_resident_put(ls__resident *r, const float *params, float *const *states);
/* whole: all parameters, else only those that this rank owns; states may be NULL. */
ls_status ls__cuda_resident_get(ls__resident *r, float *params, float *const *states, bool whole);

#endif
