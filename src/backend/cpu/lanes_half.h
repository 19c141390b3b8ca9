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

/* Rounded to the nearest, the even one of two; NaN stays one. */
LANES_INLINE void lanes_store_half(uint16_t *to, const lanes *from)
{
    lanes_u32 bits = (lanes_u32)*from;
    lanes_u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, quiet = bits >> 16 | 0x40u;
    lanes_i32 nan = *from != *from;
    rounded = (rounded & ~(lanes_u32)nan) | (quiet & (lanes_u32)nan);
    lanes_u16 half = __builtin_convertvector(rounded, lanes_u16);
    memcpy(to, &half, sizeof half);
}

/* Element i and those behind it of an array of floats or of bf16, n of which are left; the rest from
 * fill. */
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
