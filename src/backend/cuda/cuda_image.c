/* Convolution, pools, batch norm and dropout: from nodes to launches.
 *
 * Convolutions read and write f32, also under bf16-mixed, where their factors may be rounded to tf32
 * (a finer rounding than that of the other products); a result that is stored as bf16 is rounded
 * behind them, from the workspace. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernel_general.h"
#include "backend/cuda/kernel_image.h"
#include "backend/cuda/vendor_conv.h"
#include "base/check.h"

/* --- convolution --- */

static cuda_conv_pass pass_of(const ls__node *node)
{
    return node->op == &ls__op_conv2d          ? CUDA_CONV_FORWARD
           : node->op == &ls__op_conv2d_grad_x ? CUDA_CONV_GRAD_X
                                               : CUDA_CONV_GRAD_W;
}

static cuda_conv conv_of(const ls__node *node)
{
    const ls__conv2d_attributes *a = node->attributes;
    cuda_conv_pass pass = pass_of(node);
    const ls_tensor *x = pass == CUDA_CONV_FORWARD  ? node->in[0]
                         : pass == CUDA_CONV_GRAD_X ? node->out[0]
                                                    : node->in[1];
    const ls_tensor *y = pass == CUDA_CONV_FORWARD ? node->out[0] : node->in[0];
    return (cuda_conv) { .batch = x->shape[0],
                         .channels = x->shape[1],
                         .height = a->height,
                         .width = a->width,
                         .filters = y->shape[1],
                         .rows = y->shape[2],
                         .columns = y->shape[3],
                         .kernel = a->kernel,
                         .stride = a->stride,
                         .padding = a->padding,
                         .tf32 = ls__graph_options_of(x->graph)->precision != LS_PRECISION_32 };
}

/* The bias's gradient: the sum of g (B,O,image) over samples and places. */
static void bias_reduction(const cuda_conv *c, cuda_reduction *out)
{
    int64_t image = c->rows * c->columns;
    *out = (cuda_reduction) {
        .kept = { 1, c->filters, { c->filters }, { { image } } },
        .reduced = { 2, c->batch * image, { c->batch, image }, { { c->filters * image, 1 } } },
    };
    ls__cuda_reduction_cut(out);
}

static size_t aligned(size_t nbytes)
{
    return (nbytes + 255) / 256 * 256;
}

/* In the workspace: the f32 result, where the node stores bf16; what the pass needs. */
static size_t staged_bytes(const ls__node *node)
{
    const ls_tensor *out = node->out[0];
    return out->half ? aligned((size_t)ls__cuda_count(out) * sizeof(float)) : 0;
}

/* Rows and columns of the products that stand for it are counted by int. */
static bool fits(const cuda_conv *c)
{
    const int64_t most = INT32_MAX / 2, window = c->kernel * c->kernel;
    return c->batch * c->rows * c->columns < most && c->batch * c->height * c->width < most &&
           c->channels * window < most && c->filters * window < most;
}

static size_t conv_workspace(const ls__node *node)
{
    cuda_conv_pass pass = pass_of(node);
    cuda_conv c = conv_of(node);
    size_t nbytes;
    if (!fits(&c)) return 0; /* the run says so */
    if (!ls__vendor_conv_workspace(pass, &c, &nbytes)) nbytes = ls__cuda_conv_workspace(pass, &c);
    if (pass == CUDA_CONV_GRAD_W && node->nout == 2) {
        cuda_reduction r;
        bias_reduction(&c, &r);
        size_t sums = ls__cuda_reduction_workspace(&r);
        if (sums > nbytes) nbytes = sums;
    }
    return staged_bytes(node) + nbytes;
}

static void narrow(const cuda_call *call, const float *from)
{
    int64_t count = ls__cuda_count(call->node->out[0]);
    cuda_rows r = { 1, count, count, count, count, 0 };
    cuda_move move = { .nbytes = sizeof(float), .narrowed = true };
    ls__cuda_launch_rows(call->stream, move, &r, from, call->out[0]);
}

