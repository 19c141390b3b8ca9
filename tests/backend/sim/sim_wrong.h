/* Kernels that are wrong when `right` is false. */
#ifndef LS_TESTS_SIM_WRONG_H
#define LS_TESTS_SIM_WRONG_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WRONG_THREADS = 64 };

typedef struct wrong_pair {
    float *to;
    const float *from;
} wrong_pair;

/* to[i] = from[i] for each of WRONG_THREADS threads */
void launch_copy(cudaStream_t stream, const float *from, float *to);
void launch_copy_pair(cudaStream_t stream, wrong_pair pair);
/* to[i] = its neighbour's value, handed on through shared memory with or without __syncthreads */
void launch_neighbour(cudaStream_t stream, bool right, const float *from, float *to);
/* the same with two barriers, of which the second one is missing: two rounds share the memory */
void launch_two_rounds(cudaStream_t stream, bool right, const float *from, float *to);
/* the same within warps, with or without __syncwarp */
void launch_warp_neighbour(cudaStream_t stream, bool right, const float *from, float *to);
/* every block writes an element of its own, or all the same */
void launch_blocks(cudaStream_t stream, bool right, float *to);
/* a barrier within an if that some threads do not take */
void launch_divergent(cudaStream_t stream, bool right, float *to);
/* a shuffle of which only half of the lanes know, all of them in its mask */
void launch_half_warp(cudaStream_t stream, bool right, float *to);
/* two shuffles with different masks that meet */
void launch_masks(cudaStream_t stream, bool right, float *to);
/* a shuffle of lanes that their own mask does not name */
void launch_own_mask(cudaStream_t stream, bool right, float *to);
/* dynamic shared memory, of which one float too many is used */
void launch_dynamic(cudaStream_t stream, bool right, float *to);
/* a kernel with this much shared memory, allowed or not, and this many threads */
void launch_sized(cudaStream_t stream, bool right, size_t shared_bytes, unsigned threads);

#ifdef __cplusplus
}
#endif
#endif
