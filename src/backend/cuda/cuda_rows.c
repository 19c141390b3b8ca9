/* Norms, softmax, activations, embeddings, rotary positions: shapes and attributes read from the
 * node, kernels launched. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_views.h"
#include "backend/cuda/kernel_rows.h"

static int64_t last_dim(const ls_tensor *x)
{
    return x->shape[x->rank - 1];
}

static int64_t rows_of(const ls_tensor *x)
{
    return ls__cuda_count(x) / last_dim(x);
}

static bool over_any(const ls__node *node, int input)
{
    (void)node, (void)input;
    return true;
}

static bool over_first(const ls__node *node, int input)
{
    (void)node;
    return input == 0;
}

/* g or x */
static bool over_first_two(const ls__node *node, int input)
{
    (void)node;
    return input < 2;
}

/* --- norms --- */

static ls_status run_norm(const cuda_call *call, bool centred)
{
    const ls__node *node = call->node;
    const ls__norm_attributes *attributes = node->attributes;
    norm_forward a = { .x = ls__cuda_in(call, 0),
                       .weight = ls__cuda_in(call, 1),
                       .y = ls__cuda_out(call, 0),
                       .mean = centred ? call->out[1] : NULL,
                       .inverse = call->out[centred ? 2 : 1],
                       .rows = rows_of(node->in[0]),
                       .width = last_dim(node->in[0]),
                       .epsilon = attributes->epsilon,
                       .centred = centred };
    if (node->nin == 3) a.bias = ls__cuda_in(call, 2);
    ls__launch_norm(&a, call->stream);
    return LS_OK;
}

static ls_status run_layer_norm(const cuda_call *call)
{
    return run_norm(call, true);
}

static ls_status run_rms_norm(const cuda_call *call)
{
    return run_norm(call, false);
}

static ls_status run_norm_grad(const cuda_call *call)
{
    const ls__node *node = call->node;
    bool centred = node->op == &ls__op_layer_norm_grad;
    norm_backward a = { .g = ls__cuda_in(call, 0),
                        .x = ls__cuda_in(call, 1),
                        .weight = ls__cuda_in(call, 2),
                        .mean = centred ? call->in[3] : NULL,
                        .inverse = call->in[centred ? 4 : 3],
                        .dx = ls__cuda_out(call, 0),
                        .dweight = call->out[1],
                        .dbias = call->out[2],
                        .partial = call->workspace,
                        .rows = rows_of(node->in[1]),
                        .width = last_dim(node->in[1]) };
    ls__launch_norm_grad(&a, call->stream);
    return LS_OK;
}

static size_t norm_grad_workspace(const ls__node *node)
{
    const ls_tensor *x = node->in[1];
    return (size_t)ls__norm_partial_floats(rows_of(x), last_dim(x)) * sizeof(float);
}

/* --- softmax --- */

static ls_status run_softmax(const cuda_call *call)
{
    const ls_tensor *x = call->node->in[0];
    ls__launch_softmax(call->in[0], ls__cuda_out(call, 0), rows_of(x), last_dim(x), call->stream);
    return LS_OK;
}

static ls_status run_softmax_grad(const cuda_call *call)
{
    const ls_tensor *y = call->node->in[1];
    ls__launch_softmax_grad(call->in[0], call->in[1], ls__cuda_out(call, 0), rows_of(y),
                            last_dim(y), call->stream);
    return LS_OK;
}

/* --- activations --- */

static ls_status run_activation(const cuda_call *call)
{
    const ls__activation_attributes *a = call->node->attributes;
    ls__launch_activation((int)a->kind, ls__cuda_in(call, 0), ls__cuda_out(call, 0),
                          ls__cuda_count(call->node->out[0]), call->stream);
    return LS_OK;
}

static ls_status run_activation_grad(const cuda_call *call)
{
    const ls__activation_attributes *a = call->node->attributes;
    ls__launch_activation_grad((int)a->kind, ls__cuda_in(call, 0), ls__cuda_in(call, 1),
                               ls__cuda_out(call, 0), ls__cuda_count(call->node->out[0]),
                               call->stream);
    return LS_OK;
}

/* --- embeddings --- */

