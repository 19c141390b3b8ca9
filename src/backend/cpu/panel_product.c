/* The product of a matrix with a panel.
 *
 * A few rows of a times a few vectors of b stay in registers for the whole sum: 4 x 4 vectors of
 * sixteen floats with AVX-512 (16 of 32 registers, enough sums in flight to hide the latency of an
 * addition; 8 x 1 where there is one vector), 4 x 1 with less. a is read number by number and needs no order of its own, so it may
 * lie transposed. This file is compiled with contraction: multiply and add are one instruction where
 * the machine has it. */
#include "backend/cpu/panel.h"

/* rows x vectors of c at (i, j); rows and vectors are constants where this is inlined. */
LANES_INLINE void product_block(const panel_product *p, int64_t i, int64_t j, const int rows,
                                const int vectors)
{
    lanes sum[8][PANEL_VECTORS];
    const float *a = p->a + i * p->a_row, *b = p->b + j * LANES;
    float *c = p->c + i * p->c_row + j * LANES;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = (lanes) { 0 };
            if (p->add) lanes_load(&sum[r][v], c + r * p->c_row + v * LANES);
        }
    for (int64_t k = 0; k < p->k; k++) {
        lanes x[PANEL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) lanes_load(&x[v], b + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] += a[r * p->a_row] * x[v];
        a += p->a_step;
        b += p->b_row;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) lanes_store(c + r * p->c_row + v * LANES, &sum[r][v]);
}

LANES_INLINE void product_columns(const panel_product *p, int64_t j, const int vectors,
                                  const int tall)
{
    int64_t i = 0;
    for (; vectors == 1 && i + tall <= p->m; i += tall) product_block(p, i, j, tall, vectors);
    for (; i + 4 <= p->m; i += 4) product_block(p, i, j, 4, vectors);
    for (; i < p->m; i++) product_block(p, i, j, 1, vectors);
}

LANES_INLINE void product_narrow(const panel_product *p)
{
    for (int64_t j = 0; j < p->vectors; j++) product_columns(p, j, 1, 4);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

__attribute__((target("arch=x86-64-v4"))) static void product_v4(const panel_product *p)
{
    int64_t j = 0;
    for (; j + 4 <= p->vectors; j += 4) product_columns(p, j, 4, 8);
    if (p->vectors - j == 3) product_columns(p, j, 3, 8);
    if (p->vectors - j == 2) product_columns(p, j, 2, 8);
    if (p->vectors - j == 1) product_columns(p, j, 1, 8);
}

__attribute__((target("arch=x86-64-v3"))) static void product_v3(const panel_product *p)
{
    product_narrow(p);
}

void ls__cpu_panel_product(const panel_product *p)
{
    if (__builtin_cpu_supports("x86-64-v4"))
        product_v4(p);
    else if (__builtin_cpu_supports("x86-64-v3"))
        product_v3(p);
    else
        product_narrow(p);
}

#else

void ls__cpu_panel_product(const panel_product *p)
{
    product_narrow(p);
}

#endif
