/* add, sub, mul, div with NumPy's broadcasting, and sum_to, which brings a gradient back to the
 * shape that was broadcast. Formulas: ops.h. */
#include "graph/op_rule.h"

#include <string.h>

/* Extent of dimension i of an output with so many dimensions; 1 where x has none. */
static int64_t aligned(const ls_array *x, int rank, int i)
{
    int own = i - (rank - x->rank);
    return own < 0 ? 1 : x->shape[own];
}

static ls_status broadcast_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *a = &call->in[0], *b = &call->in[1];
    LS__SHAPE_TRY(call->nin == 2, "takes two inputs");
    LS__SHAPE_TRY(a->type == LS_DTYPE_F32 && b->type == LS_DTYPE_F32,
                  "takes f32 (ls_scale converts integers)");
    out[0] = (ls_array) { .type = LS_DTYPE_F32, .rank = a->rank > b->rank ? a->rank : b->rank };
    for (int i = 0; i < out[0].rank; i++) {
        int64_t m = aligned(a, out[0].rank, i), n = aligned(b, out[0].rank, i);
        LS__SHAPE_TRY(m == n || m == 1 || n == 1,
                      "the inputs must be of one shape, or broadcast to one: from the last "
                      "dimension on, equal or 1");
        out[0].shape[i] = m > n ? m : n;
    }
    return LS_OK;
}

/* A gradient of the output's shape, brought to x's. */
static ls_tensor *to_shape_of(const ls_tensor *x, ls_tensor *grad)
{
    if (!grad) return NULL;
    bool same = grad->rank == x->rank;
    for (int i = 0; same && i < x->rank; i++) same = grad->shape[i] == x->shape[i];
    if (same) return grad;
    ls__shape_attributes shape = { .rank = x->rank };
    memcpy(shape.shape, x->shape, sizeof shape.shape);
    return ls_apply(&ls__op_sum_to, &shape, sizeof shape, &grad, 1);
}

static ls_tensor *binary(const ls_op *op, ls_tensor *a, ls_tensor *b)
{
    return ls_apply(op, NULL, 0, (ls_tensor *[]) { a, b }, 2);
}

static ls_tensor *negative(ls_tensor *x)
{
    ls__scale_attributes minus = { .factor = -1 };
    return ls_apply(&ls__op_scale, &minus, sizeof minus, &x, 1);
}

static void add_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                         const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    for (int i = 0; i < 2; i++)
        if (in[i]->differentiable) grads_in[i] = to_shape_of(in[i], grad);
}

static void sub_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                         const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    if (in[0]->differentiable) grads_in[0] = to_shape_of(in[0], grad);
    if (in[1]->differentiable) grads_in[1] = negative(to_shape_of(in[1], grad));
}

static void mul_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                         const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)out, (void)attributes;
    for (int i = 0; i < 2; i++)
        if (in[i]->differentiable)
            grads_in[i] = to_shape_of(in[i], binary(&ls__op_mul, grad, in[1 - i]));
}

/* da = g / b; db = -g y / b */
static void div_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                         const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)attributes;
    ls_tensor *slope = binary(&ls__op_div, grad, in[1]);
    if (in[0]->differentiable) grads_in[0] = to_shape_of(in[0], slope);
    if (in[1]->differentiable)
        grads_in[1] = negative(to_shape_of(in[1], binary(&ls__op_mul, slope, out)));
}

const ls_op ls__op_add = { .name = "add", .shape = broadcast_shape, .gradient = add_gradient };
const ls_op ls__op_sub = { .name = "sub", .shape = broadcast_shape, .gradient = sub_gradient };
const ls_op ls__op_mul = { .name = "mul", .shape = broadcast_shape, .gradient = mul_gradient };
const ls_op ls__op_div = { .name = "div", .shape = broadcast_shape, .gradient = div_gradient };

/* --- sum_to --- */

static ls_status sum_to_shape(const ls_op_call *call, ls_array *out)
{
    const ls__shape_attributes *a = call->attributes;
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(call->nin == 1 && x->type == LS_DTYPE_F32 && a->rank <= x->rank,
                  "takes one f32 input with at least as many dimensions as it sums to");
    out[0] = (ls_array) { .type = LS_DTYPE_F32, .rank = (int)a->rank };
    memcpy(out[0].shape, a->shape, sizeof out[0].shape);
    for (int i = 0; i < x->rank; i++) {
        int64_t n = aligned(&out[0], x->rank, i);
        LS__SHAPE_TRY(n == x->shape[i] || n == 1, "the shape does not broadcast to its input's");
    }
    return LS_OK;
}

static double per_input(const ls_op_call *call)
{
    return (double)ls_array_count(&call->in[0]);
}

const ls_op ls__op_sum_to = { .name = "sum_to", .shape = sum_to_shape, .flops = per_input };
