/* The numbers of a tensor as kernels read and write them: stored as f32 or bf16, computed in f32. */
#ifndef LS_BACKEND_CUDA_KERNEL_STORAGE_H
#define LS_BACKEND_CUDA_KERNEL_STORAGE_H

#include "backend/cuda/kernel.h"

#include <stdint.h>

namespace storage
{

__device__ inline float to_float(float x)
{
    return x;
}

__device__ inline float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

__device__ inline void store(float *to, float x)
{
    *to = x;
}

__device__ inline void store(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

/* Four neighbours, read and written by one instruction. */
template <typename T> struct alignas(4 * sizeof(T)) four {
    T at[4];
};

template <typename T> inline bool is_aligned(const T *x)
{
    return (uintptr_t)x % sizeof(four<T>) == 0;
}

/* Calls launch with a value of the type in which a tensor is stored. */
template <typename Launch> inline void by_type(bool half, Launch launch)
{
    if (half)
        launch(__nv_bfloat16 {});
    else
        launch(float {});
}

inline unsigned blocks_for(int64_t count, int64_t each)
{
    return (unsigned)((count + each - 1) / each);
}

} // namespace storage

#endif
