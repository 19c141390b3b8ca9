/* Kernels with the mistakes that the simulated GPU has to catch, and the same ones put right. */
#include "backend/sim/sim_wrong.h"

#include "backend/cuda/kernel.h"

namespace
{

__global__ void copy(const float *from, float *to)
{
    to[threadIdx.x] = from[threadIdx.x];
}

__global__ void copy_pair(wrong_pair pair)
{
    pair.to[threadIdx.x] = pair.from[threadIdx.x];
}

template <bool Right> __global__ void neighbour(const float *from, float *to)
{
    __shared__ float shared[WRONG_THREADS];
    shared[threadIdx.x] = from[threadIdx.x];
    if (Right) __syncthreads();
    to[threadIdx.x] = shared[(threadIdx.x + 1) % WRONG_THREADS];
}

template <bool Right> __global__ void two_rounds(const float *from, float *to)
{
    __shared__ float shared[WRONG_THREADS];
    float sum = 0;
    for (int round = 0; round < 2; round++) {
        shared[threadIdx.x] = from[threadIdx.x] + (float)round;
        __syncthreads();
        sum += shared[(threadIdx.x + 1) % WRONG_THREADS];
        if (Right) __syncthreads();
    }
    to[threadIdx.x] = sum;
}

template <bool Right> __global__ void warp_neighbour(const float *from, float *to)
{
    __shared__ float shared[WRONG_THREADS];
    unsigned i = threadIdx.x;
    shared[i] = from[i];
    /* orders nothing but its own values */
    float zero = __shfl_xor_sync(0xffffffffu, 0.0f, 1);
    if (Right) __syncwarp();
    to[i] = shared[i / 32 * 32 + (i + 1) % 32] + zero;
}

template <bool Right> __global__ void blocks(float *to)
{
    if (threadIdx.x == 0) to[Right ? blockIdx.x : 0] = (float)blockIdx.x;
}

template <bool Right> __global__ void divergent(float *to)
{
    if (Right || threadIdx.x % 32 < 16) {
        __syncthreads();
        if (!Right) __syncwarp();
    } else
        __syncwarp();
    to[threadIdx.x] = 1;
}

template <bool Right> __global__ void half_warp(float *to)
{
    float x = (float)threadIdx.x;
    if (threadIdx.x % 32 < 16) x = __shfl_xor_sync(Right ? 0xffffu : 0xffffffffu, x, 1);
    to[threadIdx.x] = x;
}

template <bool Right> __global__ void masks(float *to)
{
    float x = (float)threadIdx.x;
    x = __shfl_xor_sync(Right || threadIdx.x % 2 == 0 ? 0xffffffffu : 0xaaaaaaabu, x, 2);
    to[threadIdx.x] = x;
}

template <bool Right> __global__ void own_mask(float *to)
{
    to[threadIdx.x] = __shfl_sync(Right ? 0xffffffffu : 0x0000ffffu, 1.0f, 0);
}

template <bool Right> __global__ void dynamic(float *to)
{
    LS_DYNAMIC_SHARED(float, shared);
    shared[threadIdx.x + (Right ? 0 : 1)] = 1;
    __syncthreads();
    to[threadIdx.x] = shared[threadIdx.x + (Right ? 0 : 1)];
}

__global__ void sized(int n)
{
    (void)n;
}

} // namespace

/* Launches name<right> with one block. */
#define LAUNCH_EITHER(name, shared_bytes, ...)                                                     \
    do {                                                                                           \
        if (right)                                                                                 \
            LS_LAUNCH(name<true>, 1, WRONG_THREADS, shared_bytes, stream, __VA_ARGS__);            \
        else                                                                                       \
            LS_LAUNCH(name<false>, 1, WRONG_THREADS, shared_bytes, stream, __VA_ARGS__);           \
    } while (0)

void launch_copy(cudaStream_t stream, const float *from, float *to)
{
    LS_LAUNCH(copy, 1, WRONG_THREADS, 0, stream, from, to);
}

void launch_copy_pair(cudaStream_t stream, wrong_pair pair)
{
    LS_LAUNCH(copy_pair, 1, WRONG_THREADS, 0, stream, pair);
}

void launch_neighbour(cudaStream_t stream, bool right, const float *from, float *to)
{
    LAUNCH_EITHER(neighbour, 0, from, to);
}

void launch_two_rounds(cudaStream_t stream, bool right, const float *from, float *to)
{
    LAUNCH_EITHER(two_rounds, 0, from, to);
}

void launch_warp_neighbour(cudaStream_t stream, bool right, const float *from, float *to)
{
    LAUNCH_EITHER(warp_neighbour, 0, from, to);
}

void launch_blocks(cudaStream_t stream, bool right, float *to)
{
    if (right)
        LS_LAUNCH(blocks<true>, 64, WRONG_THREADS, 0, stream, to);
    else
        LS_LAUNCH(blocks<false>, 64, WRONG_THREADS, 0, stream, to);
}

void launch_divergent(cudaStream_t stream, bool right, float *to)
{
    LAUNCH_EITHER(divergent, 0, to);
}

void launch_half_warp(cudaStream_t stream, bool right, float *to)
{
    LAUNCH_EITHER(half_warp, 0, to);
}

void launch_masks(cudaStream_t stream, bool right, float *to)
{
    LAUNCH_EITHER(masks, 0, to);
}

void launch_own_mask(cudaStream_t stream, bool right, float *to)
{
    LAUNCH_EITHER(own_mask, 0, to);
}

void launch_dynamic(cudaStream_t stream, bool right, float *to)
{
    LAUNCH_EITHER(dynamic, WRONG_THREADS * sizeof(float), to);
}

void launch_sized(cudaStream_t stream, bool right, size_t shared_bytes, unsigned threads)
{
    if (right)
        cudaFuncSetAttribute(sized, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    LS_LAUNCH(sized, 1, threads, shared_bytes, stream, 0);
}
