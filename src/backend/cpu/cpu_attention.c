/* attention and attention_grad as steps: heads of a tile's samples one after the other.
 *
 * Heads know nothing of each other. So where the whole micro-batch is one tile, which one thread
 * would compute, attention is a whole step with a task for each head: long texts then keep all
 * threads busy. Which of the two it is depends on shapes only, and bits on neither. */
#include "backend/cpu/attention_head.h"
#include "backend/cpu/cpu.h"

typedef struct attention {
    attention_shape shape;
    cpu_extent rows; /* samples of qkv */
    int64_t units;   /* tasks of a sample: heads, or heads of keys and values */
} attention;

/* Samples are counted from the call's first: a tile's, or the micro-batch's. */
static void run_units(const cpu_call *call,
                      void (*run)(const cpu_call *call, int64_t sample, int64_t unit, bool last))
{
    const attention *a = call->step->state;
    int64_t first = call->step->tiled ? 0 : call->task;
    int64_t end = call->step->tiled ? ls__cpu_extent_rows(call, &a->rows) * a->units : first + 1;
    for (int64_t i = first; i < end; i++)
        run(call, i / a->units, i % a->units, end - i <= a->units);
}

/* --- forward: buffers qkv, scratch, y, [logsum] --- */

static void forward_unit(const cpu_call *call, int64_t sample, int64_t head, bool last)
{
    const attention_shape *s = &((const attention *)call->step->state)->shape;
    const float *qkv = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 2);
    float *logsum = call->step->nbuffers == 4 ? ls__cpu_at(call, 3) : NULL;
    ls__cpu_attention_head(s, qkv + sample * s->tokens * s->row, head, last,
                           y + sample * s->tokens * s->heads * s->width,
                           logsum ? logsum + sample * s->heads * s->tokens : NULL,
                           ls__cpu_at(call, 1));
}

static void run_forward(const cpu_call *call)
{
    run_units(call, forward_unit);
}

/* --- backward: buffers g, qkv, y, logsum, scratch, dqkv --- */

static void backward_unit(const cpu_call *call, int64_t sample, int64_t kv_head, bool last)
{
    const attention_shape *s = &((const attention *)call->step->state)->shape;
    int64_t rows = sample * s->tokens, width = s->heads * s->width;
    const float *g = ls__cpu_at(call, 0), *qkv = ls__cpu_at(call, 1), *y = ls__cpu_at(call, 2);
    const float *logsum = ls__cpu_at(call, 3);
    float *dqkv = ls__cpu_at(call, 5);
    ls__cpu_attention_grad_group(s, g + rows * width, qkv + rows * s->row, y + rows * width,
                                 logsum + rows * s->heads, kv_head, last, dqkv + rows * s->row,
                                 ls__cpu_at(call, 4));
}

static void run_backward(const cpu_call *call)
{
    run_units(call, backward_unit);
}

/* --- lowering --- */

static attention_shape shape_of(const ls__node *node, const ls_tensor *qkv)
{
    const ls__attention_attributes *a = node->attributes;
    return (attention_shape) { .heads = a->heads,
                               .kv_heads = a->kv_heads,
                               .width = a->width,
                               .tokens = qkv->shape[1],
                               .row = qkv->shape[2],
                               .causal = a->causal,
                               .scale = (float)a->scale };
}

static ls_status add_step(cpu_builder *b, const attention_shape *shape, int64_t units,
                          void (*run)(const cpu_call *call), const ls_tensor *qkv, bool tiled,
                          const int *buffers, int n)
{
    attention *a = ls__alloc(1, sizeof *a);
    if (!a) return LS_ERR_MEMORY;
    *a = (attention) { .shape = *shape, .rows = ls__cpu_extent(b, qkv), .units = units };
    bool by_tile = tiled && b->program->ntiles > 1;
    cpu_step_spec spec = { .run = run,
                           .state = a,
                           .destroy = ls__free,
                           .whole = !by_tile,
                           .ntasks = by_tile ? 0 : qkv->shape[0] * units };
    return ls__cpu_step(b, &spec, buffers, n);
}

static ls_status scratch_for(cpu_builder *b, size_t floats, int *buffer)
{
    return ls__cpu_temporary(b, floats * sizeof(float), buffer);
}

ls_status ls__cpu_attention(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *qkv = node->in[0];
    attention_shape s = shape_of(node, qkv);
    bool tiled = ls__cpu_tiled(b, qkv);
    int buffers[4];
    LS_TRY(ls__cpu_read(b, qkv, ls__cpu_float_layout(node, 0), &buffers[0]));
    LS_TRY(scratch_for(b, ls__cpu_attention_scratch(&s), &buffers[1]));
    for (int i = 0; i < node->nout; i++)
        LS_TRY(ls__cpu_write(b, node->out[i], CPU_PLAIN, tiled, &buffers[2 + i]));
    return add_step(b, &s, s.heads, run_forward, qkv, tiled, buffers, 2 + node->nout);
}

ls_status ls__cpu_attention_grad(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls_tensor *qkv = node->in[1];
    attention_shape s = shape_of(node, qkv);
    bool tiled = true;
    int buffers[6];
    for (int i = 0; i < 4; i++) {
        tiled = tiled && ls__cpu_tiled(b, node->in[i]);
        LS_TRY(ls__cpu_read(b, node->in[i], ls__cpu_float_layout(node, i), &buffers[i]));
    }
    LS_TRY(scratch_for(b, ls__cpu_attention_grad_scratch(&s), &buffers[4]));
    LS_TRY(ls__cpu_write(b, node->out[0], CPU_PLAIN, tiled, &buffers[5]));
    return add_step(b, &s, s.kv_heads, run_backward, qkv, tiled, buffers, 6);
}
