/* sum_to: a gradient summed over what was broadcast. Where samples are summed, a parameter's
 * gradient mostly, each lane adds its tiles in memory of its own, as for the bias of linear. */
#include "backend/cpu/broadcast.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/reduce_dim.h"

#include <string.h>

typedef struct sum_to {
    cpu_extent rows; /* of x */
    cpu_broadcast shape;
    int64_t row;   /* elements of a row of the output, where it has x's rows */
    int64_t whole; /* elements of the output, where it has not */
} sum_to;

static void run_sum_to(const cpu_call *call)
{
    const sum_to *s = call->step->state;
    const float *x = ls__cpu_at(call, 0);
    float *y = ls__cpu_at(call, 1);
    int64_t rows = ls__cpu_extent_rows(call, &s->rows);
    int64_t count = s->whole ? s->whole : rows * s->row;
    if (!s->whole || !call->step->tiled || call->lane_begins)
        memset(y, 0, (size_t)count * sizeof *y);
    cpu_loops l;
    ls__cpu_loops(&l, &s->shape, rows);
    int64_t n = l.size[l.n - 1];
    bool kept = l.stride[0][l.n - 1];
    if (kept && l.n == 2) { /* a bias: rows below each other */
        ls__cpu_add_columns(x, y, l.size[0], n, n);
        return;
    }
    do {
        if (kept)
            ls__cpu_add_floats(y + l.offset[0], x, n);
        else
            y[l.offset[0]] += ls__cpu_sum_floats(x, n);
        x += n;
    } while (ls__cpu_loops_next(&l));
}

/* Where the step adds: the lanes' parts and a finisher when tiles are summed, else the output. */
static ls_status target(cpu_builder *b, const ls_tensor *y, bool lanes, bool tiled, int *buffer)
{
    int final;
    LS_TRY(ls__cpu_write(b, y, CPU_PLAIN, tiled && !lanes, &final));
    *buffer = final;
    if (!lanes) return LS_OK;
    size_t each = ((size_t)ls__cpu_count(y) * sizeof(float) + 63) / 64 * 64;
    LS_TRY(ls__cpu_shared(b, each * (size_t)b->program->lanes, each, buffer));
    return ls__cpu_finish_sum(b, *buffer, final, ls__cpu_count(y), y);
}

ls_status ls__cpu_sum_to(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *x = task->node->in[0], *y = task->out;
    bool tiled = ls__cpu_tiled(b, x);
    sum_to made = { .rows = ls__cpu_extent(b, x) };
    ls__cpu_broadcast(&made.shape, x, y, NULL);
    bool keeps_rows = made.shape.spans[0][0];
    if (keeps_rows)
        made.row = ls__cpu_count(y) / y->shape[0];
    else
        made.whole = ls__cpu_count(y);
    int buffers[2];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(target(b, y, tiled && !keeps_rows, tiled, &buffers[1]));
    sum_to *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = made;
    cpu_step_spec spec = { .run = run_sum_to, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, 2);
}
