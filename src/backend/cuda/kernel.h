/* What kernels include (C++): CUDA's language and bf16, or the simulation's stand-in for them.
 *
 * The same source is compiled by nvcc and by the host's compiler. Two things are spelled by macros
 * because only nvcc has a syntax for them:
 *     LS_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
 *         kernel<<<grid, block, shared_bytes, stream>>>(arguments...); an instance of a template
 *         with commas stands in parentheses: (scale<float, true>). There is at least one argument.
 *     LS_DYNAMIC_SHARED(type, name)
 *         type *name, the block's shared memory of shared_bytes bytes, aligned to 16.
 * Conventions the simulation holds kernels to: every lane that a mask names takes part in a warp's
 * operation (so blocks are whole warps where the mask is full); shuffles order nothing but their
 * values, so shared memory needs __syncwarp or __syncthreads; floats are never added atomically. */
#ifndef LS_BACKEND_CUDA_KERNEL_H
#define LS_BACKEND_CUDA_KERNEL_H

#include "backend/cuda/runtime.h"

#ifdef LS_SIM
#include "backend/cuda/sim/sim_kernel.h"
#else
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define LS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    (kernel)<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* One array of bytes per kernel: the same name with two types would clash. */
#define LS_DYNAMIC_SHARED(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char ls__dynamic_shared[];                            \
    type *const name = reinterpret_cast<type *>(ls__dynamic_shared)
#endif

#endif
