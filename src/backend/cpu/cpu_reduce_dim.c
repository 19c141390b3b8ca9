/* reduce: x as (outer, size, inner), of which size goes away. The innermost dimension is summed in
 * sixteen parts; others row by row, so that both read memory in its order. */
#include "backend/cpu/reduce_dim.h"

#include <string.h>

typedef struct reduction {
    ls__reduce_kind kind;
    cpu_extent rows;           /* of dimension 0; one where that goes away */
    int64_t each, size, inner; /* each: outer of a row */
} reduction;

enum { PARTS = 16, BLOCK = 1024 };

LS__CPU_CLONES float ls__cpu_sum_floats(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t from = 0; from < n; from += BLOCK) {
        int64_t end = n - from < BLOCK ? n : from + BLOCK, i = from;
        float part[PARTS] = { 0 };
        for (; i + PARTS <= end; i += PARTS)
            for (int l = 0; l < PARTS; l++) part[l] += x[i + l];
        for (int l = 0; i < end; i++, l++) part[l] += x[i];
        double sum = 0;
        for (int l = 0; l < PARTS; l++) sum += (double)part[l];
        total += sum;
    }
    return (float)total;
}

/* most = x where that is larger or NaN */
static inline __attribute__((always_inline)) void take_larger(float *most, float x)
{
    *most = ((x > *most) | (x != x)) ? x : *most;
}

LS__CPU_CLONES static float largest(const float *x, int64_t n)
{
    float part[PARTS], most = x[0];
    int64_t i = 0;
    for (int l = 0; l < PARTS; l++) part[l] = x[0];
    for (; i + PARTS <= n; i += PARTS)
        for (int l = 0; l < PARTS; l++) take_larger(&part[l], x[i + l]);
    for (; i < n; i++) take_larger(&most, x[i]);
    for (int l = 0; l < PARTS; l++) take_larger(&most, part[l]);
    return most;
}

LS__CPU_CLONES static void larger_of_each(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = ((x[i] > y[i]) | (x[i] != x[i])) ? x[i] : y[i];
}

LS__CPU_CLONES static void divide(float *y, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] /= by;
}

/* x (size, inner) -> y (inner) */
static void reduce_one(const reduction *s, const float *x, float *y)
{
    bool max = s->kind == LS__REDUCE_MAX;
    if (s->inner == 1) {
        *y = max ? largest(x, s->size) : ls__cpu_sum_floats(x, s->size);
    } else {
        memcpy(y, x, (size_t)s->inner * sizeof *y);
        for (int64_t k = 1; k < s->size; k++)
            (max ? larger_of_each : ls__cpu_add_floats)(y, x + k * s->inner, s->inner);
    }
    if (s->kind == LS__REDUCE_MEAN) divide(y, (float)s->size, s->inner);
}

static int64_t outer_of(const cpu_call *call)
{
    const reduction *s = call->step->state;
    return ls__cpu_extent_rows(call, &s->rows) * s->each;
}

static void run_reduce(const cpu_call *call)
{
    const reduction *s = call->step->state;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    int64_t outer = outer_of(call);
    for (int64_t o = 0; o < outer; o++) reduce_one(s, x + o * s->size * s->inner, y + o * s->inner);
}

/* --- gradients --- */

LS__CPU_CLONES static void fill(float *dx, float g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] = g;
}

static void run_sum_grad(const cpu_call *call)
{
    const reduction *s = call->step->state;
    const float *g = ls__cpu_at(call, 0);
    float *dx = ls__cpu_at(call, 1);
    int64_t outer = outer_of(call);
    float by = s->kind == LS__REDUCE_MEAN ? (float)s->size : 1;
    for (int64_t o = 0; o < outer; o++, g += s->inner, dx += s->size * s->inner) {
        if (s->inner == 1) {
            fill(dx, *g / by, s->size);
            continue;
        }
        for (int64_t i = 0; i < s->inner; i++) dx[i] = g[i] / by;
        for (int64_t k = 1; k < s->size; k++)
            memcpy(dx + k * s->inner, dx, (size_t)s->inner * sizeof *dx);
    }
}

/* Columns [0, n) of at most BLOCK: g at the first row where x is y, or both are NaN. */
LS__CPU_CLONES static void max_grad(const reduction *s, const float *g, const float *x,
                                    const float *y, float *dx, int64_t n)
{
    int32_t open[BLOCK];
    for (int64_t i = 0; i < n; i++) open[i] = 1;
    for (int64_t k = 0; k < s->size; k++, x += s->inner, dx += s->inner)
        for (int64_t i = 0; i < n; i++) {
            int32_t here = open[i] & ((x[i] == y[i]) | ((x[i] != x[i]) & (y[i] != y[i])));
            dx[i] = here ? g[i] : 0;
            open[i] &= !here;
        }
}

static void run_max_grad(const cpu_call *call)
{
    const reduction *s = call->step->state;
    const float *g = ls__cpu_at(call, 0), *x = ls__cpu_at(call, 1), *y = ls__cpu_at(call, 2);
    float *dx = ls__cpu_at(call, 3);
    int64_t outer = outer_of(call), slab = s->size * s->inner;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < s->inner; i += BLOCK) {
            int64_t n = s->inner - i < BLOCK ? s->inner - i : BLOCK;
            int64_t at = o * s->inner + i;
            max_grad(s, g + at, x + o * slab + i, y + at, dx + o * slab + i, n);
        }
}

/* --- lowering --- */

/* x: the tensor with the dimension that goes away; it decides whether tiles can be cut. */
static ls_status add_step(cpu_builder *b, const cpu_task *task, const ls_tensor *x,
                          void (*run)(const cpu_call *call))
{
    const ls__node *node = task->node;
    const ls__reduce_attributes *a = node->attributes;
    bool tiled = a->dim > 0;
    int buffers[4];
    for (int i = 0; i < node->nin; i++) {
        LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
        tiled = tiled && ls__cpu_tiled(b, node->in[i]);
    }
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, tiled, &buffers[node->nin]));
    reduction *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = (reduction) { .kind = (ls__reduce_kind)a->kind,
                       .rows = { .each = 1, .all = 1 },
                       .each = 1,
                       .size = a->size,
                       .inner = 1 };
    if (a->dim > 0) s->rows = ls__cpu_extent(b, x);
    for (int i = 1; i < a->dim; i++) s->each *= x->shape[i];
    for (int i = (int)a->dim + 1; i < x->rank; i++) s->inner *= x->shape[i];
    cpu_step_spec spec = { .run = run, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}

ls_status ls__cpu_reduce(cpu_builder *b, const cpu_task *task)
{
    return add_step(b, task, task->node->in[0], run_reduce);
}

ls_status ls__cpu_reduce_grad(cpu_builder *b, const cpu_task *task)
{
    return add_step(b, task, task->out, task->node->nin == 3 ? run_max_grad : run_sum_grad);
}
