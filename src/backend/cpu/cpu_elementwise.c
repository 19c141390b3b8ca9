/* relu, scale, copy: loops over a tile's contiguous memory, in place where nobody reads
 * the input again. Blocked tensors are done with their padding, which stays zero. */
#include "backend/cpu/cpu.h"

#include <string.h>

typedef struct elementwise {
    cpu_extent rows;
    int64_t each; /* elements of a row, padding included */
    size_t size;  /* bytes of an element */
    float factor, offset;
    ls_dtype type;
} elementwise;

LS__CPU_CLONES static void relu(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}

LS__CPU_CLONES static void relu_grad(const float *g, const float *y, float *dx, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] <= 0 ? 0 : g[i];
}

#define SCALE_OF(name, type)                                                                       \
    LS__CPU_CLONES static void name(const type *x, float *y, int64_t n, float factor,              \
                                    float offset)                                                  \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) y[i] = factor * (float)x[i] + offset;                      \
    }
SCALE_OF(scale_f32, float)
SCALE_OF(scale_u8, uint8_t)
SCALE_OF(scale_i32, int32_t)
SCALE_OF(scale_i64, int64_t)
#undef SCALE_OF

static int64_t count_of(const cpu_call *call)
{
    const elementwise *e = call->step->state;
    return ls__cpu_extent_rows(call, &e->rows) * e->each;
}

static void run_relu(const cpu_call *call)
{
    relu(ls__cpu_at(call, 0), ls__cpu_at(call, 1), count_of(call));
}

static void run_relu_grad(const cpu_call *call)
{
    relu_grad(ls__cpu_at(call, 0), ls__cpu_at(call, 1), ls__cpu_at(call, 2), count_of(call));
}

static void run_scale(const cpu_call *call)
{
    const elementwise *e = call->step->state;
    const void *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    int64_t n = count_of(call);
    switch (e->type) {
    case LS_DTYPE_U8:
        scale_u8(x, y, n, e->factor, e->offset);
        break;
    case LS_DTYPE_I32:
        scale_i32(x, y, n, e->factor, e->offset);
        break;
    case LS_DTYPE_I64:
        scale_i64(x, y, n, e->factor, e->offset);
        break;
    default:
        scale_f32(x, y, n, e->factor, e->offset);
    }
}

static void run_copy(const cpu_call *call)
{
    const elementwise *e = call->step->state;
    memmove(ls__cpu_at(call, 1), ls__cpu_at(call, 0), (size_t)count_of(call) * e->size);
}

/* --- lowering --- */

static cpu_layout common_layout(const cpu_builder *b, const ls__node *node)
{
    for (int i = 0; i < node->nin; i++)
        if (ls__cpu_layout_of(b, node->in[i]) == CPU_BLOCKED) return CPU_BLOCKED;
    return CPU_PLAIN;
}

static bool all_tiled(const cpu_builder *b, const ls__node *node)
{
    for (int i = 0; i < node->nin; i++)
        if (!ls__cpu_tiled(b, node->in[i])) return false;
    return true;
}

/* Inputs, then the output in the memory of the first input that may be overwritten. */
static ls_status place(cpu_builder *b, const cpu_task *task, cpu_layout layout, bool tiled,
                       int *buffers)
{
    const ls__node *node = task->node;
    int nin = node->nin, victim = 0;
    for (int i = 0; i < nin; i++) LS_TRY(ls__cpu_read(b, node->in[i], layout, &buffers[i]));
    for (int i = nin - 1; i >= 0; i--)
        if (node->in[i]->role == LS__ROLE_VALUE && b->reads[b->root[node->in[i]->id]] == 1)
            victim = i;
    return ls__cpu_write_over(b, task->out, layout, tiled, node->in[victim], buffers[victim],
                              &buffers[nin]);
}

static ls_status lower(cpu_builder *b, const cpu_task *task, cpu_layout layout,
                       void (*run)(const cpu_call *call), elementwise kind)
{
    const ls_tensor *x = task->node->in[0];
    bool tiled = all_tiled(b, task->node);
    int buffers[3];
    if (ls__cpu_gradient_slot(b, task->out) >= 0) layout = CPU_PLAIN;
    LS_TRY(place(b, task, layout, tiled, buffers));
    elementwise *e = ls__alloc(1, sizeof *e);
    if (!e) return LS_ERR_MEMORY;
    *e = kind;
    e->rows = ls__cpu_extent(b, x);
    e->size = ls_dtype_size(x->type);
    e->type = x->type;
    e->each = (int64_t)(ls__cpu_nbytes(b->program, x, layout) / e->size) / e->rows.all;
    cpu_step_spec spec = { .run = run, .state = e, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, task->node->nin + 1);
}

ls_status ls__cpu_relu(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, common_layout(b, task->node), run_relu, (elementwise) { 0 });
}

ls_status ls__cpu_relu_grad(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, common_layout(b, task->node), run_relu_grad, (elementwise) { 0 });
}

ls_status ls__cpu_scale(cpu_builder *b, const cpu_task *task)
{
    const ls__scale_attributes *a = task->node->attributes;
    bool keeps_padding = a->offset == 0 && task->node->in[0]->type == LS_DTYPE_F32;
    cpu_layout layout = keeps_padding ? common_layout(b, task->node) : CPU_PLAIN;
    return lower(b, task, layout, run_scale,
                 (elementwise) { .factor = a->factor, .offset = a->offset });
}

ls_status ls__cpu_copy(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, CPU_PLAIN, run_copy, (elementwise) { 0 });
}
