/* Activations with a curve: GELU, its approximation by tanh, SiLU, tanh, sigmoid. Formulas: ops.h.
 *
 * The gradient reads x and not y: for GELU nothing else will do, and one rule serves all. */
#include "graph/op_rule.h"

static ls_status check_kind(const ls_op_call *call)
{
    const ls__activation_attributes *a = call->attributes;
    LS__SHAPE_TRY(a->kind >= LS__ACTIVATION_GELU && a->kind <= LS__ACTIVATION_SIGMOID,
                  "there is no activation %lld", (long long)a->kind);
    return LS_OK;
}

static ls_status activation_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 1 && call->in[0].type == LS_DTYPE_F32,
                  "takes f32 (ls_scale converts integers)");
    out[0] = call->in[0];
    return check_kind(call);
}

static void activation_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                                const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out;
    grads_in[0] = ls_apply(&ls__op_activation_grad, attributes, sizeof(ls__activation_attributes),
                           (ls_tensor *[]) { grad, in[0] }, 2);
}

static ls_status activation_grad_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 2 && call->in[1].type == LS_DTYPE_F32 &&
                      ls__same(&call->in[0], &call->in[1]),
                  "takes g and x of one shape");
    out[0] = call->in[1];
    return check_kind(call);
}

/* An exponential counts as eight. */
static double twenty_each(const ls_op_call *call)
{
    return 20.0 * (double)ls_array_count(&call->out[0]);
}

const ls_op ls__op_activation = { .name = "activation",
                                  .shape = activation_shape,
                                  .gradient = activation_gradient,
                                  .flops = twenty_each };

const ls_op ls__op_activation_grad = { .name = "activation_grad",
                                       .shape = activation_grad_shape,
                                       .flops = twenty_each };
