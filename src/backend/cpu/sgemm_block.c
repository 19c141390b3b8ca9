/* Eight rows by three vectors of sixteen floats: 24 sums in registers, three vectors of b and one
 * number of a at a time. Two multiplications a cycle need eight sums in flight at four cycles each,
 * and 11 loads for 24 of them leave the load units half idle. This file is compiled with
 * contraction: multiply and add are one instruction. */
#include "backend/cpu/lanes.h"
#include "backend/cpu/sgemm.h"

#if defined(__x86_64__)

enum { ROWS = SGEMM_ROWS, VECTORS = SGEMM_VECTORS };

/* c's lines arrive while the sums are taken. */
LANES_INLINE void expect(const sgemm_block *k, const int rows, const int vectors)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) __builtin_prefetch(k->c + r * k->c_row + v * LANES, 1);
}

/* What every row's sums begin with. */
LANES_INLINE void begin_with(const sgemm_block *k, lanes first[VECTORS], const int vectors)
{
    const lanes zero = { 0 };
#pragma GCC unroll 3
    for (int v = 0; v < vectors; v++)
        if (k->bias)
            lanes_load_rest(&first[v], k->bias + v * LANES, k->columns - v * LANES, &zero);
        else
            first[v] = zero;
}

/* transposed is a constant where this is inlined. Then every step reads a line of its own, and all of
 * them may fall on one set of the first-level cache, which holds few: they are asked for into the
 * second, and once more just before their use. */
LANES_INLINE void sum_up(const sgemm_block *k, const bool transposed, lanes sum[ROWS][VECTORS],
                         const int rows, const int vectors)
{
    enum { NEAR = 2, FAR = 16 /* steps */, SECOND_LEVEL = 2 /* as the builtin counts locality */ };
    const float *a = k->a, *b = k->b;
    const int64_t a_row = transposed ? 1 : k->a_stride, a_step = transposed ? k->a_stride : 1;
    lanes x[VECTORS];
    begin_with(k, x, vectors);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[r][v] = x[v];
    for (int64_t i = 0; i < k->depth; i++, a += a_step, b += vectors * LANES) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) lanes_load(&x[v], b + v * LANES);
        if (transposed) {
            __builtin_prefetch(a + NEAR * a_step);
            __builtin_prefetch(a + FAR * a_step, 0, SECOND_LEVEL);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * a_row] * x[v];
    }
}

/* What is left to do with a vector of c that has its sum; n: its columns. */
LANES_INLINE void finish(const sgemm_block *k, lanes *sum, float *c, int64_t n)
{
    const lanes zero = { 0 };
    lanes x;
    if (k->add) {
        lanes_load_rest(&x, c, n, &zero);
        *sum = *sum + x;
    }
    if (k->relu) lanes_relu(sum);
    lanes_store_rest(c, sum, n);
}

/* add, relu: constants where this is inlined. */
LANES_INLINE void store_all(const sgemm_block *k, lanes sum[ROWS][VECTORS], const bool add,
                            const bool relu, const int rows, const int vectors)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            float *to = k->c + r * k->c_row + v * LANES;
            lanes x;
            if (add) {
                lanes_load(&x, to);
                sum[r][v] += x;
            }
            if (relu) lanes_relu(&sum[r][v]);
            lanes_store(to, &sum[r][v]);
        }
}

/* What most blocks need is done without a question per vector. */
LANES_INLINE void store_whole(const sgemm_block *k, lanes sum[ROWS][VECTORS], const int rows,
                              const int vectors)
{
    if (k->add && k->relu)
        store_all(k, sum, true, true, rows, vectors);
    else if (k->relu)
        store_all(k, sum, false, true, rows, vectors);
    else if (k->add)
        store_all(k, sum, true, false, rows, vectors);
    else
        store_all(k, sum, false, false, rows, vectors);
}

/* The last vector is at an edge. */
LANES_INLINE void store_edge(const sgemm_block *k, lanes sum[ROWS][VECTORS], const int rows,
                             const int vectors)
{
    float all[ROWS][VECTORS * LANES];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) lanes_store(all[r] + v * LANES, &sum[r][v]);
    for (int r = 0; r < rows; r++) {
        for (int64_t at = 0; at < k->columns; at += LANES) {
            lanes x;
            lanes_load(&x, all[r] + at);
            finish(k, &x, k->c + r * k->c_row + at, k->columns - at);
        }
    }
}

/* transposed, rows and vectors are constants where this is inlined. */
LANES_INLINE void block_of(const sgemm_block *k, const bool transposed, const int rows,
                           const int vectors)
{
    lanes sum[ROWS][VECTORS];
    expect(k, rows, vectors);
    sum_up(k, transposed, sum, rows, vectors);
    if (k->columns == vectors * LANES)
        store_whole(k, sum, rows, vectors);
    else
        store_edge(k, sum, rows, vectors);
}

#define SGEMM_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#define BLOCKS(vectors)                                                                            \
    SGEMM_TARGET static void columns_##vectors(const sgemm_block *k)                               \
    {                                                                                              \
        block_of(k, true, ROWS, vectors);                                                          \
    }                                                                                              \
    SGEMM_TARGET static void rows_##vectors(const sgemm_block *k)                                  \
    {                                                                                              \
        block_of(k, false, ROWS, vectors);                                                         \
    }                                                                                              \
    SGEMM_TARGET static void column_##vectors(const sgemm_block *k)                                \
    {                                                                                              \
        block_of(k, true, 1, vectors);                                                             \
    }                                                                                              \
    SGEMM_TARGET static void row_##vectors(const sgemm_block *k)                                   \
    {                                                                                              \
        block_of(k, false, 1, vectors);                                                            \
    }
BLOCKS(1)
BLOCKS(2)
BLOCKS(3)
#undef BLOCKS

typedef void block_fn(const sgemm_block *k);

void ls__sgemm_block(const sgemm_block *block, int rows, int vectors)
{
    static block_fn *const whole[][2] = { { rows_1, columns_1 },
                                          { rows_2, columns_2 },
                                          { rows_3, columns_3 } };
    static block_fn *const single[][2] = { { row_1, column_1 },
                                           { row_2, column_2 },
                                           { row_3, column_3 } };
    bool transposed = block->transposed;
    if (rows == ROWS) {
        whole[vectors - 1][transposed](block);
        return;
    }
    sgemm_block one = *block;
    for (int r = 0; r < rows; r++) {
        single[vectors - 1][transposed](&one);
        one.a += transposed ? 1 : block->a_stride;
        one.c += block->c_row;
    }
}

#else

void ls__sgemm_block(const sgemm_block *block, int rows, int vectors)
{
    (void)block, (void)rows, (void)vectors; /* ls__sgemm_plan has refused */
}

#endif
