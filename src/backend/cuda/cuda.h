/* The CUDA backend from the inside: a graph becomes a list of calls on one stream.
 *
 * The same sources make two plugins: lockstep_cuda.so with nvcc, and lockstep_sim.so with the host's
 * compiler over a small stand-in for the CUDA runtime (sim/), so that every kernel and every
 * ordering decision runs on machines without a GPU.
 *
 * Every tensor is plain, row by row, in device memory: f32, bf16 where the graph marks it half, or
 * its integer type. A node is one call of its operation's function. What changes from run to run is
 * read by kernels from cuda_values, never passed by value, so that a run can be captured as a graph
 * and launched again. Sums are taken in an order that depends on shapes only. */
#ifndef LS_BACKEND_CUDA_H
#define LS_BACKEND_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/runtime.h"
#include "backend/cuda/values.h"
#include "graph/backend.h"
#include "graph/graph_internal.h"
#include "graph/ops.h"

/* A node, about to be launched. */
typedef struct cuda_call {
    const ls__node *node;
    const void *in[LS__MAX_INPUTS];   /* on the device, as the node's inputs */
    const void *half[LS__MAX_INPUTS]; /* a parameter's copy in bf16, where there is one; or NULL */
    void *out[LS__MAX_OUTPUTS];       /* on the device, as the node's outputs */
    bool adds;       /* an embedding's gradient: out[0] holds another one, to which it is added */
    void *workspace; /* as many bytes as the operation asked for */
    cuda_values *values; /* on the device */
    cudaStream_t stream;
} cuda_call;

/* How an operation runs. Launches and returns; errors of launches are found by the executor. */
typedef struct cuda_op {
    const ls_op *op;
    ls_status (*run)(const cuda_call *call);
    size_t (*workspace)(const ls__node *node); /* NULL = none */
    /* Whether the first output may lie in in[input]'s memory (ls__alias_fn). NULL = never. */
    bool (*in_place)(const ls__node *node, int input);
    /* Its kernels write f32 only: an output that is stored as bf16 (any can be, when only products
     * read it) is rounded by the executor. */
    bool writes_f32;
} cuda_op;

/* Rows of the operations' table, ended by one without an op. */
extern const cuda_op ls__cuda_elementwise_ops[]; /* relu, scale, copy, reshape, and gradients */
extern const cuda_op ls__cuda_linear_ops[];
extern const cuda_op ls__cuda_rows_ops[]; /* norms, softmax, activations, embeddings, rotary */
extern const cuda_op ls__cuda_attention_ops[];
extern const cuda_op ls__cuda_loss_ops[];    /* cross-entropy, accuracy, element by element */
extern const cuda_op ls__cuda_image_ops[];   /* convolution, pools, batch norm, dropout */
extern const cuda_op ls__cuda_general_ops[]; /* broadcasting, reductions, moving */

static inline int64_t ls__cuda_count(const ls_tensor *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->shape[i];
    return count;
}

#endif
