/* Operations of the user's: whole arrays in the plain layout, rows of the output divided into a
 * fixed number of tasks. They may read any row of their inputs, so all tiles must be done. */
#include "backend/cpu/cpu.h"

#include <string.h>

enum { MOST_TASKS = 64 };

typedef struct user_op {
    const ls_op *op;
    const void *attributes; /* the graph's */
    int nin;
    ls_array in[LS__MAX_INPUTS], out; /* without data */
    int64_t rows;
} user_op;

static void run_user_op(const cpu_call *call)
{
    const user_op *u = call->step->state;
    ls_array in[LS__MAX_INPUTS], out = u->out;
    memcpy(in, u->in, sizeof in);
    for (int i = 0; i < u->nin; i++) in[i].data = ls__cpu_at(call, i);
    out.data = ls__cpu_at(call, u->nin);
    int64_t tasks = call->step->ntasks;
    ls_op_call c = { .in = in,
                     .nin = u->nin,
                     .out = &out,
                     .attributes = u->attributes,
                     .begin = u->rows * call->task / tasks,
                     .end = u->rows * (call->task + 1) / tasks };
    u->op->compute(&c);
}

static ls_array array_of(const ls_tensor *x)
{
    ls_array a = { .type = x->type, .rank = x->rank };
    memcpy(a.shape, x->shape, sizeof a.shape);
    return a;
}

ls_status ls__cpu_user_op(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    int buffers[CPU_STEP_BUFFERS];
    if (!node->op->compute)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s has no compute function", node->op->name);
    if (node->nin + 1 > CPU_STEP_BUFFERS)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s has %d inputs, at most %d are possible",
                       node->op->name, node->nin, CPU_STEP_BUFFERS - 1);
    for (int i = 0; i < node->nin; i++)
        LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, task->out->sample_major, &buffers[node->nin]));
    user_op *u = ls__alloc(1, sizeof *u);
    if (!u) return LS_ERR_MEMORY;
    *u = (user_op) { .op = node->op, .attributes = node->attributes, .nin = node->nin };
    for (int i = 0; i < node->nin; i++) u->in[i] = array_of(node->in[i]);
    u->out = array_of(task->out);
    u->rows = task->out->rank ? task->out->shape[0] : 1;
    cpu_step_spec spec = { .run = run_user_op,
                           .state = u,
                           .destroy = ls__free,
                           .whole = true,
                           .ntasks = u->rows < MOST_TASKS ? u->rows : MOST_TASKS };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}
