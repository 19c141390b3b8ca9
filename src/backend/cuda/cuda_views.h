/* What a node's tensors are called by launchers (kernel_types.h). */
#ifndef LS_BACKEND_CUDA_VIEWS_H
#define LS_BACKEND_CUDA_VIEWS_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernel_types.h"

static inline device_in ls__cuda_in(const cuda_call *call, int input)
{
    const ls_tensor *x = call->node->in[input];
    return (device_in) { .data = call->in[input],
                         .half = x->half,
                         .rounds = ls__node_rounds(call->node, input) && !x->half };
}

static inline device_out ls__cuda_out(const cuda_call *call, int output)
{
    return (device_out) { .data = call->out[output],
                          .half = output < call->node->nout && call->node->out[output]->half };
}

/* The input's integers; so many to a sample as there are micro-batches' samples in it, at least
 * one. */
static inline device_integers ls__cuda_integers(const cuda_call *call, int input)
{
    const ls_tensor *x = call->node->in[input];
    int64_t each = ls__cuda_count(x) / ls__graph_options_of(x->graph)->batch;
    return (device_integers) { .data = call->in[input],
                               .type = x->type == LS_DTYPE_U8    ? DEVICE_U8
                                       : x->type == LS_DTYPE_I64 ? DEVICE_I64
                                                                 : DEVICE_I32,
                               .per_sample = each > 0 ? each : 1 };
}

#endif