static ls_status run_embedding(const cuda_call *call)
{
    const ls_tensor *table = call->node->in[1];
    ls__launch_embedding(ls__cuda_integers(call, 0), ls__cuda_count(call->node->in[0]), call->in[1],
                         table->shape[0], table->shape[1], ls__cuda_out(call, 0), call->values,
                         call->stream);
    return LS_OK;
}

static ls_status run_embedding_grad(const cuda_call *call)
{
    const ls_tensor *table = call->node->out[0];
    ls__launch_embedding_grad(call->in[0], ls__cuda_integers(call, 1),
                              ls__cuda_count(call->node->in[1]), call->out[0], table->shape[0],
                              table->shape[1], call->adds, call->stream);
    return LS_OK;
}

static ls_status run_position_embedding(const cuda_call *call)
{
    const ls__node *node = call->node;
    position_forward a = { .x = call->in[0],
                           .table = call->in[1],
                           .position = node->nin == 3 ? call->in[2] : NULL,
                           .y = ls__cuda_out(call, 0),
                           .batch = node->in[0]->shape[0],
                           .length = node->in[0]->shape[1],
                           .width = node->in[0]->shape[2],
                           .rows = node->in[1]->shape[0],
                           .values = call->values };
    ls__launch_position_embedding(&a, call->stream);
    return LS_OK;
}

static ls_status run_position_embedding_grad(const cuda_call *call)
{
    const ls_tensor *g = call->node->in[0], *table = call->node->out[0];
    ls__launch_position_embedding_grad(call->in[0], call->out[0], g->shape[0], g->shape[1],
                                       g->shape[2], table->shape[0], call->stream);
    return LS_OK;
}

/* --- rotary --- */

static ls_status run_rotary(const cuda_call *call)
{
    const ls__node *node = call->node;
    const ls__rotary_attributes *attributes = node->attributes;
    rotary_args a = { .x = ls__cuda_in(call, 0),
                      .y = ls__cuda_out(call, 0),
                      .position = node->nin == 2 ? call->in[1] : NULL,
                      .turns = call->workspace,
                      .batch = node->in[0]->shape[0],
                      .length = node->in[0]->shape[1],
                      .turned = (int)(attributes->heads + attributes->kv_heads),
                      .copied = (int)attributes->kv_heads,
                      .width = (int)attributes->width,
                      .theta = attributes->theta,
                      .inverse = attributes->inverse };
    ls__launch_rotary(&a, call->stream);
    return LS_OK;
}

static size_t rotary_workspace(const ls__node *node)
{
    const ls__rotary_attributes *a = node->attributes;
    const ls_tensor *x = node->in[0];
    return (size_t)ls__rotary_floats(x->shape[0], x->shape[1], (int)a->width, node->nin == 2) *
           sizeof(float);
}

const cuda_op ls__cuda_rows_ops[] = {
    { .op = &ls__op_layer_norm, .run = run_layer_norm, .in_place = over_first },
    { .op = &ls__op_layer_norm_grad,
      .run = run_norm_grad,
      .workspace = norm_grad_workspace,
      .in_place = over_first_two },
    { .op = &ls__op_rms_norm, .run = run_rms_norm, .in_place = over_first },
    { .op = &ls__op_rms_norm_grad,
      .run = run_norm_grad,
      .workspace = norm_grad_workspace,
      .in_place = over_first_two },
    { .op = &ls__op_softmax, .run = run_softmax, .in_place = over_any },
    { .op = &ls__op_softmax_grad, .run = run_softmax_grad, .in_place = over_any },
    { .op = &ls__op_activation, .run = run_activation, .in_place = over_any },
    { .op = &ls__op_activation_grad, .run = run_activation_grad, .in_place = over_any },
    { .op = &ls__op_embedding, .run = run_embedding },
    { .op = &ls__op_embedding_grad, .run = run_embedding_grad, .writes_f32 = true },
    { .op = &ls__op_position_embedding, .run = run_position_embedding, .in_place = over_first },
    { .op = &ls__op_position_embedding_grad,
      .run = run_position_embedding_grad,
      .writes_f32 = true },
    { .op = &ls__op_rotary,
      .run = run_rotary,
      .workspace = rotary_workspace,
      .in_place = over_first },
    { 0 },
};
