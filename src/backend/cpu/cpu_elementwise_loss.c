/* mse, binary cross-entropy and smooth L1, element by element. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_math.h"

typedef struct elementwise_loss {
    cpu_extent rows;
    int64_t each; /* elements of a row */
    ls__loss_kind kind;
    float beta;
} elementwise_loss;

LS__CPU_CLONES static void mse(const float *x, const float *target, float *losses, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float d = x[i] - target[i];
        losses[i] = d * d;
    }
}

LS__CPU_CLONES static void mse_grad(const float *g, const float *x, const float *target, float *dx,
                                    int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] = 2 * (x[i] - target[i]) * g[i];
}

LS__CPU_CLONES static void smooth_l1(const float *x, const float *target, float *losses, int64_t n,
                                     float beta)
{
    for (int64_t i = 0; i < n; i++) {
        float d = x[i] - target[i], size = d < 0 ? -d : d;
        losses[i] = size < beta ? 0.5f * d * d / beta : size - 0.5f * beta;
    }
}

LS__CPU_CLONES static void smooth_l1_grad(const float *g, const float *x, const float *target,
                                          float *dx, int64_t n, float beta)
{
    for (int64_t i = 0; i < n; i++) {
        float slope = (x[i] - target[i]) / beta;
        slope = slope > 1 ? 1 : slope < -1 ? -1 : slope;
        dx[i] = slope * g[i];
    }
}

/* x = log(1 + x) for 0 <= x <= 1: 2 artanh(s), s = x / (2 + x) <= 1/3, by its series; what is left
 * out is 1.4e-9 of it. */
LANES_INLINE void lanes_log_of_one_and(lanes *x)
{
    lanes s = *x / (2.0f + *x), z = s * s;
    lanes p = z * (1.0f / 15) + 1.0f / 13;
    p = p * z + 1.0f / 11;
    p = p * z + 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    *x = 2.0f * (s + s * (z * p));
}

LANES_INLINE void bce_of_lanes(lanes *x, const lanes *target)
{
    lanes rest = *x, loss = *x;
    lanes_negative(&rest);
    lanes_exp_falling(&rest);
    lanes_log_of_one_and(&rest);
    lanes_relu(&loss);
    *x = loss - *x * *target + rest;
}

LS__CPU_CLONES static void bce(const float *x, const float *target, float *losses, int64_t n)
{
    const lanes zero = { 0 };
    lanes l, t;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&l, x + i);
        lanes_load(&t, target + i);
        bce_of_lanes(&l, &t);
        lanes_store(losses + i, &l);
    }
    if (i == n) return;
    lanes_load_some(&l, x + i, n - i, &zero);
    lanes_load_some(&t, target + i, n - i, &zero);
    bce_of_lanes(&l, &t);
    lanes_store_some(losses + i, &l, n - i);
}

LANES_INLINE void bce_slope(lanes *x, const lanes *target, const lanes *g)
{
    lanes sigmoid, rest;
    lanes_sigmoid(x, &sigmoid, &rest);
    *x = (sigmoid - *target) * *g;
}

LS__CPU_CLONES static void bce_grad(const float *g, const float *x, const float *target, float *dx,
                                    int64_t n)
{
    const lanes zero = { 0 };
    lanes l, t, slope;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&l, x + i);
        lanes_load(&t, target + i);
        lanes_load(&slope, g + i);
        bce_slope(&l, &t, &slope);
        lanes_store(dx + i, &l);
    }
    if (i == n) return;
    lanes_load_some(&l, x + i, n - i, &zero);
    lanes_load_some(&t, target + i, n - i, &zero);
    lanes_load_some(&slope, g + i, n - i, &zero);
    bce_slope(&l, &t, &slope);
    lanes_store_some(dx + i, &l, n - i);
}

static void run_loss(const cpu_call *call)
{
    const elementwise_loss *s = call->step->state;
    const float *x = ls__cpu_at(call, 0), *target = ls__cpu_at(call, 1);
    float *losses = ls__cpu_at(call, 2);
    int64_t n = ls__cpu_extent_rows(call, &s->rows) * s->each;
    switch (s->kind) {
    case LS__LOSS_MSE:
        mse(x, target, losses, n);
        break;
    case LS__LOSS_BCE:
        bce(x, target, losses, n);
        break;
    case LS__LOSS_SMOOTH_L1:
        smooth_l1(x, target, losses, n, s->beta);
    }
}

static void run_loss_grad(const cpu_call *call)
{
    const elementwise_loss *s = call->step->state;
    const float *g = ls__cpu_at(call, 0), *x = ls__cpu_at(call, 1), *target = ls__cpu_at(call, 2);
    float *dx = ls__cpu_at(call, 3);
    int64_t n = ls__cpu_extent_rows(call, &s->rows) * s->each;
    switch (s->kind) {
    case LS__LOSS_MSE:
        mse_grad(g, x, target, dx, n);
        break;
    case LS__LOSS_BCE:
        bce_grad(g, x, target, dx, n);
        break;
    case LS__LOSS_SMOOTH_L1:
        smooth_l1_grad(g, x, target, dx, n, s->beta);
    }
}

static ls_status lower(cpu_builder *b, const cpu_task *task, void (*run)(const cpu_call *call))
{
    const ls__node *node = task->node;
    const ls__elementwise_loss_attributes *a = node->attributes;
    bool tiled = true;
    int buffers[4];
    for (int i = 0; i < node->nin; i++) {
        LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
        tiled = tiled && ls__cpu_tiled(b, node->in[i]);
    }
    LS_TRY(ls__cpu_write_over(b, task->out, CPU_PLAIN, tiled, node->in[0], buffers[0],
                              &buffers[node->nin]));
    elementwise_loss *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = (elementwise_loss) { .rows = ls__cpu_extent(b, task->out),
                              .kind = (ls__loss_kind)a->kind,
                              .beta = (float)a->beta };
    s->each = ls__cpu_count(task->out) / s->rows.all;
    cpu_step_spec spec = { .run = run, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}

ls_status ls__cpu_elementwise_loss(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, run_loss);
}

ls_status ls__cpu_elementwise_loss_grad(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, run_loss_grad);
}
