/* Layer norm and RMS norm: rows of a few hundred to a few thousand floats, one after the other.
 *
 * A row is read from the tile's memory once and stays in the first-level cache for the passes that
 * follow (mean, deviations, result). The gradients of weight and bias are column sums: four rows at
 * a time go through the columns, so that the sums are loaded and stored once for four. Each lane
 * has its own, a finisher adds them. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_half.h"

#include <math.h>

enum { GROUP = 4 }; /* rows of the backward pass */

typedef struct row_norm {
    cpu_extent rows;
    int64_t each; /* rows of the norm in a row of x's first dimension */
    int64_t width;
    double epsilon;
    bool biased; /* forward: bias is added; backward: its gradient is wanted */
    bool half;   /* forward: y is bf16; backward: g */
} row_norm;

/* --- forward --- */

LANES_INLINE float mean_of(const float *x, int64_t n)
{
    lanes even = { 0 }, odd = { 0 }, v;
    const lanes zero = { 0 };
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lanes_load(&v, x + i);
        even += v;
        lanes_load(&v, x + i + LANES);
        odd += v;
    }
    for (; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, &zero);
        even += v;
    }
    even += odd;
    return (float)((double)lanes_total(&even) / (double)n);
}

/* The mean of (x - mean)^2. */
LANES_INLINE double variance_of(const float *x, int64_t n, const lanes *mean)
{
    lanes even = { 0 }, odd = { 0 }, v;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        lanes_load(&v, x + i);
        v -= *mean;
        even += v * v;
        lanes_load(&v, x + i + LANES);
        v -= *mean;
        odd += v * v;
    }
    for (; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, mean);
        v -= *mean;
        even += v * v;
    }
    even += odd;
    return (double)lanes_total(&even) / (double)n;
}

/* y = (x - mean) inverse weight + bias */
LANES_INLINE void scale_row(const float *x, const float *weight, const float *bias, void *y,
                            bool half, int64_t at, int64_t n, const lanes *mean, float inverse)
{
    const lanes zero = { 0 };
    lanes v, w, b = { 0 };
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, &zero);
        lanes_load_rest(&w, weight + i, n - i, &zero);
        if (bias) lanes_load_rest(&b, bias + i, n - i, &zero);
        v = (v - *mean) * inverse * w + b;
        lanes_store_any(y, half, at + i, n - i, &v);
    }
}

/* What a call reads and writes; NULL = not there. */
typedef struct row_set {
    const void *g;                  /* (rows, width) of floats or bf16 */
    const float *x, *weight, *bias; /* (rows, width), (width) */
    void *y;                        /* (rows, width) of floats or bf16 */
    float *dx;                      /* (rows, width) */
    float *mean, *inverse;          /* (rows) */
    float *dweight, *dbias;         /* (width) added to */
    int64_t rows, width;
    double epsilon;
} row_set;

LANES_INLINE void norm_rows(const row_set *s, bool centred, bool half)
{
    for (int64_t r = 0; r < s->rows; r++) {
        const float *x = s->x + r * s->width;
        float middle = centred ? mean_of(x, s->width) : 0;
        lanes mean = (lanes) { 0 } + middle;
        float inverse = (float)(1.0 / sqrt(variance_of(x, s->width, &mean) + s->epsilon));
        scale_row(x, s->weight, s->bias, s->y, half, r * s->width, s->width, &mean, inverse);
        if (centred) s->mean[r] = middle;
        s->inverse[r] = inverse;
    }
}

LS__CPU_CLONES static void layer_norm_rows(const row_set *s)
{
    norm_rows(s, true, false);
}

LS__CPU_CLONES static void layer_norm_to_half(const row_set *s)
{
    norm_rows(s, true, true);
}

LS__CPU_CLONES static void rms_norm_rows(const row_set *s)
{
    norm_rows(s, false, false);
}

LS__CPU_CLONES static void rms_norm_to_half(const row_set *s)
{
    norm_rows(s, false, true);
}

/* --- backward --- */

/* Of one row: what to subtract from g weight, times inverse. */
typedef struct row_slope {
    lanes mean, inverse;
    lanes mean_u, mean_uh;
} row_slope;

LANES_INLINE void slope_of(const row_set *s, int64_t r, bool centred, bool half, row_slope *out)
{
    const lanes zero = { 0 };
    const float *x = s->x + r * s->width;
    float middle = centred ? s->mean[r] : 0, inverse = s->inverse[r];
    lanes mean = zero + middle, sum = zero, product = zero, vg, vx, w;
    for (int64_t i = 0; i < s->width; i += LANES) {
        int64_t n = s->width - i;
        lanes_load_any(&vg, s->g, half, r * s->width + i, n, &zero);
        lanes_load_rest(&vx, x + i, n, &mean);
        lanes_load_rest(&w, s->weight + i, n, &zero);
        vg *= w;
        if (centred) sum += vg;
        product += vg * (vx - mean);
    }
    double n = (double)s->width, uh = (double)lanes_total(&product) * (double)inverse;
    out->mean = mean;
    out->inverse = zero + inverse;
    out->mean_u = zero + (float)(centred ? (double)lanes_total(&sum) / n : 0);
    out->mean_uh = zero + (float)(uh / n);
}

