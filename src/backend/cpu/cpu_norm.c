/* Batch norm over groups of consecutive samples.
 *
 * A tensor is seen as (samples, channel blocks, space, lanes): lanes are 16 or 8 channels of the
 * blocked layout, one channel of a plain image, all channels of (B,C). A tile holds whole groups,
 * so a group's statistics, and the second pass over it, find it in the cache. Sums are kept per
 * lane in sixteen partial sums or fewer per sample, then in fp64. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { WIDE = 16 };

typedef struct norm {
    int64_t batch; /* rows of x */
    int64_t group;
    int64_t channels, space, blocks;
    int64_t block; /* lanes that lie together */
    double epsilon;
    bool relu;
} norm;

/* A run of at most 16 lanes of one channel block in consecutive samples. */
typedef struct strip {
    int64_t samples, space;
    int64_t from_sample; /* floats from sample to sample */
    int64_t from_space;
    int lanes;
} strip;

#define INLINE static inline __attribute__((always_inline))

/* --- sums over a strip: f(x) per lane, added in fp64 sample by sample --- */

INLINE void sum_sample(const float *x, const strip *s, int lanes, float sum[WIDE])
{
    float part[2][WIDE] = { 0 };
    for (int64_t i = 0; i < s->space; i++)
        for (int l = 0; l < lanes; l++) part[i & 1][l] += x[i * s->from_space + l];
    for (int l = 0; l < lanes; l++) sum[l] = part[0][l] + part[1][l];
}

INLINE void sum_strip_of(const float *x, const strip *s, int lanes, double sum[WIDE])
{
    float one[WIDE];
    memset(sum, 0, WIDE * sizeof *sum);
    for (int64_t n = 0; n < s->samples; n++) {
        sum_sample(x + n * s->from_sample, s, lanes, one);
        for (int l = 0; l < lanes; l++) sum[l] += (double)one[l];
    }
}

INLINE void squares_strip_of(const float *x, const strip *s, int lanes, const float mean[WIDE],
                             double sum[WIDE])
{
    memset(sum, 0, WIDE * sizeof *sum);
    for (int64_t n = 0; n < s->samples; n++) {
        float part[2][WIDE] = { 0 };
        for (int64_t i = 0; i < s->space; i++) {
            const float *at = x + n * s->from_sample + i * s->from_space;
            for (int l = 0; l < lanes; l++) {
                float d = at[l] - mean[l];
                part[i & 1][l] += d * d;
            }
        }
        for (int l = 0; l < lanes; l++) sum[l] += (double)(part[0][l] + part[1][l]);
    }
}

/* sums of g and of g h, h = (x - mean) inverse */
INLINE void grad_strip_of(const float *g, const float *x, const strip *s, int lanes,
                          const float mean[WIDE], const float inverse[WIDE], double sum[2][WIDE])
{
    memset(sum, 0, 2 * WIDE * sizeof **sum);
    for (int64_t n = 0; n < s->samples; n++) {
        float part[2][WIDE] = { 0 };
        for (int64_t i = 0; i < s->space; i++) {
            int64_t at = n * s->from_sample + i * s->from_space;
            for (int l = 0; l < lanes; l++) {
                part[0][l] += g[at + l];
                part[1][l] += g[at + l] * ((x[at + l] - mean[l]) * inverse[l]);
            }
        }
        for (int l = 0; l < lanes; l++) {
            sum[0][l] += (double)part[0][l];
            sum[1][l] += (double)part[1][l];
        }
    }
}

/* y = x scale + shift */
INLINE void apply_strip_of(const float *x, float *y, const strip *s, int lanes,
                           const float scale[WIDE], const float shift[WIDE], bool relu)
{
    for (int64_t n = 0; n < s->samples; n++) {
        for (int64_t i = 0; i < s->space; i++) {
            int64_t at = n * s->from_sample + i * s->from_space;
            for (int l = 0; l < lanes; l++) {
                float v = x[at + l] * scale[l] + shift[l];
                y[at + l] = relu && v < 0 ? 0 : v;
            }
        }
    }
}

