/* The loops of batch norm, sixteen floats at a time.
 *
 * They read and write a tile's memory, which is in the caches; two accumulators per sum hide the
 * latency of an addition. */
#include "backend/cpu/norm_strip.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes.h"

static const lanes zeros = { 0 };

/* Adds the sixteen parts of a sample to the channels that they belong to. */
LANES_INLINE void fold(const lanes *part, int period, double sum[STRIP_LANES])
{
    float parts[LANES];
    lanes_store(parts, part);
    for (int l = 0; l < LANES; l++) sum[l % period] += (double)parts[l];
}

LANES_INLINE void clear(double sum[STRIP_LANES])
{
    memset(sum, 0, STRIP_LANES * sizeof *sum);
}

LS__CPU_CLONES void ls__cpu_strip_sum(const float *x, const strip *s, double sum[STRIP_LANES])
{
    clear(sum);
    for (int64_t n = 0; n < s->samples; n++, x += s->from_sample) {
        lanes even = { 0 }, odd = { 0 }, v;
        int64_t i = 0;
        for (; i + 2 * LANES <= s->run; i += 2 * LANES) {
            lanes_load(&v, x + i);
            even += v;
            lanes_load(&v, x + i + LANES);
            odd += v;
        }
        for (; i < s->run; i += LANES) {
            int64_t left = s->run - i;
            lanes_load_some(&v, x + i, left < LANES ? left : LANES, &zeros);
            even += v;
        }
        even += odd;
        fold(&even, s->period, sum);
    }
}

LS__CPU_CLONES void ls__cpu_strip_squares(const float *x, const strip *s,
                                          const float mean[STRIP_LANES], double sum[STRIP_LANES])
{
    lanes m;
    lanes_load(&m, mean);
    clear(sum);
    for (int64_t n = 0; n < s->samples; n++, x += s->from_sample) {
        lanes even = { 0 }, odd = { 0 }, v;
        int64_t i = 0;
        for (; i + 2 * LANES <= s->run; i += 2 * LANES) {
            lanes_load(&v, x + i);
            v -= m;
            even += v * v;
            lanes_load(&v, x + i + LANES);
            v -= m;
            odd += v * v;
        }
        for (; i < s->run; i += LANES) {
            int64_t left = s->run - i;
            lanes_load_some(&v, x + i, left < LANES ? left : LANES, &m);
            v -= m;
            even += v * v;
        }
        even += odd;
        fold(&even, s->period, sum);
    }
}

LS__CPU_CLONES void ls__cpu_strip_products(const float *g, const float *x, const strip *s,
                                           const float mean[STRIP_LANES], double sum_g[STRIP_LANES],
                                           double sum_gx[STRIP_LANES])
{
    lanes m;
    lanes_load(&m, mean);
    clear(sum_g);
    clear(sum_gx);
    for (int64_t n = 0; n < s->samples; n++, x += s->from_sample, g += s->from_sample) {
        lanes part = { 0 }, part_x = { 0 }, vg, vx;
        for (int64_t i = 0; i < s->run; i += LANES) {
            int64_t left = s->run - i;
            if (left >= LANES) {
                lanes_load(&vg, g + i);
                lanes_load(&vx, x + i);
            } else {
                lanes_load_some(&vg, g + i, left, &zeros);
                lanes_load_some(&vx, x + i, left, &m);
            }
            part += vg;
            part_x += vg * (vx - m);
        }
        fold(&part, s->period, sum_g);
        fold(&part_x, s->period, sum_gx);
    }
}

LANES_INLINE void apply(const float *x, float *y, const strip *s, const float mean[STRIP_LANES],
                        const float scale[STRIP_LANES], const float bias[STRIP_LANES], bool relu)
{
    lanes m, a, b, v;
    lanes_load(&m, mean);
    lanes_load(&a, scale);
    lanes_load(&b, bias);
    for (int64_t n = 0; n < s->samples; n++, x += s->from_sample, y += s->from_sample) {
        int64_t i = 0;
        for (; i + LANES <= s->run; i += LANES) {
            lanes_load(&v, x + i);
            v = (v - m) * a + b;
            if (relu) lanes_relu(&v);
            lanes_store(y + i, &v);
        }
        if (i == s->run) continue;
        lanes_load_some(&v, x + i, s->run - i, &m);
        v = (v - m) * a + b;
        if (relu) lanes_relu(&v);
        lanes_store_some(y + i, &v, s->run - i);
    }
}

LS__CPU_CLONES void ls__cpu_strip_apply(const float *x, float *y, const strip *s,
                                        const float mean[STRIP_LANES],
                                        const float scale[STRIP_LANES],
                                        const float bias[STRIP_LANES], bool relu)
{
    if (relu)
        apply(x, y, s, mean, scale, bias, true);
    else
        apply(x, y, s, mean, scale, bias, false);
}

LS__CPU_CLONES void ls__cpu_strip_combine(const float *g, const float *x, float *dx, const strip *s,
                                          const float mean_g[STRIP_LANES],
                                          const float mean[STRIP_LANES], const float a[STRIP_LANES],
                                          const float b[STRIP_LANES])
{
    lanes mg, mx, va, vb, vg, vx;
    lanes_load(&mg, mean_g);
    lanes_load(&mx, mean);
    lanes_load(&va, a);
    lanes_load(&vb, b);
    for (int64_t n = 0; n < s->samples; n++) {
        int64_t at = n * s->from_sample, end = at + s->run;
        for (; at + LANES <= end; at += LANES) {
            lanes_load(&vg, g + at);
            lanes_load(&vx, x + at);
            vg = (vg - mg) * va + (vx - mx) * vb;
            lanes_store(dx + at, &vg);
        }
        if (at == end) continue;
        lanes_load_some(&vg, g + at, end - at, &mg);
        lanes_load_some(&vx, x + at, end - at, &mx);
        vg = (vg - mg) * va + (vx - mx) * vb;
        lanes_store_some(dx + at, &vg, end - at);
    }
}
