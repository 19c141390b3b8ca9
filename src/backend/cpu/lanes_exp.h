/* exp of sixteen floats at once: Cody and Waite's reduction and a polynomial of degree five, within
 * 2 units of the last place of libm's. Below -87 the result is 0, from 88.37 on infinity; NaN
 * stays. */
#ifndef LS_BACKEND_CPU_LANES_EXP_H
#define LS_BACKEND_CPU_LANES_EXP_H

#include "backend/cpu/lanes.h"

/* All lanes the same. */
#define LANES_OF(value) ((value) - (lanes) { 0 })

/* x = exp(x). exp(x) = 2^n exp(r), |r| <= log(2) / 2. */
LANES_INLINE void lanes_exp(lanes *x)
{
    const lanes round = LANES_OF(12582912.0f); /* 1.5 2^23: adding it rounds to an integer */
    const lanes low = LANES_OF(-87.0f), high = LANES_OF(89.0f);
    lanes clamped = *x;
    lanes_i32 below = *x<low, above = *x> high;
    lanes_choose(&clamped, &below, &low);
    lanes_choose(&clamped, &above, &high);
    lanes shifted = clamped * 1.44269504f + round;
    lanes n = shifted - round;
    lanes r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* the last bits of shifted are n, and its other bits leave by the shift */
    lanes_i32 power = ((lanes_i32)shifted << 23) + (127 << 23);
    p = p * (lanes)power;
    *x = (lanes)((lanes_i32)p & ~below);
}

#endif
