/* Matrix products as steps use them, for one thread: oneDNN's matmul primitive, or our own. */
#ifndef LS_BACKEND_CPU_GEMM_H
#define LS_BACKEND_CPU_GEMM_H

#include "backend/cpu/primitive.h"
#include "backend/cpu/sgemm.h"

/* c (m,n) = a (m,k) b (k,n) [+ bias (n)], rectified with relu; added to c with sum. */
typedef struct gemm_shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b;        /* a lies as (k,m), b as (n,k) */
    int64_t a_stride, b_stride, c_stride; /* elements from row to row as they lie; 0 = dense */
    bool bias, relu, sum;
    bool half, half_c; /* a and b, and c, are bf16; sums are f32 */
} gemm_shape;

typedef struct cpu_gemm {
    bool own; /* product, else primitive */
    sgemm product;
    cpu_primitive primitive;
    size_t scratchpad; /* bytes */
} cpu_gemm;

/* Arguments: a, b, c, then bias. */
ls_status ls__cpu_gemm_create(const gemm_shape *s, cpu_gemm *out);
void ls__cpu_gemm_free(cpu_gemm *g);
/* pointers: a, b, c, bias if there is one, then the scratchpad. */
void ls__cpu_gemm_run(const cpu_gemm *g, const cpu_call *call, void *const *pointers);

/* Weights of a linear layer that are too large to be read once per tile, or to have a gradient per
 * lane (tile.c): such layers are whole steps over blocks of their output. */
bool ls__cpu_large_weight(const cpu_builder *b, const ls_tensor *weight);
cpu_lower_fn ls__cpu_linear_large, ls__cpu_linear_large_grad_x, ls__cpu_linear_large_grad_weight;

/* sums (features) += the columns of g (rows, features), whose rows are stride floats apart. */
void ls__cpu_add_columns(const float *g, float *sums, int64_t rows, int64_t features,
                         int64_t stride);
/* g: bf16 */
void ls__cpu_add_half_columns(const uint16_t *g, float *sums, int64_t rows, int64_t features,
                              int64_t stride);

#endif
