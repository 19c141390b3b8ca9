/* conv2d with its gradients. Formulas: ops.h. */
#include "graph/op_rule.h"

#include <string.h>

static double products(const ls_array *y, const ls_array *weight)
{
    return 2.0 * (double)ls_array_count(y) * (double)weight->shape[1] * (double)weight->shape[2] *
           (double)weight->shape[3];
}

static double conv2d_flops(const ls_op_call *call)
{
    return products(call->out, &call->in[1]);
}

static ls_status conv2d_shape(const ls_op_call *call, ls_array *out)
{
    const ls__conv2d_attributes *a = call->attributes;
    const ls_array *x = &call->in[0], *weight = &call->in[1], *bias = &call->in[2];
    LS__SHAPE_TRY(call->nin == 2 || call->nin == 3, "takes x, weight and perhaps bias");
    LS__SHAPE_TRY(ls__is_f32(x, 4) && ls__is_f32(weight, 4) && x->shape[1] == weight->shape[1] &&
                      weight->shape[2] == a->kernel && weight->shape[3] == a->kernel,
                  "x (B,C,H,W) and weight (O,C,kernel,kernel) do not fit");
    LS__SHAPE_TRY(call->nin == 2 || (ls__is_f32(bias, 1) && bias->shape[0] == weight->shape[0]),
                  "bias must be (O)");
    LS__SHAPE_TRY(a->kernel > 0 && a->stride > 0 && a->padding >= 0 && a->height == x->shape[2] &&
                      a->width == x->shape[3],
                  "kernel, stride and padding must be at least 1, 1 and 0");
    int64_t height = x->shape[2] + 2 * a->padding - a->kernel;
    int64_t width = x->shape[3] + 2 * a->padding - a->kernel;
    LS__SHAPE_TRY(height >= 0 && width >= 0, "kernel %lld does not fit with padding %lld",
                  (long long)a->kernel, (long long)a->padding);
    out[0] =
        ls__f32_4(x->shape[0], weight->shape[0], height / a->stride + 1, width / a->stride + 1);
    return LS_OK;
}

static void conv2d_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    ls_tensor *both[2];
    int wanted = ls__input_count(out) == 3 && in[2]->differentiable ? 2 : 1;
    ls__apply_multi(&ls__op_conv2d_grad_weight, attributes, sizeof(ls__conv2d_attributes),
                    (ls_tensor *[]) { grad, in[0] }, 2, both, wanted);
    grads_in[1] = both[0];
    if (wanted == 2) grads_in[2] = both[1];
    grads_in[0] = ls_apply(&ls__op_conv2d_grad_x, attributes, sizeof(ls__conv2d_attributes),
                           (ls_tensor *[]) { grad, in[1] }, 2);
}

const ls_op ls__op_conv2d = {
    .name = "conv2d", .shape = conv2d_shape, .gradient = conv2d_gradient, .flops = conv2d_flops
};

/* --- gradients --- */

static ls_status grad_x_shape(const ls_op_call *call, ls_array *out)
{
    const ls__conv2d_attributes *a = call->attributes;
    const ls_array *g = &call->in[0], *weight = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2 && ls__is_f32(g, 4) && ls__is_f32(weight, 4) &&
                      g->shape[1] == weight->shape[0],
                  "g (B,O,H',W') and weight (O,C,k,k) do not fit");
    out[0] = ls__f32_4(g->shape[0], weight->shape[1], a->height, a->width);
    return LS_OK;
}

static double grad_x_flops(const ls_op_call *call)
{
    return products(&call->in[0], &call->in[1]);
}

static ls_status grad_weight_shape(const ls_op_call *call, ls_array *out)
{
    const ls__conv2d_attributes *a = call->attributes;
    const ls_array *g = &call->in[0], *x = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2 && ls__is_f32(g, 4) && ls__is_f32(x, 4) &&
                      g->shape[0] == x->shape[0],
                  "g (B,O,H',W') and x (B,C,H,W) do not fit");
    out[0] = ls__f32_4(g->shape[1], x->shape[1], a->kernel, a->kernel);
    out[1] = ls__f32_1(g->shape[1]);
    return LS_OK;
}

static double grad_weight_flops(const ls_op_call *call)
{
    return products(&call->in[0], &call->out[0]);
}

const ls_op ls__op_conv2d_grad_x = { .name = "conv2d_grad_x",
                                     .shape = grad_x_shape,
                                     .flops = grad_x_flops };

const ls_op ls__op_conv2d_grad_weight = { .name = "conv2d_grad_weight",
                                          .shape = grad_weight_shape,
                                          .flops = grad_weight_flops };
