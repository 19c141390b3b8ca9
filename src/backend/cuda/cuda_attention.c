/* Attention: shapes and attributes read from the node, kernels launched: the vendor's library's where
 * they were chosen (cuda_attention_choice.c), else our own. */
#include "backend/cuda/cuda_attention.h"
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

/* The library's kernels read and write bf16, and add in an order of their own. */
static bool may_be_the_librarys(const ls__node *node)
{
    const bool backward = node->op == &ls__op_attention_grad;
    const ls__attention_attributes *a = node->attributes;
    for (int k = 0; k < (backward ? 3 : 1); k++) /* g, qkv, y */
        if (!node->in[k]->half) return false;
    return node->out[0]->half && a->width % 8 == 0 && a->width <= 128 &&
           !ls__graph_options_of(node->in[0]->graph)->deterministic;
}

static size_t attention_workspace(const ls__node *node)
{
    attention_shape s = shape_of(node, node->in[0]);
    return may_be_the_librarys(node) ? ls__cuda_attention_choose(ATTENTION_FORWARD, &s) : 0;
}

static ls_status run_attention(const cuda_call *call)
{
    attention_shape s = shape_of(call->node, call->node->in[0]);
    const attention_plan *plan = NULL;
    if (may_be_the_librarys(call->node)) plan = ls__cuda_attention_plan(ATTENTION_FORWARD, &s);
    if (plan) {
        if (ls__vendor_attention(plan, call->in[0], call->out[0], call->out[1], call->workspace,
                                 call->stream) == LS_OK)
            return LS_OK;
        ls__cuda_attention_refuse(ATTENTION_FORWARD, &s);
    }
    ls__launch_attention(&s, ls__cuda_in(call, 0), ls__cuda_out(call, 0), call->out[1],
                         call->stream);
    return LS_OK;
}

static size_t attention_grad_workspace(const ls__node *node)
{
    attention_shape s = shape_of(node, node->in[1]);
    size_t own = (size_t)ls__cuda_count(node->in[3]) * sizeof(float), theirs = 0;
    if (may_be_the_librarys(node)) theirs = ls__cuda_attention_choose(ATTENTION_BACKWARD, &s);
    return theirs > own ? theirs : own;
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
    const attention_plan *plan = NULL;
    if (may_be_the_librarys(call->node)) plan = ls__cuda_attention_plan(ATTENTION_BACKWARD, &s);
    if (plan) {
        if (ls__vendor_attention_grad(plan, &a, call->workspace, call->stream) == LS_OK)
            return LS_OK;
        ls__cuda_attention_refuse(ATTENTION_BACKWARD, &s);
    }
    ls__launch_attention_grad(&s, &a, call->stream);
    return LS_OK;
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
    { .op = &ls__op_attention, .run = run_attention, .workspace = attention_workspace },
    { .op = &ls__op_attention_grad,
      .run = run_attention_grad,
      .workspace = attention_grad_workspace },
    { .op = &ls__op_attention_cached, .run = run_attention_cached },
    { 0 },
};
