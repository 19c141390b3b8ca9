/* relu, scale, copy and reshape; and relu's gradient. Formulas: ops.h. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernel_elementwise.h"
#include "base/check.h"

static bool over_alike(const ls__node *node, int input)
{
    const ls_tensor *x = node->in[input], *y = node->out[0];
    return x->type == y->type && x->half == y->half;
}

static ls_status run_relu(const cuda_call *call)
{
    const ls_tensor *x = call->node->in[0], *y = call->node->out[0];
    ls__cuda_launch_relu(call->stream, ls__cuda_count(y), call->in[0], x->half, call->out[0],
                         y->half);
    return LS_OK;
}

static ls_status run_relu_grad(const cuda_call *call)
{
    const ls_tensor *g = call->node->in[0], *y = call->node->in[1], *dx = call->node->out[0];
    ls__cuda_launch_relu_grad(call->stream, ls__cuda_count(dx), call->in[0], g->half, call->in[1],
                              y->half, call->out[0], dx->half);
    return LS_OK;
}

static cuda_number number_of(const ls_tensor *x)
{
    switch (x->type) {
    case LS_DTYPE_U8:
        return CUDA_U8;
    case LS_DTYPE_I32:
        return CUDA_I32;
    case LS_DTYPE_I64:
        return CUDA_I64;
    default:
        return x->half ? CUDA_BF16 : CUDA_F32;
    }
}

static ls_status run_scale(const cuda_call *call)
{
    const ls__scale_attributes *a = call->node->attributes;
    const ls_tensor *x = call->node->in[0], *y = call->node->out[0];
    ls__cuda_launch_scale(call->stream, ls__cuda_count(y), a->factor, a->offset, call->in[0],
                          number_of(x), call->out[0], y->half);
    return LS_OK;
}

static ls_status run_copy(const cuda_call *call)
{
    const ls_tensor *x = call->node->in[0], *y = call->node->out[0];
    if (call->in[0] == call->out[0]) return LS_OK; /* in place */
    int64_t count = ls__cuda_count(y);
    if (x->half != y->half) {
        ls__cuda_launch_convert(call->stream, count, call->in[0], x->half, call->out[0], y->half);
        return LS_OK;
    }
    /* A failure is the executor's to find, as that of a launch. */
    (void)cudaMemcpyAsync(call->out[0], call->in[0],
                          (size_t)count * (x->half ? 2 : ls_dtype_size(x->type)),
                          cudaMemcpyDeviceToDevice, call->stream);
    return LS_OK;
}

/* A view: the executor gives both tensors the same memory, and never calls it. */
static ls_status run_reshape(const cuda_call *call)
{
    (void)call;
    return LS_OK;
}

const cuda_op ls__cuda_elementwise_ops[] = {
    { .op = &ls__op_relu, .run = run_relu, .in_place = over_alike },
    { .op = &ls__op_relu_grad, .run = run_relu_grad, .in_place = over_alike },
    { .op = &ls__op_scale, .run = run_scale, .in_place = over_alike },
    { .op = &ls__op_copy, .run = run_copy, .in_place = over_alike },
    { .op = &ls__op_reshape, .run = run_reshape },
    { 0 },
};