/* dx = a g + b x + c */
INLINE void grad_apply_of(const float *g, const float *x, float *dx, const strip *s, int lanes,
                          const float a[WIDE], const float b[WIDE], const float c[WIDE])
{
    for (int64_t n = 0; n < s->samples; n++) {
        for (int64_t i = 0; i < s->space; i++) {
            int64_t at = n * s->from_sample + i * s->from_space;
            for (int l = 0; l < lanes; l++)
                dx[at + l] = a[l] * g[at + l] + (b[l] * x[at + l] + c[l]);
        }
    }
}

/* Each for sixteen lanes, which is what blocked layouts have, and for any number. */
LS__CPU_CLONES static void sum_strip(const float *x, const strip *s, double sum[WIDE])
{
    if (s->lanes == WIDE && s->from_space == WIDE) {
        strip wide = *s;
        wide.from_space = WIDE;
        sum_strip_of(x, &wide, WIDE, sum);
    } else {
        sum_strip_of(x, s, s->lanes, sum);
    }
}

LS__CPU_CLONES static void squares_strip(const float *x, const strip *s, const float mean[WIDE],
                                         double sum[WIDE])
{
    if (s->lanes == WIDE)
        squares_strip_of(x, s, WIDE, mean, sum);
    else
        squares_strip_of(x, s, s->lanes, mean, sum);
}

LS__CPU_CLONES static void grad_strip(const float *g, const float *x, const strip *s,
                                      const float mean[WIDE], const float inverse[WIDE],
                                      double sum[2][WIDE])
{
    if (s->lanes == WIDE)
        grad_strip_of(g, x, s, WIDE, mean, inverse, sum);
    else
        grad_strip_of(g, x, s, s->lanes, mean, inverse, sum);
}

LS__CPU_CLONES static void apply_strip(const float *x, float *y, const strip *s,
                                       const float scale[WIDE], const float shift[WIDE], bool relu)
{
    if (s->lanes == WIDE)
        apply_strip_of(x, y, s, WIDE, scale, shift, relu);
    else
        apply_strip_of(x, y, s, s->lanes, scale, shift, relu);
}

LS__CPU_CLONES static void grad_apply(const float *g, const float *x, float *dx, const strip *s,
                                      const float a[WIDE], const float b[WIDE], const float c[WIDE])
{
    if (s->lanes == WIDE)
        grad_apply_of(g, x, dx, s, WIDE, a, b, c);
    else
        grad_apply_of(g, x, dx, s, s->lanes, a, b, c);
}

/* --- walking over groups and strips --- */

typedef struct place {
    int64_t first;   /* of the strip's floats in the call's memory */
    int64_t group;   /* in the micro-batch */
    int64_t channel; /* of lane 0 */
    int lanes;       /* real ones: less than the strip's in a filled-up block */
    strip strip;
} place;

typedef void strip_fn(const cpu_call *call, const norm *m, const place *p);

/* [begin, end): rows; a tile's begin with a group */
static void for_strips(const cpu_call *call, const norm *m, int64_t begin, int64_t end,
                       int64_t group, strip_fn *fn)
{
    int64_t sample = m->blocks * m->space * m->block;
    for (int64_t row = begin; row < end; row += group) {
        int64_t samples = end - row < group ? end - row : group;
        for (int64_t c = 0; c < m->blocks; c++) {
            for (int64_t lane = 0; lane < m->block; lane += WIDE) {
                int64_t lanes = m->block - lane < WIDE ? m->block - lane : WIDE;
                int64_t channel = c * m->block + lane, rest = m->channels - channel;
                place p = { .first = (row - begin) * sample + c * m->space * m->block + lane,
                            .group = row / group,
                            .channel = channel,
                            .lanes = (int)(rest < lanes ? rest : lanes),
                            .strip = { .samples = samples,
                                       .space = m->space,
                                       .from_sample = sample,
                                       .from_space = m->block,
                                       .lanes = (int)lanes } };
                fn(call, m, &p);
            }
        }
    }
}

static int64_t end_of(const cpu_call *call, const norm *m)
{
    return call->step->tiled ? call->end : m->batch;
}

/* Values of channels, zeros for the padding's. */
static void load_lanes(const float *from, const place *p, float out[WIDE])
{
    memset(out, 0, WIDE * sizeof *out);
    memcpy(out, from + p->channel, (size_t)p->lanes * sizeof *out);
}

static double count_of(const place *p)
{
    return (double)(p->strip.samples * p->strip.space);
}

/* --- training --- */

enum { X, WEIGHT, BIAS, Y, MEAN, INVERSE, VARIANCE };

