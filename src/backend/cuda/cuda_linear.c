/* linear and its gradients: a product by the vendor's library, with what bf16 needs before it.
 * Formulas: ops.h.
 *
 * A half node's factors that are stored as f32 (weights, mostly) are rounded into the workspace
 * first, unless they are kept rounded beside the parameters. So is the bias of a product that is
 * stored as bf16: cuBLASLt adds no other to it, and to add it in a pass of its own would write and
 * read the product as f32 once more. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernel_elementwise.h"
#include "backend/cuda/kernel_linear.h"
#include "backend/cuda/vendor_matmul.h"
#include "base/check.h"

enum { ALIGNMENT = 256 };

/* Where the parts of the workspace begin, in bytes. */
typedef struct layout {
    cuda_matmul product;
    bool rounds[2]; /* factor i of the node lies rounded at factor[i] */
    size_t factor[2];
    bool rounds_bias;
    size_t bias;
    size_t sums; /* of the bias's gradient */
    size_t vendor;
    size_t nbytes;
} layout;

static size_t add(layout *l, size_t nbytes)
{
    size_t at = l->nbytes;
    l->nbytes += (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

/* linear: a = x, b = weight^T; grad_x: a = g, b = weight; grad_weight: a = g^T, b = x. */
static cuda_matmul product_of(const ls__node *node)
{
    const ls_tensor *y = node->out[0], *a = node->in[0];
    bool of_weight = node->op == &ls__op_linear_grad_weight;
    return (cuda_matmul) { .m = y->shape[0],
                           .n = y->shape[1],
                           .k = of_weight ? a->shape[0] : a->shape[1],
                           .a_transposed = of_weight,
                           .b_transposed = node->op == &ls__op_linear,
                           .half = node->half,
                           .tf32 = !node->half &&
                                   ls__graph_options_of(y->graph)->precision == LS_PRECISION_TF32,
                           .half_out = y->half,
                           .has_bias = node->op == &ls__op_linear && node->nin == 3 };
}

static layout layout_of(const ls__node *node)
{
    layout l = { .product = product_of(node) };
    for (int i = 0; i < 2; i++) {
        const ls_tensor *x = node->in[i];
        l.rounds[i] = ls__node_rounds(node, i) && !x->half;
        if (l.rounds[i]) l.factor[i] = add(&l, (size_t)ls__cuda_count(x) * 2);
    }
    l.rounds_bias = l.product.half_out && l.product.has_bias;
    if (l.rounds_bias) l.bias = add(&l, (size_t)l.product.n * 2);
    if (node->op == &ls__op_linear_grad_weight && node->nout == 2)
        l.sums = add(&l, ls__cuda_column_sums_workspace(l.product.k, l.product.m));
    l.vendor = add(&l, ls__vendor_matmul_workspace(&l.product));
    return l;
}

static size_t workspace(const ls__node *node)
{
    return layout_of(node).nbytes;
}

/* The input as bf16: as it is kept, rounded once a step, or rounded now. */
static const void *rounded(const cuda_call *call, int i, void *room)
{
    if (call->half[i]) return call->half[i];
    ls__cuda_launch_convert(call->stream, ls__cuda_count(call->node->in[i]), call->in[i], false,
                            room, true);
    return room;
}

static ls_status run(const cuda_call *call)
{
    const ls__node *node = call->node;
    layout l = layout_of(node);
    char *space = call->workspace;
    const void *factor[2], *bias = NULL;
    for (int i = 0; i < 2; i++)
        factor[i] = l.rounds[i] ? rounded(call, i, space + l.factor[i]) : call->in[i];
    if (l.product.has_bias) bias = l.rounds_bias ? rounded(call, 2, space + l.bias) : call->in[2];
    LS_TRY(ls__vendor_matmul(call->stream, &l.product, factor[0], factor[1], bias, call->out[0],
                             space + l.vendor));
    if (node->op == &ls__op_linear_grad_weight && node->nout == 2)
        ls__cuda_launch_column_sums(call->stream, l.product.k, l.product.m, factor[0], node->half,
                                    call->out[1], (float *)(space + l.sums));
    return LS_OK;
}

const cuda_op ls__cuda_linear_ops[] = {
    { .op = &ls__op_linear, .run = run, .workspace = workspace },
    { .op = &ls__op_linear_grad_x, .run = run, .workspace = workspace },
    { .op = &ls__op_linear_grad_weight, .run = run, .workspace = workspace },
    { 0 },
};
