/* Convolution on a simulated GPU: there is no library, so that our own kernels run. */
#include "backend/cuda/vendor_conv.h"

#include "base/check.h"

bool ls__vendor_conv_workspace(cuda_conv_pass pass, const cuda_conv *c, size_t *nbytes)
{
    (void)pass, (void)c;
    *nbytes = 0;
    return false;
}

ls_status ls__vendor_conv(cudaStream_t stream, cuda_conv_pass pass, const cuda_conv *c,
                          const float *a, const float *b, const float *bias, float *out,
                          void *workspace)
{
    (void)stream, (void)pass, (void)c, (void)a, (void)b, (void)bias, (void)out, (void)workspace;
    LS_ASSERT(!"asked for a convolution that was not offered");
    return LS_ERR_INTERNAL;
}
