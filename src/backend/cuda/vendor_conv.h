/* Convolution by the vendor's library: the seam behind which cuDNN stands. Where it is missing, or
 * has no deterministic algorithm for a shape, kernel_conv.cu computes. */
#ifndef LS_BACKEND_CUDA_VENDOR_CONV_H
#define LS_BACKEND_CUDA_VENDOR_CONV_H

#include "backend/cuda/kernel_image.h"
#include <lockstep/base.h>

/* Whether the library computes this pass, and how many bytes of workspace it needs for it: a
 * function of the shapes, the device and the library's version. */
bool ls__vendor_conv_workspace(cuda_conv_pass pass, const cuda_conv *c, size_t *nbytes);
/* As ls__cuda_launch_conv, where ls__vendor_conv_workspace is true. */
ls_status ls__vendor_conv(cudaStream_t stream, cuda_conv_pass pass, const cuda_conv *c,
                          const float *a, const float *b, const float *bias, float *out,
                          void *workspace);

#endif
