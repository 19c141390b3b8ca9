/* Attention by the vendor's library: the seam behind which cuDNN's fused kernels stand. They read
 * and write bf16, and add dq in the order in which blocks happen to end. Where the library is
 * missing, or was found to be wrong (cuda_attention_choice.c), kernel_attention.h computes. */
#ifndef LS_BACKEND_CUDA_VENDOR_ATTENTION_H
#define LS_BACKEND_CUDA_VENDOR_ATTENTION_H

#include "backend/cuda/kernel_attention.h"
#include <lockstep/base.h>

typedef enum attention_pass { ATTENTION_FORWARD, ATTENTION_BACKWARD } attention_pass;

/* One pass over one shape, as the library computes it; stays as long as the process. */
typedef struct attention_plan attention_plan;

/* Whether there is a library: the first call opens it, and says so if there is none. */
bool ls__vendor_attention_is_here(void);
/* nbytes: of the workspace. LS_ERR_UNSUPPORTED: it has no kernel for this; the text says where it
 * stopped. */
ls_status ls__vendor_attention_plan(attention_pass pass, const attention_shape *s,
                                    attention_plan **out, size_t *nbytes);
/* As ls__launch_attention and ls__launch_attention_grad. What fails is not launched. */
ls_status ls__vendor_attention(const attention_plan *plan, const void *qkv, void *y, float *logsum,
                               void *workspace, cudaStream_t stream);
ls_status ls__vendor_attention_grad(const attention_plan *plan, const attention_backward *a,
                                    void *workspace, cudaStream_t stream);

#endif
