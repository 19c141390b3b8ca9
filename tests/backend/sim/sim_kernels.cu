/* Kernels by which the simulated GPU is tested: the constructs that real kernels are made of. */
#include "backend/sim/sim_kernels.h"

#include "backend/cuda/kernel.h"

namespace
{

enum { THREADS = 256 };

unsigned blocks_for(int64_t count)
{
    return (unsigned)((count + THREADS - 1) / THREADS);
}

template <typename T, bool Checked> __global__ void scale(int64_t count, T by, T *x)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (!Checked || i < count) x[i] *= by;
}

__device__ float warp_sum(float value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

__global__ void block_sums(const float *x, float *out)
{
    __shared__ float sums[THREADS / 32];
    float sum = warp_sum(x[blockIdx.x * THREADS + threadIdx.x]);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void reverse(const float *x, float *out)
{
    LS_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = x[blockIdx.x * THREADS + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}

__global__ void lanes(int *out)
{
    int i = (int)threadIdx.x;
    out[i] = __shfl_sync(0xffffffffu, i, 5);
    out[64 + i] = __shfl_down_sync(0xffffffffu, i, 3, 8);
    out[128 + i] = __shfl_up_sync(0xffffffffu, i, 2);
    out[192 + i] = (int)__ballot_sync(0xffffffffu, i % 2);
}

__global__ void indices(int *out)
{
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    out[i] = (int)i;
}

__global__ void atomics(int64_t count, const int *x, int *least, int *total)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    atomicMin(least, x[i]);
    atomicAdd(total, x[i]);
}

__global__ void round_all(int64_t count, const float *x, uint16_t *y)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) y[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
}

} // namespace

void launch_scale(cudaStream_t stream, int64_t count, float by, float *x)
{
    if (count % THREADS)
        LS_LAUNCH((scale<float, true>), blocks_for(count), THREADS, 0, stream, count, by, x);
    else
        LS_LAUNCH((scale<float, false>), blocks_for(count), THREADS, 0, stream, count, by, x);
}

void launch_block_sums(cudaStream_t stream, int nblocks, const float *x, float *out)
{
    LS_LAUNCH(block_sums, (unsigned)nblocks, THREADS, 0, stream, x, out);
}

void launch_reverse(cudaStream_t stream, int nblocks, const float *x, float *out)
{
    LS_LAUNCH(reverse, (unsigned)nblocks, THREADS, THREADS * sizeof(float), stream, x, out);
}

void launch_lanes(cudaStream_t stream, int *out)
{
    LS_LAUNCH(lanes, 1, 64, 0, stream, out);
}

void launch_indices(cudaStream_t stream, int *out)
{
    LS_LAUNCH(indices, dim3(2, 3, 4), dim3(8, 4, 2), 0, stream, out);
}

void launch_atomics(cudaStream_t stream, int64_t count, const int *x, int *least, int *total)
{
    LS_LAUNCH(atomics, blocks_for(count), THREADS, 0, stream, count, x, least, total);
}

void launch_round(cudaStream_t stream, int64_t count, const float *x, uint16_t *y)
{
    LS_LAUNCH(round_all, blocks_for(count), THREADS, 0, stream, count, x, y);
}
