/* Losses element by element: mse, binary cross-entropy, smooth L1. Formulas: ops.h. */
#include "graph/op_rule.h"

static ls_status loss_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *x = &call->in[call->nin - 2];
    LS__SHAPE_TRY(x->type == LS_DTYPE_F32, "takes f32 (ls_scale converts integers)");
    for (int i = 0; i < call->nin; i++)
        LS__SHAPE_TRY(ls__same(&call->in[i], x), "x and target must be f32 and of one shape");
    out[0] = *x;
    return LS_OK;
}

static void loss_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                          const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out;
    const ls__elementwise_loss_attributes *a = attributes;
    const ls__scale_attributes minus = { .factor = -1 };
    grads_in[0] =
        ls_apply(&ls__op_elementwise_loss_grad, attributes, sizeof(ls__elementwise_loss_attributes),
                 (ls_tensor *[]) { grad, in[0], in[1] }, 3);
    if (!in[1]->differentiable) return; /* an input whose gradient is asked for, as a check does */
    ls_tensor *slope = grads_in[0];
    if (a->kind == LS__LOSS_BCE)
        slope = ls_apply(&ls__op_mul, NULL, 0, (ls_tensor *[]) { grad, in[0] }, 2);
    grads_in[1] = ls_apply(&ls__op_scale, &minus, sizeof minus, &slope, 1);
}

static double some_per_element(const ls_op_call *call)
{
    return 4.0 * (double)ls_array_count(&call->in[0]);
}

const ls_op ls__op_elementwise_loss = { .name = "elementwise_loss",
                                        .shape = loss_shape,
                                        .gradient = loss_gradient,
                                        .flops = some_per_element };
const ls_op ls__op_elementwise_loss_grad = { .name = "elementwise_loss_grad",
                                             .shape = loss_shape,
                                             .flops = some_per_element };
