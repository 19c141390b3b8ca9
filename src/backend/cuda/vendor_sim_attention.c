/* Attention on a simulated GPU: there is no library, so that our own kernels run. */
#include "backend/cuda/vendor_attention.h"

#include "base/check.h"

bool ls__vendor_attention_is_here(void)
{
    return false;
}

ls_status ls__vendor_attention_plan(attention_pass pass, const attention_shape *s,
                                    attention_plan **out, size_t *nbytes)
{
    (void)pass, (void)s;
    *out = NULL;
    *nbytes = 0;
    return LS_ERR_UNSUPPORTED;
}

ls_status ls__vendor_attention(const attention_plan *plan, const void *qkv, void *y, float *logsum,
                               void *workspace, cudaStream_t stream)
{
    (void)plan, (void)qkv, (void)y, (void)logsum, (void)workspace, (void)stream;
    LS_ASSERT(!"asked for an attention that was not offered");
    return LS_ERR_INTERNAL;
}

ls_status ls__vendor_attention_grad(const attention_plan *plan, const attention_backward *a,
                                    void *workspace, cudaStream_t stream)
{
    (void)plan, (void)a, (void)workspace, (void)stream;
    LS_ASSERT(!"asked for an attention that was not offered");
    return LS_ERR_INTERNAL;
}
