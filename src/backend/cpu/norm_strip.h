/* The loops of batch norm: sums over a strip of memory, and passes that rewrite it.
 *
 * A strip is one block of channels in some consecutive samples: in each sample a run of contiguous
 * floats in which channels repeat with a period (16 or 8 in blocked layouts, 1 in a plain image, up
 * to 16 channels side by side in (B,C), where a run is at most one period). Constants per channel
 * come as sixteen floats that repeat with the period. */
#ifndef LS_BACKEND_CPU_NORM_STRIP_H
#define LS_BACKEND_CPU_NORM_STRIP_H

#include <stdbool.h>
#include <stdint.h>

enum { STRIP_LANES = 16 };

typedef struct strip {
    int64_t samples;
    int64_t from_sample; /* floats from sample to sample */
    int64_t run;         /* floats */
    int period;          /* divides 16 where a run is longer than it */
} strip;

/* sum[c]: of channel c's elements; fp32 within a sample, fp64 over samples, in a fixed order. */
void ls__cpu_strip_sum(const float *x, const strip *s, double sum[STRIP_LANES]);
/* of (x - mean)^2 */
void ls__cpu_strip_squares(const float *x, const strip *s, const float mean[STRIP_LANES],
                           double sum[STRIP_LANES]);
/* of g, and of g (x - mean) */
void ls__cpu_strip_products(const float *g, const float *x, const strip *s,
                            const float mean[STRIP_LANES], double sum_g[STRIP_LANES],
                            double sum_gx[STRIP_LANES]);
/* y = (x - mean) scale + bias, rectified with relu; y may be x */
void ls__cpu_strip_apply(const float *x, float *y, const strip *s, const float mean[STRIP_LANES],
                         const float scale[STRIP_LANES], const float bias[STRIP_LANES], bool relu);
/* dx = (g - mean_g) a + (x - mean) b; dx may be g */
void ls__cpu_strip_combine(const float *g, const float *x, float *dx, const strip *s,
                           const float mean_g[STRIP_LANES], const float mean[STRIP_LANES],
                           const float a[STRIP_LANES], const float b[STRIP_LANES]);

#endif
