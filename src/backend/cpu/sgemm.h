/* Products of f32 matrices of our own, for one thread of a machine with AVX-512.
 *
 * oneDNN waits for memory: a layer's weights are read, and its gradients written, once per step, and
 * nothing is multiplied meanwhile. Here what comes next is asked for while the registers are busy.
 *
 * An element of c is the sum over k in order, a pass of at most some hundred at a time; the passes
 * depend on k alone. So bits do not depend on how a product is cut into rows and columns. */
#ifndef LS_BACKEND_CPU_SGEMM_H
#define LS_BACKEND_CPU_SGEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SGEMM_ROWS = 8, SGEMM_VECTORS = 3 }; /* of c in registers; a vector is 16 floats */

/* One block of c in registers: c (rows, columns) = a (rows, depth) b (depth, columns). */
typedef struct sgemm_block {
    const float *a;
    int64_t a_stride;
    bool transposed; /* a lies as (depth, rows) */
    const float *b;  /* packed: (depth, vectors * 16) */
    float *c;
    int64_t c_row;
    int64_t depth;
    int64_t columns;   /* <= vectors * 16 */
    const float *bias; /* (columns) added; NULL = nothing */
    bool add;          /* to what c holds */
    bool relu;         /* in the end */
} sgemm_block;

typedef struct sgemm {
    int64_t m, n, k;
    bool transpose_a, transpose_b;        /* a lies as (k,m), b as (n,k) */
    int64_t a_stride, b_stride, c_stride; /* elements from row to row as they lie */
    bool bias, relu, sum;                 /* c += with sum */
    /* the plan's */
    int64_t depth;  /* of a pass over k */
    int64_t width;  /* columns of b that are multiplied by one part of a after the other */
    int64_t height; /* rows of a such part */
} sgemm;

/* Fills in the plan; false = not on this machine. */
bool ls__sgemm_plan(sgemm *s);
/* Bytes that a run needs for packed panels of b. */
size_t ls__sgemm_scratch(const sgemm *s);
void ls__sgemm_run(const sgemm *s, const float *a, const float *b, const float *bias, float *c,
                   float *scratch);

/* --- its parts --- */

/* rows (<= SGEMM_ROWS) x vectors (<= SGEMM_VECTORS) (sgemm_block.c) */
void ls__sgemm_block(const sgemm_block *block, int rows, int vectors);

/* A panel of at most 48 columns of a matrix (rows, columns) with a distance between rows: as wide as
 * its whole vectors, zeros behind the last column (sgemm_pack.c). */
void ls__sgemm_pack_b(const float *x, int64_t stride, int64_t rows, int64_t columns, float *panel);
/* As pack_b; x lies transposed: (columns, rows). */
void ls__sgemm_pack_transposed(const float *x, int64_t stride, int64_t rows, int64_t columns,
                               float *panel);

#endif
