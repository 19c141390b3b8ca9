/* Layer norm and RMS norm: rows of a few hundred to a few thousand floats, a group at a time.
 *
 * A group's rows are read from the tile's memory once and stay in the first-level cache for the
 * passes that follow (mean, deviations, result). Between two passes a row waits for its sum, a
 * division and a root, one after the other; rows of a group wait together. A row's bits do not
 * depend on its group. The gradients of weight and bias are column sums: four rows at a time go
 * through the columns, so that the sums are loaded and stored once for four; rows are added one by
 * one. Each lane has its own, a finisher adds them. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_half.h"

#include <math.h>

enum {
    ROWS = 16,              /* of a group of the forward pass, at most; a multiple of 4 */
    GROUP_BYTES = 16 << 10, /* the rows of x: half of a small first-level cache */
    GROUP = 4,              /* rows of the backward pass */
};

typedef struct row_norm {
    cpu_extent rows;
    int64_t each; /* rows of the norm in a row of x's first dimension */
    int64_t width;
    double epsilon;
    bool biased; /* forward: bias is added; backward: its gradient is wanted */
    bool half;   /* forward: y is bf16; backward: g */
} row_norm;

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

/* --- forward --- */

LANES_INLINE void sum_row(const float *x, int64_t n, lanes *sum)
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
    *sum = even + odd;
}

/* Of (x - mean)^2. */
LANES_INLINE void sum_squares(const float *x, int64_t n, const lanes *mean, lanes *sum)
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
    *sum = even + odd;
}

/* y = (x - mean) inverse weight + bias in sixteen columns, or in the n that are left. */
LANES_INLINE void scale_columns(const row_set *s, int64_t r, bool half, int64_t i, int64_t n,
                                const lanes *mean, float inverse)
{
    const lanes zero = { 0 };
    int64_t at = r * s->width + i;
    lanes v, w, b = { 0 };
    lanes_load_rest(&v, s->x + at, n, &zero);
    lanes_load_rest(&w, s->weight + i, n, &zero);
    if (s->bias) lanes_load_rest(&b, s->bias + i, n, &zero);
    v = (v - *mean) * inverse * w + b;
    lanes_store_any(s->y, half, at, n, &v);
}

LANES_INLINE void scale_row(const row_set *s, int64_t r, bool half, const lanes *mean,
                            float inverse)
{
    int64_t i = 0;
    for (; i + LANES <= s->width; i += LANES) scale_columns(s, r, half, i, LANES, mean, inverse);
    if (i < s->width) scale_columns(s, r, half, i, s->width - i, mean, inverse);
}

/* Of four rows at a time, whether or not all of them are there: one division does for all. */
LANES_INLINE void means_of(const lanes sum[ROWS], int rows, double n, float mean[ROWS])
{
    for (int k = 0; k < rows; k += 4) {
        lanes_totals(sum + k, mean + k);
        for (int i = k; i < k + 4; i++) mean[i] = (float)((double)mean[i] / n);
    }
}

LANES_INLINE void inverses_of(const lanes sum[ROWS], int rows, double n, double epsilon,
                              float inverse[ROWS])
{
    for (int k = 0; k < rows; k += 4) {
        lanes_totals(sum + k, inverse + k);
        for (int i = k; i < k + 4; i++)
            inverse[i] = (float)(1.0 / sqrt((double)inverse[i] / n + epsilon));
    }
}

LANES_INLINE void norm_group(const row_set *s, int64_t r, int rows, bool centred, bool half)
{
    const float *x = s->x + r * s->width;
    lanes sum[ROWS] = { 0 };
    float mean[ROWS] = { 0 }, inverse[ROWS];
    if (centred) {
        for (int k = 0; k < rows; k++) sum_row(x + k * s->width, s->width, &sum[k]);
        means_of(sum, rows, (double)s->width, mean);
        memcpy(s->mean + r, mean, (size_t)rows * sizeof *mean);
    }
    for (int k = 0; k < rows; k++) {
        lanes middle = LANES_OF(mean[k]);
        sum_squares(x + k * s->width, s->width, &middle, &sum[k]);
    }
    inverses_of(sum, rows, (double)s->width, s->epsilon, inverse);
    memcpy(s->inverse + r, inverse, (size_t)rows * sizeof *inverse);
    for (int k = 0; k < rows; k++) {
        lanes middle = LANES_OF(mean[k]);
        scale_row(s, r + k, half, &middle, inverse[k]);
    }
}

