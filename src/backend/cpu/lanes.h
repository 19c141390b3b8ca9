/* Sixteen floats at once: a register of AVX-512, two of AVX2, four of SSE or NEON; the compiler
 * splits it where the machine has less. Moved through pointers only, since how such a value is
 * passed depends on the instruction set. */
#ifndef LS_BACKEND_CPU_LANES_H
#define LS_BACKEND_CPU_LANES_H

#include <stdint.h>
#include <string.h>

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t lanes_i32 __attribute__((vector_size(LANES * sizeof(int32_t))));

/* All lanes the same. */
#define LANES_OF(value) ((value) - (lanes) { 0 })

#define LANES_INLINE    static inline __attribute__((always_inline))

/* Anywhere in memory. */
typedef float lanes_there
    __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

LANES_INLINE void lanes_load(lanes *to, const float *from)
{
    *to = *(const lanes_there *)from;
}

LANES_INLINE void lanes_store(float *to, const lanes *from)
{
    *(lanes_there *)to = *from;
}

/* n < 16 floats, the rest from fill. A loop, which compilers make one load of some lanes where the
 * machine has such; a copy of n floats would be a call. */
LANES_INLINE void lanes_load_some(lanes *to, const float *from, int64_t n, const lanes *fill)
{
    float all[LANES];
    int count = (int)n;
    lanes_store(all, fill);
    for (int i = 0; i < LANES; i++)
        if (i < count) all[i] = from[i];
    lanes_load(to, all);
}

LANES_INLINE void lanes_store_some(float *to, const lanes *from, int64_t n)
{
    float all[LANES];
    int count = (int)n;
    lanes_store(all, from);
    for (int i = 0; i < LANES; i++)
        if (i < count) to[i] = all[i];
}

/* As load and store, or load_some and store_some: n floats are left. */
LANES_INLINE void lanes_load_rest(lanes *to, const float *from, int64_t n, const lanes *fill)
{
    if (n >= LANES)
        lanes_load(to, from);
    else
        lanes_load_some(to, from, n, fill);
}

LANES_INLINE void lanes_store_rest(float *to, const lanes *from, int64_t n)
{
    if (n >= LANES)
        lanes_store(to, from);
    else
        lanes_store_some(to, from, n);
}

/* The sum of the sixteen: halves added until one is left. */
LANES_INLINE float lanes_total(const lanes *x)
{
    float part[LANES];
    lanes_store(part, x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

typedef float lanes_eight __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float lanes_four __attribute__((vector_size(LANES / 4 * sizeof(float))));

LANES_INLINE void lanes_fold(lanes_four *to, const lanes *x)
{
    lanes_eight half = __builtin_shufflevector(*x, *x, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(*x, *x, 8, 9, 10, 11, 12, 13, 14, 15);
    *to = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
          __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

/* lanes_total of each of the four, the same bits; most of the additions serve all four. */
LANES_INLINE void lanes_totals(const lanes x[4], float total[4])
{
    lanes_four a, b, c, d;
    lanes_fold(&a, &x[0]);
    lanes_fold(&b, &x[1]);
    lanes_fold(&c, &x[2]);
    lanes_fold(&d, &x[3]);
    a = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    c = __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
    a = __builtin_shufflevector(a, c, 0, 2, 4, 6) + __builtin_shufflevector(a, c, 1, 3, 5, 7);
    memcpy(total, &a, sizeof a);
}

/* where = a < b, all bits or none; none with NaN. A loop, since GCC 12 compares a vector that is wider
 * than the machine's registers number by number, and loops it cuts as they need. */
LANES_INLINE void lanes_less(lanes_i32 *where, const lanes *a, const lanes *b)
{
    float x[LANES], y[LANES];
    int32_t all[LANES];
    lanes_store(x, a);
    lanes_store(y, b);
    for (int i = 0; i < LANES; i++) all[i] = x[i] < y[i] ? -1 : 0;
    memcpy(where, all, sizeof all);
}

/* As lanes_less: where a is NaN. */
LANES_INLINE void lanes_is_nan(lanes_i32 *where, const lanes *a)
{
    float x[LANES];
    int32_t all[LANES];
    lanes_store(x, a);
    for (int i = 0; i < LANES; i++) all[i] = x[i] != x[i] ? -1 : 0;
    memcpy(where, all, sizeof all);
}

/* x = where ? other : x */
LANES_INLINE void lanes_choose(lanes *x, const lanes_i32 *where, const lanes *other)
{
    *x = (lanes)(((lanes_i32)*x & ~*where) | ((lanes_i32)*other & *where));
}

/* x = other > x ? other : x */
LANES_INLINE void lanes_raise(lanes *x, const lanes *other)
{
    lanes_i32 larger;
    lanes_less(&larger, x, other);
    lanes_choose(x, &larger, other);
}

/* x < 0 ? 0 : x; NaN stays. */
LANES_INLINE void lanes_relu(lanes *x)
{
    const lanes zero = { 0 };
    lanes_i32 negative;
    lanes_less(&negative, x, &zero);
    *x = (lanes)((lanes_i32)*x & ~negative);
}

#endif
