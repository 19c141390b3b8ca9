/* Launchers of what is done element by element. Pointers are on the device; `half` says that an
 * array is bf16, else it is f32. */
#ifndef LS_BACKEND_CUDA_KERNEL_ELEMENTWISE_H
#define LS_BACKEND_CUDA_KERNEL_ELEMENTWISE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x < 0 ? 0 : x; y may be x where both are stored alike */
void ls__cuda_launch_relu(cudaStream_t stream, int64_t count, const void *x, bool x_half, void *y,
                          bool y_half);
/* dx = y <= 0 ? 0 : g; dx may be g or y where both are stored alike */
void ls__cuda_launch_relu_grad(cudaStream_t stream, int64_t count, const void *g, bool g_half,
                               const void *y, bool y_half, void *dx, bool dx_half);

/* y = x, f32 and bf16 */
void ls__cuda_launch_convert(cudaStream_t stream, int64_t count, const void *x, bool x_half,
                             void *y, bool y_half);

typedef enum cuda_number { CUDA_F32, CUDA_BF16, CUDA_U8, CUDA_I32, CUDA_I64 } cuda_number;
/* y = factor (float)x + offset; y may be x where both are stored alike */
void ls__cuda_launch_scale(cudaStream_t stream, int64_t count, float factor, float offset,
                           const void *x, cuda_number kind, void *y, bool y_half);

#ifdef __cplusplus
}
#endif
#endif
