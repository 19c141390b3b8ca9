/* Reductions: the tree of a few kilobytes at a time.
 *
 * The arrays are megabytes and there are as many as ranks; each element is read once and written
 * once, with everything between in L1. Which loops run is decided by asking the CPU once, not by
 * the loader (ifunc), which thread sanitizers cannot stand. */
#include "comm/reduction.h"

#include <string.h>

#include "base/check.h"

#if defined(__clang__)
#define LS__IVDEP       _Pragma("clang loop vectorize(assume_safety)")
#define LS__NO_CONTRACT _Pragma("clang fp contract(off)")
#else
#define LS__IVDEP       _Pragma("GCC ivdep")
#define LS__NO_CONTRACT /* -std=c11 does not contract */
#endif

#define LS__ISA portable
#define LS__TARGET
#include "comm/reduction_kernels.h"

#if defined(__x86_64__)
#define LS__ISA    avx2
#define LS__TARGET __attribute__((target("avx2")))
#include "comm/reduction_kernels.h"

#define LS__ISA avx512
#if defined(__clang__)
#define LS__TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define LS__TARGET                                                                                 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#include "comm/reduction_kernels.h"
#endif

const ls__kernels *ls__kernels_portable(void)
{
    return &kernels_portable;
}

const ls__kernels *ls__kernels_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &kernels_avx512;
    if (__builtin_cpu_supports("avx2")) return &kernels_avx2;
#endif
    return &kernels_portable;
}

enum {
    TEMPS = 12, /* a tree over 2^11 leaves needs no more */
    BLOCK_FLOATS = LS__REDUCE_BLOCK / sizeof(float),
};

typedef struct scratch {
    _Alignas(64) unsigned char temps[TEMPS][LS__REDUCE_BLOCK];
    float wide[2][BLOCK_FLOATS];
} scratch;

static const void *operand(const scratch *s, const void *const *sources, size_t at, int index)
{
    return index >= 0 ? (const unsigned char *)sources[index] + at : s->temps[~index];
}

/* One block, types that are combined as they are. */
static void reduce_block(const ls__tree *tree, ls__combine_fn *combine, scratch *s,
                         unsigned char *dst, const void *const *sources, size_t at, size_t count)
{
    for (int i = 0; i < tree->nops; i++) {
        const ls__tree_op *op = &tree->ops[i];
        combine(op->dst == LS__TREE_OUT ? dst + at : s->temps[op->dst],
                operand(s, sources, at, op->a), operand(s, sources, at, op->b), count);
    }
}

/* A bf16 operand as f32. */
static const float *wide_operand(const ls__kernels *kernels, scratch *s, const void *const *sources,
                                 size_t at, int index, int side, size_t count)
{
    if (index < 0) return (const float *)(const void *)s->temps[~index];
    kernels->widen(s->wide[side], (const uint16_t *)sources[index] + at, count);
    return s->wide[side];
}

/* One block of bf16: rounded once, at the root. */
static void reduce_block_bf16(const ls__kernels *kernels, const ls__tree *tree, ls_reduce reduce,
                              scratch *s, uint16_t *dst, const void *const *sources, size_t at,
                              size_t count)
{
    ls__combine_fn *combine = kernels->combine[LS_DTYPE_F32][reduce];
    for (int i = 0; i < tree->nops; i++) {
        const ls__tree_op *op = &tree->ops[i];
        const float *a = wide_operand(kernels, s, sources, at, op->a, 0, count);
        const float *b = wide_operand(kernels, s, sources, at, op->b, 1, count);
        float *out = op->dst == LS__TREE_OUT ? s->wide[0] : (float *)(void *)s->temps[op->dst];
        combine(out, a, b, count);
    }
    kernels->narrow(dst + at, s->wide[0], count);
}

void ls__reduce(const ls__kernels *kernels, const ls__tree *tree, ls_dtype type, ls_reduce op,
                void *dst, const void *const *sources, int64_t offset, int64_t count)
{
    LS_ASSERT(tree->nsources >= 1 && tree->ntemps <= TEMPS);
    size_t size = ls_dtype_size(type), first = (size_t)offset, end = first + (size_t)count;
    if (tree->nops == 0) {
        if (sources[0] != dst)
            memcpy((char *)dst + first * size, (const char *)sources[0] + first * size,
                   (size_t)count * size);
        return;
    }
    scratch s;
    /* A tree of one operation has no temporaries to keep in L1. */
    size_t block = type == LS_DTYPE_BF16 ? BLOCK_FLOATS
                   : tree->nops == 1     ? (size_t)count
                                         : LS__REDUCE_BLOCK / size;
    for (size_t at = first; at < end; at += block) {
        size_t n = end - at < block ? end - at : block;
        if (type == LS_DTYPE_BF16)
            reduce_block_bf16(kernels, tree, op, &s, dst, sources, at, n);
        else
            reduce_block(tree, kernels->combine[type][op], &s, dst, sources, at * size, n);
    }
}

/* One block of a weighted sum. Factors belong to sources; sums of them are final. */
static void reduce_scaled_block(const ls__kernels *kernels, const ls__tree *tree, scratch *s,
                                float *dst, const float *const *sources, const float *factors,
                                size_t at, size_t count)
{
    ls__combine_fn *add = kernels->combine[LS_DTYPE_F32][LS_REDUCE_SUM];
    for (int i = 0; i < tree->nops; i++) {
        const ls__tree_op *op = &tree->ops[i];
        float fa = op->a >= 0 ? factors[op->a] : 1.0f, fb = op->b >= 0 ? factors[op->b] : 1.0f;
        const float *a = op->a >= 0 ? sources[op->a] + at : (float *)(void *)s->temps[~op->a];
        const float *b = op->b >= 0 ? sources[op->b] + at : (float *)(void *)s->temps[~op->b];
        float *out = op->dst == LS__TREE_OUT ? dst : (float *)(void *)s->temps[op->dst];
        if (fa == 1.0f && fb == 1.0f)
            add(out, a, b, count);
        else
            kernels->add_scaled(out, a, fa, b, fb, count);
    }
}

void ls__reduce_scaled(const ls__kernels *kernels, const ls__tree *tree, float *dst,
                       const float *const *sources, const float *factors, int64_t offset,
                       int64_t count)
{
    LS_ASSERT(tree->nsources >= 1 && tree->ntemps <= TEMPS);
    size_t first = (size_t)offset, n = (size_t)count;
    if (tree->nops == 0) {
        if (factors[0] != 1.0f)
            kernels->scale(dst, sources[0] + first, factors[0], n);
        else if (sources[0] + first != dst)
            memcpy(dst, sources[0] + first, n * sizeof *dst);
        return;
    }
    scratch s;
    for (size_t at = 0; at < n; at += BLOCK_FLOATS) {
        size_t some = n - at < BLOCK_FLOATS ? n - at : BLOCK_FLOATS;
        reduce_scaled_block(kernels, tree, &s, dst + at, sources, factors, first + at, some);
    }
}
