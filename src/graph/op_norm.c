/* Norms over the last dimension: layer_norm and rms_norm, with their gradients. Formulas: ops.h.
 *
 * The forward pass hands mean and inverse deviation of each row to the backward pass: two numbers
 * instead of a second look at the row. */
#include "graph/op_rule.h"

/* x (R,C), then parameters (C) up to input nin */
static ls_status check_rows(const ls_op_call *call, int x, int first, int last)
{
    const ls_array *rows = &call->in[x];
    LS__SHAPE_TRY(rows->type == LS_DTYPE_F32 && rows->rank >= 1, "x must be f32 (...,C)");
    for (int i = first; i <= last; i++)
        LS__SHAPE_TRY(ls__is_f32(&call->in[i], 1) &&
                          call->in[i].shape[0] == rows->shape[rows->rank - 1],
                      "weight and bias must be (C)");
    return LS_OK;
}

/* x without its last dimension */
static ls_array one_per_row(const ls_array *x)
{
    ls_array out = *x;
    out.shape[--out.rank] = 0;
    return out;
}

static ls_status check_statistics(const ls_op_call *call, const ls_array *x, int first)
{
    ls_array wanted = one_per_row(x);
    for (int i = first; i < call->nin; i++)
        LS__SHAPE_TRY(ls__same(&call->in[i], &wanted), "mean and inverse must be one per row");
    return LS_OK;
}

static double eight_each(const ls_op_call *call)
{
    return 8.0 * (double)ls_array_count(&call->in[0]);
}

/* --- layer norm --- */

static ls_status layer_norm_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 2 || call->nin == 3, "takes x, weight and perhaps bias");
    ls_status status = check_rows(call, 0, 1, call->nin - 1);
    if (status != LS_OK) return status;
    out[0] = call->in[0];
    out[1] = out[2] = one_per_row(&call->in[0]);
    return LS_OK;
}

static void layer_norm_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                                const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    ls_tensor *from[] = { grad, in[0], in[1], ls__graph_sibling(out, 1),
                          ls__graph_sibling(out, 2) };
    int wanted = ls__input_count(out) == 3 && in[2]->differentiable ? 3 : 2;
    ls__apply_multi(&ls__op_layer_norm_grad, attributes, sizeof(ls__norm_attributes), from, 5,
                    grads_in, wanted);
}

static ls_status layer_norm_grad_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 5 && ls__same(&call->in[0], &call->in[1]),
                  "takes g, x, weight, mean and inverse");
    ls_status status = check_rows(call, 1, 2, 2);
    if (status == LS_OK) status = check_statistics(call, &call->in[1], 3);
    if (status != LS_OK) return status;
    out[0] = call->in[1];
    out[1] = out[2] = call->in[2];
    return LS_OK;
}

const ls_op ls__op_layer_norm = { .name = "layer_norm",
                                  .shape = layer_norm_shape,
                                  .gradient = layer_norm_gradient,
                                  .flops = eight_each };

const ls_op ls__op_layer_norm_grad = { .name = "layer_norm_grad",
                                       .shape = layer_norm_grad_shape,
                                       .flops = eight_each };

/* --- RMS norm --- */

static ls_status rms_norm_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 2, "takes x and weight");
    ls_status status = check_rows(call, 0, 1, 1);
    if (status != LS_OK) return status;
    out[0] = call->in[0];
    out[1] = one_per_row(&call->in[0]);
    return LS_OK;
}

static void rms_norm_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                              const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    ls_tensor *from[] = { grad, in[0], in[1], ls__graph_sibling(out, 1) };
    ls__apply_multi(&ls__op_rms_norm_grad, attributes, sizeof(ls__norm_attributes), from, 4,
                    grads_in, 2);
}

static ls_status rms_norm_grad_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 4 && ls__same(&call->in[0], &call->in[1]),
                  "takes g, x, weight and inverse");
    ls_status status = check_rows(call, 1, 2, 2);
    if (status == LS_OK) status = check_statistics(call, &call->in[1], 3);
    if (status != LS_OK) return status;
    out[0] = call->in[1];
    out[1] = call->in[2];
    return LS_OK;
}

const ls_op ls__op_rms_norm = {
    .name = "rms_norm", .shape = rms_norm_shape, .gradient = rms_norm_gradient, .flops = eight_each
};

const ls_op ls__op_rms_norm_grad = { .name = "rms_norm_grad",
                                     .shape = rms_norm_grad_shape,
                                     .flops = eight_each };
