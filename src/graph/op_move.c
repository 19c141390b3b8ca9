/* transpose, slice and concat: elements change their places, whatever their type. Formulas: ops.h.
 */
#include "graph/op_rule.h"

static double no_flops(const ls_op_call *call)
{
    (void)call;
    return 0;
}

/* --- transpose --- */

static ls_status transpose_shape(const ls_op_call *call, ls_array *out)
{
    const ls__transpose_attributes *a = call->attributes;
    int rank = call->in[0].rank;
    LS__SHAPE_TRY(a->a >= 0 && a->a < rank && a->b >= 0 && a->b < rank,
                  "there is no dimension %lld", (long long)(a->a < rank ? a->b : a->a));
    out[0] = call->in[0];
    out[0].shape[a->a] = call->in[0].shape[a->b];
    out[0].shape[a->b] = call->in[0].shape[a->a];
    return LS_OK;
}

static void transpose_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                               const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out;
    grads_in[0] =
        ls_apply(&ls__op_transpose, attributes, sizeof(ls__transpose_attributes), &grad, 1);
}

const ls_op ls__op_transpose = {
    .name = "transpose", .shape = transpose_shape, .gradient = transpose_gradient, .flops = no_flops
};

/* --- slice --- */

static ls_status slice_shape(const ls_op_call *call, ls_array *out)
{
    const ls__slice_attributes *a = call->attributes;
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(a->dim >= 0 && a->dim < x->rank, "there is no dimension %lld", (long long)a->dim);
    LS__SHAPE_TRY(a->begin >= 0 && a->size >= 1 && a->begin <= x->shape[a->dim] &&
                      a->size <= x->shape[a->dim] - a->begin,
                  "%lld elements from %lld on are not all in dimension %lld", (long long)a->size,
                  (long long)a->begin, (long long)a->dim);
    out[0] = *x;
    out[0].shape[a->dim] = a->size;
    return LS_OK;
}

static void slice_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                           const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)in, (void)out;
    grads_in[0] = ls_apply(&ls__op_slice_grad, attributes, sizeof(ls__slice_attributes), &grad, 1);
}

static ls_status slice_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls__slice_attributes *a = call->attributes;
    const ls_array *g = &call->in[0];
    LS__SHAPE_TRY(a->dim >= 0 && a->dim < g->rank && g->shape[a->dim] == a->size && a->begin >= 0 &&
                      a->size <= a->whole - a->begin,
                  "the gradient is not that of a slice");
    out[0] = *g;
    out[0].shape[a->dim] = a->whole;
    return LS_OK;
}

const ls_op ls__op_slice = {
    .name = "slice", .shape = slice_shape, .gradient = slice_gradient, .flops = no_flops
};
const ls_op ls__op_slice_grad = { .name = "slice_grad",
                                  .shape = slice_grad_shape,
                                  .flops = no_flops };

/* --- concat --- */

static ls_status concat_shape(const ls_op_call *call, ls_array *out)
{
    const ls__concat_attributes *a = call->attributes;
    const ls_array *first = &call->in[0];
    LS__SHAPE_TRY(a->dim >= 0 && a->dim < first->rank, "there is no dimension %lld",
                  (long long)a->dim);
    out[0] = *first;
    for (int i = 1; i < call->nin; i++) {
        ls_array other = call->in[i];
        bool fits = other.rank == first->rank;
        int64_t size = fits ? other.shape[a->dim] : 0;
        if (fits) other.shape[a->dim] = first->shape[a->dim];
        LS__SHAPE_TRY(fits && ls__same(&other, first),
                      "the inputs may differ in dimension %lld only", (long long)a->dim);
        LS__SHAPE_TRY(!__builtin_add_overflow(out[0].shape[a->dim], size, &out[0].shape[a->dim]),
                      "the output has too many elements");
    }
    return LS_OK;
}

static void concat_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                            const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    const ls__concat_attributes *a = attributes;
    ls__slice_attributes part = { .dim = a->dim, .whole = out->shape[a->dim] };
    int nin = ls__input_count(out);
    for (int i = 0; i < nin; i++, part.begin += part.size) {
        part.size = in[i]->shape[a->dim];
        if (in[i]->differentiable)
            grads_in[i] = ls_apply(&ls__op_slice, &part, sizeof part, &grad, 1);
    }
}

const ls_op ls__op_concat = {
    .name = "concat", .shape = concat_shape, .gradient = concat_gradient, .flops = no_flops
};
