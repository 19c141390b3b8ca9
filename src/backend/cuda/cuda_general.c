/* add, sub, mul, div with broadcasting, sums over what was broadcast, reductions, moves: from shapes
 * to strides. Neighbouring dimensions that lie alike in all operands become one, so that kernels
 * mostly see one to three. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernel_general.h"
#include "base/check.h"

_Static_assert((int)CUDA_MAX_RANK == (int)LS_MAX_RANK, "a tensor's dimensions fit");

/* Adds a dimension behind the others, or lengthens the last one. */
static void add_dimension(cuda_strided *s, int64_t size, int64_t a, int64_t b)
{
    s->count *= size;
    if (size == 1) return;
    int last = s->rank - 1;
    if (last >= 0 && s->stride[0][last] == a * size && s->stride[1][last] == b * size) {
        s->size[last] *= size;
    } else {
        last = s->rank++;
        s->size[last] = size;
    }
    s->stride[0][last] = a;
    s->stride[1][last] = b;
}

/* Elements of x from one index of each dimension of a shape with so many dimensions to the next; 0
 * where x is broadcast. */
static void strides_in(const ls_tensor *x, int rank, int64_t out[LS_MAX_RANK])
{
    int64_t stride = 1;
    memset(out, 0, LS_MAX_RANK * sizeof *out);
    for (int i = x->rank - 1; i >= 0; i--) {
        if (x->shape[i] != 1) out[i + rank - x->rank] = stride;
        stride *= x->shape[i];
    }
}

static bool same_shape(const ls_tensor *x, const ls_tensor *y)
{
    return x->rank == y->rank && !memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape);
}

/* --- add, sub, mul, div --- */

static ls_status run_binary(const cuda_call *call)
{
    const ls_tensor *a = call->node->in[0], *b = call->node->in[1], *y = call->node->out[0];
    const ls_op *op = call->node->op;
    int64_t in_a[LS_MAX_RANK], in_b[LS_MAX_RANK];
    cuda_strided s = { .count = 1 };
    strides_in(a, y->rank, in_a);
    strides_in(b, y->rank, in_b);
    for (int i = 0; i < y->rank; i++) add_dimension(&s, y->shape[i], in_a[i], in_b[i]);
    cuda_binary kind = op == &ls__op_add   ? CUDA_ADD
                       : op == &ls__op_sub ? CUDA_SUB
                       : op == &ls__op_mul ? CUDA_MUL
                                           : CUDA_DIV;
    ls__cuda_launch_binary(call->stream, kind, &s, call->in[0], a->half, call->in[1], b->half,
                           call->out[0], y->half);
    return LS_OK;
}

static bool over_alike(const ls__node *node, int input)
{
    return same_shape(node->in[input], node->out[0]) && node->in[input]->half == node->out[0]->half;
}

/* --- sum_to --- */

/* The output's elements are the kept dimensions; what it lacks or has once is added up. */
static void reduction_to(const ls_tensor *x, const ls_tensor *y, cuda_reduction *out)
{
    int64_t in_x[LS_MAX_RANK], in_y[LS_MAX_RANK];
    *out = (cuda_reduction) { .kept.count = 1, .reduced.count = 1 };
    strides_in(x, x->rank, in_x);
    strides_in(y, x->rank, in_y);
    for (int i = 0; i < x->rank; i++)
        add_dimension(in_y[i] ? &out->kept : &out->reduced, x->shape[i], in_x[i], 0);
    ls__cuda_reduction_cut(out);
}

static ls_status run_sum_to(const cuda_call *call)
{
    cuda_reduction r;
    reduction_to(call->node->in[0], call->node->out[0], &r);
    ls__cuda_launch_reduction(call->stream, &r, call->in[0], call->out[0], call->node->out[0]->half,
                              call->workspace);
    return LS_OK;
}

static size_t sum_to_workspace(const ls__node *node)
{
    cuda_reduction r;
    reduction_to(node->in[0], node->out[0], &r);
    return ls__cuda_reduction_workspace(&r);
}

/* --- reduce --- */

/* Elements before and behind a dimension. */
static void around(const ls_tensor *x, int64_t dim, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int i = 0; i < x->rank; i++)
        if (i != dim) *(i < dim ? outer : inner) *= x->shape[i];
}

static void reduction_along(const ls__node *node, cuda_reduction *out)
{
    const ls__reduce_attributes *a = node->attributes;
    int64_t outer, inner;
    around(node->in[0], a->dim, &outer, &inner);
    *out = (cuda_reduction) { .kept.count = 1,
                              .reduced.count = 1,
                              .largest = a->kind == LS__REDUCE_MAX };
    add_dimension(&out->kept, outer, a->size * inner, 0);
    add_dimension(&out->kept, inner, 1, 0);
    add_dimension(&out->reduced, a->size, inner, 0);
    ls__cuda_reduction_cut(out);
    if (a->kind == LS__REDUCE_MEAN) out->divisor = (float)a->size;
}