static void norm_strip(const cpu_call *call, const norm *m, const place *p)
{
    const float *x = (const float *)ls__cpu_at(call, X) + p->first;
    float *y = (float *)ls__cpu_at(call, Y) + p->first;
    int64_t stats = p->group * m->channels + p->channel;
    float *mean_out = (float *)ls__cpu_at(call, MEAN) + stats;
    float *inverse_out = (float *)ls__cpu_at(call, INVERSE) + stats;
    float *variance_out = (float *)ls__cpu_at(call, VARIANCE) + stats;
    double sum[WIDE];
    float mean[WIDE] = { 0 }, scale[WIDE], shift[WIDE], weight[WIDE], bias[WIDE];
    load_lanes(ls__cpu_at(call, WEIGHT), p, weight);
    load_lanes(ls__cpu_at(call, BIAS), p, bias);
    sum_strip(x, &p->strip, sum);
    for (int l = 0; l < p->strip.lanes; l++) mean[l] = (float)(sum[l] / count_of(p));
    squares_strip(x, &p->strip, mean, sum);
    for (int l = 0; l < p->strip.lanes; l++) {
        double variance = sum[l] / count_of(p);
        float inverse = (float)(1.0 / sqrt(variance + m->epsilon));
        scale[l] = inverse * weight[l];
        shift[l] = bias[l] - mean[l] * scale[l];
        if (l >= p->lanes) continue;
        mean_out[l] = mean[l];
        inverse_out[l] = inverse;
        variance_out[l] = (float)variance;
    }
    apply_strip(x, y, &p->strip, scale, shift, m->relu);
}

static void run_norm(const cpu_call *call)
{
    const norm *m = call->step->state;
    for_strips(call, m, call->begin, end_of(call, m), m->group, norm_strip);
}

/* The sums for the running statistics, over groups in order. */
static void run_statistics(const cpu_call *call)
{
    const norm *m = call->step->state;
    const float *mean = ls__cpu_at(call, 0), *variance = ls__cpu_at(call, 1);
    float *sum_mean = ls__cpu_at(call, 2), *sum_variance = ls__cpu_at(call, 3);
    int64_t groups = (m->batch + m->group - 1) / m->group;
    for (int64_t c = 0; c < m->channels; c++) {
        double means = 0, variances = 0;
        for (int64_t g = 0; g < groups; g++) {
            int64_t left = m->batch - g * m->group;
            double samples = (double)(left < m->group ? left : m->group);
            double n = samples * (double)m->space, unbiased = n / (n > 2 ? n - 1 : 1);
            means += samples * (double)mean[g * m->channels + c];
            variances += samples * unbiased * (double)variance[g * m->channels + c];
        }
        sum_mean[c] = (float)means;
        sum_variance[c] = (float)variances;
    }
}

/* --- gradient --- */

enum { GRAD, GRAD_X, GRAD_WEIGHT, GRAD_MEAN, GRAD_INVERSE, DX, SUM_GRAD, SUM_GRAD_H };

static void grad_one_strip(const cpu_call *call, const norm *m, const place *p)
{
    const float *g = (const float *)ls__cpu_at(call, GRAD) + p->first;
    const float *x = (const float *)ls__cpu_at(call, GRAD_X) + p->first;
    float *dx = (float *)ls__cpu_at(call, DX) + p->first;
    int64_t stats = p->group * m->channels;
    float *sum_g = (float *)ls__cpu_at(call, SUM_GRAD) + stats + p->channel;
    float *sum_gh = (float *)ls__cpu_at(call, SUM_GRAD_H) + stats + p->channel;
    float weight[WIDE], mean[WIDE], inverse[WIDE], a[WIDE], b[WIDE], c[WIDE];
    double sum[2][WIDE], n = count_of(p);
    load_lanes(ls__cpu_at(call, GRAD_WEIGHT), p, weight);
    load_lanes((const float *)ls__cpu_at(call, GRAD_MEAN) + stats, p, mean);
    load_lanes((const float *)ls__cpu_at(call, GRAD_INVERSE) + stats, p, inverse);
    grad_strip(g, x, &p->strip, mean, inverse, sum);
    for (int l = 0; l < p->strip.lanes; l++) {
        double scale = (double)weight[l] * (double)inverse[l];
        double slope = -scale * (double)inverse[l] * sum[1][l] / n;
        a[l] = (float)scale;
        b[l] = (float)slope;
        c[l] = (float)(-scale * sum[0][l] / n - slope * (double)mean[l]);
        if (l >= p->lanes) continue;
        sum_g[l] = (float)sum[0][l];
        sum_gh[l] = (float)sum[1][l];
    }
    grad_apply(g, x, dx, &p->strip, a, b, c);
}

