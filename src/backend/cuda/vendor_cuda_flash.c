/* Attention as cuDNN's fused kernels are asked for it: the graph of operations by which they know
 * it. Dao, "FlashAttention-2" (2023). Keys and values go in transposed by their strides; q, k and v
 * lie in one tensor, token by token, and are never copied. */
#include "backend/cuda/vendor_cuda_cudnn.h"

typedef const cudnn_tensor *tensor;

static tensor map(cudnn_graph *g, cudnn_mode mode, tensor x, tensor b)
{
    tensor y = ls__cudnn_like(g, x, CUDNN_F32);
    ls__cudnn_pointwise(g, mode, CUDNN_F32, 0, x, b, NULL, y);
    return y;
}

static tensor scalar(cudnn_graph *g, int id)
{
    return ls__cudnn_tensor(g, id, true, CUDNN_F32, (const int64_t[]) { 1, 1, 1, 1 }, NULL);
}

/* (B,heads,T,D) in rows of `step` numbers; turned: (B,heads,D,T) */
static tensor heads(cudnn_graph *g, int id, const attention_shape *s, int count, int64_t step,
                    bool turned)
{
    const int64_t shape[4] = { s->batch, count, turned ? s->width : s->tokens,
                               turned ? s->tokens : s->width };
    const int64_t stride[4] = { s->tokens * step, s->width, turned ? 1 : step, turned ? step : 1 };
    return ls__cudnn_tensor(g, id, false, CUDNN_BF16, shape, stride);
}

static int64_t qkv_step(const attention_shape *s)
{
    return (int64_t)(s->heads + 2 * s->kv_heads) * s->width;
}

/* A number for each query. */
static tensor column(cudnn_graph *g, int id, const attention_shape *s)
{
    return ls__cudnn_tensor(g, id, false, CUDNN_F32,
                            (const int64_t[]) { s->batch, s->heads, s->tokens, 1 }, NULL);
}

/* (B,H,T,T) */
static tensor square(cudnn_graph *g, const attention_shape *s)
{
    return ls__cudnn_tensor(g, 0, false, CUDNN_F32,
                            (const int64_t[]) { s->batch, s->heads, s->tokens, s->tokens }, NULL);
}

/* x where the query sees the key, else -inf. */
static tensor causal(cudnn_graph *g, tensor x)
{
    tensor row = ls__cudnn_like(g, x, CUDNN_I32), key = ls__cudnn_like(g, x, CUDNN_I32);
    tensor seen = ls__cudnn_like(g, x, CUDNN_BOOL), y = ls__cudnn_like(g, x, CUDNN_F32);
    ls__cudnn_pointwise(g, CUDNN_GEN_INDEX, CUDNN_F32, 2, x, NULL, NULL, row);
    ls__cudnn_pointwise(g, CUDNN_GEN_INDEX, CUDNN_F32, 3, x, NULL, NULL, key);
    ls__cudnn_pointwise(g, CUDNN_CMP_GE, CUDNN_BOOL, 0, row, key, NULL, seen);
    ls__cudnn_pointwise(g, CUDNN_SELECT, CUDNN_F32, 0, x, scalar(g, FLASH_HIDDEN), seen, y);
    return y;
}

void ls__flash_forward(cudnn_graph *g, const attention_shape *s)
{
    int64_t step = qkv_step(s);
    tensor q = heads(g, FLASH_Q, s, s->heads, step, false);
    tensor k = heads(g, FLASH_K, s, s->kv_heads, step, true);
    tensor v = heads(g, FLASH_V, s, s->kv_heads, step, false);
    tensor y = heads(g, FLASH_Y, s, s->heads, (int64_t)s->heads * s->width, false);
    tensor products = square(g, s);
    ls__cudnn_matmul(g, q, k, products);
    tensor scores = map(g, CUDNN_MUL, products, scalar(g, FLASH_SCALE));
    if (s->causal) scores = causal(g, scores);
    tensor most = column(g, 0, s), sum = column(g, 0, s);
    ls__cudnn_reduce(g, CUDNN_MOST, scores, most);
    tensor weights = map(g, CUDNN_EXP, map(g, CUDNN_SUB, scores, most), NULL);
    ls__cudnn_reduce(g, CUDNN_SUM, weights, sum);
    ls__cudnn_pointwise(g, CUDNN_ADD, CUDNN_F32, 0, most, map(g, CUDNN_LOG, sum, NULL), NULL,
                        column(g, FLASH_STATS, s));
    tensor p = ls__cudnn_like(g, weights, CUDNN_BF16);
    ls__cudnn_pointwise(g, CUDNN_DIV, CUDNN_F32, 0, weights, sum, NULL, p);
    ls__cudnn_matmul(g, p, v, y);
}

