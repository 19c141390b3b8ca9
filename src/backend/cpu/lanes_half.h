/* bf16 numbers to and from sixteen floats, as half.c converts them. */
#ifndef LS_BACKEND_CPU_LANES_HALF_H
#define LS_BACKEND_CPU_LANES_HALF_H

#include <stdbool.h>

#include "backend/cpu/lanes_math.h"

typedef uint16_t lanes_u16 __attribute__((vector_size(LANES * sizeof(uint16_t))));

LANES_INLINE void lanes_load_half(lanes *to, const uint16_t *from)
{
    lanes_u16 half;
    memcpy(&half, from, sizeof half);
    *to = (lanes)(__builtin_convertvector(half, lanes_u32) << 16);
}

/* x = x rounded to bf16: to the nearest, the even one of two; NaN stays one. The low bits are not
 * cleared. */
LANES_INLINE void lanes_round_half(lanes_u32 *x)
{
    lanes value = (lanes)*x;
    lanes_u32 rounded = *x + 0x7fffu + (*x >> 16 & 1u), quiet = *x | 0x400000u;
    lanes_i32 nan;
    lanes_is_nan(&nan, &value);
    *x = (rounded & ~(lanes_u32)nan) | (quiet & (lanes_u32)nan);
}

LANES_INLINE void lanes_store_half(uint16_t *to, const lanes *from)
{
    lanes_u32 bits = (lanes_u32)*from;
    lanes_round_half(&bits);
    lanes_u16 half = __builtin_convertvector(bits >> 16, lanes_u16);
    memcpy(to, &half, sizeof half);
}

/* 32 numbers, those at even places and those at odd ones: no moving between lanes, for loops that
 * do not care which is which. Bytes lie low first, as everywhere. */
LANES_INLINE void lanes_load_pairs(lanes *even, lanes *odd, const uint16_t *from)
{
    lanes_u32 both;
    memcpy(&both, from, sizeof both);
    *even = (lanes)(both << 16);
    *odd = (lanes)(both & 0xffff0000u);
}

LANES_INLINE void lanes_store_pairs(uint16_t *to, const lanes *even, const lanes *odd)
{
    lanes_u32 low = (lanes_u32)*even, high = (lanes_u32)*odd;
    lanes_round_half(&low);
    lanes_round_half(&high);
    lanes_u32 both = low >> 16 | (high & 0xffff0000u);
    memcpy(to, &both, sizeof both);
}

/* Element i and those behind it of an array of floats or of bf16, n of which are left; the rest
 * from fill. */
LANES_INLINE void lanes_load_any(lanes *to, const void *from, bool half, int64_t i, int64_t n,
                                 const lanes *fill)
{
    if (!half) {
        lanes_load_rest(to, (const float *)from + i, n, fill);
    } else if (n >= LANES) {
        lanes_load_half(to, (const uint16_t *)from + i);
    } else {
        uint16_t some[LANES];
        lanes_store_half(some, fill);
        memcpy(some, (const uint16_t *)from + i, (size_t)n * sizeof *some);
        lanes_load_half(to, some);
    }
}

LANES_INLINE void lanes_store_any(void *to, bool half, int64_t i, int64_t n, const lanes *from)
{
    if (!half) {
        lanes_store_rest((float *)to + i, from, n);
    } else if (n >= LANES) {
        lanes_store_half((uint16_t *)to + i, from);
    } else {
        uint16_t some[LANES];
        lanes_store_half(some, from);
        memcpy((uint16_t *)to + i, some, (size_t)n * sizeof *some);
    }
}

#endif