static void run_norm_grad(const cpu_call *call)
{
    const norm *m = call->step->state;
    for_strips(call, m, call->begin, end_of(call, m), m->group, grad_one_strip);
}

static void run_parameter_grads(const cpu_call *call)
{
    const norm *m = call->step->state;
    const float *sum_g = ls__cpu_at(call, 0), *sum_gh = ls__cpu_at(call, 1);
    float *dweight = ls__cpu_at(call, 2), *dbias = ls__cpu_at(call, 3);
    int64_t groups = (m->batch + m->group - 1) / m->group;
    for (int64_t c = 0; c < m->channels; c++) {
        double weight = 0, bias = 0;
        for (int64_t g = 0; g < groups; g++) {
            weight += (double)sum_gh[g * m->channels + c];
            bias += (double)sum_g[g * m->channels + c];
        }
        dweight[c] = (float)weight;
        dbias[c] = (float)bias;
    }
}

/* --- inference --- */

static void inference_strip(const cpu_call *call, const norm *m, const place *p)
{
    const float *x = (const float *)ls__cpu_at(call, 0) + p->first;
    float *y = (float *)ls__cpu_at(call, 5) + p->first;
    float weight[WIDE], bias[WIDE], mean[WIDE], variance[WIDE], scale[WIDE], shift[WIDE];
    load_lanes(ls__cpu_at(call, 1), p, weight);
    load_lanes(ls__cpu_at(call, 2), p, bias);
    load_lanes(ls__cpu_at(call, 3), p, mean);
    load_lanes(ls__cpu_at(call, 4), p, variance);
    for (int l = 0; l < WIDE; l++) {
        scale[l] = (float)((double)weight[l] / sqrt((double)variance[l] + m->epsilon));
        shift[l] = bias[l] - mean[l] * scale[l];
    }
    apply_strip(x, y, &p->strip, scale, shift, m->relu);
}

static void run_inference(const cpu_call *call)
{
    const norm *m = call->step->state;
    int64_t end = end_of(call, m);
    for_strips(call, m, call->begin, end, end - call->begin, inference_strip);
}

/* --- lowering --- */

static norm *make_norm(const cpu_builder *b, const cpu_task *task, const ls_tensor *x,
                       cpu_layout layout)
{
    const ls__batch_norm_attributes *a = task->node->attributes;
    norm *m = ls__alloc(1, sizeof *m);
    if (!m) return NULL;
    *m = (norm) { .batch = x->shape[0],
                  .group = a->group,
                  .channels = x->shape[1],
                  .space = 1,
                  .epsilon = a->epsilon,
                  .relu = task->relu };
    for (int i = 2; i < x->rank; i++) m->space *= x->shape[i];
    m->block = layout == CPU_BLOCKED ? b->program->block : m->space == 1 ? m->channels : 1;
    m->blocks = (m->channels + m->block - 1) / m->block;
    return m;
}

static ls_status add_step(cpu_builder *b, const cpu_task *task, const ls_tensor *x,
                          cpu_layout layout, void (*run)(const cpu_call *call), bool tiled,
                          const int *buffers, int n)
{
    norm *m = make_norm(b, task, x, layout);
    if (!m) return LS_ERR_MEMORY;
    cpu_step_spec spec = { .run = run, .state = m, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, n);
}

/* Two sums over groups, when the tiles are done. */
static ls_status add_sums(cpu_builder *b, const cpu_task *task, const ls_tensor *x,
                          void (*run)(const cpu_call *call), const int from[2],
                          const ls_tensor *const out[2])
{
    int buffers[4] = { from[0], from[1] };
    for (int i = 0; i < 2; i++) LS_TRY(ls__cpu_write(b, out[i], CPU_PLAIN, false, &buffers[2 + i]));
    norm *m = make_norm(b, task, x, CPU_PLAIN);
    if (!m) return LS_ERR_MEMORY;
    cpu_step_spec spec = { .run = run, .state = m, .destroy = ls__free, .whole = true };
    return ls__cpu_finish(b, &spec, buffers, 4, out, 2);
}

