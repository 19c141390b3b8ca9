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

LANES_INLINE void sum_up(const sgemm_block *k, const int64_t a_row, const int64_t a_step,
                         lanes sum[ROWS][VECTORS], const int rows, const int vectors)
{
    const float *a = k->a, *b = k->b;
    lanes x[VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) sum[r][v] = (lanes) { 0 };
    for (int64_t i = 0; i < k->depth; i++, a += a_step, b += vectors * LANES) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) lanes_load(&x[v], b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * a_row] * x[v];
    }
}

/* What is left to do with a vector of c that has its sum; n: its columns. */
LANES_INLINE void finish(const sgemm_block *k, lanes *sum, float *c, const float *bias, int64_t n)
{
    const lanes zero = { 0 };
    lanes x;
    if (bias) {
        lanes_load_rest(&x, bias, n, &zero);
        *sum = *sum + x;
    }
    if (k->add) {
        lanes_load_rest(&x, c, n, &zero);
        *sum = *sum + x;
    }
    if (k->relu) lanes_relu(sum);
    lanes_store_rest(c, sum, n);
}

/* bias_and_relu, add: constants where this is inlined. */
LANES_INLINE void store_all(const sgemm_block *k, lanes sum[ROWS][VECTORS], const bool add,
                            const bool bias_and_relu, const int rows, const int vectors)
{
    const int64_t c_row = k->c_row;
    float *c = k->c;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            float *to = c + r * c_row + v * LANES;
            lanes x;
            if (bias_and_relu) {
                finish(k, &sum[r][v], to, k->bias ? k->bias + v * LANES : NULL, LANES);
                continue;
            }
            if (add) {
                lanes_load(&x, to);
                sum[r][v] += x;
            }
            lanes_store(to, &sum[r][v]);
        }
}

/* What most blocks need is done without a question per vector. */
LANES_INLINE void store_whole(const sgemm_block *k, lanes sum[ROWS][VECTORS], const int rows,
                              const int vectors)
{
    if (k->bias || k->relu)
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
            finish(k, &x, k->c + r * k->c_row + at, k->bias ? k->bias + at : NULL, k->columns - at);
        }
    }
}

/* packed, rows and vectors are constants where this is inlined. */
LANES_INLINE void block_of(const sgemm_block *k, const bool packed, const int rows,
                           const int vectors)
{
    lanes sum[ROWS][VECTORS];
    expect(k, rows, vectors);
    if (packed)
        sum_up(k, 1, ROWS, sum, rows, vectors);
    else
        sum_up(k, k->a_row, 1, sum, rows, vectors);
    if (k->columns == vectors * LANES)
        store_whole(k, sum, rows, vectors);
    else
        store_edge(k, sum, rows, vectors);
}

#define SGEMM_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#define BLOCKS(vectors)                                                                            \
    SGEMM_TARGET static void packed_##vectors(const sgemm_block *k)                                \
    {                                                                                              \
        block_of(k, true, ROWS, vectors);                                                          \
    }                                                                                              \
    SGEMM_TARGET static void rows_##vectors(const sgemm_block *k)                                  \
    {                                                                                              \
        block_of(k, false, ROWS, vectors);                                                         \
    }                                                                                              \
    SGEMM_TARGET static void packed_one_##vectors(const sgemm_block *k)                            \
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
    static block_fn *const whole[][2] = { { rows_1, packed_1 },
                                          { rows_2, packed_2 },
                                          { rows_3, packed_3 } };
    static block_fn *const single[][2] = { { row_1, packed_one_1 },
                                           { row_2, packed_one_2 },
                                           { row_3, packed_one_3 } };
    bool packed = block->a_row == 0;
    if (rows == ROWS) {
        whole[vectors - 1][packed](block);
        return;
    }
    sgemm_block one = *block;
    for (int r = 0; r < rows; r++) {
        single[vectors - 1][packed](&one);
        one.a += packed ? 1 : block->a_row;
        one.c += block->c_row;
    }
}

#else

void ls__sgemm_block(const sgemm_block *block, int rows, int vectors)
{
    (void)block, (void)rows, (void)vectors; /* ls__sgemm_plan has refused */
}

#endif
