/* Launchers of the operations of images. Pointers are on the device; `half` says that an array is
 * bf16, else it is f32. */
#ifndef LS_BACKEND_CUDA_KERNEL_IMAGE_H
#define LS_BACKEND_CUDA_KERNEL_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/runtime.h"
#include "backend/cuda/values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- kernel_pool2d.cu: windows side by side --- */
typedef struct cuda_pool2d {
    int64_t planes; /* images times channels */
    int size, height, width;
    int rows, columns; /* of the output */
} cuda_pool2d;
/* index NULL = not wanted; wide_index: i32, else u8 */
void ls__cuda_launch_max_pool(cudaStream_t stream, const cuda_pool2d *p, const float *x, void *y,
                              bool y_half, void *index, bool wide_index);
void ls__cuda_launch_max_pool_grad(cudaStream_t stream, const cuda_pool2d *p, const float *g,
                                   const void *index, bool wide_index, void *dx, bool dx_half);
void ls__cuda_launch_avg_pool(cudaStream_t stream, const cuda_pool2d *p, const float *x, void *y,
                              bool y_half);
void ls__cuda_launch_avg_pool_grad(cudaStream_t stream, const cuda_pool2d *p, const float *g,
                                   void *dx, bool dx_half);

/* --- kernel_batch_norm.cu --- */
typedef struct cuda_batch_norm {
    int64_t batch, channels, image, group, groups;
    float epsilon;
} cuda_batch_norm;
/* x, y (B,C,S); mean, inverse, and in the workspace variance (G,C); the others (C) */
void ls__cuda_launch_batch_norm(cudaStream_t stream, const cuda_batch_norm *n, const float *x,
                                const float *weight, const float *bias, void *y, bool y_half,
                                float *mean, float *inverse, float *sum_mean, float *sum_variance,
                                float *variance);
/* sums: (2,G,C) of workspace */
void ls__cuda_launch_batch_norm_grad(cudaStream_t stream, const cuda_batch_norm *n, const float *g,
                                     const float *x, const float *weight, const float *mean,
                                     const float *inverse, void *dx, bool dx_half, float *dweight,
                                     float *dbias, float *sums);
void ls__cuda_launch_batch_norm_inference(cudaStream_t stream, const cuda_batch_norm *n,
                                          const float *x, const float *weight, const float *bias,
                                          const float *mean, const float *variance, void *y,
                                          bool y_half);

/* --- kernel_dropout.cu --- */
/* x, y (samples, each); y may be x. */
void ls__cuda_launch_dropout(cudaStream_t stream, int64_t samples, int64_t each, uint64_t name_hash,
                             uint64_t threshold, float factor, const cuda_values *values,
                             const void *x, bool x_half, void *y, bool y_half);

/* --- kernel_conv.cu: products of matrices whose elements are looked up in images --- */
typedef struct cuda_conv {
    int64_t batch, channels, height, width; /* x */
    int64_t filters, rows, columns;         /* y (B,O,H',W') */
    int64_t kernel, stride, padding;
    bool tf32; /* factors may be rounded to tf32's 11 bits */
} cuda_conv;
typedef enum cuda_conv_pass {
    CUDA_CONV_FORWARD,
    CUDA_CONV_GRAD_X,
    CUDA_CONV_GRAD_W
} cuda_conv_pass;
size_t ls__cuda_conv_workspace(cuda_conv_pass pass, const cuda_conv *c);
/* forward: a = weight, b = x, out = y, bias (O) or NULL; grad_x: weight, g, dx; grad_w: g, x, dw */
void ls__cuda_launch_conv(cudaStream_t stream, cuda_conv_pass pass, const cuda_conv *c,
                          const float *a, const float *b, const float *bias, float *out,
                          float *workspace);

#ifdef __cplusplus
}
#endif
#endif
