/* softmax over the last dimension and its gradient, row by row: sums in sixteen parts, then
 * pair by pair. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_math.h"

#include <math.h>

typedef struct softmax {
    cpu_extent rows; /* of the first dimension */
    int64_t each;    /* rows of the last dimension in one of the first */
    int64_t width;
} softmax;

/* A NaN is not the largest here, but makes the sum NaN and with it the row. */
LS__CPU_CLONES static float largest(const float *x, int64_t n)
{
    const lanes lowest = LANES_OF(-INFINITY);
    lanes most = lowest, v;
    float all[LANES];
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, &lowest);
        lanes_raise(&most, &v);
    }
    lanes_store(all, &most);
    for (int l = 1; l < LANES; l++) all[0] = all[l] > all[0] ? all[l] : all[0];
    return all[0];
}

/* y may be x. */
LS__CPU_CLONES static void softmax_row(const float *x, float *y, int64_t n, float most)
{
    const lanes lowest = LANES_OF(-INFINITY), zero = { 0 };
    lanes sum = { 0 }, v;
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&v, x + i, n - i, &lowest);
        v = v - most;
        lanes_exp_falling(&v);
        lanes_store_rest(y + i, &v, n - i);
        sum = sum + v;
    }
    float inverse = 1 / lanes_total(&sum);
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&v, y + i, n - i, &zero);
        v = v * inverse;
        lanes_store_rest(y + i, &v, n - i);
    }
}

/* dx may be g. */
LS__CPU_CLONES static void softmax_grad_row(const float *g, const float *y, float *dx, int64_t n)
{
    const lanes zero = { 0 };
    lanes sum = { 0 }, a, p;
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&a, g + i, n - i, &zero);
        lanes_load_rest(&p, y + i, n - i, &zero);
        sum = sum + a * p;
    }
    float mean = lanes_total(&sum);
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_load_rest(&a, g + i, n - i, &zero);
        lanes_load_rest(&p, y + i, n - i, &zero);
        a = p * (a - mean);
        lanes_store_rest(dx + i, &a, n - i);
    }
}

static int64_t rows_of(const cpu_call *call)
{
    const softmax *s = call->step->state;
    return ls__cpu_extent_rows(call, &s->rows) * s->each;
}

static void run_softmax(const cpu_call *call)
{
    int64_t rows = rows_of(call), n = ((const softmax *)call->step->state)->width;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    for (int64_t r = 0; r < rows; r++) softmax_row(x + r * n, y + r * n, n, largest(x + r * n, n));
}

static void run_softmax_grad(const cpu_call *call)
{
    int64_t rows = rows_of(call), n = ((const softmax *)call->step->state)->width;
    const float *g = ls__cpu_at(call, 0), *y = ls__cpu_at(call, 1);
    float *dx = ls__cpu_at(call, 2);
    for (int64_t r = 0; r < rows; r++) softmax_grad_row(g + r * n, y + r * n, dx + r * n, n);
}

/* --- lowering --- */

/* A vector of rank 1 is one row, which no tile cuts. */
static ls_status add_step(cpu_builder *b, const cpu_task *task, void (*run)(const cpu_call *call))
{
    const ls__node *node = task->node;
    const ls_tensor *x = node->in[0];
    bool tiled = x->rank > 1;
    int buffers[3];
    for (int i = 0; i < node->nin; i++) {
        tiled = tiled && ls__cpu_tiled(b, node->in[i]);
        LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
    }
    LS_TRY(ls__cpu_write_over(b, task->out, CPU_PLAIN, tiled, x, buffers[0], &buffers[node->nin]));
    softmax *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = (softmax) { .width = x->shape[x->rank - 1] };
    s->rows = x->rank > 1 ? ls__cpu_extent(b, x) : (cpu_extent) { .all = 1 };
    s->each = ls__cpu_count(x) / s->width / s->rows.all;
    cpu_step_spec spec = { .run = run, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}

ls_status ls__cpu_softmax(cpu_builder *b, const cpu_task *task)
{
    return add_step(b, task, run_softmax);
}

ls_status ls__cpu_softmax_grad(cpu_builder *b, const cpu_task *task)
{
    return add_step(b, task, run_softmax_grad);
}
