/* Launchers of attention. Formulas: graph/ops.h. All launch on the stream and return. */
#ifndef LS_BACKEND_CUDA_KERNEL_ATTENTION_H
#define LS_BACKEND_CUDA_KERNEL_ATTENTION_H

#include "backend/cuda/kernel_types.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/values.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attention_shape {
    int64_t batch, tokens;
    int heads, kv_heads, width; /* width: numbers of a head */
    bool causal;
    float scale;
} attention_shape;

/* qkv (B,T,(H + 2 K) D) -> y (B,T,H D), logsum (B,H,T) or NULL */
void ls__launch_attention(const attention_shape *s, device_in qkv, device_out y, float *logsum,
                          cudaStream_t stream);

typedef struct attention_backward {
    device_in g, qkv, y;
    const float *logsum;
    device_out dqkv;
    float *along; /* (B,H,T) workspace: g.y of every row */
} attention_backward;
void ls__launch_attention_grad(const attention_shape *s, const attention_backward *a,
                               cudaStream_t stream);

/* The same on tensor cores, for qkv that is stored or read as bf16; these two are called by the
 * others. */
enum { LS__ATTENTION_HALF_WIDEST = 256 }; /* numbers of a head */
void ls__launch_attention_half(const attention_shape *s, device_in qkv, device_out y, float *logsum,
                               cudaStream_t stream);
void ls__launch_attention_grad_half(const attention_shape *s, const attention_backward *a,
                                    cudaStream_t stream);

/* cache (B,rows,2 K D) gets the new keys and values; position (B) -> y (B,T,H D) */
typedef struct attention_decode {
    device_in qkv;
    float *cache;
    const int32_t *position;
    int64_t rows;
    device_out y;
    cuda_values *values;
} attention_decode;
void ls__launch_attention_cached(const attention_shape *s, const attention_decode *a,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
