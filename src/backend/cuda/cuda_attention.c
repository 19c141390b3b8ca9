/* Attention: shapes and attributes read from the node, kernels launched. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_views.h"
#include "backend/cuda/kernel_attention.h"

static attention_shape shape_of(const ls__node *node, const ls_tensor *qkv)
{
    const ls__attention_attributes *a = node->attributes;
    return (attention_shape) { .batch = qkv->shape[0],
                               .tokens = qkv->shape[1],
                               .heads = (int)a->heads,
                               .kv_heads = (int)a->kv_heads,
                               .width = (int)a->width,
                               .causal = a->causal,
                               .scale = (float)a->scale };
}

static ls_status run_attention(const cuda_call *call)
{
    attention_shape s = shape_of(call->node, call->node->in[0]);
    ls__launch_attention(&s, ls__cuda_in(call, 0), ls__cuda_out(call, 0), call->out[1],
                         call->stream);
    return LS_OK;
}

static ls_status run_attention_grad(const cuda_call *call)
{
    attention_shape s = shape_of(call->node, call->node->in[1]);
    attention_backward a = { .g = ls__cuda_in(call, 0),
                             .qkv = ls__cuda_in(call, 1),
                             .y = ls__cuda_in(call, 2),
                             .logsum = call->in[3],
                             .dqkv = ls__cuda_out(call, 0),
                             .along = call->workspace };
    ls__launch_attention_grad(&s, &a, call->stream);
    return LS_OK;
}

static size_t attention_grad_workspace(const ls__node *node)
{
    return (size_t)ls__cuda_count(node->in[3]) * sizeof(float);
}

static ls_status run_attention_cached(const cuda_call *call)
{
    const ls__node *node = call->node;
    attention_shape s = shape_of(node, node->in[0]);
    /* The cache is a state, written in place. */
    attention_decode a = { .qkv = ls__cuda_in(call, 0),
                           .cache = (float *)(uintptr_t)call->in[1],
                           .position = call->in[2],
                           .rows = node->in[1]->shape[1],
                           .y = ls__cuda_out(call, 0),
                           .values = call->values };
    ls__launch_attention_cached(&s, &a, call->stream);
    return LS_OK;
}

const cuda_op ls__cuda_attention_ops[] = {
    { .op = &ls__op_attention, .run = run_attention },
    { .op = &ls__op_attention_grad,
      .run = run_attention_grad,
      .workspace = attention_grad_workspace },
    { .op = &ls__op_attention_cached, .run = run_attention_cached },
    { 0 },
};
