/* softmax over the last dimension, with its gradient. Formulas: ops.h. */
#include "graph/op_rule.h"

static ls_status softmax_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && x->type == LS_DTYPE_F32 && x->rank >= 1,
                  "takes f32 with at least one dimension");
    out[0] = *x;
    return LS_OK;
}

static ls_status softmax_grad_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 2 && call->in[0].type == LS_DTYPE_F32 && call->in[0].rank >= 1 &&
                      ls__same(&call->in[0], &call->in[1]),
                  "g and y must be f32 and of one shape");
    out[0] = call->in[0];
    return LS_OK;
}

static void softmax_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                             const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)attributes;
    grads_in[0] = ls_apply(&ls__op_softmax_grad, NULL, 0, (ls_tensor *[]) { grad, out }, 2);
}

static double softmax_flops(const ls_op_call *call)
{
    return 4 * (double)ls_array_count(call->out);
}

const ls_op ls__op_softmax = {
    .name = "softmax", .shape = softmax_shape, .gradient = softmax_gradient, .flops = softmax_flops
};
const ls_op ls__op_softmax_grad = { .name = "softmax_grad",
                                    .shape = softmax_grad_shape,
                                    .flops = softmax_flops };
