/* The product of a matrix with a panel.
 *
 * A few rows of a times a few vectors of b stay in registers for the whole sum: 4 x 4 vectors of
 * sixteen floats with AVX-512 (16 of 32 registers, enough sums in flight to hide the latency of an
 * addition; eight rows where there are fewer vectors), 6 x 2 of eight with AVX2, 2 x 4 of four
 * elsewhere. a is read number by number and needs no order of its own, so it may lie transposed.
 * Every element of c is one sum in order, whatever the registers. This file is compiled with
 * contraction: multiply and add are one instruction where the machine has it. */
#include "backend/cpu/panel.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define BLOCK 16
#include "backend/cpu/panel_block.h"
#define BLOCK 8
#include "backend/cpu/panel_block.h"

__attribute__((target("arch=x86-64-v4"))) static void product_v4(const panel_product *p)
{
    int64_t j = 0;
    for (; j + 4 <= p->vectors; j += 4) product_columns_16(p, j * LANES, 4, 4);
    if (p->vectors - j == 3) product_columns_16(p, j * LANES, 8, 3);
    if (p->vectors - j == 2) product_columns_16(p, j * LANES, 8, 2);
    if (p->vectors - j == 1) product_columns_16(p, j * LANES, 8, 1);
}

__attribute__((target("arch=x86-64-v3"))) static void product_v3(const panel_product *p)
{
    for (int64_t j = 0; j < p->vectors; j++) product_columns_8(p, j * LANES, 6, 2);
}

static bool product_by_machine(const panel_product *p)
{
    if (__builtin_cpu_supports("x86-64-v4"))
        product_v4(p);
    else if (__builtin_cpu_supports("x86-64-v3"))
        product_v3(p);
    else
        return false;
    return true;
}

#else

static bool product_by_machine(const panel_product *p)
{
    (void)p;
    return false;
}

#endif

#define BLOCK 4
#include "backend/cpu/panel_block.h"

void ls__cpu_panel_product(const panel_product *p)
{
    if (product_by_machine(p)) return;
    for (int64_t j = 0; j < p->vectors; j++) product_columns_4(p, j * LANES, 2, 4);
}
