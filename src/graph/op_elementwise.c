/* Element by element: relu, scale; and copy and reshape, which move elements or not even that.
 * Formulas: ops.h. */
#include "graph/op_rule.h"

#include <string.h>

static ls_status same_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->in[0].type == LS_DTYPE_F32, "takes f32 (ls_scale converts integers)");
    for (int i = 1; i < call->nin; i++)
        LS__SHAPE_TRY(ls__same(&call->in[0], &call->in[i]), "the inputs must be of one shape");
    out[0] = call->in[0];
    return LS_OK;
}

/* --- relu --- */

static void relu_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                          const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)attributes;
    grads_in[0] = ls_apply(&ls__op_relu_grad, NULL, 0, (ls_tensor *[]) { grad, out }, 2);
}

const ls_op ls__op_relu = { .name = "relu", .shape = same_shape, .gradient = relu_gradient };
const ls_op ls__op_relu_grad = { .name = "relu_grad", .shape = same_shape };

/* --- scale --- */

static ls_status scale_shape(const ls_op_call *call, ls_array *out)
{
    ls_dtype type = call->in[0].type;
    LS__SHAPE_TRY(type == LS_DTYPE_F32 || type == LS_DTYPE_U8 || type == LS_DTYPE_I32 ||
                      type == LS_DTYPE_I64,
                  "takes f32, u8, i32 or i64, not %s", ls_dtype_name(type));
    out[0] = call->in[0];
    out[0].type = LS_DTYPE_F32;
    return LS_OK;
}

static void scale_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                           const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out;
    const ls__scale_attributes *a = attributes;
    ls__scale_attributes slope = { .factor = a->factor, .offset = 0 };
    grads_in[0] =
        slope.factor == 1 ? grad : ls_apply(&ls__op_scale, &slope, sizeof slope, &grad, 1);
}

const ls_op ls__op_scale = { .name = "scale", .shape = scale_shape, .gradient = scale_gradient };

/* --- copy, reshape --- */

static ls_status copy_shape(const ls_op_call *call, ls_array *out)
{
    out[0] = call->in[0];
    return LS_OK;
}

static void copy_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                          const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out, (void)attributes;
    grads_in[0] = grad;
}

const ls_op ls__op_copy = { .name = "copy", .shape = copy_shape, .gradient = copy_gradient };

static ls_status reshape_shape(const ls_op_call *call, ls_array *out)
{
    const ls__reshape_attributes *a = call->attributes;
    out[0] = (ls_array) { .type = call->in[0].type, .rank = (int)a->rank };
    memcpy(out[0].shape, a->shape, sizeof out[0].shape);
    LS__SHAPE_TRY(ls_array_count(&out[0]) == ls_array_count(&call->in[0]),
                  "the number of elements changes");
    return LS_OK;
}

static void reshape_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                             const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    ls__reshape_attributes back = { .rank = in[0]->rank };
    memcpy(back.shape, in[0]->shape, sizeof back.shape);
    grads_in[0] = ls_apply(&ls__op_reshape, &back, sizeof back, &grad, 1);
}

static double no_flops(const ls_op_call *call)
{
    (void)call;
    return 0;
}

const ls_op ls__op_reshape = {
    .name = "reshape", .shape = reshape_shape, .gradient = reshape_gradient, .flops = no_flops
};