static ls_status run_conv(const cuda_call *call)
{
    const ls__node *node = call->node;
    cuda_conv_pass pass = pass_of(node);
    cuda_conv c = conv_of(node);
    if (!fits(&c))
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "a convolution of %lld images at once is too large: use more micro-batches "
                       "(--micro-batches)",
                       (long long)c.batch);
    const float *a = call->in[pass != CUDA_CONV_GRAD_W], *b = call->in[pass == CUDA_CONV_GRAD_W];
    const float *bias = node->nin == 3 ? call->in[2] : NULL; /* forward only */
    size_t staged = staged_bytes(node), unused;
    float *out = staged ? call->workspace : call->out[0];
    void *workspace = (char *)call->workspace + staged;
    if (ls__vendor_conv_workspace(pass, &c, &unused))
        LS_TRY(ls__vendor_conv(call->stream, pass, &c, a, b, bias, out, workspace));
    else
        ls__cuda_launch_conv(call->stream, pass, &c, a, b, bias, out, workspace);
    if (staged) narrow(call, out);
    return LS_OK;
}

static ls_status run_conv_grad_weight(const cuda_call *call)
{
    LS_TRY(run_conv(call));
    if (call->node->nout < 2) return LS_OK;
    cuda_conv c = conv_of(call->node);
    cuda_reduction r;
    bias_reduction(&c, &r);
    ls__cuda_launch_reduction(call->stream, &r, call->in[0], call->out[1], call->node->out[1]->half,
                              (float *)((char *)call->workspace + staged_bytes(call->node)));
    return LS_OK;
}

/* --- pools --- */

static cuda_pool2d pool_of(const ls__node *node, const ls_tensor *y)
{
    const ls__pool2d_attributes *a = node->attributes;
    return (cuda_pool2d) { .planes = y->shape[0] * y->shape[1],
                           .size = (int)a->size,
                           .height = (int)a->height,
                           .width = (int)a->width,
                           .rows = (int)y->shape[2],
                           .columns = (int)y->shape[3] };
}

static ls_status run_max_pool(const cuda_call *call)
{
    const ls_tensor *y = call->node->out[0];
    cuda_pool2d p = pool_of(call->node, y);
    bool indexed = call->node->nout == 2;
    ls__cuda_launch_max_pool(call->stream, &p, call->in[0], call->out[0], y->half,
                             indexed ? call->out[1] : NULL,
                             indexed && call->node->out[1]->type == LS_DTYPE_I32);
    return LS_OK;
}

static ls_status run_max_pool_grad(const cuda_call *call)
{
    cuda_pool2d p = pool_of(call->node, call->node->in[0]);
    ls__cuda_launch_max_pool_grad(call->stream, &p, call->in[0], call->in[1],
                                  call->node->in[1]->type == LS_DTYPE_I32, call->out[0],
                                  call->node->out[0]->half);
    return LS_OK;
}

static ls_status run_avg_pool(const cuda_call *call)
{
    const ls_tensor *y = call->node->out[0];
    cuda_pool2d p = pool_of(call->node, y);
    ls__cuda_launch_avg_pool(call->stream, &p, call->in[0], call->out[0], y->half);
    return LS_OK;
}

static ls_status run_avg_pool_grad(const cuda_call *call)
{
    cuda_pool2d p = pool_of(call->node, call->node->in[0]);
    ls__cuda_launch_avg_pool_grad(call->stream, &p, call->in[0], call->out[0],
                                  call->node->out[0]->half);
    return LS_OK;
}

/* An image is a row of neighbours, and its pool their mean. */
static void image_reduction(const ls__node *node, cuda_reduction *out)
{
    const ls_tensor *x = node->in[0];
    int64_t planes = x->shape[0] * x->shape[1], image = x->shape[2] * x->shape[3];
    *out = (cuda_reduction) { .kept = { 1, planes, { planes }, { { image } } },
                              .reduced = { 1, image, { image }, { { 1 } } } };
    ls__cuda_reduction_cut(out);
    out->divisor = (float)image;
}

static ls_status run_global_pool(const cuda_call *call)
{
    cuda_reduction r;
    image_reduction(call->node, &r);
    ls__cuda_launch_reduction(call->stream, &r, call->in[0], call->out[0], call->node->out[0]->half,
                              call->workspace);
    return LS_OK;
}

static size_t global_pool_workspace(const ls__node *node)
{
    cuda_reduction r;
    image_reduction(node, &r);
    return ls__cuda_reduction_workspace(&r);
}

static ls_status run_global_pool_grad(const cuda_call *call)
{
    const ls_tensor *dx = call->node->out[0];
    int64_t planes = dx->shape[0] * dx->shape[1], image = dx->shape[2] * dx->shape[3];
    ls__cuda_launch_reduce_grad(call->stream, planes, image, 1, (float)image, call->in[0], NULL,
                                NULL, call->out[0], dx->half);
    return LS_OK;
}