/* x (B,H,T,T) turned, times y, and for grouped queries summed over a group's heads. */
static void gradient(cudnn_graph *g, const attention_shape *s, tensor x, tensor y, tensor out)
{
    const int64_t n = s->tokens;
    tensor turned = ls__cudnn_tensor(g, 0, false, CUDNN_BF16, x->shape,
                                     (const int64_t[]) { s->heads * n * n, n * n, 1, n });
    tensor each = out;
    if (s->heads != s->kv_heads) each = ls__cudnn_like(g, y, CUDNN_BF16);
    ls__cudnn_reshape(g, x, turned);
    ls__cudnn_matmul(g, turned, y, each);
    if (each != out) ls__cudnn_reduce(g, CUDNN_SUM, each, out);
}

void ls__flash_backward(cudnn_graph *g, const attention_shape *s)
{
    int64_t step = qkv_step(s), row = (int64_t)s->heads * s->width;
    tensor q = heads(g, FLASH_Q, s, s->heads, step, false);
    tensor k = heads(g, FLASH_K, s, s->kv_heads, step, true);
    tensor v = heads(g, FLASH_V, s, s->kv_heads, step, true);
    tensor y = heads(g, FLASH_Y, s, s->heads, row, false);
    tensor slopes = heads(g, FLASH_G, s, s->heads, row, false);
    tensor dq = heads(g, FLASH_DQ, s, s->heads, step, false);
    tensor dk = heads(g, FLASH_DK, s, s->kv_heads, step, false);
    tensor dv = heads(g, FLASH_DV, s, s->kv_heads, step, false);
    tensor scale = scalar(g, FLASH_SCALE), dots = column(g, 0, s),
           along = column(g, FLASH_ALONG, s);
    ls__cudnn_reduce(g, CUDNN_SUM, map(g, CUDNN_MUL, slopes, y), dots);
    ls__cudnn_pointwise(g, CUDNN_MUL, CUDNN_F32, 0, dots, scalar(g, FLASH_ONE), NULL, along);

    tensor products = square(g, s), dp = square(g, s);
    ls__cudnn_matmul(g, q, k, products);
    tensor scores =
        map(g, CUDNN_SUB, map(g, CUDNN_MUL, products, scale), column(g, FLASH_STATS, s));
    if (s->causal) scores = causal(g, scores);
    tensor p = map(g, CUDNN_EXP, scores, NULL);
    gradient(g, s, p, slopes, dv);
    ls__cudnn_matmul(g, slopes, v, dp);
    tensor ds = map(g, CUDNN_MUL, map(g, CUDNN_MUL, map(g, CUDNN_SUB, dp, along), p), scale);
    gradient(g, s, ds, q, dk);
    /* Blocks of keys add to dq in the order in which they come. */
    tensor sum = ls__cudnn_tensor(g, FLASH_DQ_SUM, false, CUDNN_F32, dq->shape, NULL);
    tensor keys = ls__cudnn_tensor(
        g, 0, false, CUDNN_F32, (const int64_t[]) { s->batch, s->kv_heads, s->tokens, s->width },
        (const int64_t[]) { k->stride[0], k->stride[1], k->stride[3], k->stride[2] });
    ls__cudnn_reshape(g, k, keys);
    ls__cudnn_matmul(g, ds, keys, sum);
    ls__cudnn_pointwise(g, CUDNN_IDENTITY, CUDNN_F32, 0, sum, NULL, NULL, dq);
}
