/* Whether an attention is computed by the vendor's library. Under the device's lock. */
#ifndef LS_BACKEND_CUDA_CUDA_ATTENTION_H
#define LS_BACKEND_CUDA_CUDA_ATTENTION_H

#include "backend/cuda/vendor_attention.h"

/* While a graph is compiled: the bytes of the library's workspace, 0 where it does not compute this.
 * The first time that a shape is met the library is tried beside our own kernels; what it refuses,
 * or computes otherwise, is told and never asked for again. LOCKSTEP_CUDNN_ATTENTION=0: it is asked
 * for nothing. */
size_t ls__cuda_attention_choose(attention_pass pass, const attention_shape *s);
/* While it runs: the plan that was chosen; NULL = our own kernels. */
const attention_plan *ls__cuda_attention_plan(attention_pass pass, const attention_shape *s);
/* It has failed, as ls_error_text says: from now on our own kernels. */
void ls__cuda_attention_refuse(attention_pass pass, const attention_shape *s);

#endif
