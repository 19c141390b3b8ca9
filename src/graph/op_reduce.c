/* reduce: the sum, the mean or the largest along one dimension, and its gradient. Formulas: ops.h.
 */
#include "graph/op_rule.h"

static ls_status reduce_shape(const ls_op_call *call, ls_array *out)
{
    const ls__reduce_attributes *a = call->attributes;
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && x->type == LS_DTYPE_F32,
                  "takes f32 (ls_scale converts integers)");
    LS__SHAPE_TRY(a->dim >= 0 && a->dim < x->rank && a->size == x->shape[a->dim],
                  "there is no dimension %lld", (long long)a->dim);
    out[0] = (ls_array) { .type = LS_DTYPE_F32, .rank = x->rank - 1 };
    for (int i = 0; i < out[0].rank; i++) out[0].shape[i] = x->shape[i < a->dim ? i : i + 1];
    return LS_OK;
}

static void reduce_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    const ls__reduce_attributes *a = attributes;
    ls_tensor *from[] = { grad, in[0], out };
    grads_in[0] =
        ls_apply(&ls__op_reduce_grad, a, sizeof *a, from, a->kind == LS__REDUCE_MAX ? 3 : 1);
}

static ls_status reduce_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__reduce_attributes *a = call->attributes;
    const ls_array *g = &call->in[0];
    LS__SHAPE_TRY(g->type == LS_DTYPE_F32 && a->dim <= g->rank && g->rank < LS_MAX_RANK,
                  "the gradient has no place for dimension %lld", (long long)a->dim);
    out[0] = (ls_array) { .type = LS_DTYPE_F32, .rank = g->rank + 1 };
    for (int i = 0; i < out[0].rank; i++)
        out[0].shape[i] = i == a->dim ? a->size : g->shape[i < a->dim ? i : i - 1];
    LS__SHAPE_TRY(call->nin == 1 || (call->nin == 3 && ls__same(&call->in[1], &out[0]) &&
                                     ls__same(&call->in[2], g)),
                  "g, x and y do not fit");
    return LS_OK;
}

static double per_input(const ls_op_call *call)
{
    return (double)ls_array_count(&call->in[0]);
}

const ls_op ls__op_reduce = {
    .name = "reduce", .shape = reduce_shape, .gradient = reduce_gradient, .flops = per_input
};
const ls_op ls__op_reduce_grad = { .name = "reduce_grad", .shape = reduce_grad_shape };
