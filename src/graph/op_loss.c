/* Cross-entropy, accuracy, and the seed of the backward pass. Formulas: ops.h. */
#include "graph/op_rule.h"

#include <string.h>

/* scores (L,K), labels (L) */
static ls_status check_labels(const ls_array *scores, const ls_array *labels)
{
    LS__SHAPE_TRY(scores->type == LS_DTYPE_F32 && scores->rank >= 1, "scores must be f32 (...,K)");
    LS__SHAPE_TRY(labels->type == LS_DTYPE_I32 || labels->type == LS_DTYPE_I64 ||
                      labels->type == LS_DTYPE_U8,
                  "labels must be i32, i64 or u8, not %s", ls_dtype_name(labels->type));
    bool fits = labels->rank == scores->rank - 1;
    for (int i = 0; fits && i < labels->rank; i++) fits = labels->shape[i] == scores->shape[i];
    LS__SHAPE_TRY(fits, "scores (...,K) need one label for each row, (...)");
    return LS_OK;
}

static ls_array f32_like(const ls_array *labels)
{
    ls_array out = *labels;
    out.type = LS_DTYPE_F32;
    return out;
}

static ls_status per_target_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 2, "takes scores and labels");
    ls_status status = check_labels(&call->in[0], &call->in[1]);
    if (status != LS_OK) return status;
    out[0] = out[1] = out[2] = f32_like(&call->in[1]);
    return LS_OK;
}

static double per_score(const ls_op_call *call)
{
    return 4.0 * (double)ls_array_count(&call->in[0]);
}

static double per_score_gradient(const ls_op_call *call)
{
    return 4.0 * (double)ls_array_count(&call->out[0]);
}

static void cross_entropy_gradient(ls_graph *g, ls_tensor *const *in, ls_tensor *out,
                                   ls_tensor *grad, const void *attributes, ls_tensor **grads_in)
{
    (void)g, (void)attributes;
    ls_tensor *from[] = { grad, in[0], in[1], ls__graph_sibling(out, 2) };
    grads_in[0] = ls_apply(&ls__op_cross_entropy_grad, NULL, 0, from, 4);
}

static ls_status cross_entropy_grad_shape(const ls_op_call *call, ls_array *out)
{
    LS__SHAPE_TRY(call->nin == 4, "takes g, scores, labels and logsum");
    ls_status status = check_labels(&call->in[1], &call->in[2]);
    if (status != LS_OK) return status;
    out[0] = call->in[1];
    return LS_OK;
}

const ls_op ls__op_cross_entropy = { .name = "cross_entropy",
                                     .shape = per_target_shape,
                                     .gradient = cross_entropy_gradient,
                                     .flops = per_score };

const ls_op ls__op_cross_entropy_grad = { .name = "cross_entropy_grad",
                                          .shape = cross_entropy_grad_shape,
                                          .flops = per_score_gradient };

const ls_op ls__op_accuracy = { .name = "accuracy", .shape = per_target_shape };

static ls_status loss_grad_shape(const ls_op_call *call, ls_array *out)
{
    out[0] = call->in[0];
    return LS_OK;
}

const ls_op ls__op_loss_grad = { .name = "loss_grad", .shape = loss_grad_shape };
