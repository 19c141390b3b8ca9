/* Element-wise reduction in the tree's order, vectorized for the CPU it runs on. The bits do not
 * depend on the instruction set: no operation here is contracted or reassociated. */
#ifndef LS_COMM_REDUCTION_H
#define LS_COMM_REDUCTION_H

#include <lockstep/base.h>
#include <lockstep/comm.h>

#include "comm/tree.h"

enum {
    LS__DTYPES = LS_DTYPE_U64 + 1,
    LS__REDUCES = LS_REDUCE_MAX + 1,
    LS__REDUCE_BLOCK = 4096, /* bytes that are carried through the whole tree at once, in L1 */
};

/* dst[i] = a[i] op b[i]; dst may be a or b. */
typedef void ls__combine_fn(void *dst, const void *a, const void *b, size_t count);

/* dst[i] = other[i] = a[i] op b[i]. */
typedef void ls__combine_twice_fn(void *dst, void *other, const void *a, const void *b,
                                  size_t count);

typedef struct ls__kernels {
    const char *isa;
    ls__combine_fn *combine[LS__DTYPES][LS__REDUCES]; /* bf16: none, it is combined as f32 */
    ls__combine_twice_fn *combine_twice[LS__DTYPES][LS__REDUCES];
    void (*copy)(void *dst, const void *src, size_t nbytes);       /* between cores; no overlap */
    void (*widen)(float *dst, const uint16_t *src, size_t count);  /* bf16 to f32 */
    void (*narrow)(uint16_t *dst, const float *src, size_t count); /* to nearest, ties to even */
    /* dst[i] = fa * a[i] + fb * b[i], each product rounded; dst may be a or b. */
    void (*add_scaled)(float *dst, const float *a, float fa, const float *b, float fb,
                       size_t count);
    void (*scale)(float *dst, const float *src, float factor, size_t count);
    double (*norm2)(const float *x,
                    size_t count); /* sum of squares, over 32 lanes, then halves are added */
} ls__kernels;

/* The best for this CPU; and the portable ones, which give the same bits. */
const ls__kernels *ls__kernels_best(void);
const ls__kernels *ls__kernels_portable(void);

/* dst[i] = the tree over sources[.][i], starting `offset` elements into dst and each source. dst
 * may be one of the sources. tree has nsources >= 1. */
void ls__reduce(const ls__kernels *kernels, const ls__tree *tree, ls_dtype type, ls_reduce op,
                void *dst, const void *const *sources, int64_t offset, int64_t count);

/* The same for elements [offset, offset + count) of f32 sums where source s counts factors[s]
 * times; dst: (count), may be that part of a source. */
void ls__reduce_scaled(const ls__kernels *kernels, const ls__tree *tree, float *dst,
                       const float *const *sources, const float *factors, int64_t offset,
                       int64_t count);

#endif
