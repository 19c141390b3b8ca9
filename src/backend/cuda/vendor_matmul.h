/* Products of matrices by the vendor's library: the seam behind which cuBLASLt stands, and plain
 * loops in the simulation. */
#ifndef LS_BACKEND_CUDA_VENDOR_MATMUL_H
#define LS_BACKEND_CUDA_VENDOR_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

#include <lockstep/base.h>

#include "backend/cuda/runtime.h"

/* c (m,n) = a (m,k) b (k,n) [+ bias (n) on every row]; all row by row, sums in f32. */
typedef struct cuda_matmul {
    int64_t m, n, k;
    bool a_transposed, b_transposed; /* a lies as (k,m), b as (n,k) */
    bool half;                       /* a and b are bf16, else f32 */
    bool tf32;                       /* f32 factors may be rounded to TF32 (10 bits) */
    bool half_out;                   /* c is bf16, else f32 */
    bool has_bias;                   /* stored as c is; added in f32, before c is rounded */
} cuda_matmul;

/* Bytes of workspace: a function of the product, the device and the library's version. */
size_t ls__vendor_matmul_workspace(const cuda_matmul *product);
/* The same bits in every run. */
ls_status ls__vendor_matmul(cudaStream_t stream, const cuda_matmul *product, const void *a,
                            const void *b, const void *bias, void *c, void *workspace);

#endif
