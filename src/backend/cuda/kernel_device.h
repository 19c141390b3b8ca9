/* What kernels share: numbers that are stored as f32 or bf16, several of them in one load, and sums
 * over the threads of a row. For .cu files.
 *
 * A row is shared by a warp, or by a block where rows are long. Every combination is a tree whose
 * shape depends on the row's length only. */
#ifndef LS_BACKEND_CUDA_KERNEL_DEVICE_H
#define LS_BACKEND_CUDA_KERNEL_DEVICE_H

#include <cmath>
#include <cstdint>

#include "backend/cuda/kernel_storage.h"

using namespace storage;

enum { LS_WARP = 32, LS_BLOCK = 256, LS_WARPS = LS_BLOCK / LS_WARP };

typedef __nv_bfloat16 bf16;

/* Loops whose arrays must stay in registers. */
#ifdef __CUDACC__
#define LS_UNROLL _Pragma("unroll")
#else
#define LS_UNROLL
#endif

/* --- storage --- */

/* The nearest number that bf16 holds. */
static __device__ inline float rounded(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* N numbers that lie side by side at a multiple of their size: one load or store. */
template <typename T, int N> struct alignas(N * sizeof(T)) pack {
    T at[N];
};

template <int N, typename T> static __device__ inline void load(float (&to)[N], const T *from)
{
    pack<T, N> p = *reinterpret_cast<const pack<T, N> *>(from);
    for (int k = 0; k < N; k++) to[k] = to_float(p.at[k]);
}

template <int N, typename T> static __device__ inline void store(T *to, const float (&from)[N])
{
    pack<T, N> p;
    for (int k = 0; k < N; k++) store(&p.at[k], from[k]);
    *reinterpret_cast<pack<T, N> *>(to) = p;
}

/* --- sums and the like --- */

struct sum_of {
    template <typename T> __device__ T operator()(T a, T b) const
    {
        return a + b;
    }
};

struct larger_of { /* not a NaN where there is a number */
    __device__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
    __device__ unsigned long long operator()(unsigned long long a, unsigned long long b) const
    {
        return a > b ? a : b;
    }
};

/* Of all lanes, in all lanes. */
template <typename T, typename Combine>
static __device__ inline T warp_combine(T x, Combine combine)
{
    for (int distance = LS_WARP / 2; distance > 0; distance /= 2)
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}

/* Of all threads of a block of LS_BLOCK, in all of them; all take part. */
template <typename T, typename Combine>
static __device__ inline T block_combine(T x, Combine combine)
{
    __shared__ T parts[LS_WARPS];
    x = warp_combine(x, combine);
    if (threadIdx.x % LS_WARP == 0) parts[threadIdx.x / LS_WARP] = x;
    __syncthreads();
    x = parts[0];
    for (int i = 1; i < LS_WARPS; i++) x = combine(x, parts[i]);
    __syncthreads(); /* before parts are written again */
    return x;
}

/* The THREADS that share a row, LS_WARP or LS_BLOCK. */
template <int THREADS> struct row_of {
    static __device__ inline int64_t index()
    {
        return (int64_t)blockIdx.x * (LS_BLOCK / THREADS) + threadIdx.x / THREADS;
    }
    static __device__ inline int lane()
    {
        return (int)threadIdx.x % THREADS;
    }
    template <typename T, typename Combine> static __device__ inline T combine(T x, Combine combine)
    {
        if constexpr (THREADS == LS_WARP)
            return warp_combine(x, combine);
        else
            return block_combine(x, combine);
    }
};

/* --- on the host: which instance of a kernel --- */

/* How many numbers a thread takes at once: 4 where every row of width begins at a multiple of 4. */
template <typename... Pointers> static inline int pack_of(int64_t width, Pointers... pointers)
{
    uintptr_t bits = 0;
    ((bits |= (uintptr_t)pointers), ...);
    return width % 4 == 0 && bits % 16 == 0 ? 4 : 1;
}

template <int N> struct constant {
    static constexpr int value = N;
};

/* Calls f with constant<4> or constant<1>. */
template <typename F> static inline void with_pack(int pack, F f)
{
    if (pack == 4)
        f(constant<4>());
    else
        f(constant<1>());
}

#endif
