/* Batch norm over groups of consecutive samples, with its gradient. Formulas: ops.h.
 *
 * The statistics of a group depend on its samples only, so cutting the batch anywhere between
 * groups changes nothing. The sums for the running statistics are weighted by samples, so that
 * adding them over micro-batches and dividing by the batch gives the same as one micro-batch. */
#include "graph/op_rule.h"

static ls_status check_channels(const ls_op_call *call, int first, int nin)
{
    const ls_array *x = &call->in[0];
    LS__SHAPE_TRY(call->nin == nin, "takes %d inputs", nin);
    LS__SHAPE_TRY(x->type == LS_DTYPE_F32 && x->rank >= 2, "x must be f32 (B,C,...)");
    for (int i = first; i < nin; i++)
        LS__SHAPE_TRY(ls__is_f32(&call->in[i], 1) && call->in[i].shape[0] == x->shape[1],
                      "weight, bias and statistics must be (C)");
    return LS_OK;
}

static int64_t groups_of(const ls_op_call *call)
{
    const ls__batch_norm_attributes *a = call->attributes;
    return (call->in[0].shape[0] + a->group - 1) / a->group;
}

static double eight_each(const ls_op_call *call)
{
    return 8.0 * (double)ls_array_count(&call->in[0]);
}

static ls_status batch_norm_shape(const ls_op_call *call, ls_array *out)
{
    const ls__batch_norm_attributes *a = call->attributes;
    const ls_array *x = &call->in[0];
    ls_status status = check_channels(call, 1, 3);
    if (status != LS_OK) return status;
    LS__SHAPE_TRY(a->group >= 1, "a group of %lld samples", (long long)a->group);
    out[0] = *x;
    out[1] = out[2] = ls__f32_2(groups_of(call), x->shape[1]);
    out[3] = out[4] = ls__f32_1(x->shape[1]);
    return LS_OK;
}

static void batch_norm_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out, ls_tensor *grad,
                                const void *attributes, ls_tensor **grads_in)
{
    (void)g;
    ls_tensor *from[] = { grad, in[0], in[1], ls__graph_sibling(out, 1),
                          ls__graph_sibling(out, 2) };
    ls__apply_multi(&ls__op_batch_norm_grad, attributes, sizeof(ls__batch_norm_attributes), from, 5,
                    grads_in, 3);
}

static ls_status batch_norm_grad_shape(const ls_op_call *call, ls_array *out)
{
    const ls_array *g = &call->in[0], *x = &call->in[1], *weight = &call->in[2];
    LS__SHAPE_TRY(call->nin == 5 && ls__same(g, x) && ls__is_f32(weight, 1),
                  "takes g, x, weight, mean and inverse");
    LS__SHAPE_TRY(ls__is_f32(&call->in[3], 2) && ls__same(&call->in[3], &call->in[4]) &&
                      call->in[3].shape[0] == groups_of(call),
                  "mean and inverse must be (G,C)");
    out[0] = *x;
    out[1] = out[2] = *weight;
    return LS_OK;
}

const ls_op ls__op_batch_norm = { .name = "batch_norm",
                                  .shape = batch_norm_shape,
                                  .gradient = batch_norm_gradient,
                                  .flops = eight_each };

const ls_op ls__op_batch_norm_grad = { .name = "batch_norm_grad",
                                       .shape = batch_norm_grad_shape,
                                       .flops = eight_each };

static ls_status inference_shape(const ls_op_call *call, ls_array *out)
{
    ls_status status = check_channels(call, 1, 5);
    if (status == LS_OK) out[0] = call->in[0];
    return status;
}

const ls_op ls__op_batch_norm_inference = { .name = "batch_norm_inference",
                                            .shape = inference_shape };
