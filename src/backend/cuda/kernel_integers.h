/* Labels and tokens in kernels: integers of three types, and what happens to an impossible one. For
 * .cu files. */
#ifndef LS_BACKEND_CUDA_KERNEL_INTEGERS_H
#define LS_BACKEND_CUDA_KERNEL_INTEGERS_H

#include "backend/cuda/kernel.h"
#include "backend/cuda/kernel_types.h"
#include "backend/cuda/values.h"

static __device__ inline int64_t integer_at(const void *values, device_integer type, int64_t i)
{
    switch (type) {
    case DEVICE_U8:
        return static_cast<const uint8_t *>(values)[i];
    case DEVICE_I64:
        return static_cast<const int64_t *>(values)[i];
    default:
        return static_cast<const int32_t *>(values)[i];
    }
}

/* The run will fail: of several such samples the first one is named, of a token and a label of one
 * sample the token, which is looked at first. */
static __device__ inline void note_failure(cuda_values *values, int64_t sample, bool token)
{
    atomicMin(&values->failure, (unsigned long long)sample << 1 | (token ? 0u : 1u));
}

#endif
