/* Activations with a curve, forward and backward, sixteen elements at a time.
 *
 * The loops are bound by arithmetic, not by memory, so a kind is a function of its own and not a
 * branch per element, and this file is compiled with contraction: multiply and add as one
 * instruction take a quarter of the time away. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/lanes_curve.h"
#include "backend/cpu/lanes_half.h"

/* (n) each, of floats or of bf16 */
typedef void curve_fn(const void *x, void *y, int64_t n);
typedef void slope_fn(const void *g, const void *x, void *dx, int64_t n);

typedef struct activation {
    cpu_extent rows;
    int64_t each; /* elements of a row */
    curve_fn *curve;
    slope_fn *slope;
} activation;

/* --- loops --- */

LANES_INLINE void curve_all(ls__activation_kind kind, const float *x, float *y, int64_t n)
{
    const lanes zero = { 0 };
    lanes v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        lanes_curve(kind, &v);
        lanes_store(y + i, &v);
    }
    if (i == n) return;
    lanes_load_some(&v, x + i, n - i, &zero);
    lanes_curve(kind, &v);
    lanes_store_some(y + i, &v, n - i);
}

LANES_INLINE void slope_all(ls__activation_kind kind, const float *g, const float *x, float *dx,
                            int64_t n)
{
    const lanes zero = { 0 };
    lanes v, d;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_load(&v, x + i);
        lanes_load(&d, g + i);
        lanes_slope(kind, &v, &d);
        lanes_store(dx + i, &d);
    }
    if (i == n) return;
    lanes_load_some(&v, x + i, n - i, &zero);
    lanes_load_some(&d, g + i, n - i, &zero);
    lanes_slope(kind, &v, &d);
    lanes_store_some(dx + i, &d, n - i);
}

enum { PAIRS = 2 * LANES };

/* 32 at once */
LANES_INLINE void curve_pairs(ls__activation_kind kind, const uint16_t *x, uint16_t *y)
{
    lanes even, odd;
    lanes_load_pairs(&even, &odd, x);
    lanes_curve(kind, &even);
    lanes_curve(kind, &odd);
    lanes_store_pairs(y, &even, &odd);
}

LANES_INLINE void slope_pairs(ls__activation_kind kind, const uint16_t *g, const uint16_t *x,
                              uint16_t *dx)
{
    lanes even, odd, d_even, d_odd;
    lanes_load_pairs(&even, &odd, x);
    lanes_load_pairs(&d_even, &d_odd, g);
    lanes_slope(kind, &even, &d_even);
    lanes_slope(kind, &odd, &d_odd);
    lanes_store_pairs(dx, &d_even, &d_odd);
}

LANES_INLINE void curve_half(ls__activation_kind kind, const uint16_t *x, uint16_t *y, int64_t n)
{
    uint16_t in[PAIRS] = { 0 }, out[PAIRS];
    int64_t i = 0;
    for (; i + PAIRS <= n; i += PAIRS) curve_pairs(kind, x + i, y + i);
    if (i == n) return;
    memcpy(in, x + i, (size_t)(n - i) * sizeof *in);
    curve_pairs(kind, in, out);
    memcpy(y + i, out, (size_t)(n - i) * sizeof *out);
}

LANES_INLINE void slope_half(ls__activation_kind kind, const uint16_t *g, const uint16_t *x,
                             uint16_t *dx, int64_t n)
{
    uint16_t in[PAIRS] = { 0 }, grad[PAIRS] = { 0 }, out[PAIRS];
    int64_t i = 0;
    for (; i + PAIRS <= n; i += PAIRS) slope_pairs(kind, g + i, x + i, dx + i);
    if (i == n) return;
    memcpy(in, x + i, (size_t)(n - i) * sizeof *in);
    memcpy(grad, g + i, (size_t)(n - i) * sizeof *grad);
    slope_pairs(kind, grad, in, out);
    memcpy(dx + i, out, (size_t)(n - i) * sizeof *out);
}