/* Memory for (G,C), which tiles fill group by group. */
static ls_status group_values(cpu_builder *b, const ls_tensor *x, const ls_tensor *like,
                              int64_t group, int *buffer)
{
    int64_t groups = (x->shape[0] + group - 1) / group;
    size_t nbytes = (size_t)(groups * x->shape[1]) * sizeof(float);
    LS_TRY(ls__cpu_shared(b, nbytes, 0, buffer));
    if (like) b->values[like->id] = (cpu_value) { .buffer = { *buffer, -1 } };
    return LS_OK;
}

/* A tile must hold whole groups of the micro-batch's samples. */
static bool tiles_fit(const cpu_builder *b, const ls_tensor *x, int64_t group)
{
    const cpu_program *p = b->program;
    return ls__cpu_tiled(b, x) && x->shape[0] == p->batch &&
           (p->tile % group == 0 || p->tile >= p->batch);
}

ls_status ls__cpu_batch_norm(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls__batch_norm_attributes *a = node->attributes;
    const ls_tensor *x = node->in[0];
    cpu_layout layout = ls__cpu_layout_of(b, x);
    bool tiled = tiles_fit(b, x, a->group);
    int buffers[7];
    LS_TRY(ls__cpu_read(b, x, layout, &buffers[X]));
    LS_TRY(ls__cpu_read(b, node->in[1], CPU_PLAIN, &buffers[WEIGHT]));
    LS_TRY(ls__cpu_read(b, node->in[2], CPU_PLAIN, &buffers[BIAS]));
    LS_TRY(ls__cpu_write_over(b, task->out, layout, tiled, x, buffers[X], &buffers[Y]));
    LS_TRY(group_values(b, x, node->out[1], a->group, &buffers[MEAN]));
    LS_TRY(group_values(b, x, node->out[2], a->group, &buffers[INVERSE]));
    LS_TRY(group_values(b, x, NULL, a->group, &buffers[VARIANCE]));
    LS_TRY(add_step(b, task, x, layout, run_norm, tiled, buffers, 7));
    return add_sums(b, task, x, run_statistics, (int[]) { buffers[MEAN], buffers[VARIANCE] },
                    (const ls_tensor *[]) { node->out[3], node->out[4] });
}

ls_status ls__cpu_batch_norm_grad(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls__batch_norm_attributes *a = node->attributes;
    const ls_tensor *g = node->in[0], *x = node->in[1];
    cpu_layout layout = ls__cpu_layout_of(b, x);
    bool tiled = tiles_fit(b, x, a->group) && ls__cpu_tiled(b, g);
    int buffers[8];
    LS_TRY(ls__cpu_read(b, g, layout, &buffers[GRAD]));
    LS_TRY(ls__cpu_read(b, x, layout, &buffers[GRAD_X]));
    for (int i = 2; i < 5; i++) LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
    LS_TRY(ls__cpu_write_over(b, node->out[0], layout, tiled, g, buffers[GRAD], &buffers[DX]));
    LS_TRY(group_values(b, x, NULL, a->group, &buffers[SUM_GRAD]));
    LS_TRY(group_values(b, x, NULL, a->group, &buffers[SUM_GRAD_H]));
    LS_TRY(add_step(b, task, x, layout, run_norm_grad, tiled, buffers, 8));
    return add_sums(b, task, x, run_parameter_grads,
                    (int[]) { buffers[SUM_GRAD], buffers[SUM_GRAD_H] },
                    (const ls_tensor *[]) { node->out[1], node->out[2] });
}

ls_status ls__cpu_batch_norm_inference(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0];
    cpu_layout layout = ls__cpu_layout_of(b, x);
    bool tiled = ls__cpu_tiled(b, x) && x->shape[0] == b->program->batch;
    int buffers[6];
    LS_TRY(ls__cpu_read(b, x, layout, &buffers[0]));
    for (int i = 1; i < 5; i++) LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
    LS_TRY(ls__cpu_write_over(b, task->out, layout, tiled, x, buffers[0], &buffers[5]));
    return add_step(b, task, x, layout, run_inference, tiled, buffers, 6);
}
