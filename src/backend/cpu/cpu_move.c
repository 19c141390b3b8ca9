/* transpose, slice, concat: bytes change their places. A tensor is (outer, along, inner) bytes, and
 * what lies together is copied together; only transposes of the last dimension move single elements,
 * in squares that fit the first-level cache. */
#include "backend/cpu/cpu.h"

#include <string.h>

enum { SQUARE = 16 };

/* Rows of dimension 0, one where the operation changes that; outer of a row. */
typedef struct outer {
    cpu_extent rows;
    int64_t each;
} outer;

static outer outer_before(const cpu_builder *b, const ls_tensor *x, int64_t dim)
{
    outer o = { .rows = { .each = 1, .all = 1 }, .each = 1 };
    if (dim > 0) o.rows = ls__cpu_extent(b, x);
    for (int i = 1; i < dim; i++) o.each *= x->shape[i];
    return o;
}

static int64_t outer_of(const cpu_call *call, const outer *o)
{
    return ls__cpu_extent_rows(call, &o->rows) * o->each;
}

static size_t bytes_behind(const ls_tensor *x, int64_t dim)
{
    size_t nbytes = ls_dtype_size(x->type);
    for (int i = (int)dim + 1; i < x->rank; i++) nbytes *= (size_t)x->shape[i];
    return nbytes;
}

/* --- transpose: (outer, a, middle, b, inner) -> (outer, b, middle, a, inner) --- */

typedef struct transpose {
    outer outer;
    int64_t a, middle, b;
    size_t inner; /* bytes */
} transpose;

/* rows x columns elements, from and to strides in elements apart: to[j][i] = from[i][j] */
#define TURN_OF(name, type)                                                                        \
    static void name(const type *from, type *to, int64_t rows, int64_t columns,                    \
                     int64_t from_stride, int64_t to_stride)                                       \
    {                                                                                              \
        for (int64_t j = 0; j < columns; j++)                                                      \
            for (int64_t i = 0; i < rows; i++) to[j * to_stride + i] = from[i * from_stride + j];  \
    }
TURN_OF(turn_1, uint8_t)
TURN_OF(turn_2, uint16_t)
TURN_OF(turn_4, uint32_t)
TURN_OF(turn_8, uint64_t)
#undef TURN_OF

static void turn_bytes(const char *from, char *to, int64_t rows, int64_t columns,
                       int64_t from_stride, int64_t to_stride, size_t size)
{
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + (size_t)(j * to_stride + i) * size,
                   from + (size_t)(i * from_stride + j) * size, size);
}

static void turn(const void *from, void *to, int64_t rows, int64_t columns, int64_t from_stride,
                 int64_t to_stride, size_t size)
{
    switch (size) {
    case 1:
        turn_1(from, to, rows, columns, from_stride, to_stride);
        break;
    case 2:
        turn_2(from, to, rows, columns, from_stride, to_stride);
        break;
    case 4:
        turn_4(from, to, rows, columns, from_stride, to_stride);
        break;
    case 8:
        turn_8(from, to, rows, columns, from_stride, to_stride);
        break;
    default:
        turn_bytes(from, to, rows, columns, from_stride, to_stride, size);
    }
}

/* One matrix (a, b), whose rows are middle b apart, in squares. */
static void turn_matrix(const transpose *t, const char *from, char *to)
{
    for (int64_t i = 0; i < t->a; i += SQUARE)
        for (int64_t j = 0; j < t->b; j += SQUARE) {
            int64_t rows = t->a - i < SQUARE ? t->a - i : SQUARE;
            int64_t columns = t->b - j < SQUARE ? t->b - j : SQUARE;
            turn(from + (size_t)(i * t->middle * t->b + j) * t->inner,
                 to + (size_t)(j * t->middle * t->a + i) * t->inner, rows, columns,
                 t->middle * t->b, t->middle * t->a, t->inner);
        }
}

static void run_transpose(const cpu_call *call)
{
    const transpose *t = call->step->state;
    const char *x = ls__cpu_at(call, 0);
    char *y = ls__cpu_at(call, 1);
    size_t slab = (size_t)(t->a * t->middle * t->b) * t->inner;
    int64_t n = outer_of(call, &t->outer);
    for (int64_t o = 0; o < n; o++)
        for (int64_t m = 0; m < t->middle; m++)
            turn_matrix(t, x + (size_t)o * slab + (size_t)(m * t->b) * t->inner,
                        y + (size_t)o * slab + (size_t)(m * t->a) * t->inner);
}

