/* linear and its gradients: a product by the vendor's library, with what bf16 needs before and
 * behind it. Formulas: ops.h.
 *
 * A half node's factors that are stored as f32 (weights, mostly) are rounded into the workspace
 * first. A product that is stored as bf16 and has a bias is computed as f32: the bias is added
 * before the one rounding. */
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
    bool finishes; /* the product is f32 and lies at wide; a kernel adds the bias and rounds */
    size_t wide;
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
    l.finishes = l.product.half_out && l.product.has_bias;
    if (l.finishes) {
        l.wide = add(&l, (size_t)ls__cuda_count(node->out[0]) * sizeof(float));
        l.product.half_out = l.product.has_bias = false;
    }
    if (node->op == &ls__op_linear_grad_weight && node->nout == 2)
        l.sums = add(&l, ls__cuda_column_sums_workspace(l.product.k, l.product.m));
    l.vendor = add(&l, ls__vendor_matmul_workspace(&l.product));
    return l;
}

static size_t workspace(const ls__node *node)
{
    return layout_of(node).nbytes;
}

static ls_status run(const cuda_call *call)
{
    const ls__node *node = call->node;
    layout l = layout_of(node);
    char *space = call->workspace;
    const void *factor[2];
    for (int i = 0; i < 2; i++) {
        factor[i] = call->in[i];
        if (!l.rounds[i]) continue;
        if (call->half[i]) { /* kept beside it, rounded once a step */
            factor[i] = call->half[i];
            continue;
        }
        ls__cuda_launch_convert(call->stream, ls__cuda_count(node->in[i]), call->in[i], false,
                                space + l.factor[i], true);
        factor[i] = space + l.factor[i];
    }
    const float *bias = node->op == &ls__op_linear && node->nin == 3 ? call->in[2] : NULL;
    void *product = l.finishes ? space + l.wide : call->out[0];
    LS_TRY(ls__vendor_matmul(call->stream, &l.product, factor[0], factor[1],
                             l.product.has_bias ? bias : NULL, product, space + l.vendor));
    if (l.finishes)
        ls__cuda_launch_bias_round(call->stream, l.product.m, l.product.n, product, bias,
                                   call->out[0]);
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
