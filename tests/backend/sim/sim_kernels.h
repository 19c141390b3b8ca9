/* Kernels by which the simulated GPU is tested. */
#ifndef LS_TESTS_SIM_KERNELS_H
#define LS_TESTS_SIM_KERNELS_H

#include <stdint.h>

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[i] *= by, one thread each */
void launch_scale(cudaStream_t stream, int64_t count, float by, float *x);
/* out[block] = sum of the block's 256 elements of x, by shuffles and shared memory */
void launch_block_sums(cudaStream_t stream, int nblocks, const float *x, float *out);
/* out[i] = x[(count - 1) - i] within blocks of 256, through dynamic shared memory */
void launch_reverse(cudaStream_t stream, int nblocks, const float *x, float *out);
/* out[0..3] = per warp lane: shfl, shfl_down, shfl_up, ballot of odd lanes (4 arrays of 64) */
void launch_lanes(cudaStream_t stream, int *out);
/* out[i] = linear index of block and thread, in a 3-d grid of 3-d blocks */
void launch_indices(cudaStream_t stream, int *out);
/* *least = smallest of x, *total = sum of x */
void launch_atomics(cudaStream_t stream, int64_t count, const int *x, int *least, int *total);
/* y[i] = bf16(x[i]) as bits */
void launch_round(cudaStream_t stream, int64_t count, const float *x, uint16_t *y);

#ifdef __cplusplus
}
#endif
#endif
