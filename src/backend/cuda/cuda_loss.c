/* Losses and scores: shapes and attributes read from the node, kernels launched. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_views.h"
#include "backend/cuda/kernel_loss.h"

/* Inputs at `scores` and the labels behind it. */
static score_rows rows_at(const cuda_call *call, int scores)
{
    const ls_tensor *x = call->node->in[scores];
    int64_t rows = ls__cuda_count(call->node->in[scores + 1]);
    return (score_rows) { .scores = call->in[scores],
                          .labels = ls__cuda_integers(call, scores + 1),
                          .rows = rows,
                          .classes = x->shape[x->rank - 1],
                          .values = call->values };
}

static ls_status run_cross_entropy(const cuda_call *call)
{
    score_rows rows = rows_at(call, 0);
    ls__launch_cross_entropy(&rows, ls__cuda_out(call, 0), ls__cuda_out(call, 1), call->out[2],
                             call->stream);
    return LS_OK;
}

static ls_status run_cross_entropy_grad(const cuda_call *call)
{
    score_rows rows = rows_at(call, 1);
    ls__launch_cross_entropy_grad(&rows, call->in[0], call->in[3], ls__cuda_out(call, 0),
                                  call->stream);
    return LS_OK;
}

static ls_status run_accuracy(const cuda_call *call)
{
    score_rows rows = rows_at(call, 0);
    ls__launch_accuracy(&rows, ls__cuda_out(call, 0), ls__cuda_out(call, 1), call->stream);
    return LS_OK;
}

static ls_status run_loss_grad(const cuda_call *call)
{
    ls__launch_loss_grad(call->node->nin == 2 ? call->in[1] : NULL, ls__cuda_out(call, 0),
                         ls__cuda_count(call->node->out[0]), call->values, call->stream);
    return LS_OK;
}

static ls_status run_elementwise_loss(const cuda_call *call)
{
    const ls__node *node = call->node;
    const ls__elementwise_loss_attributes *attributes = node->attributes;
    bool gradient = node->op == &ls__op_elementwise_loss_grad;
    elementwise_loss_args a = { .kind = (int)attributes->kind,
                                .beta = (float)attributes->beta,
                                .g = gradient ? call->in[0] : NULL,
                                .x = call->in[gradient],
                                .target = call->in[gradient + 1],
                                .out = ls__cuda_out(call, 0),
                                .count = ls__cuda_count(node->out[0]) };
    ls__launch_elementwise_loss(&a, call->stream);
    return LS_OK;
}

/* dscores over the scores: no second block of the vocabulary's width. */
static bool over_scores(const ls__node *node, int input)
{
    (void)node;
    return input == 1;
}

static bool over_any(const ls__node *node, int input)
{
    (void)node, (void)input;
    return true;
}

const cuda_op ls__cuda_loss_ops[] = {
    { .op = &ls__op_cross_entropy, .run = run_cross_entropy },
    { .op = &ls__op_cross_entropy_grad, .run = run_cross_entropy_grad, .in_place = over_scores },
    { .op = &ls__op_accuracy, .run = run_accuracy },
    { .op = &ls__op_loss_grad, .run = run_loss_grad },
    { .op = &ls__op_elementwise_loss, .run = run_elementwise_loss, .in_place = over_any },
    { .op = &ls__op_elementwise_loss_grad, .run = run_elementwise_loss, .in_place = over_any },
    { 0 },
};
