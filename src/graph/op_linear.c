/* linear: y = x weight^T + bias, with its gradients. Formulas: ops.h. */
#include "graph/op_rule.h"

static double linear_flops(const ls_op_call *call)
{
    return 2.0 * (double)ls_array_count(call->out) * (double)call->in[0].shape[1];
}

static ls_status linear_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *x = &call->in[0], *weight = &call->in[1], *bias = &call->in[2];
    LS__SHAPE_TRY(call->nin == 2 || call->nin == 3, "takes x, weight and perhaps bias");
    LS__SHAPE_TRY(ls__is_f32(x, 2) && ls__is_f32(weight, 2) && x->shape[1] == weight->shape[1],
                  "x (B,K) and weight (N,K) do not fit");
    LS__SHAPE_TRY(call->nin == 2 || (ls__is_f32(bias, 1) && bias->shape[0] == weight->shape[0]),
                  "bias must be (N)");
    out[0] = ls__f32_2(x->shape[0], weight->shape[0]);
    return LS_OK;
}

static void linear_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)attributes;
    ls_tensor *both[2];
    int wanted = ls__input_count(out) == 3 && in[2]->differentiable ? 2 : 1;
    ls__apply_multi(&ls__op_linear_grad_weight, NULL, 0, (ls_tensor *[]) { grad, in[0] }, 2, both,
                    wanted);
    grads_in[1] = both[0];
    if (wanted == 2) grads_in[2] = both[1];
    grads_in[0] = ls_apply(&ls__op_linear_grad_x, NULL, 0, (ls_tensor *[]) { grad, in[1] }, 2);
}

const ls_op ls__op_linear = {
    .name = "linear", .shape = linear_shape, .gradient = linear_gradient, .flops = linear_flops
};

/* --- gradients --- */

static ls_status grad_x_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *g = &call->in[0], *weight = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2 && ls__is_f32(g, 2) && ls__is_f32(weight, 2) &&
                      g->shape[1] == weight->shape[0],
                  "g (B,N) and weight (N,K) do not fit");
    out[0] = ls__f32_2(g->shape[0], weight->shape[1]);
    return LS_OK;
}

static ls_status grad_weight_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *g = &call->in[0], *x = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2 && ls__is_f32(g, 2) && ls__is_f32(x, 2) &&
                      g->shape[0] == x->shape[0],
                  "g (B,N) and x (B,K) do not fit");
    out[0] = ls__f32_2(g->shape[1], x->shape[1]);
    out[1] = ls__f32_1(g->shape[1]);
    return LS_OK;
}

static double grad_x_flops(const ls_op_call *call)
{
    return 2.0 * (double)ls_array_count(call->out) * (double)call->in[0].shape[1];
}

static double grad_weight_flops(const ls_op_call *call)
{
    return 2.0 * (double)ls_array_count(call->out) * (double)call->in[0].shape[0];
}

const ls_op ls__op_linear_grad_x = { .name = "linear_grad_x",
                                     .shape = grad_x_shape,
                                     .flops = grad_x_flops };

const ls_op ls__op_linear_grad_weight = { .name = "linear_grad_weight",
                                          .shape = grad_weight_shape,
                                          .flops = grad_weight_flops };
