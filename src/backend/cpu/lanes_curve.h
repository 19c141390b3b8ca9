/* Activations and their derivatives, sixteen values at a time, for a kind that the compiler knows.
 *
 * All are made of a sigmoid or of the normal distribution (lanes_math.h) and not of 1 + tanh or
 * 1 + erf, which lose the left tail. */
#ifndef LS_BACKEND_CPU_LANES_CURVE_H
#define LS_BACKEND_CPU_LANES_CURVE_H

#include <float.h>
#include <math.h>

#include "backend/cpu/lanes_math.h"
#include "graph/ops.h"

/* GELU's approximation: x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3), with exp(-2 u) as a
 * power of two. Below -10 the value is less than 1.3e-37, above 10 the sigmoid is 1, and between
 * them the power neither overflows nor vanishes: so no sign and no tail is a case of its own.
 * Minus infinity gives NaN: an overflow before must not pass for a zero. */
LANES_INLINE void lanes_gelu_tanh(lanes *x, lanes *slope)
{
    const lanes least = LANES_OF(-10.0f), most = LANES_OF(10.0f);
    const lanes lowest = LANES_OF(-FLT_MAX), none = LANES_OF(NAN);
    lanes_i32 below, above, lost;
    lanes_less(&below, x, &least);
    lanes_less(&above, &most, x);
    lanes_less(&lost, x, &lowest);
    lanes_choose(x, &below, &least);
    lanes z = *x;
    lanes_choose(&z, &above, &most);
    lanes_choose(&z, &lost, &none);
    lanes square = z * z, e = z * (-2.30220820f - 0.102943240f * square);
    lanes_power_of_two(&e);
    lanes s = 1.0f / (1.0f + e);
    *slope = s + z * (1.59576912f + 0.214064449f * square) * (s * (e * s));
    *x *= s;
}

/* x = value at x, slope = derivative there; both from one sigmoid or normal distribution */
LANES_INLINE void lanes_curve_and_slope(ls__activation_kind kind, lanes *x, lanes *slope)
{
    lanes s, rest, twice;
    switch (kind) {
    case LS__ACTIVATION_GELU:
        lanes_normal(x, &s, &rest);
        *slope = s + *x * rest;
        *x *= s;
        break;
    case LS__ACTIVATION_GELU_TANH:
        lanes_gelu_tanh(x, slope);
        break;
    case LS__ACTIVATION_SILU:
        lanes_sigmoid(x, &s, &rest);
        *slope = s + *x * (s * rest);
        *x *= s;
        break;
    case LS__ACTIVATION_TANH:
        twice = *x * 2.0f;
        lanes_sigmoid(&twice, &s, &rest);
        *slope = 4.0f * (s * rest);
        lanes_tanh(x);
        break;
    case LS__ACTIVATION_SIGMOID:
        lanes_sigmoid(x, &s, &rest);
        *slope = s * rest;
        *x = s;
        break;
    }
}

/* x = value at x */
LANES_INLINE void lanes_curve(ls__activation_kind kind, lanes *x)
{
    lanes ignored;
    lanes_curve_and_slope(kind, x, &ignored);
}

/* g = g * derivative at x */
LANES_INLINE void lanes_slope(ls__activation_kind kind, const lanes *x, lanes *g)
{
    lanes value = *x, derivative = { 0 };
    lanes_curve_and_slope(kind, &value, &derivative);
    *g *= derivative;
}

#endif
