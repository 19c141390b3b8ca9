/* Launchers of losses and scores. Formulas: graph/ops.h. All launch on the stream and return. */
#ifndef LS_BACKEND_CUDA_KERNEL_LOSS_H
#define LS_BACKEND_CUDA_KERNEL_LOSS_H

#include "backend/cuda/kernel_types.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/values.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct score_rows {
    const float *scores; /* (rows,classes) */
    device_integers labels;
    int64_t rows, classes;
    cuda_values *values;
} score_rows;

/* losses, weights, logsum: (rows); NULL = not wanted */
void ls__launch_cross_entropy(const score_rows *a, device_out losses, device_out weights,
                              float *logsum, cudaStream_t stream);
/* g, logsum: (rows); dscores (rows,classes) may be the scores */
void ls__launch_cross_entropy_grad(const score_rows *a, const float *g, const float *logsum,
                                   device_out dscores, cudaStream_t stream);
/* correct, weights: (rows); NULL = not wanted */
void ls__launch_accuracy(const score_rows *a, device_out correct, device_out weights,
                         cudaStream_t stream);

/* weights: (count) NULL = 1 each */
void ls__launch_loss_grad(const float *weights, device_out seed, int64_t count,
                          const cuda_values *values, cudaStream_t stream);

/* kind: ls__loss_kind; g NULL: losses, else the gradient of x. out may be any of the others. */
typedef struct elementwise_loss_args {
    int kind;
    float beta;
    const float *g, *x, *target;
    device_out out;
    int64_t count;
} elementwise_loss_args;
void ls__launch_elementwise_loss(const elementwise_loss_args *a, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