/* --- batch norm --- */

static cuda_batch_norm norm_of(const ls__node *node, const ls_tensor *x)
{
    const ls__batch_norm_attributes *a = node->attributes;
    int64_t group = a->group > 0 ? a->group : x->shape[0];
    return (cuda_batch_norm) { .batch = x->shape[0],
                               .channels = x->shape[1],
                               .image = ls__cuda_count(x) / (x->shape[0] * x->shape[1]),
                               .group = group,
                               .groups = (x->shape[0] + group - 1) / group,
                               .epsilon = (float)a->epsilon };
}

static ls_status run_batch_norm(const cuda_call *call)
{
    cuda_batch_norm n = norm_of(call->node, call->node->in[0]);
    ls__cuda_launch_batch_norm(call->stream, &n, call->in[0], call->in[1], call->in[2],
                               call->out[0], call->node->out[0]->half, call->out[1], call->out[2],
                               call->out[3], call->out[4], call->workspace);
    return LS_OK;
}

static ls_status run_batch_norm_grad(const cuda_call *call)
{
    cuda_batch_norm n = norm_of(call->node, call->node->in[1]);
    ls__cuda_launch_batch_norm_grad(
        call->stream, &n, call->in[0], call->in[1], call->in[2], call->in[3], call->in[4],
        call->out[0], call->node->out[0]->half, call->out[1], call->out[2], call->workspace);
    return LS_OK;
}

/* Of every group and channel: the variance, or two sums. */
static size_t norm_workspace(const ls__node *node)
{
    bool gradient = node->op == &ls__op_batch_norm_grad;
    cuda_batch_norm n = norm_of(node, node->in[gradient]);
    return (size_t)(n.groups * n.channels) * (gradient ? 2 : 1) * sizeof(float);
}

static ls_status run_batch_norm_inference(const cuda_call *call)
{
    cuda_batch_norm n = norm_of(call->node, call->node->in[0]);
    ls__cuda_launch_batch_norm_inference(call->stream, &n, call->in[0], call->in[1], call->in[2],
                                         call->in[3], call->in[4], call->out[0],
                                         call->node->out[0]->half);
    return LS_OK;
}

/* --- dropout --- */

static ls_status run_dropout(const cuda_call *call)
{
    const ls__dropout_attributes *a = call->node->attributes;
    const ls_tensor *x = call->node->in[0], *y = call->node->out[0];
    ls__cuda_launch_dropout(call->stream, x->shape[0], ls__cuda_count(x) / x->shape[0],
                            a->name_hash, a->threshold, a->factor, call->values, call->in[0],
                            x->half, call->out[0], y->half);
    return LS_OK;
}

/* Kernels that read an element of the first input before they write it. */
static bool over_first(const ls__node *node, int input)
{
    return input == 0 && node->in[0]->half == node->out[0]->half;
}

const cuda_op ls__cuda_image_ops[] = {
    { .op = &ls__op_conv2d, .run = run_conv, .workspace = conv_workspace },
    { .op = &ls__op_conv2d_grad_x, .run = run_conv, .workspace = conv_workspace },
    { .op = &ls__op_conv2d_grad_weight, .run = run_conv_grad_weight, .workspace = conv_workspace },
    { .op = &ls__op_max_pool2d, .run = run_max_pool },
    { .op = &ls__op_max_pool2d_grad, .run = run_max_pool_grad },
    { .op = &ls__op_avg_pool2d, .run = run_avg_pool },
    { .op = &ls__op_avg_pool2d_grad, .run = run_avg_pool_grad },
    { .op = &ls__op_global_avg_pool2d, .run = run_global_pool, .workspace = global_pool_workspace },
    { .op = &ls__op_global_avg_pool2d_grad, .run = run_global_pool_grad },
    { .op = &ls__op_batch_norm, .run = run_batch_norm, .workspace = norm_workspace },
    { .op = &ls__op_batch_norm_grad,
      .run = run_batch_norm_grad,
      .workspace = norm_workspace,
      .in_place = over_first },
    { .op = &ls__op_batch_norm_inference, .run = run_batch_norm_inference, .in_place = over_first },
    { .op = &ls__op_dropout, .run = run_dropout, .in_place = over_first },
    { 0 },
};
