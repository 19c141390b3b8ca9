/* Operations of the user's: their compute function knows host memory, so the inputs are brought
 * here and the output is sent back, while the device waits. A run with one cannot be captured. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"

typedef struct cuda_user_op {
    const ls__node *node;
    ls_array in[LS__MAX_INPUTS], out; /* in host memory */
    uint16_t *half;                   /* the output as bf16, where it is stored so */
} cuda_user_op;

static ls_status make_array(const ls_tensor *x, ls_array *out)
{
    *out = (ls_array) { .type = x->type, .rank = x->rank };
    memcpy(out->shape, x->shape, sizeof out->shape);
    out->data = ls__alloc((size_t)ls__cuda_count(x) + 1, ls_dtype_size(x->type));
    return out->data ? LS_OK : LS_ERR_MEMORY;
}

void ls__cuda_user_op_destroy(cuda_user_op *user)
{
    if (!user) return;
    for (int i = 0; i < LS__MAX_INPUTS; i++) ls__free(user->in[i].data);
    ls__free(user->out.data);
    ls__free(user->half);
    ls__free(user);
}

static ls_status make_arrays(cuda_user_op *user)
{
    const ls__node *node = user->node;
    for (int i = 0; i < node->nin; i++) LS_TRY(make_array(node->in[i], &user->in[i]));
    LS_TRY(make_array(node->out[0], &user->out));
    if (!node->out[0]->half) return LS_OK;
    user->half = ls__alloc((size_t)ls__cuda_count(node->out[0]) + 1, sizeof *user->half);
    return user->half ? LS_OK : LS_ERR_MEMORY;
}

ls_status ls__cuda_user_op_create(const ls__node *node, cuda_user_op **out)
{
    *out = NULL;
    cuda_user_op *user = ls__alloc(1, sizeof *user);
    if (!user) return LS_ERR_MEMORY;
    user->node = node;
    ls_status status = make_arrays(user);
    if (status == LS_OK)
        *out = user;
    else
        ls__cuda_user_op_destroy(user);
    return status;
}

static ls_status fetch(cuda_user_op *user, const cuda_call *call)
{
    for (int i = 0; i < user->node->nin; i++)
        LS_CUDA_TRY(cudaMemcpyAsync(user->in[i].data, call->in[i],
                                    ls__cuda_stored_bytes(user->node->in[i]),
                                    cudaMemcpyDeviceToHost, call->stream),
                    user->node->op->name);
    LS_CUDA_TRY(cudaStreamSynchronize(call->stream), "computing");
    return LS_OK;
}

/* To the nearest number that bf16 holds, of two equally near the even one; a NaN stays one. */
static void round_to_half(const float *x, uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        y[i] = nan ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

ls_status ls__cuda_user_op_run(cuda_user_op *user, const cuda_call *call)
{
    const ls__node *node = user->node;
    ls_op_call c = { .in = user->in,
                     .nin = node->nin,
                     .out = &user->out,
                     .attributes = node->attributes,
                     .end = user->out.rank ? user->out.shape[0] : 1 };
    const void *from = user->out.data;
    LS_TRY(fetch(user, call));
    node->op->compute(&c);
    if (user->half) {
        round_to_half(user->out.data, user->half, ls__cuda_count(node->out[0]));
        from = user->half;
    }
    LS_CUDA_TRY(cudaMemcpyAsync(call->out[0], from, ls__cuda_stored_bytes(node->out[0]),
                                cudaMemcpyHostToDevice, call->stream),
                node->op->name);
    /* The array is filled again at the next run: it must have been read by then. */
    LS_CUDA_TRY(cudaStreamSynchronize(call->stream), "computing");
    return LS_OK;
}
