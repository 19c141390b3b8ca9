/* Exchanges of GPUs: none yet. */
#include "backend/cuda/vendor_collective.h"
bool ls__vendor_collective_available(void)
{
    return false;
}
ls_status ls__vendor_collective_create(const cuda_collective_options *options,
                                       cuda_collective **out)
{
    (void)options;
    *out = NULL;
    return LS_OK;
}
void ls__vendor_collective_destroy(cuda_collective *c)
{
    (void)c;
}
ls_status ls__vendor_collective_exchange(cuda_collective *c, cudaStream_t stream, const char *what,
                                         const cuda_transfer *sends, int nsends,
                                         const cuda_transfer *receives, int nreceives)
{
    (void)c;
    (void)stream;
    (void)what;
    (void)sends;
    (void)nsends;
    (void)receives;
    (void)nreceives;
    return LS_OK;
}
ls_status ls__vendor_collective_check(cuda_collective *c)
{
    (void)c;
    return LS_OK;
}
void ls__vendor_collective_abort(cuda_collective *c, const char *why)
{
    (void)c;
    (void)why;
}
