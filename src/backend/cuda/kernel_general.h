/* Launchers of the general operations: broadcasting, sums, moves. Pointers are on the device; `half`
 * says that an array is bf16, else it is f32. */
#ifndef LS_BACKEND_CUDA_KERNEL_GENERAL_H
#define LS_BACKEND_CUDA_KERNEL_GENERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MAX_RANK = 6 };

/* Elements visited row by row; where each lies in at most two operands. */
typedef struct cuda_strided {
    int rank; /* neighbouring dimensions that lie alike in all operands are one */
    int64_t count;
    int64_t size[CUDA_MAX_RANK];
    int64_t stride[2][CUDA_MAX_RANK]; /* 0 where an operand is broadcast */
} cuda_strided;

/* --- kernel_binary.cu --- */
typedef enum cuda_binary { CUDA_ADD, CUDA_SUB, CUDA_MUL, CUDA_DIV } cuda_binary;
/* y (count of s), plain; it may be a or b where that is not broadcast. */
void ls__cuda_launch_binary(cudaStream_t stream, cuda_binary kind, const cuda_strided *s,
                            const void *a, bool a_half, const void *b, bool b_half, void *y,
                            bool y_half);

/* --- kernel_reduce.cu --- */
/* Output o is the sum (or the largest) of x[kept(o) + reduced(r)] over all r, divided by divisor.
 * The order is fixed by the shapes: r is cut into chunks, each chunk by the threads of a block, and
 * partial results are added in the order of threads, then of chunks. */
typedef struct cuda_reduction {
    cuda_strided kept, reduced;
    bool by_rows; /* neighbours in memory are added up; else they belong to different outputs */
    int64_t chunk, chunks;
    bool largest; /* a NaN is larger than all */
    float divisor;
} cuda_reduction;
/* Sets by_rows, chunk and chunks from kept and reduced; 1 as divisor. */
void ls__cuda_reduction_cut(cuda_reduction *r);
/* Bytes of workspace. */
size_t ls__cuda_reduction_workspace(const cuda_reduction *r);
void ls__cuda_launch_reduction(cudaStream_t stream, const cuda_reduction *r, const float *x,
                               void *y, bool y_half, float *workspace);
/* x (outer, size, inner), y and g (outer, inner) -> dx (outer, size, inner). y NULL: g / divisor
 * everywhere; else g at the first largest of its line. */
void ls__cuda_launch_reduce_grad(cudaStream_t stream, int64_t outer, int64_t size, int64_t inner,
                                 float divisor, const float *g, const float *x, const float *y,
                                 void *dx, bool dx_half);

/* --- kernel_move.cu --- */
/* How elements are stored: bytes when they are only moved, or a conversion. */
typedef struct cuda_move {
    int nbytes;             /* of an element of the input */
    bool widened, narrowed; /* bf16 to f32, f32 to bf16 */
} cuda_move;
/* rows of `width` elements, `pitch` apart, are written; element c of a row is element c - shift of
 * the input's row, which has `from_width` elements and begins from_pitch behind the last; 0 where
 * there is none. */
typedef struct cuda_rows {
    int64_t rows, width, pitch, from_width, from_pitch, shift;
} cuda_rows;
void ls__cuda_launch_rows(cudaStream_t stream, cuda_move move, const cuda_rows *r, const void *x,
                          void *y);
/* x (outer, a, middle, b, inner) -> y (outer, b, middle, a, inner) */
typedef struct cuda_transpose {
    int64_t outer, a, middle, b, inner;
} cuda_transpose;
void ls__cuda_launch_transpose(cudaStream_t stream, cuda_move move, const cuda_transpose *t,
                               const void *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