ls_status ls__cpu_transpose(cpu_builder *b, const cpu_task *task)
{
    const ls_tensor *x = task->node->in[0];
    const ls__transpose_attributes *a = task->node->attributes;
    bool tiled = ls__cpu_tiled(b, x) && a->a > 0;
    int buffers[2];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, tiled, &buffers[1]));
    transpose *t = ls__alloc(1, sizeof *t);
    if (!t) return LS_ERR_MEMORY;
    *t = (transpose) { .outer = outer_before(b, x, a->a),
                       .a = x->shape[a->a],
                       .middle = 1,
                       .b = x->shape[a->b],
                       .inner = bytes_behind(x, a->b) };
    for (int64_t i = a->a + 1; i < a->b; i++) t->middle *= x->shape[i];
    cpu_step_spec spec = { .run = run_transpose, .state = t, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, 2);
}

/* --- slice --- */

typedef struct slice {
    outer outer;
    size_t before, part, whole; /* bytes */
} slice;

static void run_slice(const cpu_call *call)
{
    const slice *s = call->step->state;
    const char *x = ls__cpu_at(call, 0);
    char *y = ls__cpu_at(call, 1);
    int64_t n = outer_of(call, &s->outer);
    for (int64_t o = 0; o < n; o++)
        memcpy(y + (size_t)o * s->part, x + (size_t)o * s->whole + s->before, s->part);
}

static void run_slice_grad(const cpu_call *call)
{
    const slice *s = call->step->state;
    const char *g = ls__cpu_at(call, 0);
    char *dx = ls__cpu_at(call, 1);
    int64_t n = outer_of(call, &s->outer);
    for (int64_t o = 0; o < n; o++, dx += s->whole) {
        memset(dx, 0, s->before);
        memcpy(dx + s->before, g + (size_t)o * s->part, s->part);
        memset(dx + s->before + s->part, 0, s->whole - s->before - s->part);
    }
}

static ls_status lower_slice(cpu_builder *b, const cpu_task *task,
                             void (*run)(const cpu_call *call))
{
    const ls_tensor *x = task->node->in[0];
    const ls__slice_attributes *a = task->node->attributes;
    bool tiled = ls__cpu_tiled(b, x) && a->dim > 0;
    size_t each = bytes_behind(x, a->dim);
    int buffers[2];
    LS_TRY(ls__cpu_read(b, x, CPU_PLAIN, &buffers[0]));
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, tiled, &buffers[1]));
    slice *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = (slice) { .outer = outer_before(b, x, a->dim),
                   .before = (size_t)a->begin * each,
                   .part = (size_t)a->size * each,
                   .whole = (size_t)a->whole * each };
    cpu_step_spec spec = { .run = run, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, 2);
}

ls_status ls__cpu_slice(cpu_builder *b, const cpu_task *task)
{
    return lower_slice(b, task, run_slice);
}

ls_status ls__cpu_slice_grad(cpu_builder *b, const cpu_task *task)
{
    return lower_slice(b, task, run_slice_grad);
}

/* --- concat --- */

typedef struct concat {
    outer outer;
    int n;
    size_t part[LS__MAX_INPUTS], whole; /* bytes */
    size_t moves[LS__MAX_INPUTS];       /* bytes of a row of an input that no tile cuts */
} concat;

static void run_concat(const cpu_call *call)
{
    const concat *s = call->step->state;
    char *y = ls__cpu_at(call, s->n);
    int64_t n = outer_of(call, &s->outer);
    for (int i = 0; i < s->n; i++) {
        const char *x = ls__cpu_at(call, i);
        x += (size_t)(call->begin * s->outer.rows.each) * s->moves[i];
        for (int64_t o = 0; o < n; o++)
            memcpy(y + (size_t)o * s->whole, x + (size_t)o * s->part[i], s->part[i]);
        y += s->part[i];
    }
}

ls_status ls__cpu_concat(cpu_builder *b, const cpu_task *task)
{
    const ls__node *node = task->node;
    const ls__concat_attributes *a = node->attributes;
    bool tiled = false;
    int buffers[CPU_STEP_BUFFERS];
    for (int i = 0; i < node->nin; i++) {
        LS_TRY(ls__cpu_read(b, node->in[i], CPU_PLAIN, &buffers[i]));
        tiled = tiled || (a->dim > 0 && ls__cpu_tiled(b, node->in[i]));
    }
    LS_TRY(ls__cpu_write(b, task->out, CPU_PLAIN, tiled, &buffers[node->nin]));
    concat *s = ls__alloc(1, sizeof *s);
    if (!s) return LS_ERR_MEMORY;
    *s = (concat) { .outer = outer_before(b, task->out, a->dim), .n = node->nin };
    for (int i = 0; i < node->nin; i++) {
        const ls_tensor *x = node->in[i];
        s->part[i] = (size_t)x->shape[a->dim] * bytes_behind(x, a->dim);
        s->whole += s->part[i];
        if (tiled && !ls__cpu_tiled(b, x)) s->moves[i] = (size_t)s->outer.each * s->part[i];
    }
    cpu_step_spec spec = { .run = run_concat, .state = s, .destroy = ls__free, .whole = !tiled };
    return ls__cpu_step(b, &spec, buffers, node->nin + 1);
}
