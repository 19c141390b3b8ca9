/* Launchers of what is done to gradients and parameters that stay on the device: sums over leaves,
 * squares of blocks, the optimizers' updates. */
#ifndef LS_BACKEND_CUDA_KERNEL_RESIDENT_H
#define LS_BACKEND_CUDA_KERNEL_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/runtime.h"
#include "comm/resident.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_TREE_TEMPS = 13 }; /* a tree over 4,096 leaves needs no more */

/* A block of LS__BLOCK elements (the last one of a segment may be short) that this rank owns. */
typedef struct cuda_owned {
    int64_t at;     /* elements of the flat space */
    int64_t packed; /* of what this rank owns, side by side */
    int32_t count;
    int32_t segment;
} cuda_owned;

/* Operands: sources from 0 on, ~t is temporary t; the last one's result is the sum. */
typedef struct cuda_tree_op {
    int dst, a, b;
} cuda_tree_op;

typedef struct cuda_tree_source {
    const float *data;
    int64_t packed; /* not 0: it holds what this rank owns only, else the flat space */
} cuda_tree_source;

/* All in device memory but for the numbers. */
typedef struct cuda_tree_program {
    const cuda_tree_source *sources;
    const cuda_tree_op *ops;
    int nsources, nops; /* nsources 0: the sum is zero */
} cuda_tree_program;

/* a (count) += b */
void ls__cuda_launch_accumulate(cudaStream_t stream, int64_t count, float *a, const float *b);
/* Owned blocks of sum (flat) = the tree over the sources; sum may be one of them. */
void ls__cuda_launch_tree(cudaStream_t stream, const cuda_owned *blocks, int64_t nblocks,
                          const cuda_tree_program *program, float *sum);
/* norms[i] = sum of squares of owned block i of sum (flat, or packed), in the host's order. */
void ls__cuda_launch_norms(cudaStream_t stream, const cuda_owned *blocks, int64_t nblocks,
                           const float *sum, bool packed, double *norms);

typedef struct cuda_update {
    const ls__rule_step *steps; /* by segment */
    const float *sum;           /* flat, or */
    bool packed;                /* what this rank owns side by side */
    float *params;              /* flat */
    float *states[2];           /* packed; as many as the rules need */
    uint16_t *halves;           /* flat: the parameters in bf16; NULL = not kept */
} cuda_update;
void ls__cuda_launch_update(cudaStream_t stream, const cuda_owned *blocks, int64_t nblocks,
                            const cuda_update *update);

/* --- kernel_parts.cu --- */
/* A stretch of the space that a rank owns of a bucket. */
typedef struct cuda_slice {
    int64_t begin, end; /* elements */
} cuda_slice;

/* Slices of a bucket, as parts of one size side by side: (n, most). */
typedef struct cuda_parts {
    const cuda_slice *slices; /* on the device: every stride-th, n of them */
    int stride, n;
    int64_t most; /* elements of the largest slice or more; a multiple of 4 */
} cuda_parts;

/* parts = from + plus, both flat; plus NULL: nothing is added, from NULL: zeros. */
void ls__cuda_launch_gather(cudaStream_t stream, const cuda_parts *bucket, const float *from,
                            const float *plus, float *parts);
/* to (flat) = parts but for part `own`; halves: the same as bf16, NULL = not kept. */
void ls__cuda_launch_scatter(cudaStream_t stream, const cuda_parts *bucket, int own,
                             const float *parts, float *to, uint16_t *halves);

#ifdef __cplusplus
}
#endif
#endif
