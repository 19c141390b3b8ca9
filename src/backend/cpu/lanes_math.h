/* Exponentials and what is made of them, sixteen at a time: sigmoid, tanh, the normal distribution.
 *
 * Every function is within a few units of the last place over its whole range, both tails included,
 * and lets NaN through. Polynomials were fitted at Chebyshev nodes with 40 digits; products need
 * not be contracted: the constants are split where a rounded product would cost more than a bit. */
#ifndef LS_BACKEND_CPU_LANES_MATH_H
#define LS_BACKEND_CPU_LANES_MATH_H

#include "backend/cpu/lanes.h"

typedef uint32_t lanes_u32 __attribute__((vector_size(LANES * sizeof(uint32_t))));

/* x = -|x| */
LANES_INLINE void lanes_negative(lanes *x)
{
    *x = (lanes)((lanes_u32)*x | 0x80000000u);
}

/* x = |x| */
LANES_INLINE void lanes_absolute(lanes *x)
{
    *x = (lanes)((lanes_u32)*x & 0x7fffffffu);
}

/* Unrolled, so that the lanes of v stay in registers. */
#define LANES_EACH(v, n) _Pragma("GCC unroll 4") for (int v = 0; v < (n); v++)

/* 1.5 2^23 + 127: adding it rounds to an integer n, in the low bits, as the exponent of 2^n */
#define LANES_ROUND 12583039.0f

/* n <= 4 times x = exp(x) for x <= 0 (up to 80 in fact); 0 below -87. n is a constant; four at a
 * time, step by step, hide each other's latency.
 * exp(x) = 2^n exp(r), |r| <= log(2) / 2; the polynomial is (exp(r) - 1 - r) / r^2, to 1.1e-8. */
LANES_INLINE void lanes_exp_falling_each(lanes *x, const int n)
{
    const float round = LANES_ROUND;
    const lanes least = LANES_OF(-87.0f);
    lanes shifted[4], r[4], p[4];
    LANES_EACH(v, n) shifted[v] = x[v] * 1.44269504f + round;
    LANES_EACH(v, n) p[v] = shifted[v] - round;
    LANES_EACH(v, n) r[v] = x[v] - p[v] * 0.693359375f;
    LANES_EACH(v, n) r[v] = r[v] + p[v] * 2.12194440e-4f;
    LANES_EACH(v, n) p[v] = r[v] * 1.392692661e-3f + 8.363773874e-3f;
    LANES_EACH(v, n) p[v] = p[v] * r[v] + 4.166655011e-2f;
    LANES_EACH(v, n) p[v] = p[v] * r[v] + 1.666657338e-1f;
    LANES_EACH(v, n) p[v] = p[v] * r[v] + 0.5f;
    LANES_EACH(v, n) p[v] = p[v] * (r[v] * r[v]) + r[v];
    LANES_EACH(v, n) p[v] = p[v] + 1.0f;
    LANES_EACH(v, n)
    {
        lanes_u32 power = (lanes_u32)shifted[v] << 23;
        lanes_i32 tiny;
        lanes_less(&tiny, &x[v], &least);
        p[v] = p[v] * (lanes)power;
        x[v] = (lanes)((lanes_i32)p[v] & ~tiny);
    }
}

LANES_INLINE void lanes_exp_falling(lanes *x)
{
    lanes_exp_falling_each(x, 1);
}

/* x = 2^x for -126 <= x < 127.5. The polynomial is (2^r - 1) / r for |r| <= 1 / 2, and 2^r is off by
 * 1.3e-7 of itself: too much for exp, not for what is added to 1. */
LANES_INLINE void lanes_power_of_two(lanes *x)
{
    const float round = LANES_ROUND;
    lanes shifted = *x + round, r = *x - (shifted - round);
    lanes p = r * 1.335738132e-3f + 9.673362599e-3f;
    p = p * r + 5.550477135e-2f;
    p = p * r + 2.402220548e-1f;
    p = p * r + 6.931470917e-1f;
    p = p * r + 1.0f;
    *x = p * (lanes)((lanes_u32)shifted << 23);
}

/* s = 1 / (1 + exp(-x)), rest = 1 - s without cancellation */
LANES_INLINE void lanes_sigmoid(const lanes *x, lanes *s, lanes *rest)
{
    const lanes zero = { 0 };
    lanes e = *x;
    lanes_i32 below;
    lanes_less(&below, x, &zero);
    lanes_negative(&e);
    lanes_exp_falling(&e);
    lanes large = 1.0f / (1.0f + e), small = e * large;
    *s = large;
    *rest = small;
    lanes_choose(s, &below, &small);
    lanes_choose(rest, &below, &large);
}

/* x = tanh(x): x + x^3 P(x^2) up to 0.55, beyond it by exp(-2|x|) */
LANES_INLINE void lanes_tanh(lanes *x)
{
    const lanes bound = LANES_OF(0.55f);
    lanes size = *x, z = *x * *x;
    lanes_i32 is_near;
    lanes_absolute(&size);
    lanes p = z * -6.610227831e-3f + 2.130938866e-2f;
    p = p * z - 5.390942883e-2f;
    p = p * z + 1.333311373e-1f;
    p = p * z - 3.333333201e-1f;
    lanes near = size + size * z * p;
    lanes e = size * -2.0f;
    lanes_exp_falling(&e);
    lanes far = (1.0f - e) / (1.0f + e);
    lanes_less(&is_near, &size, &bound);
    lanes_choose(&far, &is_near, &near);
    *x = (lanes)((lanes_u32)far | ((lanes_u32)*x & 0x80000000u));
}

/* The normal distribution: below = the probability of less than x, density = exp(-x^2 / 2) /
 * sqrt(2 pi). A tail is exp(-x^2 / 2) t P(1 - 5 t), t = 1 / (|x| + 2.5), off by 1.8e-8; the
 * square's rounding error goes into the exponential's first order. */
LANES_INLINE void lanes_normal(const lanes *x, lanes *below, lanes *density)
{
    const lanes zero = { 0 }, far = LANES_OF(14.0f);
    lanes size = *x, square = *x * *x;
    lanes_i32 inside, negative;
    lanes_absolute(&size);
    lanes_less(&inside, &size, &far);
    lanes_less(&negative, x, &zero);
    lanes high = (lanes)((lanes_u32)size & 0xfffff000u), low = size - high;
    lanes rounding = ((high * high - square) + 2.0f * (high * low)) + low * low;
    rounding = (lanes)((lanes_i32)rounding & inside);
    lanes e = square * -0.5f;
    lanes_exp_falling(&e);
    e -= e * (0.5f * rounding);
    lanes t = 1.0f / (size + 2.5f), q = 1.0f - 5.0f * t;
    lanes p = q * -1.571075544e-4f - 3.117024296e-4f;
    p = p * q + 6.829994798e-4f;
    p = p * q + 2.524011232e-3f;
    p = p * q - 1.599755176e-3f;
    p = p * q - 1.638620069e-2f;
    p = p * q + 9.235586572e-3f;
    p = p * q + 1.319869802e-1f;
    p = p * q - 4.336919919e-1f;
    p = p * q + 7.066566598e-1f;
    lanes tail = e * (t * p), body = 1.0f - tail;
    *density = e * 0.398942280f;
    *below = body;
    lanes_choose(below, &negative, &tail);
}

#endif
