/* add, sub, mul, div. Of one shape they are one loop over a tile's contiguous memory, padding of
 * blocked layouts included; otherwise a loop per row, with vectors on both sides or a number on
 * one. In place where nobody reads an input again. */
#include "backend/cpu/broadcast.h"

typedef void binary_fn(const float *a, const float *b, float *y, int64_t n);

typedef struct binary_kernel {
    binary_fn *each, *left, *right; /* b, a may be one number */
} binary_kernel;

typedef struct binary {
    const binary_kernel *kernel;
    bool relu;
    cpu_extent rows;     /* of the output */
    int64_t each;        /* of one shape: elements of a row, padding included */
    cpu_broadcast shape; /* else */
    int64_t moves[2];    /* elements from row to row of an operand that no tile cuts; 0 = cut */
} binary;

#define BINARY_OF(name, operator)                                                                  \
    LS__CPU_CLONES static void name##_each(const float *a, const float *b, float *y, int64_t n)    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) y[i] = a[i] operator b[i];                                 \
    }                                                                                              \
    LS__CPU_CLONES static void name##_left(const float *a, const float *b, float *y, int64_t n)    \
    {                                                                                              \
        float right = *b;                                                                          \
        for (int64_t i = 0; i < n; i++) y[i] = a[i] operator right;                                \
    }                                                                                              \
    LS__CPU_CLONES static void name##_right(const float *a, const float *b, float *y, int64_t n)   \
    {                                                                                              \
        float left = *a;                                                                           \
        for (int64_t i = 0; i < n; i++) y[i] = left operator b[i];                                 \
    }                                                                                              \
    static const binary_kernel name##_kernel = { name##_each, name##_left, name##_right };
BINARY_OF(add, +)
BINARY_OF(sub, -)
BINARY_OF(mul, *)
BINARY_OF(div, /)
#undef BINARY_OF

LS__CPU_CLONES static void add_relu_each(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        y[i] = sum < 0 ? 0 : sum;
    }
}

LS__CPU_CLONES static void rectify(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = y[i] < 0 ? 0 : y[i];
}

static void run_same(const cpu_call *call)
{
    const binary *s = call->step->state;
    binary_fn *fn = s->relu ? add_relu_each : s->kernel->each;
    fn(ls__cpu_at(call, 0), ls__cpu_at(call, 1), ls__cpu_at(call, 2),
       ls__cpu_extent_rows(call, &s->rows) * s->each);
}

static void run_broadcast(const cpu_call *call)
{
    const binary *s = call->step->state;
    int64_t begin = call->begin * s->rows.each;
    const float *a = (const float *)ls__cpu_at(call, 0) + begin * s->moves[0];
    const float *b = (const float *)ls__cpu_at(call, 1) + begin * s->moves[1];
    float *y = ls__cpu_at(call, 2);
    cpu_loops l;
    ls__cpu_loops(&l, &s->shape, ls__cpu_extent_rows(call, &s->rows));
    int64_t n = l.size[l.n - 1];
    bool left = l.stride[0][l.n - 1], right = l.stride[1][l.n - 1];
    binary_fn *fn = left == right ? s->kernel->each : left ? s->kernel->left : s->kernel->right;
    do {
        fn(a + l.offset[0], b + l.offset[1], y, n);
        if (s->relu) rectify(y, n);
        y += n;
    } while (ls__cpu_loops_next(&l));
}

/* --- lowering --- */

static bool same_shape(const ls_tensor *x, const ls_tensor *y)
{
    if (x->rank != y->rank) return false;
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] != y->shape[i]) return false;
    return true;
}

/* The output lies over the first input that may be overwritten. */
static ls_status place(cpu_builder *b, const cpu_task *task, cpu_layout layout, bool tiled,
                       int *buffers)
{
    ls_tensor *const *in = task->node->in;
    int victim = 0;
    for (int i = 0; i < 2; i++) LS_TRY(ls__cpu_read(b, in[i], layout, &buffers[i]));
    for (int i = 1; i >= 0; i--)
        if (same_shape(in[i], task->out) && in[i]->role == LS__ROLE_VALUE &&
            b->reads[b->root[in[i]->id]] == 1)
            victim = i;
    if (!same_shape(in[victim], task->out))
        return ls__cpu_write(b, task->out, layout, tiled, &buffers[2]);
    return ls__cpu_write_over(b, task->out, layout, tiled, in[victim], buffers[victim],
                              &buffers[2]);
}

static ls_status add_step(cpu_builder *b, const binary *made, bool tiled, const int *buffers)
{
    binary *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = *made;
    cpu_step_spec spec = { .run = made->each ? run_same : run_broadcast,
                           .state = s,
                           .destroy = ls__free,
                           .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, 3);
}

/* keeps_zeros: the padding of blocked layouts stays zero. */
static ls_status lower_same(cpu_builder *b, const cpu_task *task, binary *s, bool keeps_zeros)
{
    ls_tensor *const *in = task->node->in;
    bool blocked =
        keeps_zeros && ls__cpu_gradient_slot(b, task->out) < 0 &&
        (ls__cpu_layout_of(b, in[0]) == CPU_BLOCKED || ls__cpu_layout_of(b, in[1]) == CPU_BLOCKED);
    cpu_layout layout = blocked ? CPU_BLOCKED : CPU_PLAIN;
    bool tiled = ls__cpu_tiled(b, in[0]);
    int buffers[3];
    LS_TRY(place(b, task, layout, tiled, buffers));
    s->each = (int64_t)(ls__cpu_nbytes(b->program, in[0], layout) / sizeof(float)) / s->rows.all;
    return add_step(b, s, tiled, buffers);
}

/* Cut by samples when what is cut by samples spans the output's samples. */
static bool output_tiled(const cpu_builder *b, const ls__node *node, const cpu_broadcast *shape)
{
    bool some = false;
    for (int i = 0; i < 2; i++) {
        if (!ls__cpu_tiled(b, node->in[i])) continue;
        if (!shape->spans[i][0]) return false;
        some = true;
    }
    return some;
}

static ls_status lower(cpu_builder *b, const cpu_task *task, const binary_kernel *kernel)
{
    const ls__node *node = task->node;
    ls_tensor *const *in = node->in;
    binary s = { .kernel = kernel, .relu = task->relu, .rows = ls__cpu_extent(b, task->out) };
    if (same_shape(in[0], in[1]) && ls__cpu_tiled(b, in[0]) == ls__cpu_tiled(b, in[1]))
        return lower_same(b, task, &s, kernel != &div_kernel);
    int buffers[3];
    ls__cpu_broadcast(&s.shape, task->out, in[0], in[1]);
    bool tiled = output_tiled(b, node, &s.shape);
    for (int i = 0; i < 2; i++)
        if (tiled && s.shape.spans[i][0] && !ls__cpu_tiled(b, in[i]))
            s.moves[i] = ls__cpu_count(in[i]) / in[i]->shape[0];
    LS_TRY(place(b, task, CPU_PLAIN, tiled, buffers));
    return add_step(b, &s, tiled, buffers);
}

ls_status ls__cpu_add(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, &add_kernel);
}

ls_status ls__cpu_sub(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, &sub_kernel);
}

ls_status ls__cpu_mul(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, &mul_kernel);
}

ls_status ls__cpu_div(cpu_builder *b, const cpu_task *task)
{
    return lower(b, task, &div_kernel);
}
