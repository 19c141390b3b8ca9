/* Activations and their derivatives, sixteen values at a time, for a kind that the compiler knows.
 *
 * All are made of a sigmoid or of the normal distribution (lanes_math.h) and not of 1 + tanh or
 * 1 + erf, which lose the left tail. */
#ifndef LS_BACKEND_CPU_LANES_CURVE_H
#define LS_BACKEND_CPU_LANES_CURVE_H

#include "backend/cpu/lanes_math.h"
#include "graph/ops.h"

/* x -> 2 u, u = sqrt(2 / pi) (x + 0.044715 x^3): GELU's approximation is x sigmoid(2 u) */
LANES_INLINE void inner(const lanes *x, lanes *twice)
{
    *twice = *x * (1.59576912f + 0.0713548163f * (*x * *x));
}

/* x^2, of which 1e4 is enough where the rest of a product is 0: infinity would make it NaN */
LANES_INLINE void limited_square(const lanes *x, lanes *square)
{
    const lanes enough = LANES_OF(1e4f);
    *square = *x * *x;
    lanes_i32 more = *square > enough;
    lanes_choose(square, &more, &enough);
}

/* x = value at x, slope = derivative there; both from one sigmoid or normal distribution */
LANES_INLINE void curve_and_slope(ls__activation_kind kind, lanes *x, lanes *slope)
{
    lanes s, rest, twice, square;
    switch (kind) {
    case LS__ACTIVATION_GELU:
        lanes_normal(x, &s, &rest);
        *slope = s + *x * rest;
        *x *= s;
        break;
    case LS__ACTIVATION_GELU_TANH:
        inner(x, &twice);
        lanes_sigmoid(&twice, &s, &rest);
        limited_square(x, &square);
        *slope = s + *x * (s * rest) * (1.59576912f + 0.214064449f * square);
        *x *= s;
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
LANES_INLINE void curve(ls__activation_kind kind, lanes *x)
{
    lanes ignored;
    curve_and_slope(kind, x, &ignored);
}

/* g = g * derivative at x */
LANES_INLINE void slope(ls__activation_kind kind, const lanes *x, lanes *g)
{
    lanes value = *x, derivative;
    curve_and_slope(kind, &value, &derivative);
    *g *= derivative;
}

#endif
