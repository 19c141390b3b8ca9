/* Batch norm over groups of consecutive samples.
 *
 * A tile holds whole groups, so a group's statistics and the pass that uses them find it in the
 * cache. The work is done strip by strip: one block of channels in one group. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/norm_strip.h"

#include <math.h>
#include <string.h>

enum { WIDE = STRIP_LANES };

typedef struct norm {
    int64_t batch; /* rows of x */
    int64_t group;
    int64_t channels, space, blocks;
    int64_t block; /* lanes that lie together */
    double epsilon;
    bool relu;
} norm;

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
                                       .from_sample = sample,
                                       .run = m->block > WIDE ? lanes : m->space * m->block,
                                       .period = (int)(m->block > WIDE ? WIDE : m->block) } };
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

static void repeat(float values[WIDE], int period)
{
    for (int l = period; l < WIDE; l++) values[l] = values[l % period];
}

/* Elements of a channel in the strip. */
static double count_of(const norm *m, const place *p)
{
    return (double)(p->strip.samples * m->space);
}

/* --- training --- */

enum { X, WEIGHT, BIAS, Y, MEAN, INVERSE, VARIANCE };

/* What apply needs, and the statistics that the backward pass and the running ones need. */
static void norm_strip(const cpu_call *call, const norm *m, const place *p)
{
    const float *x = (const float *)ls__cpu_at(call, X) + p->first;
    float *y = (float *)ls__cpu_at(call, Y) + p->first;
    int64_t stats = p->group * m->channels + p->channel;
    float *mean_out = (float *)ls__cpu_at(call, MEAN) + stats;
    float *inverse_out = (float *)ls__cpu_at(call, INVERSE) + stats;
    float *variance_out = (float *)ls__cpu_at(call, VARIANCE) + stats;
    double sum[WIDE], n = count_of(m, p);
    float mean[WIDE], scale[WIDE], weight[WIDE], bias[WIDE];
    load_lanes(ls__cpu_at(call, WEIGHT), p, weight);
    load_lanes(ls__cpu_at(call, BIAS), p, bias);
    ls__cpu_strip_sum(x, &p->strip, sum);
    for (int l = 0; l < WIDE; l++) mean[l] = (float)(sum[l] / n);
    repeat(mean, p->strip.period);
    ls__cpu_strip_squares(x, &p->strip, mean, sum);
    for (int l = 0; l < p->strip.period; l++) {
        double variance = sum[l] / n;
        float inverse = (float)(1.0 / sqrt(variance + m->epsilon));
        scale[l] = inverse * weight[l];
        if (l >= p->lanes) continue;
        mean_out[l] = mean[l];
        inverse_out[l] = inverse;
        variance_out[l] = (float)variance;
    }
    repeat(scale, p->strip.period);
    repeat(bias, p->strip.period);
    ls__cpu_strip_apply(x, y, &p->strip, mean, scale, bias, m->relu);
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

/* dx = (g - s / n) weight inverse - (x - mean) weight inverse^3 t / n, where t = sum of g (x -
 * mean). */
static void grad_one_strip(const cpu_call *call, const norm *m, const place *p)
{
    const float *g = (const float *)ls__cpu_at(call, GRAD) + p->first;
    const float *x = (const float *)ls__cpu_at(call, GRAD_X) + p->first;
    float *dx = (float *)ls__cpu_at(call, DX) + p->first;
    int64_t stats = p->group * m->channels;
    float *sum_g_out = (float *)ls__cpu_at(call, SUM_GRAD) + stats + p->channel;
    float *sum_gh_out = (float *)ls__cpu_at(call, SUM_GRAD_H) + stats + p->channel;
    float weight[WIDE], mean[WIDE], inverse[WIDE], mean_g[WIDE], a[WIDE], b[WIDE];
    double sum_g[WIDE], sum_gx[WIDE], n = count_of(m, p);
    load_lanes(ls__cpu_at(call, GRAD_WEIGHT), p, weight);
    load_lanes((const float *)ls__cpu_at(call, GRAD_MEAN) + stats, p, mean);
    load_lanes((const float *)ls__cpu_at(call, GRAD_INVERSE) + stats, p, inverse);
    repeat(mean, p->strip.period);
    ls__cpu_strip_products(g, x, &p->strip, mean, sum_g, sum_gx);
    for (int l = 0; l < p->strip.period; l++) {
        double scale = (double)weight[l] * (double)inverse[l];
        double sum_gh = sum_gx[l] * (double)inverse[l];
        mean_g[l] = (float)(sum_g[l] / n);
        a[l] = (float)scale;
        b[l] = (float)(-scale * (double)inverse[l] * sum_gh / n);
        if (l >= p->lanes) continue;
        sum_g_out[l] = (float)sum_g[l];
        sum_gh_out[l] = (float)sum_gh;
    }
    repeat(mean_g, p->strip.period);
    repeat(a, p->strip.period);
    repeat(b, p->strip.period);
    ls__cpu_strip_combine(g, x, dx, &p->strip, mean_g, mean, a, b);
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
    float weight[WIDE], bias[WIDE], mean[WIDE], variance[WIDE], scale[WIDE];
    load_lanes(ls__cpu_at(call, 1), p, weight);
    load_lanes(ls__cpu_at(call, 2), p, bias);
    load_lanes(ls__cpu_at(call, 3), p, mean);
    load_lanes(ls__cpu_at(call, 4), p, variance);
    for (int l = 0; l < WIDE; l++)
        scale[l] = (float)((double)weight[l] / sqrt((double)variance[l] + m->epsilon));
    repeat(mean, p->strip.period);
    repeat(scale, p->strip.period);
    repeat(bias, p->strip.period);
    ls__cpu_strip_apply(x, y, &p->strip, mean, scale, bias, m->relu);
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
    if (like) b->values[like->id] = ls__cpu_plain_value(*buffer, false);
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