/* dx of `rows` rows from row r on, and their parts of the column sums. */
LANES_INLINE void slope_rows(const row_set *s, int64_t r, int rows, bool half,
                             const row_slope *slope)
{
    const lanes zero = { 0 };
    for (int64_t i = 0; i < s->width; i += LANES) {
        int64_t n = s->width - i;
        lanes w, dweight, dbias = { 0 };
        lanes_load_rest(&w, s->weight + i, n, &zero);
        lanes_load_rest(&dweight, s->dweight + i, n, &zero);
        if (s->dbias) lanes_load_rest(&dbias, s->dbias + i, n, &zero);
        for (int k = 0; k < rows; k++) {
            int64_t at = (r + k) * s->width + i;
            lanes g, h;
            lanes_load_any(&g, s->g, half, at, n, &zero);
            lanes_load_rest(&h, s->x + at, n, &slope[k].mean);
            h = (h - slope[k].mean) * slope[k].inverse;
            dweight += g * h;
            dbias += g;
            g = slope[k].inverse * (g * w - slope[k].mean_u - h * slope[k].mean_uh);
            lanes_store_rest(s->dx + at, &g, n);
        }
        lanes_store_rest(s->dweight + i, &dweight, n);
        if (s->dbias) lanes_store_rest(s->dbias + i, &dbias, n);
    }
}

LANES_INLINE void grad_rows(const row_set *s, bool centred, bool half)
{
    row_slope slope[GROUP];
    int64_t r = 0;
    for (; r + GROUP <= s->rows; r += GROUP) {
        for (int k = 0; k < GROUP; k++) slope_of(s, r + k, centred, half, &slope[k]);
        slope_rows(s, r, GROUP, half, slope);
    }
    for (; r < s->rows; r++) {
        slope_of(s, r, centred, half, slope);
        slope_rows(s, r, 1, half, slope);
    }
}

LS__CPU_CLONES static void layer_norm_grad_rows(const row_set *s)
{
    grad_rows(s, true, false);
}

LS__CPU_CLONES static void layer_norm_grad_of_half(const row_set *s)
{
    grad_rows(s, true, true);
}

LS__CPU_CLONES static void rms_norm_grad_rows(const row_set *s)
{
    grad_rows(s, false, false);
}

LS__CPU_CLONES static void rms_norm_grad_of_half(const row_set *s)
{
    grad_rows(s, false, true);
}

/* --- steps --- */

static row_set set_of(const cpu_call *call)
{
    const row_norm *m = call->step->state;
    return (row_set) { .rows = ls__cpu_extent_rows(call, &m->rows) * m->each,
                       .width = m->width,
                       .epsilon = m->epsilon };
}

static void run_layer_norm(const cpu_call *call)
{
    const row_norm *m = call->step->state;
    row_set s = set_of(call);
    s.x = ls__cpu_at(call, 0);
    s.weight = ls__cpu_at(call, 1);
    s.y = ls__cpu_at(call, 2);
    s.mean = ls__cpu_at(call, 3);
    s.inverse = ls__cpu_at(call, 4);
    if (m->biased) s.bias = ls__cpu_at(call, 5);
    if (m->half)
        layer_norm_to_half(&s);
    else
        layer_norm_rows(&s);
}

static void run_rms_norm(const cpu_call *call)
{
    const row_norm *m = call->step->state;
    row_set s = set_of(call);
    s.x = ls__cpu_at(call, 0);
    s.weight = ls__cpu_at(call, 1);
    s.y = ls__cpu_at(call, 2);
    s.inverse = ls__cpu_at(call, 3);
    if (m->half)
        rms_norm_to_half(&s);
    else
        rms_norm_rows(&s);
}

/* The sums begin as zeros with a lane's first tile. */
static float *sums(const cpu_call *call, int i, int64_t width)
{
    float *out = ls__cpu_at(call, i);
    if (call->lane_begins || !call->step->tiled) memset(out, 0, (size_t)width * sizeof *out);
    return out;
}

static void run_layer_norm_grad(const cpu_call *call)
{
    const row_norm *m = call->step->state;
    row_set s = set_of(call);
    s.g = ls__cpu_at(call, 0);
    s.x = ls__cpu_at(call, 1);
    s.weight = ls__cpu_at(call, 2);
    s.mean = ls__cpu_at(call, 3);
    s.inverse = ls__cpu_at(call, 4);
    s.dx = ls__cpu_at(call, 5);
    s.dweight = sums(call, 6, m->width);
    if (m->biased) s.dbias = sums(call, 7, m->width);
    if (m->half)
        layer_norm_grad_of_half(&s);
    else
        layer_norm_grad_rows(&s);
}