static ls_status run_reduce(const cuda_call *call)
{
    cuda_reduction r;
    reduction_along(call->node, &r);
    ls__cuda_launch_reduction(call->stream, &r, call->in[0], call->out[0], call->node->out[0]->half,
                              call->workspace);
    return LS_OK;
}

static size_t reduce_workspace(const ls__node *node)
{
    cuda_reduction r;
    reduction_along(node, &r);
    return ls__cuda_reduction_workspace(&r);
}

static ls_status run_reduce_grad(const cuda_call *call)
{
    const ls__reduce_attributes *a = call->node->attributes;
    const ls_tensor *dx = call->node->out[0];
    bool largest = a->kind == LS__REDUCE_MAX;
    int64_t outer, inner;
    around(dx, a->dim, &outer, &inner);
    ls__cuda_launch_reduce_grad(call->stream, outer, a->size, inner,
                                a->kind == LS__REDUCE_MEAN ? (float)a->size : 1, call->in[0],
                                largest ? call->in[1] : NULL, largest ? call->in[2] : NULL,
                                call->out[0], dx->half);
    return LS_OK;
}

/* --- moves --- */

static cuda_move move_between(const ls_tensor *x, const ls_tensor *y)
{
    return (cuda_move) { .nbytes = x->half ? 2 : (int)ls_dtype_size(x->type),
                         .widened = x->half && !y->half,
                         .narrowed = !x->half && y->half };
}

static ls_status run_transpose(const cuda_call *call)
{
    const ls__transpose_attributes *a = call->node->attributes;
    const ls_tensor *x = call->node->in[0], *y = call->node->out[0];
    int64_t first = a->a < a->b ? a->a : a->b, second = a->a < a->b ? a->b : a->a;
    cuda_transpose t = { 1, 1, 1, 1, 1 };
    for (int i = 0; i < x->rank; i++) {
        int64_t *part = i < first || first == second ? &t.outer
                        : i == first                 ? &t.a
                        : i < second                 ? &t.middle
                        : i == second                ? &t.b
                                                     : &t.inner;
        *part *= x->shape[i];
    }
    ls__cuda_launch_transpose(call->stream, move_between(x, y), &t, call->in[0], call->out[0]);
    return LS_OK;
}

static ls_status run_slice(const cuda_call *call)
{
    const ls__slice_attributes *a = call->node->attributes;
    const ls_tensor *x = call->node->in[0], *y = call->node->out[0];
    bool gradient = call->node->op == &ls__op_slice_grad;
    int64_t outer, inner;
    around(y, a->dim, &outer, &inner);
    int64_t part = a->size * inner, whole = a->whole * inner;
    if (!gradient) whole = x->shape[a->dim] * inner;
    cuda_rows r = { .rows = outer,
                    .width = gradient ? whole : part,
                    .pitch = gradient ? whole : part,
                    .from_width = gradient ? part : whole,
                    .from_pitch = gradient ? part : whole,
                    .shift = gradient ? a->begin * inner : -a->begin * inner };
    ls__cuda_launch_rows(call->stream, move_between(x, y), &r, call->in[0], call->out[0]);
    return LS_OK;
}

static ls_status run_concat(const cuda_call *call)
{
    const ls__concat_attributes *a = call->node->attributes;
    const ls_tensor *y = call->node->out[0];
    size_t nbytes = y->half ? 2 : ls_dtype_size(y->type);
    int64_t outer, inner, begin = 0;
    around(y, a->dim, &outer, &inner);
    for (int i = 0; i < call->node->nin; i++) {
        const ls_tensor *x = call->node->in[i];
        int64_t width = x->shape[a->dim] * inner;
        cuda_rows r = { .rows = outer,
                        .width = width,
                        .pitch = y->shape[a->dim] * inner,
                        .from_width = width,
                        .from_pitch = width };
        ls__cuda_launch_rows(call->stream, move_between(x, y), &r, call->in[i],
                             (char *)call->out[0] + (size_t)begin * nbytes);
        begin += width;
    }
    return LS_OK;
}

const cuda_op ls__cuda_general_ops[] = {
    { .op = &ls__op_add, .run = run_binary, .in_place = over_alike },
    { .op = &ls__op_sub, .run = run_binary, .in_place = over_alike },
    { .op = &ls__op_mul, .run = run_binary, .in_place = over_alike },
    { .op = &ls__op_div, .run = run_binary, .in_place = over_alike },
    { .op = &ls__op_sum_to, .run = run_sum_to, .workspace = sum_to_workspace },
    { .op = &ls__op_reduce, .run = run_reduce, .workspace = reduce_workspace },
    { .op = &ls__op_reduce_grad, .run = run_reduce_grad },
    { .op = &ls__op_transpose, .run = run_transpose },
    { .op = &ls__op_slice, .run = run_slice },
    { .op = &ls__op_slice_grad, .run = run_slice },
    { .op = &ls__op_concat, .run = run_concat },
    { 0 },
};