LANES_INLINE void norm_rows(const row_set *set, bool centred, bool half)
{
    const row_set s = *set; /* a copy that no store can change stays in registers */
    int64_t fit = GROUP_BYTES / (s.width * (int64_t)sizeof *s.x), rows;
    fit = fit < 1 ? 1 : fit > ROWS ? ROWS : fit;
    for (int64_t r = 0; r < s.rows; r += rows) {
        rows = s.rows - r < fit ? s.rows - r : fit;
        norm_group(&s, r, (int)rows, centred, half);
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

/* Adds sixteen columns of a row, or the n that are left, to the sums of u and u h. */
LANES_INLINE void slope_columns(const row_set *s, int64_t r, bool centred, bool half, int64_t i,
                                int64_t n, const lanes *mean, lanes *sum, lanes *product)
{
    const lanes zero = { 0 };
    int64_t at = r * s->width + i;
    lanes vg, vx, w;
    lanes_load_any(&vg, s->g, half, at, n, &zero);
    lanes_load_rest(&vx, s->x + at, n, mean);
    lanes_load_rest(&w, s->weight + i, n, &zero);
    vg *= w;
    if (centred) *sum += vg;
    *product += vg * (vx - *mean);
}

LANES_INLINE void slope_row(const row_set *s, int64_t r, bool centred, bool half, const lanes *mean,
                            lanes *sum, lanes *product)
{
    int64_t i = 0;
    for (; i + LANES <= s->width; i += LANES)
        slope_columns(s, r, centred, half, i, LANES, mean, sum, product);
    if (i < s->width) slope_columns(s, r, centred, half, i, s->width - i, mean, sum, product);
}

/* rows: a constant where this is inlined, as below. */
LANES_INLINE void slopes_of(const row_set *s, int64_t r, const int rows, bool centred, bool half,
                            row_slope *out)
{
    const lanes zero = { 0 };
    const double n = (double)s->width;
    lanes sum[GROUP] = { 0 }, product[GROUP] = { 0 };
    float total[GROUP] = { 0 }, products[GROUP], inverse[GROUP] = { 0 };
    for (int k = 0; k < rows; k++) {
        inverse[k] = s->inverse[r + k];
        out[k].inverse = zero + inverse[k];
        out[k].mean = zero + (centred ? s->mean[r + k] : 0);
        slope_row(s, r + k, centred, half, &out[k].mean, &sum[k], &product[k]);
    }
    if (centred) lanes_totals(sum, total);
    lanes_totals(product, products);
    for (int k = 0; k < GROUP; k++) {
        total[k] = (float)((double)total[k] / n);
        products[k] = (float)((double)products[k] * (double)inverse[k] / n);
    }
    for (int k = 0; k < rows; k++) {
        out[k].mean_u = zero + total[k];
        out[k].mean_uh = zero + products[k];
    }
}

/* dx of these rows, and their parts of the column sums, in sixteen columns, or in the n that are
 * left. */
LANES_INLINE void grad_columns(const row_set *s, int64_t r, const int rows, bool half, int64_t i,
                               int64_t n, const row_slope *slope)
{
    const lanes zero = { 0 };
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

LANES_INLINE void grad_group(const row_set *s, int64_t r, const int rows, bool centred, bool half)
{
    row_slope slope[GROUP];
    int64_t i = 0;
    slopes_of(s, r, rows, centred, half, slope);
    for (; i + LANES <= s->width; i += LANES) grad_columns(s, r, rows, half, i, LANES, slope);
    if (i < s->width) grad_columns(s, r, rows, half, i, s->width - i, slope);
}

LANES_INLINE void grad_rows(const row_set *set, bool centred, bool half)
{
    const row_set s = *set; /* as in norm_rows */
    int64_t r = 0;
    for (; r + GROUP <= s.rows; r += GROUP) grad_group(&s, r, GROUP, centred, half);
    for (; r < s.rows; r++) grad_group(&s, r, 1, centred, half);
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