#define LOOPS(name, kind)                                                                          \
    LS__CPU_CLONES static void name(const void *x, void *y, int64_t n)                             \
    {                                                                                              \
        curve_all(kind, x, y, n);                                                                  \
    }                                                                                              \
    LS__CPU_CLONES static void name##_half(const void *x, void *y, int64_t n)                      \
    {                                                                                              \
        curve_half(kind, x, y, n);                                                                 \
    }                                                                                              \
    LS__CPU_CLONES static void name##_slope(const void *g, const void *x, void *dx, int64_t n)     \
    {                                                                                              \
        slope_all(kind, g, x, dx, n);                                                              \
    }                                                                                              \
    LS__CPU_CLONES static void name##_half_slope(const void *g, const void *x, void *dx,           \
                                                 int64_t n)                                        \
    {                                                                                              \
        slope_half(kind, g, x, dx, n);                                                             \
    }
LOOPS(gelu, LS__ACTIVATION_GELU)
LOOPS(gelu_tanh, LS__ACTIVATION_GELU_TANH)
LOOPS(silu, LS__ACTIVATION_SILU)
LOOPS(hyperbolic, LS__ACTIVATION_TANH)
LOOPS(sigmoid, LS__ACTIVATION_SIGMOID)
#undef LOOPS

static void choose(activation *a, ls__activation_kind kind, bool half)
{
    static curve_fn *const curves[][2] = { { gelu, gelu_half },
                                           { gelu_tanh, gelu_tanh_half },
                                           { silu, silu_half },
                                           { hyperbolic, hyperbolic_half },
                                           { sigmoid, sigmoid_half } };
    static slope_fn *const slopes[][2] = { { gelu_slope, gelu_half_slope },
                                           { gelu_tanh_slope, gelu_tanh_half_slope },
                                           { silu_slope, silu_half_slope },
                                           { hyperbolic_slope, hyperbolic_half_slope },
                                           { sigmoid_slope, sigmoid_half_slope } };
    a->curve = curves[kind][half];
    a->slope = slopes[kind][half];
}

/* --- steps --- */

static void run_activation(const cpu_call *call)
{
    const activation *a = call->step->state;
    a->curve(ls__cpu_at(call, 0), ls__cpu_at(call, 1),
             ls__cpu_extent_rows(call, &a->rows) * a->each);
}

static void run_activation_grad(const cpu_call *call)
{
    const activation *a = call->step->state;
    a->slope(ls__cpu_at(call, 0), ls__cpu_at(call, 1), ls__cpu_at(call, 2),
             ls__cpu_extent_rows(call, &a->rows) * a->each);
}

/* What the node reads and writes, if all of it is stored as bf16; else f32. */
static cpu_layout layout_of(const ls__node *node)
{
    cpu_layout layout = ls__cpu_stored_layout(node->out[0]);
    for (int i = 0; i < node->nin; i++)
        if (ls__cpu_stored_layout(node->in[i]) == CPU_PLAIN) layout = CPU_PLAIN;
    return layout;
}

/* The output lies over the first input where nobody reads that again. */
static ls_status lower(cpu_builder *b, const cpu_task *task, void (*run)(const cpu_call *call))
{
    const ls__node *node = task->node;
    const ls__activation_attributes *attributes = node->attributes;
    const ls_tensor *first = node->in[0];
    cpu_layout layout = layout_of(node);
    bool tiled = true;
    int buffers[3];
    for (int i = 0; i < node->nin; i++) {
        tiled = tiled && ls__cpu_tiled(b, node->in[i]);
        LS_TRY(ls__cpu_read(b, node->in[i], layout, &buffers[i]));
    }
    LS_TRY(ls__cpu_write_over(b, task->out, layout, tiled, first, buffers[0], &buffers[node->nin]));
    activation *a = ls__alloc(1, sizeof *a);
    if (!a) return LS_ERR_MEMORY;
    a->rows = ls__cpu_extent(b, first);
    a->each = ls__cpu_count(first) / a->rows.all;
    choose(a, (ls__activation_kind)attributes->kind, layout == CPU_HALF);
    cpu_step_spec spec = { .run = run, .state = a, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}

ls_status ls__cpu_activation(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, run_activation);
}

ls_status ls__cpu_activation_grad(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, run_activation_grad);
}
