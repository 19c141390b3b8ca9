/* Pools over windows of images, with their gradients. Formulas: ops.h. */
#include "graph/op_rule.h"

static ls_status check_window(const ls_op_call *call)
{
    const ls__pool2d_attributes *a = call->attributes;
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && ls__is_f32(x, 4), "takes one f32 input (B,C,H,W)");
    LS__SHAPE_TRY(a->height == x->shape[2] && a->width == x->shape[3], "attributes do not fit");
    LS__SHAPE_TRY(a->size >= 1 && a->size <= x->shape[2] && a->size <= x->shape[3],
                  "a window of %lld x %lld does not fit", (long long)a->size, (long long)a->size);
    return LS_OK;
}

static double read_once(const ls_op_call *call)
{
    return (double)ls_array_count(&call->in[0]);
}

static ls_status pool_shape(const ls_op_call *call, ls_array *out)
{
    const ls__pool2d_attributes *a = call->attributes;
    const ls_array *x = &call->in[0];
    ls_status status = check_window(call);
    if (status != LS_OK) return status;
    out[0] = ls__f32_4(x->shape[0], x->shape[1], a->height / a->size, a->width / a->size);
    return LS_OK;
}

static ls_status max_pool_shape(const ls_op_call *call, ls_array *out)
{
    const ls__pool2d_attributes *a = call->attributes;
    ls_status status = pool_shape(call, out);
    if (status != LS_OK) return status;
    out[1] = out[0];
    out[1].type = a->size <= 16 ? LS_DTYPE_U8 : LS_DTYPE_I32;
    return LS_OK;
}

static ls_status pool_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__pool2d_attributes *a = call->attributes;
    const ls_array *g = &call->in[0];
    LS__SHAPE_TRY(ls__is_f32(g, 4), "g must be f32 (B,C,H',W')");
    out[0] = ls__f32_4(g->shape[0], g->shape[1], a->height, a->width);
    return LS_OK;
}

static void max_pool_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                              const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in;
    grads_in[0] = ls_apply(&ls__op_max_pool2d_grad, attributes, sizeof(ls__pool2d_attributes),
                           (ls_tensor *[]) { grad, ls__graph_sibling(out, 1) }, 2);
}

static void avg_pool_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                              const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out;
    grads_in[0] =
        ls_apply(&ls__op_avg_pool2d_grad, attributes, sizeof(ls__pool2d_attributes), &grad, 1);
}

const ls_op ls__op_max_pool2d = {
    .name = "max_pool2d", .shape = max_pool_shape, .gradient = max_pool_gradient, .flops = read_once
};

const ls_op ls__op_max_pool2d_grad = { .name = "max_pool2d_grad", .shape = pool_grad_shape };

const ls_op ls__op_avg_pool2d = {
    .name = "avg_pool2d", .shape = pool_shape, .gradient = avg_pool_gradient, .flops = read_once
};

const ls_op ls__op_avg_pool2d_grad = { .name = "avg_pool2d_grad", .shape = pool_grad_shape };

/* --- the whole image as one window --- */

static ls_status global_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && ls__is_f32(x, 4), "takes one f32 input (B,C,H,W)");
    out[0] = ls__f32_2(x->shape[0], x->shape[1]);
    return LS_OK;
}

static ls_status global_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__pool2d_attributes *a = call->attributes;
    const ls_array *g = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && ls__is_f32(g, 2), "g must be f32 (B,C)");
    out[0] = ls__f32_4(g->shape[0], g->shape[1], a->height, a->width);
    return LS_OK;
}

static void global_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out;
    grads_in[0] = ls_apply(&ls__op_global_avg_pool2d_grad, attributes,
                           sizeof(ls__pool2d_attributes), &grad, 1);
}

const ls_op ls__op_global_avg_pool2d = { .name = "global_avg_pool2d",
                                         .shape = global_shape,
                                         .gradient = global_gradient,
                                         .flops = read_once };

const ls_op ls__op_global_avg_pool2d_grad = { .name = "global_avg_pool2d_grad",
                                              .shape = global_grad_shape };