static void run_rms_norm_grad(const cpu_call *call)
{
    const row_norm *m = call->step->state;
    row_set s = set_of(call);
    s.g = ls__cpu_at(call, 0);
    s.x = ls__cpu_at(call, 1);
    s.weight = ls__cpu_at(call, 2);
    s.inverse = ls__cpu_at(call, 3);
    s.dx = ls__cpu_at(call, 4);
    s.dweight = sums(call, 5, m->width);
    if (m->half)
        rms_norm_grad_of_half(&s);
    else
        rms_norm_grad_rows(&s);
}

/* --- lowering --- */

/* layout: of y, or of g */
static ls_status add_step(cpu_builder *b, const cpu_task *task, const ls_tensor *x,
                          cpu_layout layout, bool biased, void (*run)(const cpu_call *call),
                          bool tiled, const int *buffers, int n)
{
    const ls__norm_attributes *a = task->node->attributes;
    row_norm *m = ls__alloc(1, sizeof *m);
    if (!m) return LS_ERR_MEMORY;
    *m = (row_norm) { .rows = ls__cpu_extent(b, x),
                      .width = x->shape[x->rank - 1],
                      .epsilon = a->epsilon,
                      .biased = biased,
                      .half = layout == CPU_HALF };
    if (x->rank == 1) m->rows = (cpu_extent) { .all = 1 };
    m->each = ls__cpu_count(x) / m->width / m->rows.all;
    cpu_step_spec spec = { .run = run, .state = m, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, n);
}

/* Inputs of a gradient, g in this layout; true in *tiled when all rows are cut by samples. */
static ls_status read_rows(cpu_builder *b, const ls__node *node, cpu_layout layout, int *buffers,
                           bool *tiled)
{
    const int weight = 2;
    *tiled = true;
    for (int i = 0; i < node->nin; i++) {
        if (i != weight) *tiled = *tiled && ls__cpu_tiled(b, node->in[i]);
        LS_TRY(ls__cpu_read(b, node->in[i], i == 0 ? layout : CPU_PLAIN, &buffers[i]));
    }
    return LS_OK;
}

ls_status ls__cpu_layer_norm(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0];
    cpu_layout layout = ls__cpu_stored_layout(task->out);
    bool tiled = ls__cpu_tiled(b, x) && x->rank > 1, biased = node->nin == 3;
    int buffers[6];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_read(b, node->in[1], CPU_PLAIN, &buffers[1]));
    if (biased) LS_TRY(ls__cpu_read(b, node->in[2], CPU_PLAIN, &buffers[5]));
    LS_TRY(ls__cpu_write_over(b, task->out, layout, tiled, x, buffers[0], &buffers[2]));
    LS_TRY(ls__cpu_write(b, node->out[1], CPU_PLAIN, tiled, &buffers[3]));
    LS_TRY(ls__cpu_write(b, node->out[2], CPU_PLAIN, tiled, &buffers[4]));
    return add_step(b, task, x, layout, biased, run_layer_norm, tiled, buffers, biased ? 6 : 5);
}

ls_status ls__cpu_rms_norm(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0];
    cpu_layout layout = ls__cpu_stored_layout(task->out);
    bool tiled = ls__cpu_tiled(b, x) && x->rank > 1;
    int buffers[4];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_read(b, node->in[1], CPU_PLAIN, &buffers[1]));
    LS_TRY(ls__cpu_write_over(b, task->out, layout, tiled, x, buffers[0], &buffers[2]));
    LS_TRY(ls__cpu_write(b, node->out[1], CPU_PLAIN, tiled, &buffers[3]));
    return add_step(b, task, x, layout, false, run_rms_norm, tiled, buffers, 4);
}

/* dx in the memory of g where possible, then the sums */
static ls_status lower_grad(cpu_builder *b, const cpu_task *task, void (*run)(const cpu_call *call))
{
    const ls__node *node = task->node;
    cpu_layout layout = ls__cpu_stored_layout(node->in[0]);
    int buffers[8], n = node->nin;
    bool tiled;
    LS_TRY(read_rows(b, node, layout, buffers, &tiled));
    tiled = tiled && node->in[1]->rank > 1;
    LS_TRY(ls__cpu_write_over(b, node->out[0], CPU_PLAIN, tiled, node->in[0], buffers[0],
                              &buffers[n++]));
    for (int i = 1; i < node->nout; i++)
        LS_TRY(ls__cpu_sum_target(b, node->out[i], tiled, &buffers[n++]));
    return add_step(b, task, node->in[1], layout, node->nout == 3, run, tiled, buffers, n);
}

ls_status ls__cpu_layer_norm_grad(cpu_builder *b, const cpu_task *task)
{
    return lower_grad(b, task, run_layer_norm_grad);
}

ls_status ls__cpu_rms_norm_grad(cpu_builder *b, const cpu_task *task)
{
    return lower_grad(b, task, run_rms_norm_grad);
}
